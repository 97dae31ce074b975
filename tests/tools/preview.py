#!/usr/bin/env python3
"""Pictures on a terminal (--image-preview): a terminal of our own that says what it can, and looks at what it gets.
usage: preview.py INFER TESTS"""
import base64, os, pty, re, select, struct, subprocess, sys, tempfile, termios, time, zlib

infer, tests = sys.argv[1:3]
sys.path.insert(0, os.path.join(tests, "lib"))
import sight_files
from checks import check, done

try: [os.close(f) for f in pty.openpty()]
except OSError as e:
    print(f"skipped: no pseudo-terminals here ({e})")
    sys.exit(77)

W, H = 400, 250


def pixel(x, y):
    """four fields of one colour each"""
    return ((200, 40, 40), (40, 160, 60))[x >= W // 2] if y < H // 2 else ((30, 60, 190), (240, 230, 220))[x >= W // 2]


def png(path):
    def chunk(name, data): return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    rows = b"".join(b"\0" + bytes(v for x in range(W) for v in pixel(x, y)) for y in range(H))
    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", W, H, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


KITTY, SIXEL, PLAIN = b"\033_Gi=31;OK\033\\\033[?62;4;22c", b"\033[?62;4;22c", b"\033[?64;1;2;6;22c"
QUESTION = b"\033_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\033\\\033[c"


def on_terminal(args, answer=None, env=(), typed=b"", size=(0, 0), answer_in=(0,), says=()):
    """what a terminal of size pixels gets (None: the program has not ended), and whether its modes are as before"""
    master, slave = pty.openpty()
    import fcntl
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, *size))
    before, out, asked, says, at = termios.tcgetattr(slave), b"", False, list(says), 0
    def own():
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    if typed: os.write(master, typed)
    p = subprocess.Popen([infer, *args], stdin=slave if "chat" in args else subprocess.DEVNULL, stdout=slave if "chat" in args else subprocess.DEVNULL, stderr=slave, preexec_fn=own,
                         env={**os.environ, "TERM": "xterm", **dict(env)})
    end = time.monotonic() + 60
    while time.monotonic() < end and (p.poll() is None or select.select([master], [], [], 0)[0]):
        if not select.select([master], [], [], 0.05)[0]: continue
        out += os.read(master, 65536)
        if says and b">\033[0m " in out[at:]:
            at = len(out)
            os.write(master, says.pop(0))
        if not asked and QUESTION in out and answer:
            asked = True
            cuts = [0, *answer_in[1:], len(answer)]
            for a, b in zip(cuts, cuts[1:]):
                os.write(master, answer[a:b])
                time.sleep(0.02)
    same = termios.tcgetattr(slave)[:6] == before[:6]
    if p.poll() is None:
        p.kill()
        out = None
    p.wait()
    os.close(master), os.close(slave)
    return out, same


def kitty_picture(out):
    """width, height, pixels of what was sent"""
    head = re.search(rb"\033_Ga=T,f=24,s=(\d+),v=(\d+),q=2,m=[01];", out)
    if not head: return None
    data = b"".join(m[2] for m in re.finditer(rb"\033_G(?:a=T[^;]*m|m)=([01]);([^\033]*)\033\\", out))
    last = re.findall(rb"m=([01]);", out)
    assert last[-1] == b"0" and set(last[:-1]) <= {b"1"}, last
    return int(head[1]), int(head[2]), base64.b64decode(data)


def sixel_picture(out):
    """the same of sixels"""
    m = re.search(rb'\033Pq"1;1;(\d+);(\d+)(.*?)\033\\', out, re.S)
    if not m: return None
    width, height, colours, x, y, now = int(m[1]), int(m[2]), {}, 0, 0, 0
    got = [[None] * width for _ in range(height)]
    for t in re.finditer(rb"#(\d+);2;(\d+);(\d+);(\d+)|#(\d+)|!(\d+)(.)|([?-~])|([$-])|(.)", m[3], re.S):
        if t[1]: colours[int(t[1])] = tuple(int(t[k]) * 255 // 100 for k in (2, 3, 4))
        elif t[5]: now = int(t[5])
        elif t[9]: x, y = 0, y + 6 * (t[9] == b"-")
        elif t[10]: raise AssertionError(("no sixel", t[10]))
        else:
            for _ in range(int(t[6] or 1)):
                for k in range(6):
                    if (ord(t[7] or t[8]) - 63) >> k & 1:
                        assert got[y + k][x] is None, "a pixel twice"
                        got[y + k][x] = colours[now]
                x += 1
    assert all(c for row in got for c in row), "a pixel without a colour"
    return width, height, bytes(v for row in got for c in row for v in c)


def means(picture):
    """of each field's middle"""
    width, height, data = picture
    out = []
    for y0 in (height // 8, height * 5 // 8):
        for x0 in (width // 8, width * 5 // 8):
            some = [data[(y * width + x) * 3 + c] for y in range(y0, y0 + height // 4) for x in range(x0, x0 + width // 4) for c in range(3)]
            out.append([sum(some[c::3]) * 3 / len(some) for c in range(3)])
    return out


WANT = [pixel(0, 0), pixel(W - 1, 0), pixel(0, H - 1), pixel(W - 1, H - 1)]
def near(picture, by): return picture and all(abs(a - b) <= by for got, want in zip(means(picture), WANT) for a, b in zip(got, want))


with tempfile.TemporaryDirectory() as folder:
    sight_files.write_pair(folder, tests)
    file = folder + "/a.png"
    png(file)
    run = ["run", "-m", folder + "/model.gguf", "--device", "cpu", "--threads", "1", "--image", file, "-p", "hello", "-n", "2"]
    auto = [*run, "--image-preview", "auto"]
    out, same = on_terminal(auto, KITTY)
    p = kitty_picture(out)
    check("kitty: what it gets", near(p, 2) and p[:2] == (320, 200) and "\033P" not in out.decode("latin1"), p and p[:2])
    check("kitty: its modes", same)
    p = kitty_picture(on_terminal(auto, KITTY, size=(2000, 1800), answer_in=(0, 3, 9, 14))[0])
    check("kitty: a large window, an answer in pieces", near(p, 2) and p[:2] == (400, 250), p and p[:2])
    p = kitty_picture(on_terminal(auto, KITTY, size=(300, 1800))[0])
    check("kitty: a narrow window", near(p, 3) and p[:2] == (151, 94), p and p[:2])
    out, same = on_terminal(auto, SIXEL)
    p = sixel_picture(out)
    check("sixels", near(p, 6) and p[:2] == (320, 200) and b"\033_Ga=T" not in out, p and p[:2])
    check("sixels: its modes", same)
    for name, answer in (("a terminal that cannot", PLAIN), ("one that says nothing", None), ("one that says something else", b"abc\033[?")):
        begin = time.monotonic()
        out, same = on_terminal(auto, answer)
        check(name, out is not None and QUESTION in out and b"\033_Ga=T" not in out and b"\033P" not in out and b"a.png: PNG of 400 x 250" in out and same, out)
    out, same = on_terminal(run, KITTY)
    check("without the option nobody is asked", b"\033_G" not in out and b"\033P" not in out, out)
    check("-q", b"\033_G" not in on_terminal([*auto, "-q"], KITTY)[0])
    check("a dumb terminal", b"\033_G" not in on_terminal(auto, KITTY, env=[("TERM", "dumb")])[0])
    check("keys that were typed before", b"\033_G" not in on_terminal(auto, KITTY, typed=b"typed\n")[0])
    check("unasked", near(kitty_picture(on_terminal([*run, "--image-preview", "kitty"])[0]), 2) and near(sixel_picture(on_terminal([*run, "--image-preview", "sixel"])[0]), 6))
    out, same = on_terminal(["chat", "-m", folder + "/model.gguf", "--device", "cpu", "--threads", "1", "-n", "2", "--image-preview", "auto"], KITTY,
                            says=[f"/image {file}\r".encode(), f"/image {file}\r".encode(), b"hello\r", b"/quit\r"])
    check("chat: asked once, shown twice", out and out.count(QUESTION) == 1 and out.count(b"\033_Ga=T") == 2 and out.count(b"a.png: PNG of 400 x 250") == 2, out and re.sub(rb"\033_Gm=[^\033]*", b"", out))
    png(folder + "/b c.png")
    out, same = on_terminal(["chat", "-m", folder + "/model.gguf", "--device", "cpu", "--threads", "1", "-n", "2"],
                            says=[f"/im\t{folder}/b\t\r".encode(), f"/image {folder}/a.p\tx\b\r".encode(), b"/quit\r"])
    check("chat: names are completed", out and out.count(b"b c.png: PNG of 400 x 250") == 1 and out.count(b"a.png: PNG of 400 x 250") == 1, out)
    p = subprocess.run([infer, *run, "--image-preview", "kitty"], capture_output=True)
    check("no terminal", p.returncode == 0 and b"\033_G" not in p.stderr + p.stdout, p)
    p = subprocess.run([infer, *run, "--image-preview", "iterm"], capture_output=True)
    check("another word", p.returncode == 2 and b"off|auto|kitty|sixel" in p.stderr.replace(b", ", b"|").replace(b" or ", b"|"), p.stderr)
done()
