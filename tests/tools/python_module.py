#!/usr/bin/env python3
"""tools/python as a wheel of the installed library: built, unpacked, the programs of docs/python.md run, and what they do not show. Skipped without cffi, numpy,
setuptools or the headers of the libraries.
usage: python_module.py BUILD TESTS"""
import glob, importlib, importlib.util, os, re, shutil, subprocess, sys, tempfile, threading, zipfile

build, tests = (os.path.realpath(a) for a in sys.argv[1:3])
chat = tests + "/golden/chat/chat-llama.gguf"
HELLO, COUNT = [{"role": "user", "content": "hello"}], [{"role": "user", "content": "count"}]


def skip(why):
    print("python_module: " + why)
    sys.exit(77)


def wheel(dir):
    """the wheel's files in a folder of their own"""
    for name in "cffi", "numpy", "setuptools", "wheel":
        if not importlib.util.find_spec(name): skip("no %s here" % name)
    for name in "cmake", "pkg-config", "cc":
        if not shutil.which(name): skip("no %s here" % name)
    if subprocess.run(["pkg-config", "--exists", "jansson", "libpcre2-8", "libutf8proc", "libjpeg", "libpng", "libwebpdemux"]).returncode: skip("no development files of the libraries here")
    subprocess.run(["cmake", "--install", build, "--prefix", "/usr"], env=dict(os.environ, DESTDIR=dir + "/dest"), check=True, stdout=subprocess.DEVNULL)
    pc = glob.glob(dir + "/dest/usr/lib/**/infer.pc", recursive=True)[0]
    shutil.copytree(tests + "/../tools/python", dir + "/source")
    made = subprocess.run([sys.executable, "setup.py", "-q", "bdist_wheel", "-d", dir + "/out"], cwd=dir + "/source", capture_output=True, text=True,
                          env=dict(os.environ, PKG_CONFIG_PATH=os.path.dirname(pc), PYTHONWARNINGS="ignore", CCACHE_DISABLE="1", CFLAGS="-O1"))
    assert made.returncode == 0, made.stdout + made.stderr
    (file,) = os.listdir(dir + "/out")
    version = subprocess.run([build + "/infer", "version"], capture_output=True, text=True, check=True).stdout.split()[1]
    assert file == "infer-%s-cp39-abi3-linux_x86_64.whl" % version, file
    zipfile.ZipFile(dir + "/out/" + file).extractall(dir + "/site")
    assert os.path.exists(dir + "/site/infer/py.typed")
    return dir + "/site"


def programs(site):
    page = open(tests + "/../docs/python.md", encoding="utf-8").read()
    said = [subprocess.run([sys.executable, "-c", text, chat], capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=site), timeout=100)
            for text in re.findall(r"\n```python\n(.*?)```", page, re.S)]
    assert [s.returncode for s in said] == [0, 0], said
    assert said[0].stdout == 'hi there!\none two thr | limit | hi there | stop\n"no"\n', said[0].stdout
    assert re.fullmatch(r"(b'.' (0\.9\d+|1\.0)\n){3}", said[1].stdout), said[1].stdout


def refused(infer, what, kind, words):
    try: what()
    except kind as e: assert re.search(words, str(e)), (words, str(e))
    else: raise AssertionError("not refused: " + words)


def module(infer):
    import numpy
    model = infer.Model(chat)
    ids = model.tokenize("hello there")
    assert model.text(ids) == "hello there" and model.info["arch"] == "llama" and model.info["n_vocab"] == 281 and "im_start" in model.info["chat_template"]
    with infer.Engine(model, slots=2, device="cpu", threads=2, all_logits=True) as engine:
        last, every = engine.logits(ids), engine.logits(ids, all=True)
        assert last.dtype == numpy.float32 and every.shape == (len(ids), 281) and (every[-1] == last).all() and last.std() > 0
        parts = list(engine.request(HELLO))
        assert len(parts) > 3 and "".join(parts) == "hi there!", parts
        with engine.request(HELLO, n_logprob=2) as r:
            assert r.run() == "hi there!" and r.why == "turn" and r.figures["n_answer"] == 7
            assert len(r.logprobs) == 8 and all(len(row) == 3 and row[0] == row[1] and row[1][1] > row[2][1] for row in r.logprobs), r.logprobs
        said = []
        crowd = [threading.Thread(target=lambda: said.append(engine.request(COUNT).run())) for _ in range(5)]
        for t in crowd: t.start()
        for t in crowd: t.join()
        assert said == ["one two three four five six seven eight nine ten"] * 5, said
        r = engine.request(COUNT)
        next(iter(r))
        r.cancel()
        assert r.run() == "o" and r.why == "cancelled", (r.text, r.why)
        assert engine.request(ids, n_predict=3).run() == engine.request("hello there", n_predict=3).run()
        assert engine.request(HELLO, grammar='root ::= "ja" | "nein"').run() in ("ja", "nein")
        assert engine.request(HELLO, grammar='start: "ja"i').run().lower() == engine.request(HELLO, regex="j[a]").run() == "ja"
        refused(infer, lambda: engine.request(HELLO, temperature=1), TypeError, "no option 'temperature'")
        refused(infer, lambda: engine.request(HELLO, temp=1e9), infer.Error, r"\.temp ")
        refused(infer, lambda: engine.request(list(range(5)) * 60), infer.Error, "300 tokens.*256")
        refused(infer, lambda: engine.request(HELLO, grammar="root ::= nothing"), infer.Error, "nothing")
        refused(infer, lambda: engine.logits([281]), infer.Error, "281")
        left = engine.request(COUNT)
    refused(infer, lambda: left.text, ValueError, "closed")
    refused(infer, lambda: engine.request(HELLO), ValueError, "closed")
    refused(infer, lambda: infer.Model("/none.gguf"), infer.Error, "/none.gguf")
    with infer.Engine(model, hidden=True, device="cpu") as engine: assert engine.embed("hello").shape == (64,)
    assert infer.Engine(model, device="cpu").request(HELLO).run() == "hi there!"  # what nobody holds any more is freed in the right order


def main():
    with tempfile.TemporaryDirectory() as dir:
        site = wheel(dir)
        programs(site)
        sys.path.insert(0, site)
        module(importlib.import_module("infer"))
        if importlib.util.find_spec("mypy"):
            said = subprocess.run([sys.executable, "-m", "mypy", "--strict", site + "/infer"], capture_output=True, text=True, cwd=dir)
            assert said.returncode == 0, said.stdout
    print("python_module: all well")


main()
