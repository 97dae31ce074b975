/* Constrained output: outside vectors, the masks against trying every token, budgets and errors. */
#include "tests/lib/test.h"
#include <jansson.h>
#include "text/grammar/grammar.h"
#include "base/mem.h"

/* Does the whole text match? */
static bool matches(const struct infer_grammar *g, const char *text, size_t n) {
    struct matcher *m;
    assert_ok(matcher_open(&m, g, NULL));
    bool yes = matcher_accept_bytes(m, text, n) && matcher_complete(m);
    matcher_close(m);
    return yes;
}

static enum infer_status compile(struct infer_grammar **g, const char *text) {
    return infer_grammar_from_gbnf(g, text, strlen(text));
}
static enum infer_status compile_schema(struct infer_grammar **g, const char *text) {
    return infer_grammar_from_schema(g, text, strlen(text));
}

static json_t *vectors(const char *name) {
    char path[1024];
    if (!testdata_path(path, sizeof path, name)) return NULL;
    json_t *file = json_load_file(path, JSON_ALLOW_NUL, NULL);
    assert_non_null(file);
    return file;
}

/* ---- what rules have in common ---- */

/* Text i of all of a, b and c, by length: *n letters. */
static bool text_of(int i, char text[8], size_t *n) {
    static const int first[] = {0, 1, 4, 13, 40, 121, 364, 1093};
    for (*n = 0; *n < 7 && i >= first[*n + 1]; ++*n) {
    }
    int rest = i - first[*n];
    for (size_t k = 0; k < *n; k++, rest /= 3) text[k] = (char)('a' + rest % 3);
    return *n < 7;
}
/* Some text of four letters more at most ends s[n]. */
static bool goes_on(struct matcher *m, const char *s, size_t n) {
    bool ends = false;
    for (int k = 0; k < 121 && !ends; k++) {
        char more[8], whole[16];
        size_t n_more;
        text_of(k, more, &n_more);
        memcpy(whole, s, n), memcpy(whole + n, more, n_more);
        matcher_reset(m);
        ends = matcher_accept_bytes(m, whole, n + n_more) && matcher_complete(m);
    }
    return ends;
}
/* Each text is taken where all rules take it that must and none that must not; and no prefix is taken that nothing goes on from. */
static void rules_that_meet(void **state) {
    (void)state;
    static const char *const rules = "one ::= [ab]* \"c\" [a-c]{0,2}\n"
                                     "two ::= (\"a\" | \"bc\" | \"c\")+\n"
                                     "three ::= two \"ca\" two? | inner inner\n"
                                     "inner ::= \"a\" | \"b\" tail\ntail ::= \"c\"* | \"ab\"\n"
                                     "four ::= & two !three\n",
                             *const name[] = {"one", "two", "three", "four"};
    struct infer_grammar *g[4], *met;
    char text[512];
    enum { N = 1093 };
    static bool has[4][N];
    for (int k = 0; k < 4; k++) {
        snprintf(text, sizeof text, "root ::= %s\n%s", name[k], rules);
        assert_ok(compile(&g[k], text));
        for (int i = 0; i < N; i++) {
            char s[8];
            size_t n;
            assert_true(text_of(i, s, &n));
            has[k][i] = matches(g[k], s, n);
        }
    }
    for (int want = 1; want < 81; want++) { /* of each rule: not named, must, must not */
        int of[4], must = 0;
        size_t at = (size_t)snprintf(text, sizeof text, "root ::= &");
        for (int k = 0, w = want; k < 4; k++, w /= 3) {
            of[k] = w % 3;
            must += of[k] == 1;
            if (of[k])
                at += (size_t)snprintf(text + at, sizeof text - at, " %s%s", of[k] == 2 ? "!" : "", name[k]);
        }
        snprintf(text + at, sizeof text - at, "\n%s", rules);
        assert_ok(compile(&met, text));
        struct matcher *m;
        assert_ok(matcher_open(&m, met, NULL));
        for (int i = 0; i < N; i++) {
            char s[8];
            size_t n;
            bool yes = true;
            assert_true(text_of(i, s, &n));
            for (int k = 0; k < 4; k++) yes &= !of[k] || has[k][i] == (of[k] == 1);
            matcher_reset(m);
            const bool open = matcher_accept_bytes(m, s, n), got = open && matcher_complete(m);
            if (got != yes) fail_msg("%s: %.*s is %s", text, (int)n, s, got ? "taken" : "refused");
            if (!must || !open || n > 4 || n == 0) continue; /* nothing is a beginning of no text, too */
            if (!goes_on(m, s, n)) fail_msg("%s: nothing ends %.*s", text, (int)n, s);
        }
        matcher_close(m);
        infer_grammar_free(met);
    }
    for (int k = 0; k < 4; k++) infer_grammar_free(g[k]);
}

/* ---- outside vectors ---- */

static int check_texts(const struct infer_grammar *g, const char *name, const json_t *list, bool want) {
    size_t i;
    const json_t *t;
    int wrong = 0;
    json_array_foreach(list, i, t) {
        if (matches(g, json_string_value(t), json_string_length(t)) == want) continue;
        print_message("%s: %s: %s\n", name, want ? "refused" : "accepted", json_string_value(t));
        wrong++;
    }
    return wrong;
}

static void grammar_vectors(void **state) {
    (void)state;
    json_t *file = vectors("grammars/grammar_vectors.json"), *t;
    if (!file) skip();
    size_t i;
    int wrong = 0;
    json_array_foreach(json_object_get(file, "tests"), i, t) {
        const char *name = json_string_value(json_object_get(t, "name")),
                   *gbnf = json_string_value(json_object_get(t, "gbnf"));
        struct infer_grammar *g;
        if (gbnf)
            assert_ok(compile(&g, gbnf));
        else
            assert_ok(compile_schema(&g, json_string_value(json_object_get(t, "schema"))));
        wrong += check_texts(g, name, json_object_get(t, "accept"), true);
        wrong += check_texts(g, name, json_object_get(t, "reject"), false);
        infer_grammar_free(g);
    }
    json_decref(file);
    assert_true(i > 20);
    assert_int_equal(wrong, 0);
}

static void schema_vectors(void **state) {
    (void)state;
    json_t *file = vectors("grammars/schema_vectors.json"), *t;
    if (!file) skip();
    size_t i;
    int wrong = 0;
    json_array_foreach(json_object_get(file, "tests"), i, t) {
        const char *name = json_string_value(json_object_get(t, "name")),
                   *status = json_string_value(json_object_get(t, "status"));
        struct infer_grammar *g;
        enum infer_status st = compile_schema(&g, json_string_value(json_object_get(t, "schema")));
        if ((st == INFER_OK) != (strcmp(status, "SUCCESS") == 0)) {
            print_message("%s: wanted %s, %s\n", name, status, st ? err_message() : "compiled");
            wrong++;
        }
        infer_grammar_free(g);
    }
    json_decref(file);
    assert_true(i > 35);
    assert_int_equal(wrong, 0);
}

static void grammar_files(void **state) {
    (void)state;
    static const struct {
        const char *file, *yes, *no;
    } list[] = {
        {"arithmetic", "(a +1) *b_2 = 3\n", "a + = 3\n"},
        {"json", "{\"a\": [1, 2.5e3, {\"b\\n\": null}], \"\\u00e9\": \"\xc3\xa9\"}", "{\"a\": 01}"},
        {"json_arr", "[\n1,\n2]", "[1]"},
        {"list", "- one\n- two\n", "- one"},
        {"japanese", "\xe3\x81\x82\xe3\x82\xa2 \xe4\xb8\x80", "\xe3\x81\x82x"},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char path[1024], name[64];
        size_t n = 0;
        snprintf(name, sizeof name, "grammars/%s.gbnf", list[i].file);
        if (!testdata_path(path, sizeof path, name)) skip();
        char *text = read_file(path, &n);
        assert_non_null(text);
        struct infer_grammar *g;
        assert_ok(infer_grammar_from_gbnf(&g, text, n));
        assert_true(matches(g, list[i].yes, strlen(list[i].yes)));
        assert_false(matches(g, list[i].no, strlen(list[i].no)));
        infer_grammar_free(g);
        free(text);
    }
}

/* ---- our own ---- */

struct accept_case {
    const char *grammar, *yes[4], *no[4];
};

static void check_cases(const struct accept_case *list, size_t n, bool schema) {
    for (size_t i = 0; i < n; i++) {
        struct infer_grammar *g;
        assert_ok(schema ? compile_schema(&g, list[i].grammar) : compile(&g, list[i].grammar));
        for (int k = 0; k < 4 && list[i].yes[k]; k++)
            if (!matches(g, list[i].yes[k], strlen(list[i].yes[k])))
                fail_msg("%s refuses %s", list[i].grammar, list[i].yes[k]);
        for (int k = 0; k < 4 && list[i].no[k]; k++)
            if (matches(g, list[i].no[k], strlen(list[i].no[k])))
                fail_msg("%s accepts %s", list[i].grammar, list[i].no[k]);
        infer_grammar_free(g);
    }
}

static void gbnf_language(void **state) {
    (void)state;
    static const struct accept_case list[] = {
        {"root ::= \"a\" | \"b\" # note\n", {"a", "b"}, {"", "ab"}},
        {"root ::= a\n  | b\na ::= \"x\"\nb ::= (\n \"y\"\n | \"z\" )", {"x", "y", "z"}, {"xy"}},
        {"root ::= [^a-c\\n]+", {"d", "\xf0\x9f\x98\x80\xc3\xa9"}, {"a", "\n", "\xff", "\xc3"}},
        {"root ::= [\\u00e0-\\u0fff]", {"\xc3\xa9", "\xe0\xbf\xbf"}, {"a", "\xe1\x80\x80", "\xc3\x9f"}},
        {"root ::= [\\x00-\\U0010FFFF]",
         {"\xf4\x8f\xbf\xbf", "\xed\x9f\xbf"},
         {"\xed\xa0\x80", "\xf4\x90\x80\x80", "\xc0\x80"}},
        {"root ::= (\"a\"* )* \"b\"", {"b", "aaab"}, {"", "a"}},
        {"root ::= \"(\" root \")\" | \"x\"", {"x", "((x))"}, {"((x)", "()"}},
        {"root ::= \"a\" root? ", {"a", "aaaa"}, {"", "b"}},
        {"root ::= [a]{2,} \"-\" [b]{,2}", {"aa-", "aaaa-bb"}, {"a-", "aa-bbb"}},
        {"root ::= x x\nx ::= \"a\"? \"b\"?", {"", "abab", "ba"}, {"aaa", "bab!"}},
        {"root ::= \"\" [\\]\\-^] \"\\x41\\\"\"", {"]A\"", "-A\"", "^A\""}, {"A\""}},
        {"root ::= s \"c\"\ns ::= \"a\" s \"b\" |", {"c", "aabbc"}, {"aabc", "abbc"}},
    };
    check_cases(list, sizeof list / sizeof *list, false);
}

static char *repeated(const char *head, const char *s, int n, const char *end) {
    char *text = malloc(strlen(head) + strlen(s) * (size_t)n + strlen(end) + 1), *p = stpcpy(text, head);
    while (n-- > 0) p = stpcpy(p, s);
    strcpy(p, end);
    return text;
}

/* A repetition of a repetition that becomes one: every count from 0 to 9. */
static void repeated_repeats(void **state) {
    (void)state;
    static const struct {
        const char *text;
        unsigned counts; /* bit n: n letters fit */
    } list[] = {{"\"a\"?+", 0x3ff},        {"\"a\"+?", 0x3ff},     {"\"a\"*{3}", 0x3ff},
                {"\"a\"?{2,3}", 0x00f},    {"\"a\"+{2,3}", 0x3fc}, {"((\"a\"+)){0}", 0x001},
                {"\"a\"?{2,}", 0x3ff},     {"\"a\"{2}+", 0x154},   {"\"a\"{2,3}?", 0x00d},
                {"(\"a\"{1}){3}", 0x008},  {"\"a\"{3}{2}", 0x040}, {"\"a\"{0}+", 0x001},
                {"(\"a\"+ \"a\")+", 0x3fc}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char text[64];
        struct infer_grammar *g;
        snprintf(text, sizeof text, "root ::= %s", list[i].text);
        assert_ok(compile(&g, text));
        for (unsigned n = 0; n < 10; n++)
            if (matches(g, "aaaaaaaaaa", n) != (list[i].counts >> n & 1))
                fail_msg("%s: %u letters", list[i].text, n);
        infer_grammar_free(g);
    }
    struct infer_grammar *g;
    char *text = repeated("root ::= [a-z]", "+", 100, "");
    assert_ok(compile(&g, text)); /* once for each of them would be 2^100 places */
    free(text);
    assert_true(matches(g, "abc", 3));
    assert_false(matches(g, "", 0));
    infer_grammar_free(g);
}

static void schema_language(void **state) {
    (void)state;
    static const struct accept_case list[] = {
        {"{\"type\": \"integer\", \"minimum\": -15, \"maximum\": 207}",
         {"-15", "-9", "0", "207"},
         {"-16", "208", "-0", "007"}},
        {"{\"type\": \"integer\", \"minimum\": 95, \"maximum\": 1005}",
         {"95", "100", "999", "1005"},
         {"94", "1006", "9", "10050"}},
        {"{\"type\": \"integer\", \"exclusiveMaximum\": -3}", {"-4", "-40"}, {"-3", "0", "4"}},
        {"{\"type\": \"number\", \"minimum\": -1.5, \"maximum\": 2}",
         {"-1", "-0.5", "1.99", "2"},
         {"-1.6", "2.0001", "3"}},
        {"{\"type\": \"string\", \"pattern\": \"^(a|\\\"b)\\\\d{2,3}[^x]?$\"}",
         {"\"a12\"", "\"\\\"b123y\"", "\"a12\\n\""},
         {"\"a1\"", "\"a12x\"", "\"\"b12\""}},
        {"{\"type\": \"string\", \"pattern\": \"ab\"}", {"\"ab\"", "\"xaby\""}, {"\"a b\""}},
        {"{\"type\": \"string\", \"format\": \"date-time\"}",
         {"\"2026-02-07T08:05:09Z\""},
         {"\"2026-13-07T08:05:09Z\"", "\"now\""}},
        {"{\"properties\": {\"ab\": {\"type\": \"null\"}, \"ac\": {\"type\": \"null\"}}, "
         "\"additionalProperties\": {\"type\": \"boolean\"}}",
         {"{\"a\": true}", "{\"ab\": null, \"abc\": false, \"x\": true}", "{\"ad\": true}"},
         {"{\"ab\": true}", "{\"abc\": null}", "{\"a\\u0062\": true}"}},
        {"{\"$ref\": \"#/$defs/tree\", \"$defs\": {\"tree\": {\"type\": \"object\", \"properties\": "
         "{\"kids\": {\"type\": \"array\", \"items\": "
         "{\"$ref\": \"#/$defs/tree\"}}}, \"required\": [\"kids\"]}}}",
         {"{\"kids\": []}", "{\"kids\":[{\"kids\": []}]}"},
         {"{}", "{\"kids\": [1]}"}},
        {"{\"allOf\": [{\"properties\": {\"a\": {\"type\": \"integer\"}}, \"required\": [\"a\"]}, "
         "{\"properties\": {\"b\": {\"const\": \"x\\n\"}}}]}",
         {"{\"a\": 1}", "{\"a\": 1, \"b\": \"x\\n\"}"},
         {"{\"b\": \"x\\n\"}"}},
        {"{\"oneOf\": [{\"type\": \"null\"}, {\"type\": \"array\", \"prefixItems\": [{\"type\": "
         "\"boolean\"}, true]}]}",
         {"null", "[true, {\"a\": 1}]"},
         {"[1, 2]", "[true]"}},
        {"{\"oneOf\": [{\"type\": \"integer\", \"exclusiveMaximum\": 0}, {\"type\": \"integer\", "
         "\"minimum\": 5}]}",
         {"-1", "5", "70"},
         {"0", "4"}},
        {"{\"description\": \"anything\"}", {"1", "[]", "\"x\""}, {"", "x"}},
        {"{\"enum\": [\"a\\\"b\", 1, null, [1, {\"k\": 2}]]}",
         {"\"a\\\"b\"", "1", "null", "[1,{\"k\":2}]"},
         {"2", "\"ab\""}},
        {"{\"properties\": {\"q\\\"\\u0001\": {\"type\": \"null\"}}, \"required\": [\"q\\\"\\u0001\"]}",
         {"{\"q\\\"\\u0001\": null}"},
         {"{}"}},
        {"{\"type\": \"number\", \"minimum\": 0.25, \"exclusiveMaximum\": 0.5}",
         {"0.25000", "0.49999", "0.3", "0.25"},
         {"0.24999", "0.5", "0.2", "1"}},
        {"{\"type\": \"integer\", \"multipleOf\": 12, \"minimum\": 1}",
         {"12", "144", "120000"},
         {"0", "-12", "13", "012"}},
        {"{\"type\": \"integer\", \"multipleOf\": 5, \"minimum\": -7, \"maximum\": 12}",
         {"-5", "0", "10"},
         {"-10", "7", "15"}},
        {"{\"enum\": [1, \"ab\", \"abc\", null], \"type\": [\"string\", \"null\"], \"maxLength\": 2}",
         {"\"ab\"", "null"},
         {"1", "\"abc\""}},
        {"{\"prefixItems\": [{\"type\": \"boolean\"}], \"items\": {\"type\": \"null\"}, \"minItems\": 2, "
         "\"maxItems\": 3}",
         {"[true, null]", "[true, null, null]"},
         {"[true]", "[true, null, null, null]", "[null, null]"}},
        {"{\"patternProperties\": {\"^x-\": {\"type\": \"null\"}}, \"additionalProperties\": false}",
         {"{}", "{\"x-a\": null, \"x-\": null}"},
         {"{\"y\": null}", "{\"x-a\": 1}"}},
        /* no name twice in an object, however it is free; in objects beside and below it may come again */
        {"{\"patternProperties\": {\"^x\": {\"type\": \"object\"}}, \"additionalProperties\": false}",
         {"{\"xa\": {\"xa\": 1}, \"x\": {\"xa\": [{\"b\": 1}, {\"b\": 2}], \"b\": \"b\"}, \"xb\": {\"xa\": 2}}"},
         {"{\"xa\": {}, \"xa\": {}}", "{\"xa\": {}, \"xb\": {\"c\": 1}, \"xa\": {}}",
          "{\"xa\": {\"b\": 1, \"c\": {\"b\": 1}, \"b\": 1}}", "{\"x\\u0061\": {}}"}},
        {"{\"properties\": {\"a\": {\"type\": \"null\"}}, \"additionalProperties\": {\"type\": \"string\"}}",
         {"{\"a\": null, \"b\": \"{\\\"b\\\":1,\", \"c\": \"b\"}"},
         {"{\"b\": \"\", \"b\": \"\"}", "{\"a\": null, \"b\": \"\\\"\", \"c\": \"\", \"b\": \"\"}"}},
        {"{\"type\": \"array\"}",
         {"[{\"a\": 1}, {\"a\": 1}]"},
         {"[{\"a\": 1, \"a\": 1}]", "[[{\"a\": {}, \"a\": 1}]]"}},
        {"{\"properties\": {\"xa\": {\"type\": \"integer\"}}, \"patternProperties\": {\"^x\": {\"minimum\": "
         "5}}}",
         {"{\"xa\": 5}", "{}"},
         {"{\"xa\": 4}", "{\"xb\": 5}"}},
        {"{\"propertyNames\": {\"enum\": [\"l\", \"r\"]}, \"additionalProperties\": {\"type\": \"null\"}, "
         "\"minProperties\": 1}",
         {"{\"l\": null}", "{\"r\": null,\"l\": null}"},
         {"{}", "{\"x\": null}"}},
        {"{\"properties\": {\"a\": {\"type\": \"null\"}, \"b\": {\"type\": \"null\"}}, \"minProperties\": 1}",
         {"{\"a\": null}", "{\"b\": null}", "{\"a\": null, \"b\": null}"},
         {"{}"}},
        {"{\"allOf\": [{\"properties\": {\"a\": {\"type\": \"null\"}}, \"additionalProperties\": false}, "
         "{\"properties\": {\"b\": {\"type\": \"null\"}}}]}",
         {"{}", "{\"a\": null}"},
         {"{\"b\": null}"}},
        {"{\"allOf\": [{\"minimum\": 3}, {\"maximum\": 5, \"minimum\": 1}], \"type\": \"integer\"}",
         {"3", "5"},
         {"2", "6"}},
        {"{\"oneOf\": [{\"properties\": {\"k\": {\"const\": \"a\"}}, \"required\": [\"k\"]}, "
         "{\"properties\": {\"k\": {\"const\": \"b\"}, \"n\": {\"type\": \"null\"}}, \"required\": [\"k\", "
         "\"n\"]}]}",
         {"{\"k\": \"a\"}", "{\"k\": \"b\", \"n\": null}"},
         {"{\"k\": \"a\", \"n\": null}", "{\"k\": \"b\"}"}},
        {"{\"$ref\": \"#x\", \"$defs\": {\"d\": {\"$anchor\": \"x\", \"type\": \"null\"}}}", {"null"}, {"1"}},
        {"{\"type\": [\"integer\", \"null\", \"boolean\"], \"not\": {\"enum\": [null, 3]}, \"minimum\": 0}",
         {"2", "4", "true"},
         {"3", "null"}},
        {"{\"type\": \"string\", \"not\": {\"anyOf\": [{\"const\": \"ab\"}, {\"enum\": [\"a\", 1]}]}}",
         {"\"\"", "\"abc\"", "\"b\""},
         {"\"a\"", "\"ab\"", "\"\\u0061\""}},
        {"{\"anyOf\": [{\"not\": {}}, {\"const\": 1}, {\"type\": \"integer\", \"minimum\": 2, \"maximum\": "
         "1}]}",
         {"1"},
         {"2", "{}"}},
        {"{\"type\": \"object\", \"properties\": {\"a\": {\"const\": 1}, \"b\": {\"const\": 2}}, \"not\": "
         "{\"required\": "
         "[\"a\", \"b\"]}}",
         {"{}", "{\"a\": 1}", "{\"b\": 2}"},
         {"{\"a\": 1, \"b\": 2}"}},
        {"{\"properties\": {\"k\": {\"enum\": [1, 2, 3]}}, \"required\": [\"k\"], \"allOf\": [{\"if\": "
         "{\"properties\": "
         "{\"k\": {\"const\": 1}}}, \"then\": {\"properties\": {\"x\": {\"type\": \"null\"}}, \"required\": "
         "[\"x\"]}}, "
         "{\"if\": {\"properties\": {\"k\": {\"const\": 2}}}, \"then\": {\"properties\": {\"y\": {\"const\": "
         "0}}, "
         "\"required\": [\"y\"]}}]}",
         {"{\"k\": 1, \"x\": null}", "{\"k\": 2, \"y\": 0}", "{\"k\": 3}"},
         {"{\"k\": 1}", "{\"k\": 2, \"x\": null}", "{\"k\": 2}"}},
        {"{\"properties\": {\"a\": {\"const\": 1}, \"b\": {\"const\": 2}}, \"dependentRequired\": {\"a\": "
         "[\"b\"]}}",
         {"{}", "{\"b\": 2}", "{\"b\": 2, \"a\": 1}"},
         {"{\"a\": 1}"}},
        {"{\"type\": \"array\", \"items\": {\"enum\": [1, 2, 1.0]}, \"uniqueItems\": true, \"minItems\": 1}",
         {"[1]", "[2]", "[2, 1]", "[1,2]"},
         {"[]", "[1, 1]", "[1, 2, 1]"}},
        {"{\"items\": {\"enum\": [1, 2]}, \"contains\": {\"const\": 2}, \"maxItems\": 3, \"minItems\": 2}",
         {"[1, 2]", "[2, 1]", "[1, 1, 2]", "[2, 1, 1]"},
         {"[2]", "[1, 1]", "[1, 1, 1]", "[1, 2, 1, 1]"}},
        {"{\"items\": {\"enum\": [1, 2]}, \"contains\": {\"const\": 2}, \"minContains\": 2, \"minItems\": 3}",
         {"[2, 2, 1]", "[2, 1, 2, 1]", "[1, 2, 1, 1, 2, 1]", "[2, 2, 2]"},
         {"[2, 2]", "[2, 1, 1]", "[]", "[1, 1, 1, 2]"}},
        {"{\"items\": {\"enum\": [1, 2]}, \"contains\": {\"const\": 2}, \"minContains\": 2, \"maxItems\": 3}",
         {"[2, 2]", "[2, 2, 1]", "[1, 2, 2]"},
         {"[2]", "[1, 2]", "[1, 2, 2, 1]"}},
        {"{\"unevaluatedItems\": {\"type\": \"null\"}}", {"[]", "[null, null]"}, {"[1]", "1"}},
        {"{\"format\": \"ipv4\"}", {"\"255.0.10.9\""}, {"\"256.0.0.1\"", "1"}},
    };
    check_cases(list, sizeof list / sizeof *list, true);
}

static void expect_error(const char *text, bool schema, enum infer_status want, const char *says) {
    struct infer_grammar *g = NULL;
    enum infer_status st = schema ? compile_schema(&g, text) : compile(&g, text);
    if (st != want || !strstr(err_message(), says))
        fail_msg("%.200s: status %d, %s; wanted %s", text, st, st ? err_message() : "compiled", says);
    assert_null(g);
}

static void grammar_errors(void **state) {
    (void)state;
    expect_error("root ::= root \"a\"", false, INFER_E_INPUT, "rule 'root' begins with itself");
    expect_error("root ::= a\na ::= b? c\nb ::= \"x\"\nc ::= a \"y\"", false, INFER_E_INPUT,
                 "begins with itself");
    expect_error("root ::= (x \"a\"?)* root\nx ::= \"q\"?", false, INFER_E_INPUT, "begins with itself");
    expect_error("root ::= a", false, INFER_E_INPUT, "line 1: rule 'a' is not defined");
    expect_error("x ::= \"a\"", false, INFER_E_INPUT, "'root' is not defined");
    expect_error("root ::= \"a\"\nroot ::= \"b\"", false, INFER_E_INPUT,
                 "line 2: rule 'root' is defined twice");
    expect_error("root ::= \"a", false, INFER_E_INPUT, "ends inside a literal");
    expect_error("root ::= \"\\q\"", false, INFER_E_INPUT, "unknown escape");
    expect_error("root ::= [z-a]", false, INFER_E_INPUT, "runs backwards");
    expect_error("root ::= \"a\"{3,1}", false, INFER_E_INPUT, "wrong way round");
    expect_error("root ::= \"a\"{99999999999999999999}", false, INFER_E_INPUT, "more than 20000 repetitions");
    expect_error("root ::= ((\"a\"{200}){200}){200}", false, INFER_E_INPUT, "more than 20000 copies");
    expect_error("root = \"a\"", false, INFER_E_INPUT, "expected '::='");
    char *text = repeated("root ::= ", "(", 100000, "");
    expect_error(text, false, INFER_E_INPUT, "nested deeper than 128");
    free(text);
    text = repeated("root ::= \"a\"", "*", 100000, "");
    expect_error(text, false, INFER_E_INPUT, "too many repetitions");
    free(text);
}

static void schema_errors(void **state) {
    (void)state;
    expect_error("{\"type\": \"kaboom\"}", true, INFER_E_INPUT, "unknown type 'kaboom'");
    expect_error("{\"properties\": {\"a\": {\"items\": {\"anyOf\": [{}, {\"not\": {\"pattern\": \"a\"}}]}}}}",
                 true, INFER_E_UNSUPPORTED, "schema at /properties/a/items/anyOf/1: 'not' is not supported");
    expect_error("{\"items\": {\"oneOf\": [{\"pattern\": \"a\"}, {\"pattern\": \"b\"}]}}", true,
                 INFER_E_UNSUPPORTED, "at /items: 'oneOf' whose branches 0 and 1 may both hold");
    expect_error("{\"allOf\": [{\"type\": \"number\"}, {\"type\": \"null\"}]}", true, INFER_E_INPUT,
                 "'type' no value fits");
    expect_error("{\"items\": {\"type\": \"number\", \"multipleOf\": 0.1234567}}", true, INFER_E_UNSUPPORTED,
                 "at /items: 'multipleOf");
    expect_error("{\"not\": {}}", true, INFER_E_INPUT, "nothing is valid");
    expect_error("{\"not\": {\"pattern\": \"a\"}}", true, INFER_E_UNSUPPORTED, "'not' is not supported");
    expect_error("{\"items\": {\"type\": \"string\"}, \"uniqueItems\": true}", true, INFER_E_UNSUPPORTED,
                 "'uniqueItems' is not supported");
    expect_error("{\"anyOf\": [{\"not\": {}}, {\"allOf\": [{\"const\": 1}, {\"const\": 2}]}]}", true,
                 INFER_E_INPUT, "parts whose 'const'");
    expect_error("{\"contains\": {\"pattern\": \"a\"}, \"maxContains\": 1}", true, INFER_E_UNSUPPORTED,
                 "at /contains: 'not'");
    expect_error("{\"allOf\": [true, {\"$ref\": \"#\", \"unevaluatedItems\": false}]}", true, INFER_E_INPUT,
                 "behind themselves");
    expect_error("{\"not\": {\"anyOf\": [{\"items\": true}], \"unevaluatedItems\": false}}", true,
                 INFER_E_UNSUPPORTED, "'not'");
    expect_error(
        "{\"properties\": {\"b\": {}}, \"unevaluatedProperties\": false, \"not\": {\"properties\": {\"a\": {\"const\": 1}}}}",
        true, INFER_E_INPUT, "'a' is required and not allowed");
    expect_error("{\"$ref\": \"#/no\"}", true, INFER_E_INPUT, "leads nowhere");
    expect_error("{\"$ref\": \"http://x/y\"}", true, INFER_E_UNSUPPORTED, "leads out");
    expect_error("{\"$ref\": \"#\"}", true, INFER_E_INPUT, "begins with itself");
    expect_error("{\"type\": \"string\", \"pattern\": \"^(?=a)$\"}", true, INFER_E_UNSUPPORTED,
                 "looks ahead");
    expect_error("{\"type\": \"string\", \"pattern\": \"+\"}", true, INFER_E_INPUT, "repetition of nothing");
    expect_error("{\"type\": \"string\", \"pattern\": \"a)\"}", true, INFER_E_INPUT, ") without (");
    expect_error("{\"type\": \"string\", \"maxLength\": 99999999}", true, INFER_E_INPUT,
                 "maxLength above 20000");
    expect_error("{\"type\": \"integer\", \"minimum\": 2, \"maximum\": 1}", true, INFER_E_INPUT, "no number");
    /* each definition twice the one before: refused, not worked through */
    char doubling[4096] = "{\"$ref\": \"#/$defs/d0\", \"$defs\": {", part[128];
    for (int i = 0; i < 40; i++) {
        snprintf(part, sizeof part,
                 "\"d%d\": {\"allOf\": [{\"$ref\": \"#/$defs/d%d\"}, {\"$ref\": \"#/$defs/d%d\"}]}, ", i,
                 i + 1, i + 1);
        strcat(doubling, part);
    }
    strcat(doubling, "\"d40\": {\"type\": \"null\"}}}");
    expect_error(doubling, true, INFER_E_INPUT, "join more than 20000");
    expect_error("{", true, INFER_E_INPUT, "line 1");
    expect_error("3", true, INFER_E_INPUT, "an object or a boolean");
    char *text = repeated("", "{\"items\":", 1000, "{}");
    char *end = repeated(text, "}", 1000, "");
    expect_error(end, true, INFER_E_INPUT, "nested deeper");
    free(text);
    free(end);
    text = repeated("{\"type\": \"string\", \"pattern\": \"", "(", 1000, "\"}");
    expect_error(text, true, INFER_E_INPUT, "nested too deep");
    free(text);
}

/* ---- masks ---- */

struct words {
    const char *const *text;
    const size_t *len;
    int n;
};

static const char *word_piece(void *user, int32_t id, size_t *n) {
    const struct words *w = user;
    *n = w->len ? w->len[id] : strlen(w->text[id]);
    return w->text[id];
}
static bool last_ends(void *user, int32_t id) { return id == ((const struct words *)user)->n - 1; }

/* The mask must say of each token what trying it says. */
static void check_mask(struct matcher *m, const struct infer_grammar *g, const struct words *w,
                       const char *before, size_t n_before) {
    const uint64_t *mask = matcher_mask(m);
    for (int id = 0; id < w->n; id++) {
        bool got = mask[id / 64] >> (id % 64) & 1, want;
        size_t n;
        const char *piece = word_piece((void *)w, id, &n);
        struct matcher *probe;
        assert_ok(matcher_open(&probe, g, NULL));
        assert_true(matcher_accept_bytes(probe, before, n_before));
        want = id == w->n - 1 ? matcher_complete(probe) : n > 0 && matcher_accept_bytes(probe, piece, n);
        matcher_close(probe);
        if (got != want)
            fail_msg("after %.*s: token %d (%s) is %s", (int)n_before, before, id, piece,
                     got ? "allowed" : "forbidden");
    }
}

static void masks_are_right(void **state) {
    (void)state;
    static const char *const text[] = {"{",
                                       "}",
                                       "\"",
                                       "a",
                                       "b",
                                       "ab",
                                       "\"a",
                                       "\":",
                                       "\": ",
                                       " ",
                                       "\n",
                                       "1",
                                       "12",
                                       "true",
                                       "tr",
                                       "ue",
                                       "\\",
                                       "\\n",
                                       "n",
                                       "[",
                                       "]",
                                       ",",
                                       "\xc3",
                                       "\xa9",
                                       "\xc3\xa9",
                                       "a\"",
                                       "\"}",
                                       "{\"",
                                       "\xf0\x9f\x98",
                                       "\x80",
                                       "\xf0\x9f\x98\x80x",
                                       "-",
                                       "0",
                                       "",
                                       "ab",
                                       "}}",
                                       "]}",
                                       "null",
                                       "\x01",
                                       "a\x01",
                                       "\xe4\xb8\x80",
                                       "\xe4\xb8",
                                       "\x80\x80",
                                       "<end>"};
    struct words w = {text, NULL, sizeof text / sizeof *text};
    const struct grammar_tokens t = {w.n, word_piece, last_ends, &w};
    static const char *const grammars[] = {"{}",
                                           ("{\"properties\": {\"a\": {\"type\": \"string\", \"maxLength\": "
                                            "3}, \"ab\": {\"type\": \"boolean\"}}}"),
                                           "{\"type\": \"array\", \"items\": {\"type\": \"integer\"}}"};
    static const char *const answers[][12] = {
        {"{", "\"a", "\xc3", "\xa9", "\":", " ", "[", "{", "\"", "\"", ":", NULL},
        {"{\"", "a", "\": ", "\"", "\xf0\x9f\x98", "\x80", "a\"", "}", NULL},
        {"[", "12", ",", "-", "1", "]", NULL}};
    struct infer_grammar_vocab *v;
    assert_ok(grammar_vocab_open(&v, &t));
    for (int k = 0; k < 3; k++) {
        struct infer_grammar *g;
        struct matcher *m;
        char before[128] = "";
        assert_ok(compile_schema(&g, grammars[k]));
        assert_ok(matcher_open(&m, g, v));
        check_mask(m, g, &w, "", 0);
        for (int i = 0; answers[k][i]; i++) {
            if (!matcher_accept_bytes(m, answers[k][i], strlen(answers[k][i])))
                fail_msg("%s: no %s behind %s", grammars[k], answers[k][i], before);
            strcat(before, answers[k][i]);
            check_mask(m, g, &w, before, strlen(before));
        }
        matcher_close(m);
        infer_grammar_free(g);
    }
    infer_grammar_vocab_close(v);
}

/* Tokens drawn from the masks: each text can go on until it is whole, and has no name twice in an object; nor does what a token allows. */
static void no_name_comes_twice(void **state) {
    (void)state;
    static const char *const text[] = {
        "{",    "}", "\"", "a",   "b", "ab", "\"a", "\":", "\"a\":", ",\"a\":", ":",   " ",
        "1",    ",", ", ", "\",", "[", "]",  "},",  "a\"", "1,",     "{\"",     ",\"", "\"a\": {\"a\": {",
        "<end>"};
    static const char *const schemas[] = {
        ("{\"patternProperties\": {\"^(a|ab)$\": {\"type\": \"integer\", \"maximum\": 1, \"minimum\": 1}}, "
         "\"additionalProperties\": false}"),
        "{\"type\": \"object\"}",
        "{\"properties\": {\"a\": {\"const\": 1}}, \"additionalProperties\": {\"type\": \"object\"}, \"required\": [\"a\"]}",
        "{\"propertyNames\": {\"maxLength\": 1}, \"additionalProperties\": {\"type\": \"string\"}}",
        "{\"propertyNames\": {\"enum\": [\"a\", \"b\"]}, \"additionalProperties\": {\"const\": 1}}"};
    const struct words w = {text, NULL, sizeof text / sizeof *text};
    const struct grammar_tokens t = {w.n, word_piece, last_ends, (void *)&w};
    struct infer_grammar_vocab *v;
    assert_ok(grammar_vocab_open(&v, &t));
    uint32_t seed = 1;
    for (size_t k = 0; k < sizeof schemas / sizeof *schemas; k++) {
        struct infer_grammar *g;
        struct matcher *m;
        int whole = 0;
        assert_ok(compile_schema(&g, schemas[k]));
        assert_ok(matcher_open(&m, g, v));
        for (int walk = 0; walk < 300; walk++) {
            char got[512] = "";
            matcher_reset(m);
            for (int i = 0; i < 40; i++) {
                const uint64_t *mask = matcher_mask(m);
                int allowed[64], n = 0;
                for (int id = 0; id < w.n; id++)
                    if (mask[0] >> id & 1) allowed[n++] = id;
                if (!n) fail_msg("%s: nothing fits behind %s", schemas[k], got);
                seed = seed * 1664525 + 1013904223;
                const int id = allowed[(seed >> 16) % (unsigned)n];
                if (!matcher_accept(m, id))
                    fail_msg("%s: %s is allowed behind %s, and refused", schemas[k], text[id], got);
                if (id == w.n - 1) {
                    json_t *j = json_loads(got, JSON_REJECT_DUPLICATES, NULL);
                    if (!j) fail_msg("%s: %s", schemas[k], got);
                    json_decref(j);
                    whole++;
                    break;
                }
                strcat(got, text[id]);
            }
        }
        print_message("  %d whole texts of %s\n", whole, schemas[k]);
        assert_true(whole > 20);
        matcher_close(m);
        infer_grammar_free(g);
    }
    infer_grammar_vocab_close(v);
}

/* Nesting without end, and a grammar with very many states: pools are reused, nothing allocates, nothing is wrong. */
static void pools_do_not_grow(void **state) {
    (void)state;
    struct infer_grammar *g;
    struct matcher *m;
    static const char *const text[] = {"[", "]", "1", ",", "<end>"};
    struct words w = {text, NULL, 5};
    const struct grammar_tokens t = {5, word_piece, last_ends, &w};
    struct infer_grammar_vocab *v;
    assert_ok(grammar_vocab_open(&v, &t));
    assert_ok(compile(&g, "root ::= \"[\" (root | \"1\") (\",\" (root | \"1\"))* \"]\""));
    assert_ok(matcher_open(&m, g, v));
    mem_forbid(true);
    enum { DEEP = 3000 };
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < DEEP; i++) {
            assert_int_equal(matcher_mask(m)[0], i ? 5 : 1); /* "[" and, inside, "1" */
            assert_true(matcher_accept(m, 0));
        }
        assert_true(matcher_accept(m, 2));
        for (int i = 0; i < DEEP; i++) {
            assert_int_equal(matcher_mask(m)[0], 2 + 8);
            assert_true(matcher_accept(m, 1));
        }
        assert_true(matcher_complete(m));
        assert_int_equal(matcher_mask(m)[0], 16);
        assert_true(matcher_accept(m, 4));
        assert_int_equal(matcher_mask(m)[0], 0);
        matcher_reset(m);
    }
    float logits[5] = {1, 2, 3, 4, 5};
    matcher_apply(m, logits);
    assert_true(logits[0] == 1 && logits[1] < -1e30f && logits[4] < -1e30f);
    assert_false(matcher_accept(m, 1));
    assert_false(matcher_accept(m, 4));
    assert_false(matcher_accept(m, 99));
    mem_forbid(false);
    matcher_close(m);
    infer_grammar_free(g);
    infer_grammar_vocab_close(v);
}

static void failing_allocations(void **state) {
    (void)state;
    static const char *const text[] = {"a", "b", "<end>"};
    struct words w = {text, NULL, 3};
    const struct grammar_tokens t = {3, word_piece, last_ends, &w};
    for (uint64_t k = 1;; k++) {
        struct infer_grammar *g = NULL;
        struct infer_grammar_vocab *v = NULL;
        struct matcher *m = NULL;
        mem_fail_at(k);
        enum infer_status st =
            compile_schema(&g, "{\"properties\": {\"a\": {\"enum\": [1, 2]}, \"b\": {\"$ref\": "
                               "\"#/properties/a\"}}, \"additionalProperties\": true}");
        if (!st) st = grammar_vocab_open(&v, &t);
        if (!st) st = matcher_open(&m, g, v);
        mem_fail_at(0);
        matcher_close(m);
        infer_grammar_vocab_close(v);
        infer_grammar_free(g);
        if (st == INFER_OK) {
            assert_true(k > 10);
            break;
        }
        if (st != INFER_E_MEMORY) fail_msg("allocation %d: status %d, %s", (int)k, st, err_message());
    }
}

int main(void) {
    /* jansson keeps malloc here: when memory fails it frees a key by free(), whatever allocator it was given */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_that_meet),     cmocka_unit_test(grammar_vectors),
        cmocka_unit_test(schema_vectors),      cmocka_unit_test(grammar_files),
        cmocka_unit_test(gbnf_language),       cmocka_unit_test(repeated_repeats),
        cmocka_unit_test(schema_language),     cmocka_unit_test(grammar_errors),
        cmocka_unit_test(schema_errors),       cmocka_unit_test(masks_are_right),
        cmocka_unit_test(no_name_comes_twice), cmocka_unit_test(pools_do_not_grow),
        cmocka_unit_test(failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
