#!/usr/bin/env python3
"""usage: scripts/schema-suite.py [-v] SUITE [BUILD]
How much of the JSON Schema Test Suite the grammars keep. SUITE: its folder of drafts (tests/draft2020-12 ..), or an archive that has one, as the sources of
the package jsonschema do: pip download --no-deps --no-binary :all: jsonschema==4.23.0
Of each draft: schemas that are taken (the others are refused by name), and of those the shares that are sound (no instance that is invalid is taken) and whole
(every valid one is). An instance is written as the grammar would: members in the schema's order, required ones first. Ends with 1 when an invalid instance
was taken. Formats are annotations here and not counted; -v tells each schema that is refused or wrong."""
import collections, json, os, subprocess, sys, tarfile

verbose = "-v" in sys.argv
suite, build = ([a for a in sys.argv[1:] if a != "-v"] + ["build"])[:2]
DRAFTS = ("draft4", "draft6", "draft7", "draft2019-09", "draft2020-12")
URI = {"draft4": "http://json-schema.org/draft-04/schema#", "draft6": "http://json-schema.org/draft-06/schema#", "draft7": "http://json-schema.org/draft-07/schema#"}


def files():
    """draft, name, text of each file of tests that every implementation has to pass"""
    def wanted(path):
        parts = path.split("/")
        return len(parts) > 1 and parts[-2] in DRAFTS and parts[-1].endswith(".json") and (parts[-2], parts[-1])
    if os.path.isfile(suite):
        with tarfile.open(suite) as tar:
            for m in tar:
                if "/tests/" in m.name and wanted(m.name): yield *wanted(m.name), tar.extractfile(m).read().decode()
        return
    for at, _, names in os.walk(suite):
        for n in sorted(names):
            if wanted(os.path.join(at, n)): yield *wanted(os.path.join(at, n)), open(os.path.join(at, n), encoding="utf-8").read()


def ordered(v, schema):
    """v with the members that the schema names in the grammar's order"""
    s = schema if isinstance(schema, dict) else {}
    if isinstance(v, list):
        items, first = s.get("items"), s.get("prefixItems", s["items"] if isinstance(s.get("items"), list) else [])
        return [ordered(x, first[i] if i < len(first) else items) for i, x in enumerate(v)]
    if not isinstance(v, dict): return v
    named, needs = s.get("properties", {}), s.get("required", [])
    needs = needs if isinstance(needs, list) else []
    keys = [k for k in named if k in needs] + [k for k in needs if k not in named] + [k for k in named if k not in needs]
    return {k: ordered(v[k], named.get(k, s.get("additionalProperties"))) for k in [k for k in keys if k in v] + [k for k in v if k not in keys]}


def main():
    cases = []
    for draft, name, text in files():
        for group in json.loads(text):
            schema = group["schema"]
            if isinstance(schema, dict) and "$schema" not in schema and draft in URI: schema = {"$schema": URI[draft], **schema}
            cases.append((draft, name, group, schema))
    lines = "".join(json.dumps({"kind": "schema", "grammar": json.dumps(s), "texts": [json.dumps(ordered(t["data"], s), ensure_ascii=False) for t in g["tests"]]}) + "\n" for _, _, g, s in cases)
    said = subprocess.run([build + "/bench/accepts"], input=lines, capture_output=True, text=True, check=True).stdout.splitlines()
    count = collections.defaultdict(collections.Counter)
    for (draft, name, group, schema), line in zip(cases, said, strict=True):
        c, answer = count[draft], json.loads(line)
        c["schemas"] += 1
        if isinstance(answer, str):
            # all is invalid: a grammar of nothing is refused, and rightly
            c["nothing"] += not any(t["valid"] for t in group["tests"])
            if verbose: print(f"{draft}/{name}: {group['description']}: {answer}")
            continue
        wrong = [t["description"] for t, (whole, _) in zip(group["tests"], answer) if whole and not t["valid"]]
        lacks = [t["description"] for t, (whole, _) in zip(group["tests"], answer) if not whole and t["valid"]]
        c["taken"] += 1
        c["sound"] += not wrong
        c["whole"] += not wrong and not lacks
        c["instances"] += len(answer)
        c["wrong"] += len(wrong)
        c["lacks"] += len(lacks)
        if verbose and (wrong or lacks): print(f"{draft}/{name}: {group['description']}: takes {wrong}, refuses {lacks}: {json.dumps(schema)}")
    print("| draft | schemas | taken | sound | and whole | instances | invalid ones taken | valid ones not taken |\n| --- | --- | --- | --- | --- | --- | --- | --- |")
    for draft in DRAFTS:
        c = count[draft]
        if c["schemas"]:
            print(f"| {draft} | {c['schemas']} | {c['taken']} ({c['taken'] / c['schemas']:.0%}; {c['nothing']} more allow nothing) | {c['sound']} | {c['whole']} | {c['instances']} | {c['wrong']} | {c['lacks']} |")
    return any(c["wrong"] for c in count.values())


sys.exit(main())
