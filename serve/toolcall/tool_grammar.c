/* The grammar of an answer that has to be a call. Arguments are JSON in every format: those that have a notation of their own for them
 * read a JSON object between their marks as well. */
#include <string.h>
#include "base/mem.h"
#include "text/grammar/grammar_text.h"
#include "serve/toolcall/tool_probe.h"

/* A text as GBNF has it, in quotes. */
static void literal(struct buf *b, const char *s) {
    buf_text(b, "\"");
    for (; *s; s++) {
        if (*s == '"' || *s == '\\') buf_add(b, "\\", 1);
        if (*s == '\n')
            buf_text(b, "\\n");
        else
            buf_add(b, s, 1);
    }
    buf_text(b, "\" ");
}

/* What stands around the arguments of one function. */
static void call(struct buf *b, const struct tool_row *row, const char *name, size_t number) {
    const enum tool_shape shape = row->shape;
    char args[32], text[300];
    snprintf(args, sizeof args, "t%zu-root ", number);
    if (shape == SHAPE_NAMED || shape == SHAPE_HARMONY) {
        const bool fence = row->mark[ROLE_ARGS][0] == '`', kimi = strcmp(row->name, "kimi") == 0;
        literal(b, shape == SHAPE_HARMONY ? " to=" : row->mark[ROLE_OPEN]);
        if (row->mark[ROLE_NAME]) literal(b, row->mark[ROLE_NAME]);
        snprintf(text, sizeof text, "%s%s%s", kimi || shape == SHAPE_HARMONY ? "functions." : "", name,
                 shape == SHAPE_HARMONY ? "<|channel|>commentary json"
                 : kimi                 ? ":"
                 : fence                ? "\n"
                                        : "");
        literal(b, text);
        if (kimi) buf_text(b, "[0-9]+ ");
        literal(b, row->mark[ROLE_ARGS]);
        buf_text(b, fence ? "\"\\n\" " : "");
        buf_text(b, args);
        buf_text(b, fence ? "\"\\n\" " : "");
        if (row->mark[ROLE_CLOSE]) literal(b, row->mark[ROLE_CLOSE]);
        return;
    }
    const bool command = strcmp(row->name, "command") == 0,
               own = row->mark[ROLE_OPEN] && !row->mark[ROLE_SECTION];
    if (own) literal(b, row->mark[ROLE_OPEN]);
    buf_text(b, own ? "\"\\n\" " : "");
    snprintf(text, sizeof text,
             command ? "{\"tool_call_id\": \"0\", \"tool_name\": \"%s\", \"parameters\": "
                     : "{\"name\": \"%s\", \"%s\": ",
             name, shape == SHAPE_BARE ? "parameters" : "arguments");
    literal(b, text);
    buf_text(b, args);
    buf_text(b, "\"}\" ");
    buf_text(b, own ? "\"\\n\" " : "");
    if (own) literal(b, row->mark[ROLE_CLOSE]);
}

/* root: the calls and what stands around and between them. */
static void root(struct buf *b, const struct tool_row *row, bool several) {
    const bool objects = row->shape != SHAPE_NAMED && row->shape != SHAPE_HARMONY && row->shape != SHAPE_BARE,
               section = row->mark[ROLE_SECTION], list = objects && (section || row->shape == SHAPE_PYTHON),
               opened = list && section && strstr(row->mark[ROLE_SECTION], "s[");
    const bool more = several && row->shape != SHAPE_HARMONY;
    buf_text(b, "root ::= ");
    if (section && row->shape != SHAPE_BARE) literal(b, row->mark[ROLE_SECTION]);
    if (list && !opened) buf_text(b, "\"[\" ");
    buf_text(b, "call ");
    if (more)
        buf_printf(b, "(%s call){0,15} ",
                   list                        ? "\", \""
                   : row->shape == SHAPE_BARE  ? "\"; \""
                   : row->shape == SHAPE_NAMED ? "\"\""
                                               : "\"\\n\"");
    if (list) buf_text(b, "\"]\" ");
    if (row->mark[ROLE_SECTION_END]) literal(b, row->mark[ROLE_SECTION_END]);
    buf_text(b, "\ncall ::= ");
}

enum infer_status tool_gbnf(char **out, const struct tool_row *row, const json_t *tools, const char *name,
                            bool several, size_t *bad) {
    struct buf calls = {0};
    struct stext rules = {0};
    size_t i;
    const json_t *tool;
    enum infer_status st = INFER_OK;
    *out = NULL;
    root(&calls, row, several);
    json_array_foreach((json_t *)tools, i, tool) {
        const json_t *f = json_object_get(tool, "function"), *schema = json_object_get(f, "parameters");
        const char *is = json_string_value(json_object_get(f, "name"));
        if (!is || (name && strcmp(is, name) != 0)) continue;
        char *json = json_is_object(schema) ? json_dumps(schema, JSON_COMPACT) : NULL, *gbnf = NULL;
        const char *text = json && strcmp(json, "{}") != 0 ? json : "{\"type\":\"object\"}";
        size_t n = 0;
        *bad = i;
        st = schema_to_gbnf(&gbnf, &n, NULL, text, strlen(text));
        mem_free(json);
        if (st) break;
        if (rules.n) buf_text(&calls, "| ");
        call(&calls, row, is, i);
        char prefix[32];
        snprintf(prefix, sizeof prefix, "t%zu-", i);
        stext_renamed(&rules, gbnf, n, prefix);
        mem_free(gbnf);
    }
    buf_text(&calls, "\n");
    buf_add(&calls, rules.p ? rules.p : "", rules.n);
    if (!st && (calls.failed || rules.failed))
        st = err_set(INFER_E_MEMORY, "out of memory: the grammar of calls");
    stext_free(&rules);
    if (st)
        buf_free(&calls);
    else
        *out = calls.p;
    return st;
}
