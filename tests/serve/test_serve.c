/* infer serve below HTTP: the guard's headers and keys, fields of requests, JSON that is written, the log of an answer. */
#include "tests/lib/test.h"
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/mem.h"
#include "files/json.h"
#include "serve/core/answer_log.h"
#include "serve/core/default_slots.h"
#include "serve/api/fields.h"
#include "serve/http/guard.h"
#include "serve/core/engine_port.h"
#include "serve/core/queue.h"
#include "serve/api/routes.h"
#include "serve/toolcall/tool_parser.h"
#include "text/grammar/grammar.h"

/* ---- JSON that is written ---- */

static void test_json(void **state) {
    (void)state;
    static const struct {
        const char *in;
        size_t n;
        const char *out;
    } cases[] = {
        {"", 0, "\"\""},
        {"a\"b\\c\n\t\r\x01", 9, "\"a\\\"b\\\\c\\n\\t\\r\\u0001\""},
        {"\0x", 2, "\"\\u0000x\""},
        {"\xe2\x9c\x93\xf0\x9f\x98\x80", 7, "\"\xe2\x9c\x93\xf0\x9f\x98\x80\""},
        {"\xe2\x9c", 2, "\"\\ufffd\\ufffd\""},
        {"\xff\x7f", 2, "\"\\ufffd\\u007f\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf b = {0};
        buf_json(&b, cases[i].in, cases[i].n);
        assert_string_equal(b.p, cases[i].out);
        buf_free(&b);
    }
    static const float numbers[] = {0, 1, -0.1f, 1e-7f, 3.4e38f, 16777216, -8.022463589441031e-05f};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct buf b = {0};
        buf_json_float(&b, numbers[i]);
        assert_true(strtof(b.p, NULL) == numbers[i]);
        assert_true(b.n <= 15);
        buf_free(&b);
    }
    struct buf b = {0};
    buf_json_float(&b, NAN);
    assert_string_equal(b.p, "null");
    buf_free(&b);
}

/* ---- guard ---- */

static bool next_header(void *user, int i, const char **name, const char **value) {
    const char *const *list = user;
    *name = list[2 * i];
    *value = list[2 * i] ? list[2 * i + 1] : NULL;
    return *name != NULL;
}

static struct server server_with(struct keys *keys) {
    struct server s = {.keys = keys};
    s.o.host_name[s.o.n_host_name++] = "box.example";
    s.o.cors_origin[s.o.n_cors_origin++] = "https://chat.example";
    return s;
}

/* At this machine's own address; without a Host, which later versions of HTTP demand. */
static const struct guard_request local = {.post = true, .local = true, .old = true};

/* Shapes: commas come of themselves, also between calls, and every value is escaped. */
static void test_json_put(void **state) {
    (void)state;
    struct buf b = {0};
    const char *none = NULL;
    buf_text(&b, "data: ");
    json_put(&b, "{id:%s object:'a b' n:[", "x\"\n");
    for (int i = 0; i < 3; i++) json_put(&b, "%d", i - 1);
    json_put(&b, "{}]");
    json_put(&b, "%s:%ld none:%s t:%.*s", "a.b", -5L, none, 3, "a\0}");
    json_put(&b, "e:%.*s empty:[] deep:{a:{b:[[]]}} after:null", 0, none);
    json_put(&b, "yes:%hhd no:%hhd z:%zu u:%llu}\n", (bool)true, (bool)false, (size_t)7, 1ull << 63);
    json_put(&b, "[%g %g %.2f %.1f %.9g]\n\n", 0.1f, NAN, 1.005, -INFINITY, 0.25);
    assert_string_equal(
        b.p, "data: {\"id\":\"x\\\"\\n\",\"object\":\"a b\",\"n\":[-1,0,1,{}],\"a.b\":-5,\"none\":null,"
             "\"t\":\"a\\u0000}\",\"e\":\"\",\"empty\":[],\"deep\":{\"a\":{\"b\":[[]]}},\"after\":null,"
             "\"yes\":true,\"no\":false,\"z\":7,\"u\":9223372036854775808}\n"
             "[0.1,null,1.00,null,0.25]\n\n");
    buf_free(&b);
}

static void test_guard(void **state) {
    (void)state;
    static const struct {
        const char *header[8];
        bool get, remote, is_unix, modern;
        int status; /* 0: let through */
    } cases[] = {
        {.header = {"Host", "localhost:8080", "Content-Length", "3"}},
        {.header = {"Host", "LOCALHOST"}},
        {.header = {"Host", "127.0.0.1:1"}},
        {.header = {"Host", "[::1]:8080"}},
        {.header = {"Host", "box.example:8080"}},
        {.header = {"Host", "evil.example"}, .status = 403},
        {.header = {"Host", "127.0.0.1.evil.example"}, .status = 403},
        {.header = {"Host", "localhost.evil"}, .status = 403},
        {.header = {"Host", "host.docker.internal:8080"}},
        {.header = {"Host", "host.containers.internal"}},
        {.header = {"Host", "docker.internal"}, .status = 403},
        /* an address that others reach, without keys (--insecure) */
        {.header = {"Host", "evil.example"}, .remote = true, .status = 403},
        {.header = {"Host", "box.example:80"}, .remote = true},
        {.header = {"Host", "192.168.1.5:8080"}, .remote = true},
        {.header = {"Host", "[fe80::1]:8080"}, .remote = true},
        {.header = {"Host", "192.168.1.5"}, .status = 403},
        {.header = {"Host", "192.168.1.5.evil.example"}, .remote = true, .status = 403},
        {.header = {NULL}, .modern = true, .status = 400},
        {.header = {NULL}, .modern = true, .is_unix = true},
        {.header = {"Host", "anything"}, .modern = true, .is_unix = true},
        {.header = {"Content-Encoding", "gzip"}, .status = 415},
        {.header = {"Content-Encoding", "identity"}},
        {.header = {"Content-Encoding", "gzip"}, .get = true},
        {.header = {"Host", "localhost", "host", "localhost"}, .status = 400},
        {.header = {"Content-Length", "3", "content-length", "3"}, .status = 400},
        {.header = {"Content-Length", "3", "Transfer-Encoding", "chunked"}, .status = 400},
        {.header = {"Transfer-Encoding", "Chunked"}},
        {.header = {"Transfer-Encoding", "gzip, chunked"}, .status = 400},
        {.header = {"Transfer-Encoding", "chunked", "Transfer-Encoding", "chunked"}, .status = 400},
        {.header = {"Authorization", "a", "Authorization", "b"}, .status = 400},
        {.header = {"Origin", "http://localhost:3000", "Content-Type", "application/json; charset=utf-8"}},
        {.header = {"Origin", "http://localhost:3000", "Content-Type", "text/plain"}, .status = 400},
        {.header = {"Origin", "http://localhost:3000"}, .get = true},
        {.header = {"Origin", "https://chat.example", "Content-Type", "application/json"}},
        {.header = {"Origin", "https://chat.example.evil", "Content-Type", "application/json"},
         .status = 403},
        {.header = {"Origin", "null", "Content-Type", "application/json"}, .status = 403},
        {.header = {"Sec-Fetch-Site", "cross-site"}, .status = 400},
        {.header = {"Sec-Fetch-Site", "cross-site", "Content-Type", "application/json"}},
        {.header = {"Content-Type", "application/jsonp", "Sec-Fetch-Site", "cross-site"}, .status = 400},
    };
    const struct server s = server_with(NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct guard_headers h = {next_header, (void *)cases[i].header};
        struct guarded out;
        struct refusal r;
        const struct guard_request q = {.post = !cases[i].get,
                                        .local = !cases[i].remote,
                                        .is_unix = cases[i].is_unix,
                                        .old = !cases[i].modern};
        bool ok = guard_check(&s, &h, &q, &out, &r);
        if (ok != !cases[i].status || r.status != cases[i].status)
            fail_msg("case %zu: %d, %s", i, r.status, r.message);
        assert_true(*out.request_id != 0);
    }
    const char *many[2 * 102 + 1] = {0};
    for (int i = 0; i < 102; i++) many[2 * i] = "a", many[2 * i + 1] = "b";
    const struct guard_headers h = {next_header, many};
    struct guarded out;
    struct refusal r;
    assert_false(guard_check(&s, &h, &local, &out, &r));
    assert_int_equal(r.status, 431);
    const struct guard_headers none = {next_header, (const char *[]){NULL}};
    assert_false(guard_check(&s, &none, &(struct guard_request){.local = true, .old = true, .n_head = 32769},
                             &out, &r));
    assert_int_equal(r.status, 431);
    assert_false(
        guard_check(&s, &none, &(struct guard_request){.local = true, .old = true, .n_url = 8193}, &out, &r));
    assert_int_equal(r.status, 414);
    struct server any = s;
    any.o.host_name[any.o.n_host_name++] = "*";
    const struct guard_headers foreign = {next_header, (const char *[]){"Host", "evil.example", NULL}};
    assert_true(guard_check(&any, &foreign, &local, &out, &r));
}

static void test_keys(void **state) {
    (void)state;
    static const struct {
        const char *text;
        mode_t mode;
        bool good;
    } files[] = {{"# "
                  "comment\n\nanna:12345678\r\nbert:abcdefgh:x\ncarl:classes1:flex:12\ndora:classes2:"
                  "priority\nemil:classes3:7",
                  0600, true},
                 {"anna:12345678\n", 0644, false},
                 {"anna:1234567\n", 0600, false},
                 {"12345678\n", 0600, false},
                 {"", 0600, false}};
    char path[] = "/tmp/infer-keys-XXXXXX";
    struct keys *k;
    unsetenv("INFER_API_KEY");
    close(mkstemp(path));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        FILE *f = fopen(path, "w");
        fputs(files[i].text, f);
        fclose(f);
        chmod(path, files[i].mode);
        if ((keys_open(&k, path) == INFER_OK) != files[i].good) fail_msg("file %zu: %s", i, err_message());
        if (i == 0) {
            assert_int_equal(keys_find(k, "12345678", 8), 0);
            assert_int_equal(keys_find(k, "abcdefgh:x", 10), 1);
            assert_int_equal(keys_find(k, "12345678\0", 9), 0); /* zeros are what is behind a key */
            assert_int_equal(keys_find(k, "1234567", 7), -1);
            assert_int_equal(keys_find(k, "", 0), -1);
            char long_one[300];
            memset(long_one, '1', sizeof long_one);
            assert_int_equal(keys_find(k, long_one, sizeof long_one), -1);
            assert_string_equal(keys_name(k, 1), "bert");
            assert_int_equal(keys_find(k, "classes1", 8), 2);
            assert_int_equal(keys_class(k, 2), CLASS_FLEX);
            assert_int_equal(keys_max(k, 2, 5), 12);
            assert_int_equal(keys_class(k, 3), CLASS_PRIORITY);
            assert_int_equal(keys_max(k, 3, 5), 5);
            assert_int_equal(keys_find(k, "classes3:7", 10), 4); /* no class: all of it is the key */
            assert_int_equal(keys_class(k, 4), CLASS_DEFAULT);
            assert_int_equal(keys_class(k, -1), CLASS_PRIORITY);
            /* and at the guard */
            struct server s = server_with(k);
            const char *const bearer[] = {"Authorization", "bearer  12345678", NULL}, *const none[] = {NULL};
            struct guarded out;
            struct refusal r;
            assert_true(
                guard_check(&s, &(struct guard_headers){next_header, (void *)bearer}, &local, &out, &r));
            assert_int_equal(out.key, 0);
            assert_false(
                guard_check(&s, &(struct guard_headers){next_header, (void *)none}, &local, &out, &r));
            assert_int_equal(r.status, 401);
            assert_true(guard_check(
                &s, &(struct guard_headers){next_header, (void *)none},
                &(struct guard_request){.post = true, .local = true, .old = true, .open = true}, &out, &r));
        }
        keys_close(k);
    }
    unlink(path);
}

/* ---- requests, and the log of an answer ---- */

static struct server server;

static struct job *job_of(const struct front_end *f, const char *body) {
    struct job *j = job_new(&server, f);
    j->body = mem_strdup(body);
    j->n_body = strlen(body);
    return j;
}

static void test_fields(void **state) {
    (void)state;
#define USER "\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]"
    static const struct {
        const char *body;
        const char *code, *param; /* NULL: prepared */
    } cases[] = {
        {"{" USER "}", NULL, NULL},
        {"{" USER ",\"temperature\":null,\"stop\":null}", NULL, NULL},
        {"{" USER ",\"temperature\":2.5}", "invalid_value", "temperature"},
        {"{" USER ",\"max_tokens\":0}", "invalid_value", "max_tokens"},
        {"{" USER ",\"max_tokens\":1.5}", "invalid_value", "max_tokens"},
        {"{" USER ",\"max_tokens\":2.0}", NULL, NULL},
        {"{" USER ",\"max_tokens\":-1,\"max_completion_tokens\":null}", NULL, NULL},
        {"{" USER ",\"max_tokens\":-2}", "invalid_value", "max_tokens"},
        {"{" USER ",\"use_beam_search\":true}", "unsupported_parameter", "use_beam_search"},
        {"{" USER ",\"use_beam_search\":false,\"best_of\":1,\"lora\":[],\"length_penalty\":1.0}", NULL, NULL},
        {"{" USER ",\"bad_words\":[\"a\",\"hello\"],\"allowed_token_ids\":[1,2]}", NULL, NULL},
        {"{" USER ",\"allowed_token_ids\":[1],\"grammar\":\"root ::= \\\"a\\\"\"}", "invalid_value",
         "allowed_token_ids"},
        {"{" USER ",\"tool_choice\":\"required\"}", "invalid_value", "tool_choice"},
        {"{" USER ",\"n\":0}", "invalid_value", "n"},
        {"{" USER ",\"stop\":[\"a\",\"\"]}", "invalid_value", "stop"},
        {"{" USER ",\"stop\":{}}", "invalid_value", "stop"},
        {"{" USER ",\"seed\":\"a\"}", "invalid_value", "seed"},
        {"{" USER ",\"logit_bias\":{\"x\":1}}", "invalid_value", "logit_bias"},
        {"{" USER ",\"response_format\":{\"type\":\"xml\"}}", "invalid_value", "response_format.type"},
        {"{" USER ",\"response_format\":{\"type\":\"json_schema\"}}", "invalid_value",
         "response_format.schema"},
        {"{" USER ",\"grammar\":\"root := x\"}", "invalid_schema", "grammar"},
        {"{" USER ",\"tools\":[{\"type\":\"function\",\"function\":{}}]}", "invalid_value", "tools[0]"},
        {"{" USER ",\"tool_choice\":\"maybe\"}", "invalid_value", "tool_choice"},
        {"{" USER ",\"chat_template_kwargs\":{\"messages\":1}}", "invalid_value", "chat_template_kwargs"},
        {"{" USER ",\"stream_options\":{\"include_usage\":1}}", "invalid_value",
         "stream_options.include_usage"},
        {"{" USER ",\"continue_final_message\":true}", "invalid_value", "continue_final_message"},
        {"{" USER ",\"modalities\":[\"text\",\"audio\"]}", "unsupported_parameter", "modalities"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"\\ud83d\"}]}", NULL, NULL},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"\\u0000\"}]}", NULL, NULL},
        {"{\"messages\":[{\"role\":\"user\",\"content\":5}]}", "invalid_value", "messages[0].content"},
        {"{\"messages\":[5]}", "invalid_value", "messages[0]"},
        {"{\"messages\":5}", "invalid_value", "messages"},
        {"{" USER "", "invalid_json", ""},
        {"", "invalid_json", ""},
        {"\xff", "invalid_json", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct job *j = job_of(&openai_chat, cases[i].body);
        enum infer_status st = prepare_job(j);
        if (!st != !cases[i].code || (st && (strcmp(j->refusal.code, cases[i].code) != 0 ||
                                             strcmp(j->refusal.param, cases[i].param) != 0)))
            fail_msg("%s: %s, %s, %s", cases[i].body, j->refusal.code, j->refusal.param, j->refusal.message);
        assert_int_equal(j->refusal.status, st ? 400 : 0);
        job_unref(j);
    }
}

/* strict with tool_choice auto: a grammar that waits for the mark of a call. */
static void test_strict(void **state) {
    (void)state;
#define TOOL(more)                                                                                           \
    "{" USER                                                                                                 \
    ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":true,\"parameters\":" more   \
    "}}]"
    static const char *const bodies[] = {
        TOOL("{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[\"x\",\"y\"]}},\"required\":[\"a\"],"
             "\"additionalProperties\":false}") "}",
        TOOL("{\"type\":\"strange\"}") "}", TOOL("{}") ",\"response_format\":{\"type\":\"json_object\"}}",
        TOOL("{}") ",\"tool_choice\":\"none\"}"};
    const int n_ctx = server.n_ctx;
    server.n_ctx = 4096;
    for (int i = 0; i < 4; i++) {
        struct job *j = job_of(&openai_chat, bodies[i]);
        enum infer_status st = prepare_job(j);
        if ((st != INFER_OK) != (i == 1)) fail_msg("%d: %s", i, j->refusal.message);
        assert_int_equal(j->wakes, i == 0);
        if (i == 1) assert_string_equal(j->refusal.param, "tools[0].function.parameters");
        if (i == 2) assert_non_null(strstr(j->warnings.p, "strict is not held to"));
        if (i == 0) {
            struct tool_parser *p = j->choice[0].parser;
            struct matcher *m;
            static const char *const pieces[] = {"Let", " me", " see <tool", "_call>", "\n"};
            const char *had = NULL;
            for (int k = 0; k < 4; k++) {
                assert_null(had);
                assert_ok(tool_push(p, -1, pieces[k], strlen(pieces[k])));
                had = tool_opened(p);
            }
            assert_string_equal(had, "<tool_call>");
            assert_ok(tool_push(p, -1, pieces[4], 1));
            assert_string_equal(tool_opened(p), "<tool_call>\n");
            assert_ok(matcher_open(&m, j->grammar, NULL));
            assert_true(matcher_accept_bytes(m, "<tool_call>\n", 12));
            assert_false(matcher_accept_bytes(m, "{\"name\": \"g\"", 12));
            assert_true(matcher_accept_bytes(m, "{\"name\": \"f\", \"arguments\": {\"a\":", 32));
            assert_false(matcher_accept_bytes(m, "\"z\"", 3));
            matcher_close(m);
            const char name[] = "{\"name\": \"f\"";
            assert_ok(tool_push(p, -1, name, sizeof name - 1));
            assert_null(tool_opened(p)); /* it has its name */
        }
        job_unref(j);
    }
    server.n_ctx = n_ctx;
}

/* What comes first: classes, then who was served least, then first come; 30 s of waiting are a class. */
static void test_queue(void **state) {
    struct queue q = {0};
    struct job a = {.key = 0, .arrived = 100}, b = {.key = 1, .arrived = 100},
               c = {.key = 1, .arrived = 100, .class = CLASS_PRIORITY};
    (void)state;
    assert_ok(queue_open(&q, 2));
    queue_came(&q, &a);
    queue_began(&q, &a, 500);
    queue_left(&q, &a, 100);
    queue_came(&q, &a);
    queue_came(&q, &b); /* not before: what it did not ask for is not saved up */
    assert_false(queue_before(&q, &b, &a, 101));
    assert_false(queue_before(&q, &a, &b, 101));
    queue_began(&q, &a, 1);
    assert_true(queue_before(&q, &b, &a, 101));
    assert_true(queue_before(&q, &c, &b, 101));
    assert_false(queue_before(&q, &b, &c, 101));
    a.arrived = 40; /* for a minute */
    assert_true(queue_before(&q, &a, &c, 101));
    assert_false(queue_plain(&q));
    queue_close(&q);
}

/* Events as a line: "0r(think)0t(text)0e(2)d" */
static void tell(struct job *j, const struct event *e, void *user) {
    (void)j;
    if (e->kind == EVENT_DONE)
        buf_text(user, "d");
    else if (e->kind == EVENT_END)
        buf_printf(user, "%de(%d)", e->choice, (int)e->finish);
    else
        buf_printf(user, "%d%c[%d](%.*s)", e->choice, "prtca."[e->kind], e -> n_token, (int)e -> n,
                   e -> text);
}

static void test_log(void **state) {
    (void)state;
    struct buf out = {0};
    struct job *j = job_of(&openai_chat, "{" USER ",\"n\":2,\"stream\":true,\"return_token_ids\":true}");
    if (prepare_job(j)) fail_msg("%s", j->refusal.message);
    struct choice *a = &j->choice[0], *b = &j->choice[1];
    assert_false(log_read(j, tell, &out));
    assert_null(out.p);
    log_token(a, 5, NULL);
    log_text(a, EVENT_REASONING, 0, "hm", 2);
    log_token(b, 6, NULL);
    log_text(b, EVENT_TEXT, 0, "x", 1);
    assert_false(log_read(j, tell, &out));
    assert_string_equal(out.p, "0r[1](hm)1t[1](x)");
    out.n = 0;
    log_token(a, 7, NULL); /* a token without text */
    log_end(b, FINISH_LENGTH, NULL, -1);
    assert_false(log_read(j, tell, &out));
    assert_string_equal(out.p, "0t[1]()1e(2)");
    out.n = 0;
    for (int i = 0; i < 5; i++) { /* many wait: they are told as one */
        log_token(a, 8 + i, NULL);
        log_text(a, EVENT_TEXT, 0, &"abcde"[i], 1);
    }
    request_line(a, 0, "f", "own");
    log_text(a, EVENT_ARGS, 0, "{", 1);
    log_text(a, EVENT_ARGS, 0, "}", 1);
    log_text(a, EVENT_CALL_END, 0, "", 0);
    log_end(a, FINISH_CALLS, NULL, -1);
    assert_true(log_read(j, tell, &out));
    assert_string_equal(out.p, "0t[5](abcde)0c[0](f)0a[0]({})0.[0]()0e(3)d");
    const struct job_answer *got = job_answer(j, 0);
    assert_string_equal(got->reasoning.p, "hm");
    assert_string_equal(got->text.p, "abcde");
    assert_int_equal(got->n_call, 1);
    assert_string_equal(got->call[0].id.p, "own");
    assert_string_equal(got->call[0].args.p, "{}");
    assert_int_equal(got->n_token, 7);
    buf_free(&out);
    job_unref(j);
}

static int open_server(void **state) {
    static struct engine_port port = {.n_slot = 1, .n_ctx = 256};
    struct infer_model *m;
    char path[512];
    (void)state;
    json_use_mem();
    test_path(path, sizeof path, "golden/chat/chat-llama.gguf");
    assert_ok(infer_model_open(&m, path, NULL));
    assert_ok(server_take_model(&server, m, &port, path));
    return 0;
}

static int close_server(void **state) {
    (void)state;
    infer_grammar_vocab_close(server.vocab);
    grammars_close(server.grammars);
    infer_model_close((struct infer_model *)server.model);
    return 0;
}

/* ---- how many at once on a card ---- */

static void test_crowd(void **state) {
    (void)state;
    const struct infer_model *m = server.model;
    const struct infer_engine_options own = {
        .slots = 16, .kv_tokens = 1024, .gpu_layers = -1, .cpu_experts = -1};
    struct infer_engine_options o = own, host = own;
    struct infer_plan_report r;
    bool seen[5] = {false};
    host.device = "cpu";
    assert_int_equal(default_slots(m, NULL, &host), INFER_OK);
    assert_true(host.slots == own.slots && host.kv_tokens == own.kv_tokens);
    assert_int_equal(default_slots(m, "24,sm_90", &o), INFER_OK);
    assert_true(o.slots == 256 && o.kv_tokens == 256 * 256); /* its contexts have 256 positions */
    assert_int_equal(infer_plan(m, &o, "24,sm_90", &r), INFER_OK);
    const uint64_t all = r.size.device_bytes + r.driver_bytes;
    infer_plan_free(&r);
    int before = 0;
    for (uint64_t limit = all / 64; limit < 2 * all;
         limit += all / 64) { /* a card with less and less taken */
        o = own;
        o.vram_limit = limit;
        assert_int_equal(default_slots(m, "24,sm_90", &o), INFER_OK);
        assert_true(o.slots >= before && o.slots <= 256 && (o.slots & (o.slots - 1)) == 0);
        assert_int_equal(o.kv_tokens, o.slots == 16 ? 1024 : o.slots * 256);
        before = o.slots;
        for (int i = 0; i < 5; i++) seen[i] |= o.slots == 16 << i;
        assert_int_equal(infer_plan(m, &o, "24,sm_90", &r), INFER_OK);
        assert_true(r.fits || o.slots == 16);
        infer_plan_free(&r);
    }
    assert_true(seen[0] && seen[3] && seen[4]); /* steps between may take no more than 16 slots do */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json),  cmocka_unit_test(test_json_put), cmocka_unit_test(test_guard),
        cmocka_unit_test(test_keys),  cmocka_unit_test(test_fields),   cmocka_unit_test(test_strict),
        cmocka_unit_test(test_queue), cmocka_unit_test(test_log),      cmocka_unit_test(test_crowd)};
    return cmocka_run_group_tests(tests, open_server, close_server);
}
