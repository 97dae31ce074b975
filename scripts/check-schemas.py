#!/usr/bin/env python3
"""Answers of a tiny model under JSON Schemas: each has to parse and to validate (python3-jsonschema).

usage: scripts/check-schemas.py [INFER [MODEL [SEEDS]]]   default: build/infer tests/golden/chat/chat-llama.gguf 10

Every schema below is answered SEEDS times at a high temperature. An answer that -n cut short is counted apart: it is no
whole text. Schemas that cannot be kept to have to be refused, with the keyword and the place. Exit code 1: something was wrong."""
import json
import subprocess
import sys
import tempfile

import jsonschema

S, I, N, B = {"type": "string", "maxLength": 6}, {"type": "integer"}, {"type": "number"}, {"type": "boolean"}


def obj(required=None, **properties):
    return {"type": "object", "properties": properties, "required": required if required is not None else list(properties)}


KEEP = [
    I, N, B, S, {"type": "null"}, {"const": {"a": [1, "x\n", None]}}, {"enum": ["red", "green", 3, 0.1, None]},
    {"type": "string", "enum": ["a", "b", 4]}, {"enum": [1, 5, 9], "minimum": 4},
    {"type": "integer", "minimum": -17, "maximum": 203}, {"type": "integer", "exclusiveMinimum": 0},
    {"type": "integer", "minimum": 0, "exclusiveMinimum": True, "$schema": "http://json-schema.org/draft-04/schema#"},
    {"type": "integer", "multipleOf": 7}, {"type": "integer", "multipleOf": 25, "minimum": 0},
    {"type": "integer", "multipleOf": 5, "minimum": -12, "maximum": 31}, {"type": "number", "multipleOf": 10, "minimum": 1},
    {"type": "number", "minimum": 0, "maximum": 1}, {"type": "number", "minimum": 0.1, "maximum": 0.9},
    {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, {"type": "number", "minimum": -1.5, "maximum": 2.25},
    {"type": "number", "exclusiveMaximum": -2.5}, {"type": "number", "minimum": 99.95}, {"type": "number", "maximum": 0.001},
    {"type": "number", "exclusiveMinimum": 1e-7, "maximum": 2e-7}, {"type": "number", "minimum": 12345.678, "maximum": 12345.7},
    {"type": "string", "minLength": 2, "maxLength": 4}, {"type": "string", "pattern": "^[A-Z]{2}-\\d{3}$"},
    {"type": "string", "pattern": "^(\\([0-9]{3}\\))?[0-9]{3}-[0-9]{4}$"},
    *({"type": "string", "format": f} for f in "date time date-time uuid email hostname ipv4 ipv6 uri duration".split()),
    {"type": "string", "format": "date", "maxLength": 10},
    {"type": "array", "items": I, "maxItems": 3}, {"type": "array", "items": B, "minItems": 2, "maxItems": 4},
    {"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": True, "maxItems": 1},
    {"type": "array", "prefixItems": [S, I], "items": False}, {"type": "array", "prefixItems": [S, I], "maxItems": 1},
    {"type": "array", "prefixItems": [B], "items": {"type": "null"}, "minItems": 3, "maxItems": 5},
    {"type": "array", "prefixItems": [B], "minItems": 2, "items": I, "maxItems": 3},
    {"items": [B, I], "additionalItems": False, "$schema": "http://json-schema.org/draft-07/schema#"},
    {"type": ["integer", "null", "boolean"]}, {"type": ["string", "integer"], "maxLength": 3, "maximum": 5},
    obj(a=I, b=S), obj(["b"], a=I, b=S, c=B), obj([], a=I, b=B), {**obj(a=I), "additionalProperties": False},
    {**obj([], ab=B, ac=B), "additionalProperties": I, "maxProperties": 3},
    {**obj(["a"], a=B, b=I, c=I), "minProperties": 2}, {**obj(["a"], a=B, b=I, c=I), "maxProperties": 2},
    {"type": "object", "additionalProperties": B, "minProperties": 1, "maxProperties": 2},
    {"type": "object", "patternProperties": {"^x-[a-z]{1,3}$": I}, "additionalProperties": False, "maxProperties": 2},
    {**obj(["a1"], a1=N), "patternProperties": {"^a": {"type": "integer"}, "1$": {"minimum": 3}}},
    {"type": "object", "propertyNames": {"pattern": "^[a-c]{2}$"}, "additionalProperties": B, "maxProperties": 2},
    {"type": "object", "propertyNames": {"enum": ["left", "right"]}, "additionalProperties": I, "maxProperties": 2},
    {"type": "object", "required": ["x", "y"], "additionalProperties": I, "maxProperties": 2},
    {**obj(["a"], a=I, b=False), "unevaluatedProperties": False},
    {"anyOf": [obj(a=I), obj(b=B)]}, {**obj([], a=I, b=I), "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
    {"allOf": [obj(a=N), {"properties": {"a": {"type": "integer", "minimum": 3}}}, obj(b=B)]},
    {"allOf": [{**obj([], a=I), "additionalProperties": False}, obj([], a=I, b=B)]},
    {"allOf": [{"minimum": 3}, {"maximum": 9}], "type": "integer"}, {"allOf": [{"enum": [1, 2, 3]}, {"enum": [2, 3, 4]}]},
    {"oneOf": [I, {"type": "string", "enum": ["x"]}, {"type": "null"}]},
    {"oneOf": [{"const": 1}, {"enum": [2, 3]}, {"type": "integer", "minimum": 4}]},
    {"oneOf": [obj(kind={"const": "a"}, x=I), obj(kind={"const": "b"}, y=B)]},
    {"oneOf": [obj(x=I), obj(y=B), {"type": "array", "items": B, "maxItems": 2}]},
    {"oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}],
     "$defs": {"cat": obj(t={"enum": ["cat"]}, lives=I), "dog": {"allOf": [obj(t={"enum": ["dog"]}), obj(name=S)]}}},
    {"$ref": "#/$defs/node", "$defs": {"node": obj(["v"], v=I, kids={"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 1})}},
    {"$id": "https://x.test/s", "$ref": "https://x.test/s#/$defs/a~1%62", "$defs": {"a/b": B}},
    {"$ref": "#named", "$defs": {"n": {"$anchor": "named", "type": "boolean"}}},
    {"not": {"type": ["string", "object"]}}, {"type": "string", "not": {"enum": ["ab", "a\"b"]}},
    {"enum": [1, 2, 3], "not": {"const": 2}}, {"type": "integer", "minimum": 0, "maximum": 4, "not": {"enum": [2, 0]}},
    {"type": ["string", "null"], "not": {"const": "x"}}, {"type": "number", "not": {"const": 0.5}, "minimum": 0, "maximum": 1},
    {"type": "integer", "not": {"anyOf": [{"const": 1}, {"minimum": 5}]}, "minimum": 0}, {"anyOf": [{"not": {}}, I]},
    {"oneOf": [obj(a=I), {"not": {}}]}, obj(["a"], a=I, b={"not": {}}), {**obj([], a=I, b=I), "not": {"required": ["a", "b"]}},
    {**obj(["k"], k={"enum": ["x", "y"]}, v=I), "not": {"properties": {"k": {"const": "x"}}}},
    {**obj(["pay"], pay={"enum": ["card", "cash"]}, number={"type": "string", "pattern": "^[0-9]{4}$"}),
     "if": {"properties": {"pay": {"const": "card"}}}, "then": {"required": ["number"]}, "else": {"properties": {"number": False}}},
    {**obj(["c"], c={"enum": ["US", "CA", "NL"]}, zip=S), "allOf": [
        {"if": {"properties": {"c": {"const": k}}, "required": ["c"]}, "then": {"properties": {"zip": {"enum": [p]}}, "required": ["zip"]}}
        for k, p in (("US", "1"), ("CA", "2"), ("NL", "3"))]},
    {**obj(a=B), "if": {"properties": {"a": {"const": True}}}, "then": obj(b=I), "else": obj(c=I)},
    {"type": "integer", "minimum": 0, "if": {"minimum": 10}, "then": {"multipleOf": 10, "maximum": 100}},
    {**obj([], a=I, b=I, c=I), "dependentRequired": {"a": ["b"]}}, {**obj([], a=I, b=I), "dependentSchemas": {"a": obj(c={"type": "null"})}},
    {"type": "array", "items": {"enum": ["r", "g", "b"]}, "uniqueItems": True, "minItems": 1},
    {"type": "array", "items": B, "uniqueItems": True, "maxItems": 5},
    {"type": "array", "items": {"$ref": "#/$defs/c"}, "uniqueItems": True, "minItems": 2, "maxItems": 3, "$defs": {"c": {"enum": list("abcd")}}},
    {"type": "array", "items": {"enum": [1, 2, 3]}, "contains": {"const": 2}, "maxItems": 3},
    {"type": "array", "items": I, "contains": {"minimum": 10, "maximum": 12}, "minItems": 2, "maxItems": 20},
    {"type": "array", "contains": {"type": "null"}, "maxItems": 2},
    {"type": "array", "items": I, "contains": {"minimum": 10, "maximum": 12}, "minContains": 3, "maxItems": 5},
    {"type": "array", "items": {"type": ["boolean", "null"]}, "contains": {"type": "null"}, "minContains": 2},
    {"type": "array", "items": {"anyOf": [I, {"type": "string", "maxLength": 2}]}, "contains": {"type": "string"}},
    {"oneOf": [I, N]}, obj(a={"oneOf": [S, {"type": "string", "maxLength": 9}]}), {"type": "string", "if": {"minLength": 2}, "then": {"maxLength": 4}, "maxLength": 6},
    {"type": "array", "contains": I, "maxContains": 2, "items": {"type": ["integer", "null"]}, "maxItems": 4}, {"prefixItems": [B, I], "contains": I, "items": B, "maxItems": 4},
    {"type": "object", "minProperties": 2, "maxProperties": 3, "additionalProperties": B, "propertyNames": {"maxLength": 2}}, {**obj(["b"], a=B, b=B, c=B, d=B), "minProperties": 3},
    {**obj([], a=B, b=B, c=B, d=B), "maxProperties": 2}, {"enum": ["ab", "cd"], "pattern": "^a"}, {"not": {"enum": [1, "a"]}, "type": ["boolean", "null", "integer"]},
    {"allOf": [{**obj(["a"], a=B), "unevaluatedProperties": False}, obj([], b=B)]}, {**obj([], a=B), "allOf": [obj(["b"], b=B)], "unevaluatedProperties": {"type": "null"}, "maxProperties": 3},
    {"$id": "http://x.test/a", "$ref": "b#n", "$defs": {"b": {"$id": "b", "$defs": {"c": {"$dynamicAnchor": "n", "items": {"$dynamicRef": "#n"}, "maxItems": 2}}}}},
    {"prefixItems": [B, B], "uniqueItems": True}, {"allOf": [{"prefixItems": [I, B]}, {"prefixItems": [{"minimum": 3, "maximum": 7}], "items": B}], "maxItems": 3},
    obj(person=obj(name=S, age={"type": "integer", "minimum": 0, "maximum": 150}, tags={"type": "array", "items": S, "maxItems": 2})),
]
REFUSE = [
    ({"not": {"pattern": "a"}}, "'not'", ""), (obj(a={"type": "string", "if": {"pattern": "a"}, "then": True}), "'not'", "/properties/a"),
    (obj(a={"oneOf": [{"pattern": "a"}, {"pattern": "b"}]}), "'oneOf'", "/properties/a"),
    ({"type": "array", "items": I, "uniqueItems": True}, "'uniqueItems'", ""), ({"type": "array", "items": {"enum": list(range(7))}, "uniqueItems": True}, "'uniqueItems over", ""),
    ({"type": "array", "items": {"$ref": "http://x.test/y"}}, "leads out", "/items"),
    ({"type": "number", "multipleOf": 0.01}, "'multipleOf", ""),
    ({"type": "object", "minProperties": 3000, "additionalProperties": I}, "'minProperties", ""),
    ({"enum": ["ab", "2020-01-01"], "format": "date"}, "'enum' or 'const'", ""),
    ({"type": "string", "pattern": "a+", "maxLength": 3}, "'pattern together", ""),
    ({"allOf": [{"pattern": "a"}, {"pattern": "b"}]}, "'pattern'", ""),
]


def answer(infer, model, schema, seed):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump(schema, f)
        f.flush()
        return subprocess.run([infer, "-m", model, "-p", "hello", "--json-schema", f.name, "--temp", "3", "--seed", str(seed),
                               "-n", "400", "--ctx", "512", "-t", "1", "--json", "-q"], capture_output=True, text=True)


def main():
    infer, model, seeds = (sys.argv[1:] + ["build/infer", "tests/golden/chat/chat-llama.gguf", "10"][len(sys.argv) - 1:])[:3]
    valid = cut = 0
    wrong = []
    for schema in KEEP:
        kind = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
        validator = kind(schema, format_checker=kind.FORMAT_CHECKER)
        for seed in range(int(seeds)):
            r = answer(infer, model, schema, seed)
            try:
                line = json.loads(r.stdout)
                if line["ended_by"] != "turn":
                    cut += 1
                    continue
                validator.validate(json.loads(line["answer"]))
                valid += 1
            except (ValueError, jsonschema.ValidationError) as e:
                wrong.append((schema, r.stdout.strip()[:200] + r.stderr.strip(), str(e).splitlines()[0]))
    for schema, keyword, place in REFUSE:
        r = answer(infer, model, schema, 1)
        if r.returncode != 2 or keyword not in r.stderr or place not in r.stderr:
            wrong.append((schema, r.stderr.strip() or r.stdout.strip(), "not refused"))
    for schema, text, why in wrong[:20]:
        print(f"{json.dumps(schema)}\n    {text}\n    {why}")
    print(f"{len(KEEP)} schemas: {valid} answers valid, {cut} cut short by -n, {len(wrong)} wrong; {len(REFUSE)} schemas to refuse")
    return bool(wrong)


sys.exit(main())
