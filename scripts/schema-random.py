#!/usr/bin/env python3
"""usage: scripts/schema-random.py [SEEDS [FIRST [BUILD]]]      default: 500 0 build
Random JSON Schemas (2020-12) against every text of a small world of values: what a grammar takes has to be valid (python3-jsonschema).
Members of an object are tried in every order. Prints the schemas that take something wrong, and how many are taken, refused and
whole (all valid values are taken, in some order). Ends with 1 when an invalid value was taken."""
import collections, itertools, json, random, subprocess, sys

import jsonschema

SEEDS, FIRST, BUILD = (sys.argv[1:] + ["500", "0", "build"][len(sys.argv) - 1:])[:3]
NAMES, PLAIN = ["a", "b", "ca"], [None, True, False, 0, 1, 2, 3, 5, 1.5, -1, "", "a", "ab", "abc"]
FEW = [0, 2, "a", True]


def world():
    yield from PLAIN
    for n in range(4):
        yield from (list(t) for t in itertools.product(FEW, repeat=n))
    yield from ([x] for x in PLAIN)
    yield from ([], [[]], [[0]], [{}], [{"a": 0}])
    for n in range(4):
        for names in itertools.combinations(NAMES, n):
            yield from (dict(zip(names, v)) for v in itertools.product(FEW[:3], repeat=n))
    yield from ({"a": x} for x in ({}, [], {"a": 0}, {"b": 2}, {"a": 0, "b": "a"}, [0], 1, 3))


def texts(v):
    """each spelling of a value: its members in every order"""
    if isinstance(v, dict):
        for order in itertools.permutations(v):
            for parts in itertools.product(*(list(texts(v[k])) for k in order)):
                yield "{" + ",".join(json.dumps(k) + ":" + p for k, p in zip(order, parts)) + "}"
    elif isinstance(v, list):
        for parts in itertools.product(*(list(texts(x)) for x in v)):
            yield "[" + ",".join(parts) + "]"
    else:
        yield json.dumps(v)


def some(r, low, high, make):
    return [make() for _ in range(r.randint(low, high))]


def keyword(r, depth):
    """one keyword, at most one level of schemas below depth"""
    s = lambda: schema(r, depth - 1)
    names = lambda: r.sample(NAMES, r.randint(1, 2))
    simple = {
        "type": lambda: r.choice(["object", "array", "string", "integer", "number", "boolean", "null", ["string", "object"], ["array", "integer"]]),
        "enum": lambda: r.sample(PLAIN, r.randint(1, 4)), "const": lambda: r.choice(PLAIN), "minimum": lambda: r.randint(-1, 3), "maximum": lambda: r.randint(0, 4),
        "exclusiveMinimum": lambda: r.randint(-1, 2), "exclusiveMaximum": lambda: r.randint(1, 4), "multipleOf": lambda: r.choice([1, 2, 3, 0.5, 1.5]), "minLength": lambda: r.randint(0, 2),
        "maxLength": lambda: r.randint(0, 3), "minItems": lambda: r.randint(0, 2), "maxItems": lambda: r.randint(0, 3), "minProperties": lambda: r.randint(0, 2),
        "maxProperties": lambda: r.randint(0, 3), "required": names, "uniqueItems": lambda: r.random() < 0.7, "pattern": lambda: r.choice(["^a", "b", "^ab?$"]),
        "minContains": lambda: r.randint(0, 2), "maxContains": lambda: r.randint(0, 2), "dependentRequired": lambda: {r.choice(NAMES): names()}}
    nested = {
        "properties": lambda: {k: s() for k in names()}, "patternProperties": lambda: {r.choice(["^a", "a$", "b"]): s()}, "additionalProperties": s, "propertyNames": s,
        "unevaluatedProperties": lambda: r.choice([False, False, s()]), "unevaluatedItems": lambda: r.choice([False, False, s()]), "items": s,
        "prefixItems": lambda: some(r, 1, 2, s), "contains": s, "allOf": lambda: some(r, 1, 2, s), "anyOf": lambda: some(r, 1, 3, s), "oneOf": lambda: some(r, 1, 3, s), "not": s,
        "if": s, "then": s, "else": s, "dependentSchemas": lambda: {r.choice(NAMES): s()}, "$ref": lambda: "#/$defs/" + r.choice("xy")}
    table = nested if depth > 0 and r.random() < 0.55 else simple
    key = r.choice(list(table))
    return key, table[key]()


def schema(r, depth):
    if r.random() < 0.08: return r.random() < 0.6
    return dict(keyword(r, depth) for _ in range(r.choice([0, 1, 1, 2, 2, 3])))


def main():
    values = [(v, list(texts(v))) for v in world()]
    lines, schemas = [], []
    for seed in range(int(FIRST), int(FIRST) + int(SEEDS)):
        r = random.Random(seed)
        s = schema(r, 3)
        if isinstance(s, dict): s["$defs"] = {"x": schema(r, 1), "y": schema(r, 0)}
        schemas.append(s)
        lines.append(json.dumps({"kind": "schema", "grammar": json.dumps(s), "texts": [t for _, list_ in values for t in list_]}))
    said = subprocess.run([BUILD + "/bench/accepts"], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True).stdout.splitlines()
    count, reasons, wrong = collections.Counter(), collections.Counter(), 0
    for seed, (s, line) in enumerate(zip(schemas, said, strict=True), int(FIRST)):
        answer = json.loads(line)
        if isinstance(answer, str):
            reasons[answer.split(": ", 1)[-1].split("at /")[0]] += 1
            count["refused"] += 1
            continue
        validator, at, whole = jsonschema.Draft202012Validator(s), 0, True
        count["taken"] += 1
        for v, spellings in values:
            taken = any(w for w, _ in answer[at:at + len(spellings)])
            at += len(spellings)
            try: valid = validator.is_valid(v)
            except RecursionError: break
            whole &= taken or not valid
            if taken and not valid:
                wrong += 1
                print(f"seed {seed}: {json.dumps(s)} takes {json.dumps(v)}")
                break
        count["whole"] += whole
    for why, n in reasons.most_common(12): print(f"{n:6} {why}")
    print(f"{len(schemas)} schemas: {count['taken']} taken, {count['whole']} of them whole, {count['refused']} refused, {wrong} take what is invalid")
    return wrong > 0


if __name__ == "__main__": sys.exit(main())
