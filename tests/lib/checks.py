"""Checks of tests in Python that go on after a failure. done() ends the program: with 1 where one failed."""
import os, sys

failed, count = 0, 0

def check(name, ok, what=""):
    global failed, count
    count += 1
    if not ok:
        failed += 1
        print(f"FAILED: {name}: {what}"[:1500], flush=True)

def same(name, a, b): check(name, a == b, f"{a!r} is not {b!r}")

def so_far(file):
    """what is in a file that another program writes to by the same descriptor: seek() would move where that program writes, too"""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)

def done():
    print(f"{count} checks, {failed} failed")
    sys.exit(failed > 0)
