/* Any bytes as an answer, of any format: no crash, and the same events in one piece and in pieces of any size. */
#include <string.h>
#include "files/json.h"
#include "tools/serve/tool_int.h"

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static bool set;
    if (!set) json_use_mem();
    set = true;
    if (size < 3) return 0;
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
