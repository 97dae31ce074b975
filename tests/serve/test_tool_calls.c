/* What models write, taken apart: every format, cut into tokens in every way, values that hurt, ends at every byte. */
#include "tests/lib/test.h"
#include <jansson.h>
#include "base/mem.h"
#include "files/json.h"
#include "text/chat_template.h"
#include "text/grammar/grammar.h"
#include "serve/toolcall/tool_probe.h"

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":"
    "{"
    "\"a\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"},\"o\":{\"type\":\"object\"},\"l\":{\"type\":"
    "\"array\"},"
    "\"b\":{\"type\":\"boolean\"},\"x\":{},\"m\":{\"type\":[\"string\",\"null\"]}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"g\",\"parameters\":{\"type\":\"object\",\"properties\":{"
    "}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{"
    "\"location\":{\"type\":\"string\"},\"unit\":{\"type\":\"string\",\"enum\":[\"celsius\",\"fahrenheit\"]}}"
    "}}}]";

/* The events added up: R(reasoning)C(content)name#id(args)! */
struct sum {
    struct buf text;
    int last, call;
};
static enum infer_status add(void *user, const struct tool_event *e) {
    static const char *const open[] = {"R(", "C(", "", "", ""};
    struct sum *s = user;
    bool part = (int)e->kind == s->last && e->kind <= TOOL_CONTENT;
    if (!part && s->last >= 0 && s->last <= TOOL_CONTENT) buf_text(&s->text, ")");
    if (!part) buf_text(&s->text, open[e->kind]);
    s->last = (int)e->kind;
    if (e->kind == TOOL_CALL) s->call++;
    if (e->kind >= TOOL_CALL) assert_int_equal(e->call, s->call - 1);
    assert_int_equal(text_valid_utf8(e->text, e->n), e->n);
    if (e->kind != TOOL_END) assert_true(e->n > 0);
    buf_add(&s->text, e->text, e->n);
    if (e->kind == TOOL_CALL && e->id) buf_printf(&s->text, "#%s", e->id);
    if (e->kind == TOOL_CALL) buf_text(&s->text, "(");
    if (e->kind == TOOL_END) buf_text(&s->text, e->cut ? ")!" : ")");
    return INFER_OK;
}

/* What looks like a control token, for tests with such a vocabulary: <|..|>, <..｜>, [UPPER]. */
static size_t control_at(const char *s, size_t n) {
    static const char *const opens[] = {"<|", "<｜", "["}, *const closes[] = {"|>", "｜>", "]"};
    for (int k = 0; k < 3; k++) {
        size_t len = strlen(opens[k]);
        if (n < len || memcmp(s, opens[k], len) != 0) continue;
        for (size_t i = len; i < n && i < 40; i++) {
            if (k == 2 && s[i] != ']' && s[i] != '_' && !(s[i] >= 'A' && s[i] <= 'Z')) break;
            if (strchr(" \n=\"", s[i]) && !(s[i] == '"' && i == 2)) break;
            if (n - i >= strlen(closes[k]) && memcmp(s + i, closes[k], strlen(closes[k])) == 0 &&
                (k != 2 || i > 2))
                return i + strlen(closes[k]);
        }
    }
    return 0;
}
static int32_t control_id(void *user, const char *s, size_t n) {
    uint32_t hash = 1;
    (void)user;
    if (n == 0 || control_at(s, n) != n) return -1;
    for (size_t i = 0; i < n; i++) hash = hash * 31 + (uint8_t)s[i];
    return (int32_t)(hash & 0x7fffffff);
}

static const struct tool_row *row_named(const char *name) {
    for (int i = 0; i < n_tool_row; i++)
        if (strcmp(tool_rows[i].name, name) == 0) return &tool_rows[i];
    return NULL;
}

enum cutting { WHOLE, BYTES, SPLIT, TOKENS };
/* The events of text[n]; at: where SPLIT cuts. */
static char *parse(const struct tool_options *options, const char *text, size_t n, enum cutting how,
                   size_t at) {
    struct sum s = {.last = -1};
    struct tool_options o = *options;
    struct tool_parser *p;
    o.on_event = add;
    o.user = &s;
    assert_ok(tool_open(&p, &o));
    for (size_t i = 0; i < n;) {
        size_t len = how == WHOLE ? n : how == SPLIT ? (i == 0 && at ? at : n - i) : 1;
        int32_t id = -1;
        if (how == TOKENS && (id = control_id(NULL, text + i, control_at(text + i, n - i))) >= 0)
            len = control_at(text + i, n - i);
        assert_ok(tool_push(p, id, text + i, len));
        i += len;
    }
    assert_ok(tool_finish(p));
    tool_close(p);
    if (s.last >= 0 && s.last <= TOOL_CONTENT) buf_text(&s.text, ")");
    buf_add(&s.text, "", 0);
    return s.text.p;
}

/* Frees got; what is wrong is printed, and counted in `wrong`. */
static int wrong;
static bool same(const char *row, const char *text, char *got, const char *want) {
    bool ok = strcmp(got, want) == 0;
    if (!ok) print_message("%s: %.600s\n  got  %.600s\n  want %.600s\n", row, text, got, want);
    wrong += !ok;
    mem_free(got);
    return ok;
}

/* The same however it is cut. */
static void check(const char *row, enum tool_start start, const char *text, const char *want) {
    struct tool_format plain, special;
    json_t *tools = json_loads(tools_text, 0, NULL);
    size_t n = strlen(text);
    tool_format_set(&plain, row_named(row), NULL, NULL);
    tool_format_set(&special, row_named(row), control_id, NULL);
    struct tool_options o = {.format = &plain, .tools = tools, .start = start};
    bool ok = same(row, text, parse(&o, text, n, BYTES, 0), want);
    for (size_t at = 0; ok && at < n; at++)
        ok = same(row, text, parse(&o, text, n, at ? SPLIT : WHOLE, at), want);
    o.format = &special;
    if (ok) ok = same(row, text, parse(&o, text, n, TOKENS, 0), want);
    o.by_text = true; /* under a grammar marks may be spelt out */
    if (ok) same(row, text, parse(&o, text, n, BYTES, 0), want);
    json_decref(tools);
}

static const struct {
    const char *row, *text, *want;
} written[] = {
    {"hermes", "Hello there.", "C(Hello there.)"},
    {"hermes", " \n Hello \n", "C( \n Hello \n)"},
    {"hermes", "<think>\nhm\n</think>\n\nHello", "R(hm)C(Hello)"},
    {"hermes", "<think></think>Hello</think> you", "C(Hello you)"},
    {"hermes", "I see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"x\"}}\n</tool_call>",
     "C(I see.)f({\"a\": \"x\"})"},
    {"hermes",
     "<tool_call>{\"arguments\":{\"a\":\"</tool_call>\"},\"name\":\"f\"}</"
     "tool_call>\n<tool_call>{\"name\":\"g\"}</tool_call>\nDone.",
     "f({\"a\":\"</tool_call>\"})g({})C(Done.)"},
    {"hermes", "<think>now <tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>", "R(now)f({})"},
    {"hermes",
     "<tool_call>{\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": "
     "\\\"\\u00e9\\\"}\"}}</tool_call>",
     "f({\"a\": \"é\"})"},
    {"hermes",
     "<tool_call>[{\"name\":\"f\",\"arguments\":null},{\"name\":\"g\",\"x\":[1,{\"y\":\"}\"}],\"arguments\":{"
     "\"a\":1}}]</tool_call>",
     "f({})g({\"a\":1})"},
    {"hermes", "a <tool_call> tag and <tool_cal", "C(a <tool_call> tag and <tool_cal)"},
    {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"x", "f({\"a\": \"x)!"},
    {"hermes", "<tool_call>{\"nam", "C(<tool_call>{\"nam)"},
    {"command",
     "<|START_THINKING|>I look.<|END_THINKING|><|START_ACTION|>[\n {\"tool_call_id\": \"0\", \"tool_name\": "
     "\"f\", \"parameters\": {\"n\": 1}},\n {\"tool_call_id\": \"1\", \"tool_name\": \"g\", \"parameters\": "
     "{}}\n]<|END_ACTION|>",
     "R(I look.)f#0({\"n\": 1})g#1({})"},
    {"granite", "<|tool_call|>[{\"name\":\"f\",\"arguments\":{\"n\":1}}]", "f({\"n\":1})"},
    {"nemotron", "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {}}]</TOOLCALL>", "f({})"},
    {"functools", " functools[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {}}]",
     "f({})g({})"},
    {"functools", "import functools and go", "C(import functools and go)"},
    {"mistral_v7", "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"n\": 2}, \"id\": \"call00001\"}]",
     "f({\"n\": 2})"},
    {"mistral", "[TOOL_CALLS]f[CALL_ID]abcdef123[ARGS]{\"n\": 2}[TOOL_CALLS]g[ARGS]{}",
     "f#abcdef123({\"n\": 2})g({})"},
    {"mistral", "[THINK]hm[/THINK]ok", "R(hm)C(ok)"},
    {"llama3", "{\"name\": \"f\", \"parameters\": {\"a\": \"}\"}}; {\"name\": \"g\", \"parameters\": {}}",
     "f({\"a\": \"}\"})g({})"},
    {"llama3", "<|python_tag|>{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}", "f({})"},
    {"llama3", "{\"name\": \"Alice\", \"age\": 3}", "C({\"name\": \"Alice\", \"age\": 3})"},
    {"llama3", "{\"age\": 3}", "C({\"age\": 3})"},
    {"llama4", "[f(a=\"x\"), g()]", "f({\"a\": \"x\"})g({})"},
    {"llama4", "[1, 2] and [f(a=1)]", "C([1, 2] and [f(a=1)])"},
    {"deepseek_v3.1",
     "Wait.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": "
     "\"x\"}<｜tool▁call▁end｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "C(Wait.)f({\"a\": \"x\"})g({})"},
    {"deepseek_r1",
     "<think>x</think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": "
     "\"```\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "R(x)f({\"a\": \"```\"})"},
    {"kimi",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"n\": "
     "1}<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}<|tool_call_end|><|"
     "tool_calls_section_end|>",
     "f#functions.f:0({\"n\": 1})g#functions.g:1({})"},
    {"functionary", "<function=f>{\"a\": \"</function>\"}</function>", "f({\"a\": \"</function>\"})"},
    {"qwen_coder",
     "Let me.\n\n<tool_call>\n<function=f>\n<parameter=a>\nx "
     "\"y\"\n\n</parameter>\n<parameter=n>\n12\n</parameter>\n<parameter=o>\n{\"k\": "
     "[1]}\n</parameter>\n<parameter=b>\nTrue\n</parameter>\n</function>\n</tool_call>",
     "C(Let me.)f({\"a\": \"x \\\"y\\\"\\n\", \"n\": 12, \"o\": {\"k\": [1]}, \"b\": true})"},
    {"qwen_coder",
     "<tool_call>\n<function=f>\n<parameter=a>\nan </parameter> or </tool_call> "
     "within\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=g>\n</function>\n</tool_call>",
     "f({\"a\": \"an </parameter> or </tool_call> within\"})g({})"},
    {"qwen_coder",
     "<tool_call><function=f><parameter=m>null</parameter><parameter=x>12 "
     "pm</parameter></function><function=g></function></tool_call>",
     "f({\"m\": null, \"x\": \"12 pm\"})g({})"},
    {"qwen_coder", "<tool_call><function=f><parameter=m>12</parameter></function></tool_call>",
     "f({\"m\": \"12\"})"},
    {"qwen_coder", "<tool_call><function=f><parameter=a>\nabc", "f({\"a\": \"abc)!"},
    {"seed",
     "<seed:think>hm</seed:think><seed:tool_call>\n<function=f>\n<parameter=a>x</parameter>\n</function>\n</"
     "seed:tool_call>",
     "R(hm)f({\"a\": \"x\"})"},
    {"glm",
     "\n<think>hm</think>\n<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x</arg_value>\n<arg_key>n</"
     "arg_key>\n<arg_value>3</arg_value>\n</tool_call>",
     "R(hm)f({\"a\": \"x\", \"n\": 3})"},
    {"glm",
     "<tool_call>g</tool_call><tool_call>f<arg_key>zz</arg_key><arg_value>[1, 2]</arg_value></tool_call>",
     "g({})f({\"zz\": [1, 2]})"},
    {"minimax",
     "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">x</parameter>\n<parameter "
     "name=\"l\">[\"u\"]</parameter>\n</invoke>\n<invoke name=\"g\">\n</invoke>\n</minimax:tool_call>",
     "f({\"a\": \"x\", \"l\": [\"u\"]})g({})"},
    {"deepseek_v3.2",
     "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"x\" "
     "string=\"true\">12</｜DSML｜parameter>\n<｜DSML｜parameter name=\"a\" "
     "string=\"false\">[3]</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
     "f({\"x\": \"12\", \"a\": [3]})"},
    {"deepseek_v4", "<｜DSML｜tool_calls><｜DSML｜invoke name=\"g\"></｜DSML｜invoke></｜DSML｜tool_calls>",
     "g({})"},
    {"lfm2",
     "<|tool_call_start|>[f(a=\"it's\", n=-3, l=[1, 'q', None], o={\"k\": True}), "
     "g()]<|tool_call_end|>Checking.",
     "f({\"a\": \"it's\", \"n\": -3, \"l\": [1, \"q\", null], \"o\": {\"k\": true}})g({})C(Checking.)"},
    {"lfm2", "<|tool_call_start|>[{\"name\": \"f\", \"arguments\": {\"a\": \"x\"}}]<|tool_call_end|>",
     "f({\"a\": \"x\"})"},
    {"olmo", "<function_calls>\nf(a='say \\'hi\\'\\n\\u00e9\\x41', n=1.5e3)\ng()\n</function_calls>",
     "f({\"a\": \"say 'hi'\\n\\u00e9A\", \"n\": 1.5e3})g({})"},
    {"gemma",
     "<|tool_call>call:f{a:<|\"|>te\"xt, } "
     "\\n<|\"|>,n:1,o:{k:true,j:<|\"|><|\"|>},l:[<|\"|>q<|\"|>,2]}<tool_call|><|tool_call>call:g{}<tool_call|"
     ">",
     "f({\"a\": \"te\\\"xt, } \\\\n\", \"n\": 1, \"o\": {\"k\": true, \"j\": \"\"}, \"l\": [\"q\", "
     "2]})g({})"},
    {"gemma", "<|channel>thought\nhm\n<channel|>Hi", "R(hm)C(Hi)"},
};

static void written_by_hand(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof written / sizeof *written; i++)
        check(written[i].row, TOOL_START_ANSWER, written[i].text, written[i].want);
    assert_int_equal(wrong, 0);
}

static void harmony(void **state) {
    (void)state;
    check("harmony", TOOL_START_HEADER,
          "<|channel|>analysis<|message|>I "
          "think.<|end|><|start|>assistant<|channel|>final<|message|>Hello.<|return|>",
          "R(I think.)C(Hello.)");
    check("harmony", TOOL_START_HEADER,
          "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>commentary to=functions.f "
          "<|constrain|>json<|message|>{\"a\": \"x\"}<|call|>",
          "R(Hm)f({\"a\": \"x\"})");
    check("harmony", TOOL_START_HEADER,
          " to=functions.f<|channel|>commentary json<|message|>{\"n\": 1}<|call|>", "f({\"n\": 1})");
    check("harmony", TOOL_START_HEADER, "<|channel|>commentary<|message|>Let me look.<|end|>",
          "C(Let me look.)");
    check("harmony", TOOL_START_CONTENT, "on and on<|return|>", "C(on and on)");
    assert_int_equal(wrong, 0);
}

static void starts(void **state) {
    (void)state;
    check("hermes", TOOL_START_REASONING, "\nhm <think> hm\n</think>\n\nYes.\n", "R(hm <think> hm)C(Yes.\n)");
    check("hermes", TOOL_START_REASONING, "for ever", "R(for ever)");
    check("hermes", TOOL_START_CONTENT, "a </think> b", "C(a </think> b)");
    assert_int_equal(wrong, 0);
}

/* Every beginning of an answer has the same events in one piece and byte by byte, and every call that begins ends. */
static void cut_short(void **state) {
    (void)state;
    json_t *tools = json_loads(tools_text, 0, NULL);
    wrong = 0;
    for (size_t i = 0; i < sizeof written / sizeof *written; i++) {
        struct tool_format f;
        tool_format_set(&f, row_named(written[i].row), NULL, NULL);
        struct tool_options o = {.format = &f, .tools = tools};
        for (size_t n = 1; n < strlen(written[i].text); n++) {
            char *whole = parse(&o, written[i].text, n, WHOLE, 0);
            same(written[i].row, written[i].text, parse(&o, written[i].text, n, BYTES, 0), whole);
            mem_free(whole);
        }
    }
    json_decref(tools);
    assert_int_equal(wrong, 0);
}

static const struct {
    const char *text, *want;
    bool single, keep, no_tools;
    const char *stop;
} options[] = {
    {"ab STOP cd", "C(ab )", .stop = "STOP"},
    {"ab STO<think>", "C(ab STO<think>)", .stop = "STOP"},
    {"<think>STOP</think>\n\nx\nSTOP", "R(STOP)C(x\n)", .stop = "STOP"},
    {"x S<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"STOP\"}}</tool_call> STOP",
     "C(x S)f({\"a\":\"STOP\"})", .stop = "STOP"},
    {"<tool_call>{\"name\":\"f\"}</tool_call><tool_call>{\"name\":\"g\"}</tool_call> a", "f({})",
     .single = true},
    {"<think>a</think> b <tool_call>{\"name\":\"f\"}</tool_call>", "C(<think>a</think> b)f({})",
     .keep = true},
    {"a <tool_call>{\"name\":\"f\"}</tool_call>", "C(a <tool_call>{\"name\":\"f\"}</tool_call>)",
     .no_tools = true},
};
static void wishes(void **state) {
    (void)state;
    json_t *tools = json_loads(tools_text, 0, NULL);
    struct tool_format f;
    wrong = 0;
    tool_format_set(&f, row_named("hermes"), NULL, NULL);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        struct tool_options o = {.format = &f,
                                 .tools = options[i].no_tools ? NULL : tools,
                                 .single = options[i].single,
                                 .keep_reasoning = options[i].keep,
                                 .stop = &options[i].stop,
                                 .n_stop = options[i].stop != NULL};
        const char *text = options[i].text;
        bool ok = same("hermes", text, parse(&o, text, strlen(text), BYTES, 0), options[i].want);
        for (size_t at = 0; ok && at < strlen(text); at++)
            ok = same("hermes", text, parse(&o, text, strlen(text), at ? SPLIT : WHOLE, at), options[i].want);
    }
    json_decref(tools);
    assert_int_equal(wrong, 0);
}

/* A template without tools: they are told in the system message, calls and results become text. */
static void described(void **state) {
    (void)state;
    static const char chatml[] =
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";
    struct tool_template t = {.text = chatml, .n = sizeof chatml - 1};
    struct tool_probe p;
    assert_ok(tool_probe(&p, &t));
    assert_true(p.described && !p.rendered && !p.thinking);
    assert_string_equal(p.format.row->name, "hermes");
    json_t *tools = json_loads(tools_text, 0, NULL),
           *m = json_loads("[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"content\":\"\","
                           "\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"a\":\"x\"}}}]},{"
                           "\"role\":\"tool\",\"content\":\"r\"}]",
                           0, NULL);
    assert_ok(tool_tell(&p, m, tools));
    assert_int_equal(json_array_size(m), 4);
    assert_non_null(
        strstr(json_string_value(json_object_get(json_array_get(m, 0), "content")), "get_weather"));
    assert_string_equal(json_string_value(json_object_get(json_array_get(m, 2), "content")),
                        "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"x\"}}\n</tool_call>");
    assert_string_equal(json_string_value(json_object_get(json_array_get(m, 3), "role")), "user");
    json_decref(m);
    json_decref(tools);
}

/* ---- grammars ---- */

/* A text of the grammar, byte for byte at random; ends come first. */
static char *random_text(struct matcher *m, uint64_t *seed) {
    struct buf b = {0};
    matcher_reset(m);
    while (b.n < 4000 && !matcher_complete(m)) {
        char c = 0;
        bool ok = false;
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        const unsigned from = (unsigned)(*seed >> 33) % 0x60, step = (*seed >> 60 & 1) ? 1 : 0x5f;
        for (unsigned i = 0; i < 0x60 && !ok; i++) {
            const unsigned k = 0x20 + (from + i * step) % 0x60;
            c = k == 0x7f ? '\n' : (char)k;
            ok = matcher_accept_bytes(m, &c, 1);
        }
        for (int k = 0x80; k < 0x100 && !ok; k++) {
            c = (char)k;
            ok = matcher_accept_bytes(m, &c, 1);
        }
        if (!ok) break;
        buf_add(&b, &c, 1);
    }
    buf_add(&b, "", 0);
    return b.p;
}

static void forced_calls(void **state) {
    (void)state;
    json_t *tools =
        json_loads("[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
                   "\"properties\":{\"a\":{\"$ref\":\"#/$defs/t\"},"
                   "\"b\":{\"type\":\"boolean\"}},\"required\":[\"a\",\"b\"],\"additionalProperties\":false,"
                   "\"$defs\":{\"t\":{\"type\":\"string\",\"maxLength\":6}}}}},"
                   "{\"type\":\"function\",\"function\":{\"name\":\"g-1\",\"parameters\":{\"type\":"
                   "\"object\",\"properties\":{\"n\":{\"enum\":[1,\"]\\\"\"]}},"
                   "\"required\":[\"n\"],\"additionalProperties\":false}}}]",
                   0, NULL);
    uint64_t seed = 5;
    wrong = 0;
    for (int i = 0; i < n_tool_row; i++)
        for (int which = 0; which < 3; which++) {
            static const char *const names[] = {NULL, "f", "g-1"};
            char *gbnf;
            size_t bad;
            struct infer_grammar *g;
            struct matcher *m;
            struct tool_format f;
            tool_format_set(&f, &tool_rows[i], NULL, NULL);
            struct tool_options o = {.format = &f,
                                     .tools = tools,
                                     .by_text = true,
                                     .start = tool_rows[i].shape == SHAPE_HARMONY ? TOOL_START_HEADER
                                                                                  : TOOL_START_CONTENT};
            if (tool_rows[i].shape == SHAPE_BARE || !strcmp(tool_rows[i].name, "llama4"))
                o.start = TOOL_START_ANSWER;
            assert_ok(tool_gbnf(&gbnf, &tool_rows[i], tools, names[which], !which, &bad));
            if (infer_grammar_from_gbnf(&g, gbnf, strlen(gbnf)))
                fail_msg("%s: %s\n%s", tool_rows[i].name, err_message(), gbnf);
            assert_ok(matcher_open(&m, g, NULL));
            for (int k = 0; k < 20; k++) {
                char *text = random_text(m, &seed), *got = parse(&o, text, strlen(text), WHOLE, 0),
                     *open = strchr(got, '(');
                json_t *args = open ? json_loads(open + 1, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
                const bool named = strncmp(got, "f", 1) == 0 || strncmp(got, "g-1", 3) == 0,
                           meant = !names[which] || strncmp(got, names[which], strlen(names[which])) == 0;
                if (!matcher_complete(m) || !json_is_object(args) || !named || !meant || strstr(got, ")C("))
                    print_message("%s: %s\n  gives %s\n", tool_rows[i].name, text, got), wrong++;
                json_decref(args);
                mem_free(text);
                mem_free(got);
            }
            matcher_close(m);
            infer_grammar_free(g);
            mem_free(gbnf);
        }
    json_decref(tools);
    assert_int_equal(wrong, 0);
    json_t *refused =
        json_loads("[{\"function\":{\"name\":\"f\"}},{\"function\":{\"name\":\"g\",\"parameters\":{\"type\":"
                   "\"object\",\"properties\":{\"a\":{\"type\":\"nonsense\"}}}}}]",
                   0, NULL);
    char *gbnf;
    size_t bad = 9;
    assert_int_not_equal(tool_gbnf(&gbnf, row_named("hermes"), refused, NULL, true, &bad), INFER_OK);
    assert_int_equal(bad, 1);
    assert_null(gbnf);
    json_decref(refused);
}

/* ---- templates of others ---- */

static char *load(const char *name, size_t *n) {
    char path[1024];
    FILE *f = fopen(testdata_path(path, sizeof path, name), "rb");
    if (!f) return NULL;
    char *text = malloc(1 << 20);
    *n = fread(text, 1, 1 << 20, f);
    fclose(f);
    return text;
}

static const json_t *case_of(const json_t *tmpl, const char *name) {
    size_t i;
    const json_t *c;
    json_array_foreach(json_object_get(tmpl, "cases"), i,
                       c) if (strcmp(json_string_value(json_object_get(c, "conversation")), name) ==
                              0) return c;
    return NULL;
}

/* The rows of the templates that show tools, as the probe finds them. */
static const char *const rows_of[][2] = {
    {"ByteDance-Seed-OSS", "seed"},
    {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", "command"},
    {"CohereForAI-c4ai-command-r7b-12-2024-tool_use.2025-02", "command"},
    {"GLM-4.6", "glm"},
    {"GLM-4.7-Flash", "glm"},
    {"HuggingFaceTB-SmolLM3-3B", "hermes"},
    {"Kimi-K2-Instruct", "kimi"},
    {"LFM2-8B-A1B", "lfm2"},
    {"MiMo-VL", "hermes"},
    {"Mistral-Small-3.2-24B-Instruct-2506", "mistral"},
    {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "hermes"},
    {"Qwen-QwQ-32B", "hermes"},
    {"Qwen-Qwen2.5-7B-Instruct", "hermes"},
    {"Qwen-Qwen3-0.6B", "hermes"},
    {"Qwen3-Coder", "qwen_coder"},
    {"Qwen3.5-4B", "qwen_coder"},
    {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "deepseek_r1"},
    {"deepseek-ai-DeepSeek-V3.1", "deepseek_v3.1"},
    {"google-gemma-4-31B-it", "gemma"},
    {"google-gemma-4-31B-it-interleaved", "gemma"},
    {"ibm-granite-granite-3.3-2B-Instruct", "granite"},
    {"granite-3.0-8b", "granite"},
    {"meetkai-functionary-medium-v3.1", "functionary"},
    {"meta-llama-Llama-3.1-8B-Instruct", "llama3"},
    {"meta-llama-Llama-3.2-3B-Instruct", "llama3"},
    {"mistral-large-2407-v3", "mistral_v7"},
    {"mistralai-Mistral-Nemo-Instruct-2407", "mistral_v7"},
    {"moonshotai-Kimi-K2", "kimi"},
    {"openai-gpt-oss-120b", "harmony"},
};

/* The call that a template renders behind the prompt comes back, however it is cut. */
static int round_trip(const char *name, const json_t *tmpl, const struct tool_probe *probe) {
    const char *a = json_string_value(json_object_get(case_of(tmpl, "A08_tools"), "text")),
               *b = json_string_value(json_object_get(case_of(tmpl, "A09_tool_result"), "text"));
    if (!probe->format.row || (probe->described && !probe->rendered) || !a || !b ||
        !strstr(b + strlen(a) / 2, "celsius"))
        return 0;
    size_t same_n = 0;
    while (a[same_n] && a[same_n] == b[same_n]) same_n++;
    enum tool_start start = tool_start(probe, a, same_n < strlen(a) ? same_n : strlen(a));
    bool whole = a[same_n] == 0;
    while (same_n && a[same_n] && !strchr("<[", b[same_n])) same_n--; /* in the middle of a mark */
    const char *call = b + same_n, *end = strstr(call, "celsius");
    const char *stops[] = {"<|im_end|>",
                           "<|eot_id|>",
                           "<|eom_id|>",
                           "<|END_OF_TURN_TOKEN|>",
                           "</s>",
                           "<|observation|>",
                           "<｜end▁of▁sentence｜>",
                           "<seed:eos>",
                           "<|tool_response>",
                           "<turn|>",
                           "<|start|>"};
    size_t n = strlen(call);
    for (size_t i = 0; end && i < sizeof stops / sizeof *stops; i++) {
        const char *hit = strstr(end, stops[i]);
        if (hit && (size_t)(hit - call) < n) n = (size_t)(hit - call);
    }
    struct tool_format special;
    json_t *tools = json_loads(tools_text, 0, NULL);
    tool_format_set(&special, probe->format.row, control_id, NULL);
    struct tool_options o = {.format = &probe->format, .tools = tools, .start = start};
    char *text = strndup(call, n), *want = parse(&o, text, n, WHOLE, 0);
    bool ok = strstr(want, "get_weather") &&
              strstr(want, "({\"location\": \"Paris, France\", \"unit\": \"celsius\"})") &&
              !strstr(want, "!") && (!whole || !strstr(want, "C("));
    if (!ok) print_message("%s (%s): %s\n  gives %s\n", name, probe->format.row->name, text, want), wrong++;
    for (size_t at = 1; ok && at < n; at++) ok = same(name, text, parse(&o, text, n, SPLIT, at), want);
    if (ok) ok = same(name, text, parse(&o, text, n, BYTES, 0), want);
    o.format = &special;
    if (ok) same(name, text, parse(&o, text, n, TOKENS, 0), want);
    mem_free(want);
    free(text);
    json_decref(tools);
    return 1;
}

/* Arguments that hurt, as the template writes them. */
static json_t *hurt_args(int which) {
    static const char *const texts[] = {
        "say \"hi\" it's \\ \\n",
        "two\nlines\n\nof \t text",
        "a </parameter> b </arg_value> c </function> d",
        "a </tool_call> b [/TOOL_CALLS] ]} }} c",
        "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7 \xe4\xbd\xa0\xe5\xa5\xbd",
        "",
        "{\"json\": [1, \"x\"]}",
        "12"};
    json_t *args = json_object();
    if (which < 8) {
        json_object_set_new(args, "a", json_string(texts[which]));
    } else if (which == 8) {
        char *big = malloc(100001);
        memset(big, 'x', 100000);
        big[100000] = 0;
        json_object_set_new(args, "a", json_string(big));
        free(big);
    } else if (which == 9) {
        json_object_set_new(
            args, "o",
            json_loads("{\"p\": {\"q\": [1, 2.5, {\"r\": null}], \"s\": \"}\"}, \"t\": true}", 0, NULL));
        json_object_set_new(args, "l", json_loads("[\"u\", [], {}]", 0, NULL));
        json_object_set_new(args, "n", json_integer(-3));
        json_object_set_new(args, "b", json_false());
    }
    return args;
}
enum { N_HURT = 11 }; /* the last has none */

static char *rendered(const char *text, size_t n, json_t *args, const json_t *tools) {
    json_t *vars =
        json_pack("{s:[{s:s,s:s}], s:O, s:b, s:s, s:s}", "messages", "role", "user", "content", "q", "tools",
                  tools, "add_generation_prompt", !args, "bos_token", "", "eos_token", "<END>");
    if (args)
        json_array_append_new(json_object_get(vars, "messages"),
                              json_pack("{s:s,s:s,s:[{s:s,s:s,s:{s:s,s:O}}]}", "role", "assistant", "content",
                                        "", "tool_calls", "id", "call00001", "type", "function", "function",
                                        "name", "f", "arguments", args));
    struct chat_text t;
    char *out = chat_render(&t, text, n, vars) ? NULL : strndup(t.text, t.n);
    if (out) chat_text_free(&t);
    json_decref(vars);
    return out;
}

static int hurts(const char *name, const char *template, size_t n, const struct tool_probe *probe) {
    int done = 0;
    json_t *tools = json_loads(tools_text, 0, NULL);
    char *a = rendered(template, n, NULL, tools);
    for (int i = 0; a && probe->rendered && i < N_HURT; i++) {
        json_t *args = hurt_args(i);
        char *b = rendered(template, n, args, tools);
        size_t same_n = 0, len = b ? strlen(b) : 0;
        while (b && a[same_n] && a[same_n] == b[same_n]) same_n++;
        while (b && same_n && a[same_n] && !strchr("<[", b[same_n])) same_n--;
        struct tool_options o = {.format = &probe->format,
                                 .tools = tools,
                                 .start = probe->format.row->shape == SHAPE_HARMONY ? TOOL_START_HEADER
                                                                                    : TOOL_START_ANSWER};
        char *got = b ? parse(&o, b + same_n, len - same_n, i == 8 ? WHOLE : BYTES, 0) : NULL,
             *call = got ? strstr(got, "f(") : NULL;
        if (i == 8 && got) mem_free(parse(&o, b + same_n, len - same_n, BYTES, 0));
        json_t *is = call ? json_loads(call + 2, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
        if (call && (!is || !json_equal(is, args)))
            print_message("%s, %d: %.300s\n  gives %.300s\n", name, i, b + same_n, got), wrong++;
        done += call != NULL;
        json_decref(is);
        json_decref(args);
        mem_free(got);
        free(b);
    }
    free(a);
    json_decref(tools);
    return done;
}

static void templates(void **state) {
    (void)state;
    size_t n = 0;
    char path[1024];
    if (!testdata_path(path, sizeof path, "templates/templates.json")) skip();
    json_t *file = json_load_file(path, JSON_ALLOW_NUL, NULL), *tmpl;
    const char *key;
    int trips = 0, found = 0, values = 0;
    wrong = 0;
    json_object_foreach(json_object_get(file, "templates"), key, tmpl) {
        char name[256];
        snprintf(name, sizeof name, "templates/%s", json_string_value(json_object_get(tmpl, "file")));
        char *text = load(name, &n);
        struct tool_probe probe;
        struct tool_template t = {.text = text,
                                  .n = n,
                                  .bos = json_string_value(json_object_get(tmpl, "bos_token")),
                                  .eos = json_string_value(json_object_get(tmpl, "eos_token"))};
        assert_ok(tool_probe(&probe, &t));
        for (size_t i = 0; i < sizeof rows_of / sizeof *rows_of; i++) {
            if (strcmp(rows_of[i][0], key) != 0) continue;
            found++;
            bool ok = probe.format.row && strcmp(probe.format.row->name, rows_of[i][1]) == 0;
            if (!ok)
                print_message("%s: %s instead of %s\n", key,
                              probe.format.row ? probe.format.row->name : "none", rows_of[i][1]),
                    wrong++;
        }
        trips += round_trip(key, tmpl, &probe);
        values += hurts(key, text, n, &probe);
        free(text);
    }
    json_decref(file);
    print_message("%d round trips, %d of arguments that hurt\n", trips, values);
    assert_int_equal(found, sizeof rows_of / sizeof *rows_of);
    assert_int_equal(wrong, 0);
    assert_true(trips >= 24 && values >= 16 * N_HURT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_by_hand), cmocka_unit_test(harmony),   cmocka_unit_test(starts),
        cmocka_unit_test(cut_short),       cmocka_unit_test(wishes),    cmocka_unit_test(described),
        cmocka_unit_test(forced_calls),    cmocka_unit_test(templates),
    };
    json_use_mem(); /* as the program does */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
