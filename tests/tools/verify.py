#!/usr/bin/env python3
"""infer verify as it is used: records, changed files, other devices. usage: verify.py INFER TESTS"""
import os, shutil, struct, subprocess, sys, tempfile

infer, tests = os.path.realpath(sys.argv[1]), os.path.realpath(sys.argv[2])
sys.path.insert(0, os.path.join(tests, "lib"))
from checks import check, done

os.chdir(tempfile.mkdtemp())
golden = os.path.join(tests, "golden")
original = open(f"{golden}/chat/chat-llama.gguf", "rb").read()


def verify(*args):
    p = subprocess.run([infer, "verify", "--threads", "2", *args], capture_output=True, text=True, timeout=100)
    return p.returncode, p.stdout, p.stderr

def expect(name, args, code, *texts):
    got = verify(*args)
    check(name, got[0] == code and all(t in got[1] + got[2] for t in texts), f"{args}: {got}")

def write(data, path="m.gguf"):
    with open(path, "wb") as f: f.write(data)

def begins(text, data=original):
    """the file with this in front of its template, and a comment behind it that leaves all else aligned as it was"""
    at = data.index(b"{% for message")
    n = struct.unpack("<Q", data[at - 8:at])[0]
    text += b"{#" + b"-" * (-(len(text) + 4) % 32) + b"#}"
    return data[:at - 8] + struct.pack("<Q", n + len(text)) + text + data[at:]

def poisoned(data, part, of=2):
    """a weight of the last tensors but the norm times -3"""
    at = len(data) - part
    return data[:at] + struct.pack("<f", -3 * struct.unpack("<f", data[at:at + 4])[0]) + data[at + 4:]


write(begins(b"<|endoftext|>"))
expect("no record", ["m.gguf"], 2, "m.gguf.verify is not there")
expect("record", ["m.gguf", "--record"], 0, "3 texts")
expect("the same", ["m.gguf"], 0, "agrees with cpu f32 (one program and device): 3 texts")
expect("-m", ["-m", "m.gguf", "--threads", "1"], 0, "agrees")
expect("two models", ["m.gguf", "-m", "m.gguf"], 2, "one of them is the model")
expect("a device", ["m.gguf", "--against", "ref"], 0, "agrees with ref f32 (other devices)")
expect("the other way", ["m.gguf", "--device", "ref"], 0, "agrees with cpu f32 (other devices)")
expect("no such device", ["m.gguf", "--against", "abacus"], 2, "ref|cpu|cuda")
shutil.copy("m.gguf.verify", "r")

write(begins(b"<|endoftext|><|endoftext|>"))
expect("twice by the template", ["m.gguf"], 3, "the template: byte 15 of 'chat' differs")
record = open("r", "rb").read()
at = record.index(b"verify.text.1.ids") + len(b"verify.text.1.ids") + 4
n = struct.unpack("<Q", record[at + 4:at + 12])[0]
write(begins(b"<|endoftext|>"))
changed = record[:at + 16] + record[at + 12:at + 16] + record[at + 20:]
write(changed, "changed")
expect("a damaged record", ["m.gguf", "--record-file", "changed"], 2, "changed: the record is damaged")
at = changed.index(b"verify.version") + len(b"verify.version") + 4
write(changed[:at] + b"\1" + changed[at + 1:], "changed")  # of a version without a sum
expect("twice by the tokenizer", ["m.gguf", "--record-file", "changed"], 3, "the tokenizer: token 1 of the text 'chat' was")

data = begins(b"<|endoftext|>")
for key, new, text in (("attention.layer_norm_rms_epsilon", 1e-3, "attn_norm of layer 0, prompt row 0"), ("rope.freq_base", 500.0, "rope_q of layer 0, prompt row 1")):
    at = data.index(key.encode()) + len(key) + 4
    write(data[:at] + struct.pack("<f", new) + data[at + 4:])
    expect(key, ["m.gguf"], 3, "DIFFERS: " + text, "was ", " and is ", "is another file")
write(data)
shutil.copy("m.gguf", "good.gguf")
last = 256 * 3 + 4 * 64 * 128 * 1  # norms behind it, and how far before the end of blk.1.ffn_down a weight is
write(poisoned(data, last))
expect("a weight", ["m.gguf"], 3, "DIFFERS: ffn_down + ffn_add of layer 1, prompt row 0")
expect("of two files", ["m.gguf", "--against-file", "good.gguf"], 3, "DIFFERS: ffn_down + ffn_add of layer 1", "is furthest apart")
at = len(data) - last
write(data[:at] + struct.pack("<f", float("nan")) + data[at + 4:])
expect("not a number", ["m.gguf"], 3, "DIFFERS: ffn_down of layer 1: element 0 of position", "DIFFERS: ffn_down + ffn_add of layer 1")
p = subprocess.run([infer, "run", "-m", "m.gguf", "-p", "hello", "-n", "2", "--temp", "0"], capture_output=True, text=True, timeout=100)
check("and run says so", p.returncode == 1 and "ffn_down of layer 1: element 0 of position" in p.stderr, p)

expect("another vocabulary", [f"{golden}/forward/qwen3.gguf", "--record-file", "r"], 2, "the record has token")
expect("no record", ["good.gguf", "--record-file", "good.gguf"], 2, "good.gguf is no record of infer verify")
expect("no model", ["none.gguf"], 2, "none.gguf: No such file")
expect("a record that is not looked at", ["good.gguf", "--against", "ref", "--record-file", "r"], 2, "--record-file is not looked at")
expect("over the model", ["good.gguf", "--record", "--record-file", "good.gguf"], 2, "good.gguf")
for name in b"verify.isa", b"verify.text.0.name", b"ffn_down", b"verify.op.number":
    at = record.index(name) + len(name) + 20
    write(record[:at] + bytes([record[at] ^ 1]) + record[at + 1:], "changed")
    code, out, err = verify("good.gguf", "--record-file", "changed")
    check(f"a bit behind {name.decode()}", code == 2 and not out and err.count("\n") == 1, (code, out, err))
at = len(record) - 4000
write(record[:at] + bytes([record[at] ^ 64]) + record[at + 1:], "changed")
expect("a bit of a row", ["good.gguf", "--record-file", "changed"], 2, "changed: the record is damaged")
write(record[:len(record) // 2], "cut")
expect("cut", ["good.gguf", "--record-file", "cut"], 2, "cut")
expect("a folder", [f"{golden}/hf/llama/", "--against", "ref", "--no-fuse"], 0, "agrees with ref bf16")
p = subprocess.run([infer, "verify", "good.gguf", "--record", "--record-file", "/dev/full"], capture_output=True, text=True, timeout=100)
check("a full disk", p.returncode in (1, 2), p)
done()
