#!/usr/bin/env python3
"""scripts/ask-pdf: pages of a PDF of our own are seen in their order; ends with 77 (skipped) without poppler.
usage: ask_pdf.py INFER TESTS"""
import os, shutil, subprocess, sys, tempfile

infer, tests = sys.argv[1:3]
sys.path.insert(0, os.path.join(tests, "lib"))
import sight_files

if not shutil.which("pdftoppm"):
    print("pdftoppm is not installed")
    sys.exit(77)

def pdf(pages):
    """pages of so many points"""
    parts = [b"<< /Type /Catalog /Pages 2 0 R >>", f"<< /Type /Pages /Count {len(pages)} /Kids [{' '.join(f'{3 + i} 0 R' for i in range(len(pages)))}] >>".encode()]
    parts += [f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {w} {h}] >>".encode() for w, h in pages]
    out, at = b"%PDF-1.4\n", []
    for i, p in enumerate(parts):
        at.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (i + 1, p)
    table = b"".join(b"%010d 00000 n \n" % a for a in at)
    return out + b"xref\n0 %d\n0000000000 65535 f \n%strailer\n<< /Root 1 0 R /Size %d >>\nstartxref\n%d\n%%%%EOF\n" % (len(at) + 1, table, len(at) + 1, len(out))

with tempfile.TemporaryDirectory() as folder:
    sight_files.write_pair(folder, tests)
    file = folder + "/a b.pdf"
    with open(file, "wb") as f: f.write(pdf([(48, 64), (64, 48), (32, 64)]))
    def ask(pages):
        p = subprocess.run([os.path.join(tests, "../scripts/ask-pdf"), file, pages, "hello", "-m", folder + "/model.gguf", "--device", "cpu", "--threads", "2", "-n", "4"],
                           env={**os.environ, "INFER": infer, "DPI": "72"}, capture_output=True, text=True, timeout=120)
        return p.returncode, p.stderr
    failed = 0
    for pages, want in (("1-3", ["48 x 64", "64 x 48", "32 x 64"]), ("2", ["64 x 48"])):
        code, said = ask(pages)
        got = [line.split("PNG of ")[1].split(",")[0] for line in said.splitlines() if "PNG of " in line]
        failed += (code, got) != (0, want)
        print(pages, code, got, said if (code, got) != (0, want) else "")
    code, said = ask("7")
    failed += code == 0
    print("no such page", code, said.strip())
print(f"3 checks, {failed} failed")
sys.exit(failed > 0)
