#include "serve/core/tool_job.h"
#include <string.h>
#include "base/mem.h"

/* ---- the model's ---- */

/* The token whose text is s[n]; hidden: only one that is not shown. -1: there is none. */
static int32_t token_of(const struct infer_model *m, const char *s, size_t n, bool hidden) {
    int32_t ids[8];
    size_t count, len;
    if (infer_tokenize(m, s, NULL, n, INFER_TOK_SPECIAL, ids, 8, &count)) return -1;
    for (size_t i = 0; i < count && i < 8; i++) {
        const char *piece = infer_piece(m, ids[i], true, false, &len);
        if (len != n || memcmp(piece, s, n) != 0) continue;
        infer_piece(m, ids[i], false, false, &len);
        return hidden && len ? -1 : ids[i];
    }
    return -1;
}

static int32_t control(void *user, const char *s, size_t n) {
    static const char bar[] = "\xef\xbd\x9c";
    const bool bars = n > 6 && memcmp(s, bar, 3) == 0 && memcmp(s + n - 3, bar, 3) == 0;
    if (!bars && !(s[0] == '<' && s[n - 1] == '>') && !(s[0] == '[' && s[n - 1] == ']')) return -1;
    return token_of(user, s, n, true);
}

static const char *text_of(const struct infer_model *m, int32_t id, char *to, size_t cap) {
    size_t n = 0;
    const char *piece = id >= 0 ? infer_piece(m, id, true, false, &n) : "";
    snprintf(to, cap, "%.*s", (int)n, piece);
    return to;
}

enum infer_status tool_job_probe(struct tool_probe *out, const struct infer_model *m, const char *text,
                                 size_t n) {
    char bos[128], eos[128];
    const struct tool_template t = {.text = text,
                                    .n = n,
                                    .bos = text_of(m, infer_bos(m), bos, sizeof bos),
                                    .eos = text_of(m, infer_eos(m), eos, sizeof eos),
                                    .control = control,
                                    .user = (void *)m};
    return tool_probe(out, &t);
}

enum infer_status tool_job_server(struct server *s) {
    return tool_job_probe(&s->tools, s->model, s->template.text, s->template.n);
}

/* ---- a job's ---- */

bool tool_job_forced(const struct job *j) {
    return j->ask.tools && (j->ask.tool_choice == TOOLS_REQUIRED || j->ask.tool_choice == TOOLS_NAMED);
}

enum infer_status tool_job_messages(struct job *j) {
    const struct tool_probe *p = &j->server->tools;
    if (!j->ask.tools || !p->described) return INFER_OK;
    job_warn(j, "tools", "the model's template knows none: they stand in the system message");
    return tool_tell(p, j->ask.messages, j->ask.tools);
}

static bool offered(const struct job *j, const char *name) {
    size_t i;
    const json_t *tool;
    json_array_foreach(j->ask.tools, i, tool) {
        const char *s = json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
        if (s && strcmp(s, name) == 0) return true;
    }
    return false;
}

static enum infer_status force(struct job *j) {
    struct ask *a = &j->ask;
    const char *name = a->tool_choice == TOOLS_NAMED ? a->tool_name : NULL;
    char *gbnf, place[64];
    size_t bad = 0;
    if (name && !offered(j, name))
        return job_invalid(j, "tool_choice", "'tool_choice' names '%s', which is none of 'tools'", name);
    enum infer_status st =
        tool_gbnf(&gbnf, j->server->tools.format.row, a->tools, name, !name && a->parallel_calls, &bad);
    if (!st)
        st =
            grammars_take(j->server->grammars, INFER_GRAMMAR_TEXT, gbnf, strlen(gbnf), &j->kept, &j->grammar);
    mem_free(gbnf);
    snprintf(place, sizeof place, "tools[%zu].function.parameters", bad);
    if (st == INFER_E_INPUT || st == INFER_E_UNSUPPORTED)
        return job_refuse(j, 400, "invalid_schema", place, "'%s': %s", place, err_message());
    return st;
}

/* Whether the format's calls begin with a mark that is known when it comes. */
static bool marked(const struct tool_row *row) {
    return row->shape != SHAPE_BARE && row->shape != SHAPE_HARMONY &&
           (row->mark[ROLE_SECTION] || row->mark[ROLE_OPEN]);
}

/* The tools with the schemas of those that are strict; the others take any object. */
static json_t *strict_ones(const json_t *tools) {
    json_t *all = json_deep_copy(tools), *tool;
    size_t i;
    json_array_foreach(all, i, tool) {
        json_t *f = json_object_get(tool, "function");
        if (!json_is_true(json_object_get(f, "strict"))) json_object_del(f, "parameters");
    }
    return all;
}

/* The model chooses, and a call that it begins has the form of its schema: a grammar that its mark wakes. */
static enum infer_status be_strict(struct job *j) {
    struct ask *a = &j->ask;
    const struct tool_row *row = j->server->tools.format.row;
    char *gbnf, place[64];
    size_t bad = 0;
    if (j->grammar || a->form || !marked(row)) {
        job_warn(j, "tools", "strict is not held to here: %s",
                 marked(row) ? "the answer has a format" : "nothing marks where a call of this model begins");
        return INFER_OK;
    }
    json_t *tools = strict_ones(a->tools);
    enum infer_status st = tool_gbnf(&gbnf, row, tools, NULL, a->parallel_calls, &bad);
    json_decref(tools);
    if (!st)
        st =
            grammars_take(j->server->grammars, INFER_GRAMMAR_TEXT, gbnf, strlen(gbnf), &j->kept, &j->grammar);
    mem_free(gbnf);
    j->wakes = !st;
    snprintf(place, sizeof place, "tools[%zu].function.parameters", bad);
    if (st == INFER_E_INPUT || st == INFER_E_UNSUPPORTED)
        return job_refuse(j, 400, "invalid_schema", place, "'%s': %s", place, err_message());
    return st;
}

/* tool_choice none: the tools stay in the prompt, for its cache, and what opens a call may not come. */
static enum infer_status forbid(struct job *j) {
    const struct tool_row *row = j->server->tools.format.row;
    const char *open = row->mark[ROLE_SECTION] ? row->mark[ROLE_SECTION] : row->mark[ROLE_OPEN];
    const int32_t id = open ? token_of(j->server->model, open, strlen(open), false) : -1;
    return id < 0 ? INFER_OK : ask_bias(&j->ask, id, -__builtin_inff());
}

enum infer_status tool_job_prepare(struct job *j) {
    const struct ask *a = &j->ask;
    const struct tool_probe *p = &j->server->tools;
    if (!a->messages) return INFER_OK;
    const enum tool_shape shape = p->format.row ? p->format.row->shape : SHAPE_OBJECT;
    const bool calls = a->tools && p->format.row && a->tool_choice != TOOLS_NONE;
    j->parsed = calls || shape == SHAPE_HARMONY || shape == SHAPE_GEMMA;
    if (a->tools && !calls && p->format.row) TRY(forbid(j));
    if (!j->parsed) return INFER_OK;
    j->tool_start = j->ask.params.start == INFER_ANSWER_THINKING
                        ? TOOL_START_REASONING
                        : tool_start(p, j->prompt[0].text, j->prompt[0].n_text);
    if (a->go_on && j->ask.params.start != INFER_ANSWER_THINKING) j->tool_start = TOOL_START_CONTENT;
    if (tool_job_forced(j)) return force(j);
    return a->strict_tools && calls ? be_strict(j) : INFER_OK;
}

/* ---- an answer's ---- */

static enum infer_status tell(void *user, const struct tool_event *e) {
    struct choice *c = user;
    switch (e->kind) {
    case TOOL_REASONING:
        c->n_reasoned = c->n_token;
        if (!c->job->ask.thinking_hidden) log_text(c, EVENT_REASONING, 0, e->text, e->n);
        break;
    case TOOL_CONTENT:
        log_text(c, EVENT_TEXT, 0, e->text, e->n);
        break;
    case TOOL_CALL:
        request_line(c, e->call, e->text, e->id);
        break;
    case TOOL_ARGS:
        log_text(c, EVENT_ARGS, e->call, e->text, e->n);
        break;
    case TOOL_END:
        log_text(c, EVENT_CALL_END, e->call, "", 0);
        c->call_cut = e->cut;
        break;
    }
    c->told = true;
    return INFER_OK;
}

enum infer_status tool_job_choice(struct choice *c) {
    const struct job *j = c->job;
    const struct ask *a = &j->ask;
    if (!j->parsed) return INFER_OK;
    const struct tool_options o = {.format = &j->server->tools.format,
                                   .tools = a->tool_choice == TOOLS_NONE ? NULL : a->tools,
                                   .single = !a->parallel_calls,
                                   .keep_reasoning = a->thinking_as_content,
                                   .by_text = tool_job_forced(j) || j->wakes,
                                   .start = j->tool_start,
                                   .stop = j->stop,
                                   .n_stop = j->n_stop,
                                   .on_event = tell,
                                   .user = c};
    return tool_open(&c->parser, &o);
}

static void lost(struct choice *c) {
    pthread_mutex_lock(&c->job->lock);
    c->log.text.failed = true;
    pthread_mutex_unlock(&c->job->lock);
    c->stopped = true;
}

void tool_job_token(struct choice *c, int32_t id) {
    const struct job *j = c->job;
    size_t n;
    const char *piece =
        infer_piece(j->server->model, id, j->ask.params.special, c->n_token == 1 && !j->ask.go_on, &n);
    if (tool_push(c->parser, id, piece, n)) lost(c);
    if (tool_done(c->parser)) c->stopped = true;
}

enum job_finish tool_job_end(struct choice *c, enum job_finish finish, int *stop) {
    if (tool_finish(c->parser)) lost(c);
    *stop = tool_stop(c->parser);
    if (c->stopped) finish = FINISH_STOP;
    return tool_calls(c->parser) && !(finish == FINISH_LENGTH && c->call_cut) ? FINISH_CALLS : finish;
}
