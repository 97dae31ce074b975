#!/usr/bin/env python3
"""scripts/voice: sentences, what is heard of a recording, how an answer is spoken while it comes, and a conversation with infer serve. The recogniser, the speaker and the
player are commands of this test.
usage: voice.py INFER TESTS SERVE_FAKE"""
import http.server, importlib.machinery, importlib.util, json, math, os, struct, subprocess, sys, tempfile, threading, time, wave

infer, tests, fake = (os.path.realpath(a) for a in sys.argv[1:4])
sys.dont_write_bytecode = True
sys.path[:0] = [tests + "/lib", tests + "/serve"]
from checks import check, same, done
from serve_client import Server

program = os.path.join(tests, "../scripts/voice")
loader = importlib.machinery.SourceFileLoader("voice", program)
voice = importlib.util.module_from_spec(importlib.util.spec_from_loader("voice", loader))
loader.exec_module(voice)
os.chdir(tempfile.mkdtemp())

# ---- sentences
def cut(text, n=1):
    s = voice.Sentences()
    parts = [p for i in range(0, len(text), n) for p in s.add(text[i:i + n])]
    return parts + s.end()

for text, want in (
    ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
    ("It is 3.14, or so.  Dr. Who said \"No.\" J. S. Bach\u2026 and on", ["It is 3.14, or so.", 'Dr. Who said "No."', "J. S. Bach\u2026", "and on"]),
    ("# A title\n\n- **one** thing\n- `two` [things](http://x/y)\n1. first\n", ["A title", "one thing", "two things", "1. first"]),
    ("Look:\n```c\nint main. (void);\n```\nThat is all.", ["Look:", "That is all."]),
    ("Look: ```inline``` is said.\n\n```\nnot. this", ["Look: inline is said."]),
    ("A snake_case_name and 2 * 3 *stay*.", ["A snake_case_name and 2 3 stay."]),
    ("\u4f60\u597d\u3002\u518d\u89c1\u3002", ["\u4f60\u597d\u3002", "\u518d\u89c1\u3002"]),
    ("--- \U0001f600 ...\n\n", []),
    ("", []),
):
    for n in 1, 3, 1000: same(f"sentences of {text!r} by {n}", cut(text, n), want)
s = voice.Sentences()
same("no end yet", s.add("It ends here."), [])
same("now it has", s.add(" And"), ["It ends here."])
s = voice.Sentences()
same("the first part ends at a comma", s.add("When the sun goes down over the hills of the west, and " + "x " * 20), ["When the sun goes down over the hills of the west,"])
same("later ones do not", s.add("it was late. Then it went on for a while as things do, and on, "), ["and " + "x " * 20 + "it was late."])
parts = cut("word " * 300)
check("without an end it is cut", len(parts) > 2 and max(map(len, parts)) <= 480 and " ".join(parts) == ("word " * 300).strip(), parts)

# ---- what is heard
def tone(seconds, level): return b"".join(struct.pack("<h", int(level * math.sin(i * .2))) for i in range(int(16000 * seconds)))

def recording(name, *parts):
    with wave.open(name, "wb") as w:
        w.setparams((1, 2, 16000, 0, "NONE", ""))
        w.writeframes(b"".join(tone(*p) for p in parts))

class Heard:
    def __init__(self): self.sound = b""
    def add(self, frame): self.sound += frame

def frames(*parts, then=0):
    sound = b"".join(tone(*p) for p in parts)
    for i in range(0, len(sound), 640): yield sound[i:i + 640]
    left.append(1)

left, h = [], Heard()
check("it ends with the pause", voice.listen(frames((1, 20), (.5, 8000), (.2, 20), (.5, 6000), (5, 20)), h, .4) and not left)
n = len(h.sound) / 32000
check("what was said, and a little of the silence", 1.2 + .2 < n < 1.2 + .8, n)
check("the beginning is there", max(struct.unpack("<160h", h.sound[:320])) < 100 and max(struct.unpack("<1600h", h.sound[9600:12800])) > 7000)
h = Heard()
same("a click is no speech", (voice.listen(frames((1, 20), (.03, 9000), (1, 20)), h, .3), h.sound), (None, b""))
same("neither is noise", (voice.listen(frames((3, 900)), h, .3), h.sound), (None, b""))

class Slow:
    def add(self, frame): time.sleep(.08)

def timed(source):
    for frame in source:
        first.append(time.monotonic())
        yield frame

first = []
ended = voice.listen(timed(frames((.4, 20), (.5, 8000), (1, 20))), Slow(), .2) - first[0]
check("the end is when it was said, also for one who hears slowly", .3 < ended < 1.7 < first[-1] - first[0], (ended, first[-1] - first[0]))

# ---- a server that goes on only when the first sentence was spoken
PLAY = f"{sys.executable} -c \"import sys; d = sys.stdin.buffer.read(); open('played', 'ab').write(d); open('log', 'a').write('played %d\\n' % len(d))\""
SAY = f"{sys.executable} -c \"import sys; t = sys.stdin.read().strip(); open('log', 'a').write(t + '\\n'); sys.stdout.buffer.write(b'RIFF' + bytes(40) + len(t) * b'ab')\""
HEAR = f"{sys.executable} -c \"import sys, wave; print('what', wave.open(sys.argv[1]).getnframes() > 4000)\" {{}}"
asked, waited, holds = [], [], True

def log(): return open("log").read() if os.path.exists("log") else ""

class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *a): pass
    def do_POST(self):
        asked.append((self.path, self.headers.get("Authorization"), json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
        self.send_response(200)
        self.end_headers()
        def put(text, **more): self.wfile.write(b"data: " + json.dumps({"choices": [{"delta": {"content": text, **more}}]}).encode() + b"\n\n")
        put(None, reasoning_content="Not. Said.")
        for piece in "The ", "first.", " Then": put(piece)
        end = time.monotonic() + 120
        while holds and "played" not in log() and time.monotonic() < end: time.sleep(.01)
        waited.append(log())
        put(" the second.")
        self.wfile.write(b"data: [DONE]\n\n")

def talk(*args, text=None, key="k", url=None, code=0):
    for f in "log", "played":
        if os.path.exists(f): os.remove(f)
    p = subprocess.run([sys.executable, program, "--url", url or f"http://127.0.0.1:{site.server_port}", "--play", PLAY, "--say", SAY, *args], input=text, capture_output=True, text=True, timeout=300, env={**os.environ, "INFER_API_KEY": key})
    check(f"exit code of {args}", p.returncode == code, p)
    return p.stdout, p.stderr

site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=site.serve_forever, daemon=True).start()
recording("a.wav", (.4, 20), (.5, 8000))
out, err = talk("--hear", HEAR, "--pause", "0.1", "--fields", '{"temperature": 0}', "a.wav", "a.wav")
same("what was heard and said", out, "> what True\nThe first. Then the second.\n" * 2)
same("the first was spoken before the second was written", waited[0], f"The first.\nplayed {44 + 2 * 10}\n")
same("all is spoken in order", [[l for l in log().splitlines() if l.startswith("played") == p] for p in (False, True)], [["The first.", "Then the second."] * 2, ["played 64", "played 76"] * 2])
path, key, body = asked[1]
same("what is asked", (path, key, body["stream"], body["temperature"]), ("/v1/chat/completions", "Bearer k", True, 0))
same("the conversation goes on", [m["role"] for m in body["messages"]], ["system", "user", "assistant", "user"])
for words in "the pause ", "its text ", "the first token ", "its first part ", "the first sound ", "was written at ": same(words, err.count(words), 2)
order = [float(err.splitlines()[0].split(w)[1].split(",")[0].split(";")[0]) for w in ("the pause ", "its text ", "the first token ", "its first part ", "the first sound ", "was written at ")]
check("their order", order == sorted(order) and order[0] >= 80, err)
out, err = talk("--hear", "text", text="hello\n\nagain\n")
same("lines are turns", [m["content"] for m in asked[-1][2]["messages"][1:]], ["hello", "The first. Then the second.", "again"])

# ---- what goes wrong is said
holds = False
for args, words in ((("--say", "no-such-program"), "no-such-program"), (("--say", "false"), "false ended with 1"), (("--say", "echo <html>"), "what echo makes is no WAV"), (("--say", "true"), "what true makes is no WAV"), (("--play", "false"), "")):
    out, err = talk("--hear", "text", *args, text="x\n", code=1)
    check(f"{args}", err.startswith("voice: ") and words in err and "Traceback" not in err, err)
check("a recogniser that fails", "false {} ended with 1" in talk("--hear", "false {}", "--pause", "0.1", "a.wav", code=1)[1])
check("a recogniser that is not there", "voice: --hear magic {}: magic is not there" in talk("--hear", "magic {}", "a.wav", code=1)[1])
path = os.environ["PATH"]
os.mkdir("bin"), os.symlink(sys.executable, "bin/python3")
os.environ["PATH"] = os.path.abspath("bin")
for args, words in ((("--say", "espeak-ng --stdin"), "espeak-ng is not there: apt-get install espeak-ng, or --say CMD"), (("--record", "arecord -q", "--hear", HEAR), "arecord is not there: apt-get install alsa-utils"), (("--play", "aplay -q -"), "aplay is not there: apt-get install alsa-utils")):
    err = talk("--hear", "text", *args, text="x\n", code=1)[1]
    check(f"packages of {args}", words in err and err.count("\n") == 1, err)
os.environ["PATH"] = path
err = talk("--hear", HEAR, "--record", "false", code=1)[1]
check("a microphone that fails", err == "voice: false ended with 1\n", err)
for how in (("--say", "'"), ("--play", ""), ("--pause", "-1"), ("--pause", "nan"), ("-n", "0"), ("a.wav",)):
    err = talk("--hear", "text", *how, text="x\n", code=2)[1]
    check(f"{how}", "voice: error: " in err and "Traceback" not in err, err)
reads, writes = os.pipe()
os.close(reads)
for name, stdout, code, words in ("full", os.open("/dev/full", os.O_WRONLY), 1, "No space left"), ("closed", writes, 0, ""):
    p = subprocess.run([sys.executable, program, "--url", f"http://127.0.0.1:{site.server_port}", "--play", PLAY, "--say", SAY, "--hear", "text"], input="x\n", stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=300)
    os.close(stdout)
    check(f"stdout is {name}", p.returncode == code and words in p.stderr and p.stderr.count("\n") <= bool(words), p)
check("none of that name", "none of vosk:FOLDER" in talk("--hear", "magic", code=1)[1])
err = talk("--hear", "text", text="x\n", url="http://127.0.0.1:1", code=1)[1]
check("nobody there", err == "voice: http://127.0.0.1:1: Connection refused: infer serve -m FILE is to run there, or --url says where\n", err)
for says, words in (b"<html>", "is no infer serve"), (b"data: {\n\n", "is no infer serve"), (b'data: {"x": 1}\n\n', "is no infer serve"), (None, "broke off"), (b'data: {"choices": []}\n\n', "broke off"):
    class Other(Handler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(says or b'data: {"choices": []}\n\ndata: {"ch')
    other = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    err = talk("--hear", "text", text="x\n", url=f"http://127.0.0.1:{other.server_port}", code=1)[1]
    check(f"a server that says {says}", words in err and err.count("\n") == 1, err)
with wave.open("stereo.wav", "wb") as w: w.setparams((2, 2, 44100, 0, "NONE", "")), w.writeframes(bytes(400))
check("another rate", "has not 16000 Hz" in talk("--hear", HEAR, "stereo.wav", code=1)[1])
open("text.wav", "w").write("no sound")
for file, words in ("none.wav", "none.wav: No such file"), ("text.wav", "text.wav: "):
    err = talk("--hear", HEAR, file, code=1)[1]
    check(file, err.startswith("voice: " + words) and err.count("\n") == 1, err)
for args, words in (("--url", "nonsense"), "must be http://HOST:PORT"), (("--fields", "{"), "must be an object"), (("--fields", "[1]"), "must be an object"):
    err = talk("--hear", "text", *args, text="x\n", code=2)[1]
    check(f"{args}", words in err and "Traceback" not in err, err)

# ---- the package pocketsphinx of Debian, whose version 0.1 has other names
os.mkdir("old")
open("old/pocketsphinx.py", "w").write("""
class Decoder:
    def __init__(self, config): self.n = 0
    @staticmethod
    def default_config(): return Config()
    def start_utt(self): pass
    def process_raw(self, frame, *a): self.n += len(frame)
    def end_utt(self): pass
    def hyp(self): return type("H", (), {"hypstr": "of old " + str(self.n > 4000)})
class Config:
    def set_string(self, name, value): assert name in ("-hmm", "-lm", "-dict", "-logfn"), name
    def set_float(self, name, value): assert (name, value) == ("-samprate", 16000)
""")
sys.path.insert(0, os.path.abspath("old"))
voice.ENGLISH = os.getcwd()
h = voice.recogniser("sphinx")
for i in range(10): h.add(bytes(640))
same("of Debian", h.text(), "of old True")
sys.path.pop(0)

# ---- infer serve
s = Server("--say", "Well then. So it is.", program=(fake,))
out, err = talk("--hear", "text", "-n", "40", text="hello\n", url=f"http://127.0.0.1:{s.port}", key="")
check("its answer is spoken", out.strip() and log().count("played") >= 1 and "".join(l for l in log().splitlines() if "played" not in l), (out, log()))
s.stop()
s = Server(program=(fake,), env={"INFER_API_KEY": "secret-key"})
check("its refusals are told", "key" in talk("--hear", "text", text="hello\n", url=f"http://127.0.0.1:{s.port}", key="", code=1)[1])
s.stop()
done()
