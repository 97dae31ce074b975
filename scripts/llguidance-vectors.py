#!/usr/bin/env python3
"""usage: scripts/llguidance-vectors.py [-v] FOLDER [BUILD]
How many of llguidance's own test vectors the grammars take and keep. FOLDER: its unpacked source package, of which parser/tests/*.rs is read: calls of lark_ok, lark_err_test,
lark_str_test_many, json_err_test, json_test_many and json_schema_check with what their literals, statics and cases say. A grammar that is refused here is counted apart;
of those that are taken: texts that have to be taken, and texts that must not be. -v names each that differs. Ends with 1 when a text was taken that must not be."""
import collections, glob, json, os, re, subprocess, sys

verbose = "-v" in sys.argv
folder, build = ([a for a in sys.argv[1:] if a != "-v"] + ["build"])[:2]
CALL = re.compile(r"\b(lark_ok|lark_err_test|lark_str_test_many(?:_quiet)?|json_err_test|json_test_many|json_schema_check|json_test)\s*\(")
RAW, PLAIN = re.compile(r'r(#*)"(.*?)"\1', re.S), re.compile(r'"((?:\\.|[^"\\])*)"', re.S)


def text_of(m_raw, m):
    if m_raw: return m_raw[2]
    body = re.sub(r"\\\n\s*", "", m[1])
    body = re.sub(r"\\u\{([0-9a-fA-F]+)\}", lambda u: chr(int(u[1], 16)), body)
    return re.sub(r"\\(x[0-9a-fA-F]{2}|.)", lambda e: chr(int(e[1][1:], 16)) if len(e[1]) > 1 else {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}.get(e[1], e[1]), body)


def split(src, at):
    """arguments of a call, list or macro whose opening bracket is at src[at]; and where it ends"""
    parts, depth, begin, i = [], 0, at + 1, at
    while i < len(src):
        m = RAW.match(src, i) if src[i] == "r" and not src[i - 1].isalnum() and src[i - 1] != "_" else PLAIN.match(src, i) if src[i] == '"' else re.compile(r"//[^\n]*|'(\\.|[^'\\])'").match(src, i)
        if m:
            i = m.end()
            continue
        if src[i] in "([{": depth += 1
        if src[i] in ")]}": depth -= 1
        if depth == 0 or (depth == 1 and src[i] == ","):
            parts.append(src[begin:i].strip())
            begin = i + 1
        if depth == 0: return [p for p in parts if p], i + 1
        i += 1
    raise ValueError("no end")


def value(expr, names):
    """a Rust expression: a text, ("json", value), a list or True and False; KeyError and ValueError: something else"""
    expr = re.sub(r"^(?:\s|&|//[^\n]*\n|\*)+", "", expr).strip()
    if expr in ("true", "false"): return expr == "true"
    raw, plain = RAW.fullmatch(expr), PLAIN.fullmatch(expr)
    if raw or plain: return text_of(raw, plain)
    if expr.startswith("json!"):
        inner = expr[expr.index("(") + 1:expr.rindex(")")]
        inner = re.sub(r'r(#*)"(.*?)"\1|"(?:\\.|[^"\\])*"|//[^\n]*|,(?=\s*[}\]])', lambda m: json.dumps(m[2]) if m[2] is not None else "" if m[0][0] in "/," else re.sub(r"\\u\{([0-9a-fA-F]+)\}", lambda u: json.dumps(chr(int(u[1], 16)))[1:-1], m[0]), inner, flags=re.S)
        return ("json", json.loads(inner))
    if expr.startswith(("[", "vec![")): return [value(p, names) for p in split(expr, expr.index("["))[0]]
    return names[expr.removesuffix(".clone()")]


def calls(src):
    """(name, arguments as expressions, names that are known there) of each call in a file, once for each case of its function"""
    statics = {}
    for m in re.finditer(r"static ref (\w+)\s*:[^=]*=\s*|\blet (?:mut )?(\w+)(?:\s*:[^=;]*)?\s*=\s*&?(?=json!|r#*\"|\")", src):
        end = m.end()
        try:
            expr = src[end:split(src, src.index("(", end))[1]] if src.startswith("json!", end) else (RAW.match(src, end) or PLAIN.match(src, end))[0]
            found = value(expr, {})
            statics.setdefault(m[1] or m[2], []).append((end, found))
        except (ValueError, KeyError, TypeError, AttributeError): pass
    heads = list(re.finditer(r"((?:#\[[^\n]*(?:\n(?!\s*(?:#\[|fn ))[^\n]*)*\n\s*)*)fn \w+\(([^)]*)\)", src))
    for k, head in enumerate(heads):
        end = heads[k + 1].start() if k + 1 < len(heads) else len(src)
        known = {n: max((v for v in vs if v[0] < end), default=vs[0], key=lambda v: v[0])[1] for n, vs in statics.items()}
        params = re.findall(r"#\[case\] (\w+)", head[2])
        cases = [split(src, m.end() - 1)[0] for m in re.finditer(r"#\[case(?:::\w+)?\(", src[head.start():head.end()]) for m in [re.compile(r"#\[case(?:::\w+)?\(").match(src, head.start() + m.start())]]
        for case in cases or [[]]:
            here = dict(known)
            for n, e in zip(params, case):
                try: here[n] = value(e, known)
                except (ValueError, KeyError, TypeError): pass
            for m in CALL.finditer(src, head.end(), end):
                local = {n: max((v for v in statics.get(n, []) if v[0] < m.start()), default=(0, v0), key=lambda v: v[0])[1] if n in statics and n not in params else v0 for n, v0 in here.items()}
                yield m[1], split(src, m.end() - 1)[0], local


def vectors():
    """kind, grammar, texts to be taken, texts not to be, whether the grammar has to be refused; None: a call that this script cannot read"""
    for path in sorted(glob.glob(os.path.join(folder, "parser/tests/*.rs"))):
        for name, args, names in calls(open(path, encoding="utf-8").read()):
            try: v = [value(a, names) for a in args]
            except (ValueError, KeyError, TypeError):
                yield None
                continue
            plain = lambda x: x[1] if isinstance(x, tuple) else x
            grammar, kind = plain(v[0]), "lark" if name.startswith("lark") else "schema"
            if kind == "schema": grammar = json.dumps(grammar)
            texts = lambda list_: [t.removeprefix("FINAL_REJECT:") for t in list_] if kind == "lark" else [json.dumps(plain(t), separators=(",", ":"), ensure_ascii=False) for t in list_]
            if name.endswith("check"): yield kind, grammar, texts([v[1]] if v[2] else []), texts([] if v[2] else [v[1]]), False
            else: yield kind, grammar, texts(v[1] if "many" in name else []), texts(v[2] if "many" in name else []), "err" in name


def main():
    count, unread, ask = collections.defaultdict(collections.Counter), 0, []
    for v in vectors():
        if v: ask.append(v)
        else: unread += 1
    lines = "".join(json.dumps({"kind": k, "grammar": g, "texts": yes + no}) + "\n" for k, g, yes, no, _ in ask)
    said = subprocess.run([build + "/bench/accepts"], input=lines, capture_output=True, text=True, check=True).stdout.splitlines()
    for (kind, grammar, yes, no, bad), line in zip(ask, said, strict=True):
        c, answer = count[kind], json.loads(line)
        refused = isinstance(answer, str)
        c["faulty"] += bad
        c["faulty and refused"] += bad and refused
        if bad and verbose and not refused: print(f"faulty and taken: {grammar[:300]!r}")
        if bad: continue
        c["grammars"] += 1
        c["taken"] += not refused
        if refused:
            if verbose: print(f"refused: {answer}: {grammar[:300]!r}")
            continue
        for text, (whole, _), want in zip(yes + no, answer, [True] * len(yes) + [False] * len(no)):
            c["to take" if want else "not to take"] += 1
            c["taken rightly" if want else "taken wrongly"] += whole
            if verbose and whole != want: print(f"{'refuses' if want else 'TAKES'} {text[:200]!r}: {grammar[:300]!r}")
    print("| vectors | grammars | taken | texts to take | taken | texts not to take | taken | faulty grammars | refused |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for kind in ("lark", "schema"):
        c = count[kind]
        print(f"| {kind} | {c['grammars']} | {c['taken']} ({c['taken'] / max(c['grammars'], 1):.0%}) | {c['to take']} | {c['taken rightly']} | {c['not to take']} | {c['taken wrongly']} | {c['faulty']} | {c['faulty and refused']} |")
    print(f"{unread} calls were not read: they make their grammars")
    return any(c["taken wrongly"] for c in count.values())


if __name__ == "__main__": sys.exit(main())
