#!/usr/bin/env python3
"""Prints the files of this tree, a path a line, or those whose paths match the regular expression given: what git tracks and what it
would, or of a tree without git everything outside of hidden folders and builds. check-rooms and check-lengths take it as a module."""
import os
import re
import subprocess
import sys


def tree_files():
    try:
        found = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.split()
    except (OSError, subprocess.CalledProcessError):
        found = []
        for at, folders, names in os.walk("."):
            folders[:] = [f for f in folders if not f.startswith((".", "build"))]
            found += [os.path.relpath(os.path.join(at, n)) for n in names]
    return sorted(f for f in found if os.path.exists(f))


if __name__ == "__main__":
    print("\n".join(f for f in tree_files() if re.search(sys.argv[1] if len(sys.argv) > 1 else "", f)))
