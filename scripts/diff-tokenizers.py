#!/usr/bin/env python3
"""Compares `infer tokenize` with the PyPI packages tokenizers and sentencepiece over thousands of odd strings.

usage: diff-tokenizers.py --infer BUILD/infer [--n 4000] [--seed 1] [--only NAME] [--model FILE.model ...]
       diff-tokenizers.py --infer BUILD/infer --vocab FILE.gguf|FOLDER --text FILE

For each family of byte-level BPE a vocabulary is trained without any cuts, so that a token crosses every place
where a pre-tokenizer might cut and a wrong cut shows; the cuts are those of the family's tokenizer.json. For
SentencePiece, models are trained here (BPE and Unigram), and further .model files can be named. With --vocab the byte-level BPE of
a GGUF file, or a tokenizer.json, is compared on the text of a file, and timed: user CPU seconds of one thread, ours with starting, loading
and printing, theirs of Tokenizer.encode alone. Exit code 0: all
ids are equal; 1: some differ (the first are printed).
Needs: tokenizers, sentencepiece.
"""
import argparse
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

MARK = "\u2581"

# ---- the families' cuts, as their tokenizer.json files have them --------------------------------------------------
CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def cl100k(digits):
    return (CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|" + digits +
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def o200k(suffix, digits):
    return (r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + "+" + suffix + r"|[^\r\n\p{L}\p{N}]?" + UPPER + "+" +
            LOWER + "*" + suffix + "|" + digits + r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def digits(individual):
    return pre_tokenizers.Digits(individual_digits=individual)


def gpt2():
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def raw_bytes():
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
DEEPSEEK3 = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
             r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""")
QWEN35 = (CONTRACTION + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
CJK = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
BLOOM = " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"
IDEOGRAPHS = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"

# name of tokenizer.ggml.pre -> (cuts, normal form C, whole tokens beat merges)
FAMILIES = {
    "gpt-2": ([gpt2()], False, False),
    "gpt-neox": ([gpt2()], True, False),
    "smollm": ([digits(True), gpt2()], False, False),
    "starcoder": ([digits(True), gpt2()], False, False),
    "command-r": ([digits(True), gpt2()], True, False),
    "llama-bpe": ([split(cl100k(r"\p{N}{1,3}")), raw_bytes()], False, True),
    "qwen2": ([split(cl100k(r"\p{N}")), raw_bytes()], True, False),
    "qwen35": ([split(QWEN35), raw_bytes()], True, False),
    "gpt-4o": ([split(o200k(CONTRACTION + "?", r"\p{N}{1,3}")), raw_bytes()], False, False),
    "tekken": ([split(o200k("", r"\p{N}")), raw_bytes()], False, True),
    "deepseek-coder": ([split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(IDEOGRAPHS), digits(True),
                        raw_bytes()], False, False),
    "deepseek-v3": ([split(r"\p{N}{1,3}"), split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"), split(DEEPSEEK3),
                     raw_bytes()], False, False),
    # the digits are cut in the byte alphabet: of those behind 0x7f the bytes B2 B3 B9 BC BD BE
    "falcon": ([pre_tokenizers.Punctuation("contiguous"), gpt2(), digits(False), split("[0-9][0-9][0-9]")], False, False),
    "default": ([split("[\\p{P}$+<=>^~|]+"), split(GPT2), split(r"\p{N}+"), split("[0-9][0-9][0-9]"), raw_bytes()],
                False, False),
    "bloom": ([split(BLOOM), raw_bytes()], False, False),
    "bailingmoe": ([split(r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
                          r"|\s*[\r\n]|\s+(?!\S)|\s+"), raw_bytes()], False, False),
    "seed-coder": ([split(CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}" "\r\n" r"]+|\s*[" "\r\n"
                          r"]+|\s+(?!\S)|\s+"), raw_bytes()], False, False),
    "exaone-moe": ([split(CONTRACTION + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}"
                          r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"), raw_bytes()], False, False),
    "tiny_aya": ([split(r"\d{1,3}(?=(?:\d{3})*\b)"), split(o200k(CONTRACTION + "?", r"\p{N}{1,3}")), raw_bytes()],
                 False, False),
    "kimi-k2": ([split(r"[\p{Han}]+|" + "|".join(
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]" + a +
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]" + b + CONTRACTION + "?" for a, b in (("*", "+"), ("+", "*"))) +
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"), raw_bytes()], False, False),
    "stablelm2": ([split(cl100k(r"\p{N}")), raw_bytes()], False, False),
    "dbrx": ([split(cl100k(r"\p{N}{1,3}")), raw_bytes()], False, False),
    "minicpm5": ([split(r"\p{N}{1,3}"), split(cl100k(r"\p{N}+")), raw_bytes()], False, True),
    "laguna": ([split(r"[^\n]+|[\n]+"), split(cl100k(r"\p{N}")), raw_bytes()], False, False),
    "ufakzeka": ([split(cl100k(r"\p{N}").removeprefix(CONTRACTION + "|")), raw_bytes()], False, False),
    "jais-2": ([split(cl100k(r"\p{N}{1,3}").removesuffix(r"|\s+(?!\S)|\s+") + "".join(
        r"|\s{%d}(?!\S)" % n for n in (512, 256, 128, 64, 32, 16, 8, 4)) + r"|\s{1,2}(?!\S)|\s{1}"), raw_bytes()], False, False),
    "viking": ([split(BLOOM), split(r"\p{N}"), raw_bytes()], False, False),
    "youtu": ([split("[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f"
                     "\ufe30-\ufe4f]+|[\u3105-\u312f]+|" + CJK), split(o200k(CONTRACTION + "?", r"\p{N}")), raw_bytes()],
              False, True),
    "spark2_5": ([split(r"\p{N}{1,3}"), split(CJK), split(DEEPSEEK3.replace(r"[\r\n]*|\s*[\r\n]+", r"|[\r\n]")),
                  split(r"\p{N}"), raw_bytes()], False, False),
    "afmoe": ([split(r"\p{Nd}{1,3}(?=(?:\p{Nd}{3})*(?!\p{Nd}))"), split(
        "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f\u0e80-\u0eff"
        "\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"), split(DEEPSEEK3), raw_bytes()],
        False, False),
}

# ---- odd strings --------------------------------------------------------------------------------------------------
SPACES = list(" \t\n\r\v\f\u0085\u00a0\u1680\u180e\u2000\u2003\u2009\u200b\u2028\u2029\u202f\u205f\u3000\ufeff")
WORDS = ["hello", "World", "HELLO", "don't", "I'M", "you'Ll", "we've", "it\u2019s", "'\u017f", "'S", "camelCase",
         "snake_case", "XMLHttpRequest", "na\u00efve", "Stra\u00dfe", "\u0130stanbul", "\u01c5ungla", "fi\u00e9vre",
         "e\u0301te\u0301", "Vi\u00ea\u0323t", "\u0928\u092e\u0938\u094d\u0924\u0947", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
         "\u0645\u0631\u062d\u0628\u0627", "\u05e9\u05dc\u05d5\u05dd", "\u041f\u0440\u0438\u0432\u0435\u0442", "\u4f60\u597d\u4e16\u754c",
         "\u3053\u3093\u306b\u3061\u306f", "\u30c6\u30b9\u30c8", "\uc548\ub155\ud558\uc138\uc694", "\u1100\u1161\u11a8",
         "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f44d\U0001f3fd", "\U0001f1e9\U0001f1ea", "\u2764\ufe0f", "\u216b",
         "\u00bd", "\u2160", "\u2460", "\u24ea", "\u216b\u216c", "\u00bc1", "\u0c78\u0c79", "\u0663\u0664\u0665", "\u0967\u0968", "\u00b2\u00b3", "\U0001d7d9\U0001d7da", "\ufb01", "\uff21\uff22\uff43", "\u212b",
         "0", "12", "345", "6789", "1234567", "3.14", "1,000,000", "0x1F", "1e-9", "<|im_start|>", "</s>", "<s>", "[INST]",
         "<0x41>", "if (x == 0) {", "    return;", "\t}", "//", "/*", "*/", "#include <stdio.h>", "def f(x):", "a+b=c", "::",
         "->", "...", "!!", "?!", "\u2026", "\u3002", "\u300c", "\u300d", "\uff01", "$100", "\u20ac5", "~", "`", "^", "|", "\u2581",
         "\u2581\u2581a", "\u00c4\u0130\u1e9e"]


def odd_string(rng):
    out = []
    for _ in range(rng.choice([1, 2, 3, 5, 8, 13])):
        kind = rng.random()
        if kind < 0.45:
            out.append(rng.choice(WORDS))
        elif kind < 0.7:
            out.append(rng.choice([" ", " ", " ", "\n", rng.choice(SPACES)]) * rng.choice([1, 1, 1, 2, 3, 5]))
        elif kind < 0.8:
            out.append(chr(rng.randrange(33, 127)) * rng.choice([1, 1, 2, 7]))
        elif kind < 0.9:
            out.append("".join(chr(rng.randrange(0x21, 0x3000)) for _ in range(rng.randrange(1, 6))))
        elif kind < 0.97:
            c = rng.randrange(0x20, 0x110000)
            out.append(chr(c) * rng.choice([1, 2]) if not 0xd800 <= c < 0xe000 else "x")
        elif kind < 0.99:
            out.append(rng.choice(WORDS + SPACES) * rng.randrange(10, 60))
        else:
            out.append(rng.choice("a 1!\n'\u4f60") * rng.randrange(100, 2000))
    s = "".join(out)
    # no unassigned characters, nor a mark that tokenizers does not order yet: the sides know different versions of Unicode
    s = "".join(c for c in s if unicodedata.category(c) not in ("Cn", "Co"))
    return s if normalizers.NFKD().normalize_str(s) == unicodedata.normalize("NFKD", s) else s.encode("ascii", "ignore").decode()


# ---- GGUF files with a vocabulary only ----------------------------------------------------------------------------
def gguf_string(s):
    b = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(b)) + b


def gguf_write(path, keys):
    """keys: name -> (type, value); types: str u32 bool [str] [f32] [i32]"""
    out = [b"GGUF", struct.pack("<IQQ", 3, 0, len(keys))]
    for name, (kind, value) in keys.items():
        out.append(gguf_string(name))
        if kind == "str":
            out.append(struct.pack("<I", 8) + gguf_string(value))
        elif kind == "u32":
            out.append(struct.pack("<II", 4, value))
        elif kind == "bool":
            out.append(struct.pack("<IB", 7, value))
        elif kind == "[str]":
            out.append(struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(gguf_string, value)))
        elif kind == "[f32]":
            out.append(struct.pack("<IIQ%df" % len(value), 9, 6, len(value), *value))
        elif kind == "[i32]":
            out.append(struct.pack("<IIQ%di" % len(value), 9, 5, len(value), *value))
        elif kind == "[u8]":
            out.append(struct.pack("<IIQ", 9, 0, len(value)) + value)
    with open(path, "wb") as f:
        f.write(b"".join(out))


SHOW = 3  # differences that are printed


def gguf_keys(path):
    """The metadata of a GGUF file."""
    sizes = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
    with open(path, "rb") as f:
        def number(code):
            return struct.unpack("<" + code, f.read(struct.calcsize(code)))[0]

        def string():
            return f.read(number("Q")).decode("utf-8", "replace")

        def value(kind):
            if kind == 8:
                return string()
            if kind == 9:
                elem, n = number("I"), number("Q")
                if elem in sizes:
                    return list(struct.unpack(f"<{n}{sizes[elem]}", f.read(n * struct.calcsize(sizes[elem]))))
                return [value(elem) for _ in range(n)]
            return number(sizes[kind])

        f.read(16)
        return {string(): value(number("I")) for _ in range(number("Q"))}


# ---- comparing ----------------------------------------------------------------------------------------------------
def infer_ids(infer, model, texts, flags=()):
    """infer: a program and its first arguments"""
    lines = "".join(json.dumps(t) + "\n" for t in texts)
    p = subprocess.run(infer + ["-m", model, "--jsonl", *flags], input=lines.encode(), stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in p.stdout.splitlines()]


def compare(name, texts, ours, theirs, pieces=None, tie=None):
    """tie(a, b): both are right, rounding decides"""
    wrong = [i for i in range(len(texts)) if ours[i] != theirs[i] and not (tie and tie(ours[i], theirs[i]))]
    print(f"{name}: {len(texts) - len(wrong)} of {len(texts)} equal")
    for i in sorted(wrong, key=lambda i: len(texts[i]))[:SHOW]:
        print("  text  ", ascii(texts[i]))
        if isinstance(ours[i], dict):
            print("  ours  ", ours[i])
            continue
        print("  ours  ", ours[i][:40], *(pieces(ours[i]) if pieces else ""))
        print("  theirs", theirs[i][:40], *(pieces(theirs[i]) if pieces else ""))
    return not wrong


# ---- byte-level BPE -----------------------------------------------------------------------------------------------
def train_bpe(texts):
    """A vocabulary whose merges know no cuts."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = raw_bytes()
    t.train_from_iterator((x[:300] for x in texts), trainers.BpeTrainer(
        vocab_size=6000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    m = json.loads(t.to_str())["model"]
    return m["vocab"], [tuple(x) if isinstance(x, list) else tuple(x.split(" ")) for x in m["merges"]]


def with_holes(vocab, merges):
    """The vocabulary without the bytes that Falcon's lacks, or some: what is left out of a text, and what joins across it."""
    gone = {pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(c)[0][0] for c in "\v\f*q"}
    kept = [k for k, _ in sorted(vocab.items(), key=lambda kv: kv[1]) if not gone & set(k)]
    return {k: i for i, k in enumerate(kept)}, [m for m in merges if not gone & set(m[0] + m[1])]


def run_bpe(name, infer, folder, vocab, merges, texts):
    cuts, nfc, ignore_merges = FAMILIES[name]
    if name == "falcon":  # what tokenizers takes for punctuation is that of an old version of Unicode
        texts = [t for t in texts if all(unicodedata.ucd_3_2_0.category(c) != "Cn" for c in t)]
    t = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=ignore_merges))
    t.pre_tokenizer = pre_tokenizers.Sequence(cuts)
    if nfc:
        t.normalizer = normalizers.NFC()
    path = os.path.join(folder, name + ".gguf")
    tokens = [k for k, _ in sorted(vocab.items(), key=lambda kv: kv[1])]
    gguf_write(path, {
        "general.architecture": ("str", "llama"), "tokenizer.ggml.model": ("str", "gpt2"),
        "tokenizer.ggml.pre": ("str", name), "tokenizer.ggml.tokens": ("[str]", tokens),
        "tokenizer.ggml.token_type": ("[i32]", [1] * len(tokens)),
        "tokenizer.ggml.merges": ("[str]", [a + " " + b for a, b in merges])})
    return compare(name, texts, infer_ids(infer, path, texts),
                   [e.ids for e in t.encode_batch(texts, add_special_tokens=False)],
                   lambda ids: [[tokens[i] for i in ids[:12]]])


def vocab_tokenizer(path):
    """The byte-level BPE of a GGUF file, and the name of its cuts."""
    keys = gguf_keys(path)
    tokens, pre = keys["tokenizer.ggml.tokens"], keys.get("tokenizer.ggml.pre", "gpt-neox")
    cuts, nfc, ignore_merges = FAMILIES[pre]
    t = Tokenizer(models.BPE(vocab={k: i for i, k in enumerate(tokens)}, ignore_merges=ignore_merges,
                             merges=[tuple(m.split(" ")) for m in keys["tokenizer.ggml.merges"]]))
    t.pre_tokenizer = pre_tokenizers.Sequence(cuts)
    if nfc:
        t.normalizer = normalizers.NFC()
    t.add_tokens([AddedToken(k, normalized=False) for k, kind in zip(tokens, keys["tokenizer.ggml.token_type"]) if kind == 4])
    return t, pre


def run_vocab(infer, path, text_file):
    import resource
    import time
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    if os.path.isdir(path):
        t, pre = Tokenizer.from_file(os.path.join(path, "tokenizer.json")), os.path.basename(path)
    else:
        t, pre = vocab_tokenizer(path)
    with open(text_file, encoding="utf-8", newline="") as f:
        text = f.read()
    mb = len(text.encode()) / 1e6
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ours = infer_ids(infer, path, [text])[0]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    a = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    start = time.process_time()
    theirs = t.encode(text, add_special_tokens=False).ids
    whole = time.process_time() - start
    lines = text.splitlines(keepends=True)
    start = time.process_time()
    for i in range(0, len(lines), 100):
        t.encode("".join(lines[i:i + 100]), add_special_tokens=False)
    parts = time.process_time() - start
    print(f"{pre}: {mb:.1f} MB, {len(ours)} ids, {'equal' if ours == theirs else 'DIFFERENT'}; CPU s: infer tokenize {a:.2f}, "
          f"tokenizers {whole:.2f} ({parts:.2f} in calls of 100 lines): {whole / a:.1f} ({parts / a:.1f}) times")
    return ours == theirs


# ---- SentencePiece ------------------------------------------------------------------------------------------------
def spm_keys(sp):
    """The GGUF metadata of a SentencePiece model."""
    n = sp.get_piece_size()
    kind = [6 if sp.is_byte(i) else 3 if sp.is_control(i) else 2 if sp.is_unknown(i) else 5 if sp.is_unused(i) else 1
            for i in range(n)]
    proto = model_proto(sp.serialized_model_proto())
    for i, k in enumerate(proto["types"]):
        if k == 4:
            kind[i] = 4
    keys = {"general.architecture": ("str", "llama"),
            "tokenizer.ggml.model": ("str", "t5" if proto["model_type"] == 1 else "llama"),
            "tokenizer.ggml.tokens": ("[str]", [sp.id_to_piece(i) for i in range(n)]),
            "tokenizer.ggml.scores": ("[f32]", [sp.get_score(i) for i in range(n)]),
            "tokenizer.ggml.token_type": ("[i32]", kind),
            "tokenizer.ggml.unknown_token_id": ("u32", sp.unk_id()),
            "tokenizer.ggml.add_space_prefix": ("bool", proto["add_dummy_prefix"]),
            "tokenizer.ggml.remove_extra_whitespaces": ("bool", proto["remove_extra_whitespaces"])}
    if proto["charsmap"]:
        keys["tokenizer.ggml.precompiled_charsmap"] = ("[u8]", proto["charsmap"])
    for key, i in (("bos", sp.bos_id()), ("eos", sp.eos_id())):
        if i >= 0:
            keys[f"tokenizer.ggml.{key}_token_id"] = ("u32", i)
    return keys


def fields(b):
    """(number, value) of a protobuf message"""
    at = 0

    def varint():
        nonlocal at
        v = shift = 0
        while True:
            c = b[at]
            at += 1
            v |= (c & 127) << shift
            shift += 7
            if c < 128:
                return v
    while at < len(b):
        tag = varint()
        if tag & 7 == 0:
            yield tag >> 3, varint()
        elif tag & 7 == 2:
            n = varint()
            yield tag >> 3, b[at:at + n]
            at += n
        else:
            n = 4 if tag & 7 == 5 else 8
            yield tag >> 3, b[at:at + n]
            at += n


def model_proto(b):
    """What the Python API does not tell: sentencepiece_model.proto, fields 1 (pieces), 2 (trainer), 3 (normalizer)."""
    out = {"types": [], "model_type": 1, "charsmap": b"", "add_dummy_prefix": True, "remove_extra_whitespaces": True}
    for number, v in fields(b):
        if number == 1:
            out["types"].append(dict(fields(v)).get(3, 1))
        elif number == 2:
            out["model_type"] = dict(fields(v)).get(3, 1)
        elif number == 3:
            d = dict(fields(v))
            out["charsmap"] = bytes(d.get(2, b""))
            out["add_dummy_prefix"] = bool(d.get(3, 1))
            out["remove_extra_whitespaces"] = bool(d.get(4, 1))
    return out


def run_spm(name, infer, folder, sp, texts):
    path = os.path.join(folder, os.path.basename(name) + ".gguf")
    keys = spm_keys(sp)
    gguf_write(path, keys)
    model = path + ".model"
    with open(model, "wb") as f:
        f.write(sp.serialized_model_proto())

    def tie(a, b):
        return sorted(a) == sorted(b) or abs(sum(map(sp.get_score, a)) - sum(map(sp.get_score, b))) < 1e-2
    ours = infer_ids(infer, path, texts)
    if infer_ids(infer, model, texts) != ours:
        print(f"{name}: the .model file gives other ids than its GGUF form")
        return False
    return compare(name, texts, ours, [sp.encode(t) for t in texts],
                   lambda ids: [[sp.id_to_piece(i) for i in ids[:12]]],
                   tie if keys["tokenizer.ggml.model"][1] == "t5" else None)


def train_spm(folder, name, texts, **options):
    import sentencepiece
    path = os.path.join(folder, "train.txt")
    with open(path, "w", encoding="utf-8") as f:
        for t in texts:
            t = " ".join(t.split())[:300]
            if t:
                f.write(t + "\n")
    prefix = os.path.join(folder, name)
    sentencepiece.SentencePieceTrainer.train(input=path, model_prefix=prefix, vocab_size=8000, character_coverage=0.98,
                                             minloglevel=2, hard_vocab_limit=False, **options)
    return sentencepiece.SentencePieceProcessor(model_file=prefix + ".model")


# ---- WordPiece ----------------------------------------------------------------------------------------------------
def train_wordpiece(texts, special, lowercase):
    """Of U+2581 the vocabulary has both ways alone: GGUF writes a word "a" as U+2581 a, and so cannot write a "##" U+2581 a."""
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator((x.replace(MARK, "") for x in texts), trainers.WordPieceTrainer(
        vocab_size=3000, special_tokens=special, show_progress=False))
    vocab = t.get_vocab()
    for k in (MARK, "##" + MARK):
        vocab.setdefault(k, len(vocab))
    t.model = models.WordPiece(vocab=vocab, unk_token="[UNK]", max_input_chars_per_word=100)
    return t


def run_wordpiece(name, infer, folder, lowercase, texts):
    # general categories of newer characters differ from those that tokenizers was built with: it keeps U+08E2, a newer Cf
    texts = [t for t in texts if all(unicodedata.ucd_3_2_0.category(c) == unicodedata.category(c) for c in t)]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    t = train_wordpiece(texts, special, lowercase)
    tokens = [k for k, _ in sorted(t.get_vocab().items(), key=lambda kv: kv[1])]
    path = os.path.join(folder, name + ".gguf")
    gguf_write(path, {
        "general.architecture": ("str", "bert"), "tokenizer.ggml.model": ("str", "bert"),
        "tokenizer.ggml.tokens": ("[str]", [k if k in special else k[2:] if k.startswith("##") else "\u2581" + k
                                            for k in tokens]),
        "tokenizer.ggml.token_type": ("[i32]", [3 if k in special else 1 for k in tokens]),
        "tokenizer.ggml.normalizer.lowercase": ("bool", lowercase),
        "tokenizer.ggml.unknown_token_id": ("u32", 1), "tokenizer.ggml.cls_token_id": ("u32", 2),
        "tokenizer.ggml.seperator_token_id": ("u32", 3)})
    # special tokens in the text are text here
    plain = Tokenizer(models.WordPiece(vocab=t.get_vocab(), unk_token="[UNK]", max_input_chars_per_word=100))
    plain.normalizer, plain.pre_tokenizer = t.normalizer, t.pre_tokenizer
    return compare(name, texts, infer_ids(infer, path, texts),
                   [e.ids for e in plain.encode_batch(texts, add_special_tokens=False)],
                   lambda ids: [[tokens[i] for i in ids[:12]]])


# ---- tokenizer.json -----------------------------------------------------------------------------------------------
def json_tokenizers(folder, vocab, merges, texts):
    """name -> Tokenizer, built like the files that model families publish."""
    out = {}
    for name in ("llama-bpe", "gpt-4o", "deepseek-v3", "qwen2", "starcoder", "gpt-2", "falcon"):
        cuts, nfc, ignore_merges = FAMILIES[name]
        t = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=ignore_merges))
        t.pre_tokenizer = pre_tokenizers.Sequence(cuts)
        if nfc:
            t.normalizer = normalizers.NFC()
        out[name] = t
    out["bpe-prefix"] = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    out["bpe-prefix"].pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    out["bpe-removed"] = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    out["bpe-removed"].pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(o200k("", r"\p{N}{1,3}")), "removed", invert=True), raw_bytes()])
    for name, behavior in (("bpe-previous", "merged_with_previous"), ("bpe-next", "merged_with_next"), ("bpe-drop", "removed")):
        out[name] = Tokenizer(models.BPE(vocab=vocab, merges=merges))
        out[name].pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"\s|\p{Han}"), behavior), raw_bytes()])
        out[name].normalizer = normalizers.NFKC()
    # characters with byte fallback: trained on text in which spaces are marks
    base = Tokenizer(models.BPE(unk_token="<unk>"))
    base.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
    base.train_from_iterator((t[:300] for t in texts), trainers.BpeTrainer(
        vocab_size=6000, limit_alphabet=800, show_progress=False,
        special_tokens=["<unk>", "<s>", "</s>"] + ["<0x%02X>" % b for b in range(256)]))
    m = json.loads(base.to_str())["model"]
    chars = dict(vocab=m["vocab"], merges=[tuple(x) if isinstance(x, list) else tuple(x.split(" ")) for x in m["merges"]],
                 unk_token="<unk>", fuse_unk=True)
    for name, fallback in (("llama-2", True), ("llama-2-unk", False)):
        out[name] = Tokenizer(models.BPE(**chars, byte_fallback=fallback))
        out[name].normalizer = base.normalizer
    for name, scheme, cut in (("mistral", "first", False), ("metaspace", "always", True), ("metaspace-never", "never", True)):
        out[name] = Tokenizer(models.BPE(**chars, byte_fallback=True))
        out[name].pre_tokenizer = pre_tokenizers.Metaspace(replacement=MARK, prepend_scheme=scheme, split=cut)
    out["gemma"] = Tokenizer(models.BPE(**chars, byte_fallback=True))
    out["gemma"].normalizer = normalizers.Replace(" ", MARK)
    out["gemma"].pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    # Unigram as T5 and XLM-R have it
    sp = train_spm(folder, "json-unigram", texts, model_type="unigram", normalization_rule_name="nmt_nfkc")
    pieces = [(sp.id_to_piece(i), sp.get_score(i)) for i in range(sp.get_piece_size())]
    t = Tokenizer(models.Unigram(pieces, unk_id=sp.unk_id(), byte_fallback=False))
    t.normalizer = normalizers.Sequence([
        normalizers.Precompiled(model_proto(sp.serialized_model_proto())["charsmap"]),
        normalizers.Strip(left=True, right=True), normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Metaspace(replacement=MARK, prepend_scheme="always")
    out["t5"] = t
    # BERT
    out["bert"] = train_wordpiece(texts, ["[PAD]", "[UNK]", "[CLS]", "[SEP]"], True)
    return out


def run_json(infer, folder, vocab, merges, texts, only):
    good = True
    for name, t in json_tokenizers(folder, vocab, merges, texts).items():
        name = "json-" + name
        if only and only != name:
            continue
        t.add_special_tokens([AddedToken("<|im_start|>", normalized=False), AddedToken("<|left|>", lstrip=True, normalized=False),
                              AddedToken("<|right|>", rstrip=True, normalized=False)])
        t.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("{{x}}", normalized=False)])
        start = t.token_to_id("<|im_start|>")
        if not isinstance(t.model, models.WordPiece):
            t.post_processor = processors.TemplateProcessing(
                single="<|im_start|> $A <|right|>", special_tokens=[("<|im_start|>", start), ("<|right|>", t.token_to_id("<|right|>"))])
        else:
            t.post_processor = processors.BertProcessing(("[SEP]", t.token_to_id("[SEP]")), ("[CLS]", t.token_to_id("[CLS]")))
        rng = random.Random(3)
        marked = []
        for x in texts:
            parts = [x[:400]]
            for _ in range(rng.randrange(4)):
                at = rng.randrange(len(parts[0]) + 1)
                special = rng.choice(["<|im_start|>", " <|left|>", "<|right|>\n ", "<tool>", "{{x}}"])
                parts[0] = parts[0][:at] + special + parts[0][at:]
            marked.append(parts[0])
        if "t5" in name:  # tokenizers reads its charsmap by grapheme and strips U+0085, SentencePiece (and we) do not
            marked = [x for x in marked if not any("\u1100" <= c < "\u1200" or c in "\x85\u0e33\u0eb3" or unicodedata.category(c)[0] == "M" for c in x)]
        if "bert" in name or "falcon" in name:
            marked = [x for x in marked if all(unicodedata.ucd_3_2_0.category(c) == unicodedata.category(c) for c in x)]
        path = os.path.join(folder, name)
        os.mkdir(path)
        t.save(os.path.join(path, "tokenizer.json"))
        theirs = [e.ids for e in t.encode_batch(marked)]
        ours = infer_ids(infer, path, marked, ["--special", "--add-special"])
        good &= compare(name, marked, ours, theirs, lambda ids: [[t.id_to_token(i) for i in ids[:12]]],
                        (lambda a, b: sorted(a) == sorted(b)) if "t5" in name else None)
    return good


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--infer", required=True, help="the program, as a shell would split it")
    a.add_argument("--n", type=int, default=4000)
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--only")
    a.add_argument("--model", nargs="*", default=[], help="SentencePiece .model files")
    a.add_argument("--vocab", help="GGUF file with byte-level BPE, or a folder with tokenizer.json")
    a.add_argument("--text", help="text for --vocab")
    a = a.parse_args()
    infer = a.infer.split() + ["tokenize"]
    if a.vocab:
        return 0 if run_vocab(infer, a.vocab, a.text) else 1
    rng = random.Random(a.seed)
    texts = [odd_string(rng) for _ in range(a.n)]
    good = True
    with tempfile.TemporaryDirectory() as folder:
        vocab, merges = train_bpe(texts)
        for name in FAMILIES:
            if not a.only or a.only == name:
                good &= run_bpe(name, infer, folder, vocab, merges, texts)
                if name in ("falcon", "gpt-2"):
                    good &= run_bpe(name, infer, folder, *with_holes(vocab, merges), texts)
        import sentencepiece
        for name, options in {
            "spm-bpe": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity",
                            remove_extra_whitespaces=False, split_digits=True),
            "spm-bpe-across": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity",
                                   remove_extra_whitespaces=False, split_by_whitespace=False),
            "spm-bpe-nfkc": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="nmt_nfkc_cf"),
            "unigram": dict(model_type="unigram", normalization_rule_name="identity", remove_extra_whitespaces=False),
            "unigram-nfkc": dict(model_type="unigram", normalization_rule_name="nmt_nfkc"),
            "unigram-bytes": dict(model_type="unigram", byte_fallback=True, normalization_rule_name="nmt_nfkc"),
            "unigram-across": dict(model_type="unigram", normalization_rule_name="nfkc", split_by_whitespace=False),
        }.items():
            if not a.only or a.only == name:
                good &= run_spm(name, infer, folder, train_spm(folder, name, texts, **options), texts)
        for lowercase in (True, False):
            name = "wordpiece" + ("" if lowercase else "-cased")
            if not a.only or a.only == name:
                good &= run_wordpiece(name, infer, folder, lowercase, texts)
        if not a.only or a.only.startswith("json"):
            good &= run_json(infer, folder, vocab, merges, texts, a.only if a.only != "json" else None)
        for path in a.model:
            good &= run_spm(path, infer, folder, sentencepiece.SentencePieceProcessor(model_file=path), texts)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
