/* Any bytes as an answer, of any format: no crash, and the same events in one piece and in pieces of any size. And, where the first byte is
 * REQUEST, as the body of a request of the route that the second one says: it is refused with an error that is JSON, or prepared. */
#include <string.h>
#include "files/json.h"
#include "base/mem.h"
#include "serve/core/engine_port.h"
#include "serve/api/routes.h"
#include "serve/core/server.h"
#include "serve/toolcall/tool_int.h"

struct sum {
    struct buf text;
    int last;
};
static enum infer_status add(void *user, const struct tool_event *e) {
    struct sum *s = user;
    bool part = (int)e->kind == s->last && e->kind != TOOL_CALL && e->kind != TOOL_END;
    if (text_valid_utf8(e->text, e->n) != e->n) __builtin_trap();
    if (!part) buf_printf(&s->text, "|%d,%d:", (int)e->kind, e->call);
    s->last = (int)e->kind;
    buf_add(&s->text, e->text, e->n);
    if (e->cut) buf_text(&s->text, "!");
    return INFER_OK;
}

static struct buf parse(const struct tool_options *options, const uint8_t *data, size_t size, size_t step) {
    struct sum s = {.last = -1};
    struct tool_options o = *options;
    struct tool_parser *p;
    o.on_event = add;
    o.user = &s;
    buf_text(&s.text, "");
    if (tool_open(&p, &o)) __builtin_trap();
    for (size_t i = 0; i < size; i += step)
        tool_push(p, -1, (const char *)data + i, size - i < step ? size - i : step);
    if (tool_finish(p)) __builtin_trap();
    tool_close(p);
    return s.text;
}

enum { REQUEST = 0xff };
static struct server server;

static void open_server(void) {
    static struct engine_port port = {.n_slot = 1, .n_ctx = 1024, .n_embd = 8};
    static const char path[] = "tests/golden/chat/chat-llama.gguf";
    struct infer_model *m;
    json_use_mem();
    if (infer_model_open(&m, path, NULL) || server_take_model(&server, m, &port, path)) __builtin_trap();
}

static void is_json(const struct buf *b) {
    json_t *j = json_loadb(b->p, b->n, JSON_ALLOW_NUL, NULL);
    if (!j) __builtin_trap();
    json_decref(j);
}

static void request(uint8_t which, const uint8_t *data, size_t size) {
    static const struct front_end *const fronts[] = {
        &openai_chat,     &messages_api,     &responses_api, &openai_text,  &embeddings_api,
        &infill_api,      &rerank_api,       &rest_tokenize, &ollama_chat,  &ollama_generate,
        &ollama_embed,    &ollama_embedding, &rest_template, &openai_count, &messages_count,
        &responses_count, &rest_detokenize,  &ollama_show};
    struct job *j = job_new(&server, fronts[which % (sizeof fronts / sizeof *fronts)]);
    struct buf out = {0};
    if (!j || !(j->body = mem_alloc(size + 1))) __builtin_trap();
    memcpy(j->body, data, size);
    j->n_body = size;
    enum infer_status st = prepare_job(j);
    if (!st != !j->refusal.status) __builtin_trap();
    if (st) {
        j->front->error(j, &j->refusal, "id", false, &out);
        is_json(&out);
    } else if (j->front->reply && j->front->reply(j, &out) == INFER_OK) {
        is_json(&out);
    }
    buf_free(&out);
    job_unref(j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static bool set;
    if (!set) open_server();
    set = true;
    if (size < 3) return 0;
    if (data[0] == REQUEST) {
        request(data[1], data + 2, size - 2);
        return 0;
    }
    struct tool_format f;
    static const char *const stop[] = {"ab", "</"};
    json_t *tools =
        json_loads("[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":"
                   "{\"a\":{\"type\":\"string\"}}}}}]",
                   0, NULL);
    tool_format_set(&f, &tool_rows[data[0] % n_tool_row], NULL, NULL);
    struct tool_options o = {.format = &f,
                             .tools = data[1] & 1 ? NULL : tools,
                             .single = data[1] & 2,
                             .keep_reasoning = data[1] & 4,
                             .start = (enum tool_start)(data[1] >> 3 & 3),
                             .stop = stop,
                             .n_stop = data[1] >> 5 & 2};
    if (o.start == TOOL_START_HEADER && f.row->shape != SHAPE_HARMONY) o.start = TOOL_START_ANSWER;
    struct buf whole = parse(&o, data + 2, size - 2, size),
               parts = parse(&o, data + 2, size - 2, 1 + data[1] % 5);
    if (whole.n != parts.n || memcmp(whole.p, parts.p, whole.n) != 0) __builtin_trap();
    buf_free(&whole);
    buf_free(&parts);
    json_decref(tools);
    return 0;
}
