#include "serve/core/normalize_messages.h"
#include <string.h>
#include <time.h>
#include "base/mem.h"
#include "files/json.h"
#include "serve/core/server.h"
#include "serve/core/tool_job.h"

/* ---- one message ---- */

static bool has_picture(const json_t *content) {
    size_t i;
    json_t *part;
    json_array_foreach((json_t *)content, i, part) {
        const char *type = json_string_value(json_object_get(part, "type"));
        if (type && strcmp(type, "image") == 0) return true;
    }
    return false;
}

/* Parts {type: "text", text} and null -> one text. */
static json_t *joined(const json_t *content) {
    struct buf b = {0};
    size_t i;
    json_t *part;
    buf_add(&b, "", 0);
    json_array_foreach((json_t *)content, i, part) {
        const json_t *text = json_is_string(part) ? part : json_object_get(part, "text");
        if (!text) text = json_object_get(part, "refusal");
        if (json_is_string(text)) buf_add(&b, json_string_value(text), json_string_length(text));
    }
    json_t *out = b.failed ? NULL : json_stringn(b.p, b.n);
    buf_free(&b);
    return out;
}

/* Arguments that are JSON as text become the object: templates write them themselves. */
static void fit_calls(json_t *calls) {
    size_t i;
    json_t *call, *made;
    json_array_foreach(calls, i, call) {
        json_t *f = json_object_get(call, "function"), *args = json_object_get(f, "arguments");
        if (!json_is_string(args)) continue;
        const size_t n = json_string_length(args);
        if (n == 0)
            json_object_set_new(f, "arguments", json_object());
        else if (json_read(&made, NULL, json_string_value(args), n, JSON_ALLOW_NUL) == INFER_OK)
            json_object_set_new(f, "arguments", made);
    }
}

static bool mentions(const struct server *s, const char *word) {
    return s->template.text && memmem(s->template.text, s->template.n, word, strlen(word));
}

static void fit_message(const struct server *s, json_t *m) {
    const char *role = json_string_value(json_object_get(m, "role"));
    json_t *content = json_object_get(m, "content"), *thought = json_object_get(m, "reasoning_content");
    if (role && strcmp(role, "developer") == 0 && !mentions(s, "developer"))
        json_object_set_new(m, "role", json_string("system"));
    if (!json_is_string(content) && !has_picture(content)) json_object_set_new(m, "content", joined(content));
    if (!thought) thought = json_object_get(m, "reasoning");
    if (json_is_string(thought)) {
        json_object_set(m, "reasoning_content", thought);
        json_object_set(m, "reasoning", thought);
    }
    fit_calls(json_object_get(m, "tool_calls"));
}

/* ---- all of them ---- */

static bool has_role(const json_t *m, const char *role) {
    const char *r = json_string_value(json_object_get(m, "role"));
    return r && strcmp(r, role) == 0;
}

/* Puts the parts of content behind those of to. */
static void add_parts(json_t *to, const json_t *content) {
    if (json_is_array(content))
        json_array_extend(to, (json_t *)content);
    else if (json_string_length(content))
        json_array_append_new(to, json_pack("{s:s, s:O}", "type", "text", "text", content));
}

/* The same of messages with pictures. */
static void merge_parts(json_t *to, const json_t *first, const json_t *second) {
    json_t *parts = json_array();
    add_parts(parts, first);
    json_array_append_new(parts, json_pack("{s:s, s:s}", "type", "text", "text", "\n\n"));
    add_parts(parts, second);
    json_object_set_new(to, "content", parts);
}

/* Puts m's text behind (or, first, before) that of to. */
static void merge(json_t *to, const json_t *m, bool before) {
    const json_t *first = json_object_get(before ? m : to, "content"),
                 *second = json_object_get(before ? to : m, "content");
    if (json_is_array(first) || json_is_array(second)) {
        merge_parts(to, first, second);
        return;
    }
    const char *a = json_string_value(first), *b = json_string_value(second);
    a = a ? a : "", b = b ? b : "";
    json_object_set_new(to, "content", json_sprintf("%s%s%s", a, *a && *b ? "\n\n" : "", b));
}

/* System messages behind the first message go to the next user's, equal roles become one: what strict templates accept. */
static json_t *folded(const json_t *messages) {
    json_t *out = json_array(), *m, *held = NULL;
    size_t i;
    json_array_foreach((json_t *)messages, i, m) {
        json_t *last = json_array_get(out, json_array_size(out) - 1);
        if (i && has_role(m, "system")) {
            if (held)
                merge(held, m, false);
            else
                held = json_copy(m);
            continue;
        }
        json_t *copy = json_copy(m);
        const bool user = has_role(copy, "user"),
                   plain = user || (has_role(copy, "assistant") && !json_object_get(copy, "tool_calls"));
        if (held && user) {
            merge(copy, held, true);
            json_decref(held);
            held = NULL;
        }
        if (last && plain && has_role(last, user ? "user" : "assistant") &&
            !json_object_get(last, "tool_calls")) {
            merge(last, copy, false);
            json_decref(copy);
        } else {
            json_array_append_new(out, copy);
        }
    }
    if (held) {
        json_t *last = json_array_get(out, json_array_size(out) - 1);
        json_object_set_new(held, "role", json_string("user"));
        if (has_role(last, "user"))
            merge(last, held, false);
        else
            json_array_append(out, held);
        json_decref(held);
    }
    return out;
}

/* ---- switches of the template ---- */

static void set_new(json_t *to, const char *name, json_t *value) {
    if (json_object_get(to, name))
        json_decref(value); /* the client's own holds */
    else
        json_object_set_new(to, name, value);
}

static json_t *variables_of(struct job *j) {
    const struct server *s = j->server;
    const struct ask *a = &j->ask;
    const bool constrained = a->form || tool_job_forced(j),
               reads = mentions(s, "enable_thinking") || mentions(s, "thinking");
    json_t *v = a->variables ? json_copy(a->variables) : json_object();
    char day[32];
    time_t now = time(NULL);
    struct tm local;
    strftime(day, sizeof day, "%Y-%m-%dT00:00:00",
             localtime_r(&now, &local)); /* a prompt of the same day has the same ids */
    set_new(v, "now", json_string(day));
    if (a->tools && !s->tools.described) set_new(v, "tools", json_incref(a->tools));
    const bool off = strcmp(a->effort, "none") == 0 || a->n_think == 0;
    if (a->n_think >= 0 && mentions(s, "thinking_budget"))
        set_new(v, "thinking_budget", json_integer(a->n_think));
    if (off || (constrained && !*a->effort && reads)) {
        set_new(v, "enable_thinking", json_false());
        set_new(v, "thinking", json_false());
    } else if (!*a->effort && s->o.thinking == THINKING_ON) {
        set_new(v, "enable_thinking", json_true());
        set_new(v, "thinking", json_true());
    } else if (*a->effort) {
        set_new(v, "enable_thinking", json_true());
        set_new(v, "thinking", json_true());
        const bool more = strcmp(a->effort, "xhigh") == 0 || strcmp(a->effort, "max") == 0;
        set_new(v, "reasoning_effort", json_string(more ? "high" : a->effort));
    }
    if (*a->effort && !reads && !mentions(s, "reasoning_effort"))
        job_warn(j, "reasoning_effort", "the model's template has no switch for it");
    return v;
}

/* ---- rendering ---- */

struct fitted {
    struct job *job;
    struct infer_prompt_template t;
    struct buf tail;
};

static enum infer_status render(struct fitted *f, struct infer_prompt *p, json_t *messages) {
    const struct job *j = f->job;
    struct infer_picture *pictures[JOB_PICTURES];
    for (int i = 0; i < j->ask.n_picture; i++) pictures[i] = j->ask.picture[i].picture;
    f->t.picture = pictures;
    f->t.n_picture = j->ask.n_picture;
    return infer_prompt_render(p, j->server->model, &f->t, messages, !j->ask.no_turn || j->ask.go_on);
}

/* What stands behind the beginning of an answer: the end of thinking where none may come, and the text that goes on. */
static enum infer_status add_tail(struct fitted *f, struct infer_prompt *p, json_t *messages,
                                  const json_t *last) {
    struct job *j = f->job;
    const char *closing = infer_prompt_closing(p->text, p->n_text);
    const json_t *text = json_object_get(last, "content"),
                 *thought = json_object_get(last, "reasoning_content");
    const bool constrained = j->ask.form || tool_job_forced(j) || j->ask.n_think == 0,
               has_text = json_string_length(text) > 0;
    struct buf *b = &f->tail;
    j->ask.params.start = closing ? INFER_ANSWER_THINKING : INFER_ANSWER_MAYBE;
    if (closing && json_string_length(thought))
        buf_add(b, json_string_value(thought), json_string_length(thought));
    if (closing && (has_text || constrained)) {
        buf_printf(b, "\n%s\n\n", closing);
        f->t.n_own = b->n;
    }
    if (has_text) buf_add(b, json_string_value(text), json_string_length(text));
    if (has_text || constrained || j->ask.thinking_as_content) j->ask.params.start = INFER_ANSWER_PLAIN;
    if (b->failed) return err_set(INFER_E_MEMORY, "out of memory: a prompt");
    if (!b->n) return INFER_OK;
    infer_prompt_free(p);
    f->t.tail = b->p;
    f->t.n_tail = b->n;
    return render(f, p, messages);
}

static enum infer_status render_fitted(struct fitted *f, struct infer_prompt *p, json_t *messages) {
    enum infer_status st = render(f, p, messages);
    if (st != INFER_E_INPUT) return st;
    char first[400];
    snprintf(first, sizeof first, "%s", err_message());
    json_t *again = folded(messages);
    st = render(f, p, again);
    if (st != INFER_E_INPUT) {
        json_array_clear(messages);
        json_array_extend(messages, again);
    }
    json_decref(again);
    return st == INFER_E_INPUT ? job_refuse(f->job, 400, "template_error", "messages", "%s", first) : st;
}

/* What the house says where the request says nothing: a system message, thinking. */
static enum infer_status fit_house(struct job *j) {
    const struct serve_options *o = &j->server->o;
    struct ask *a = &j->ask;
    bool has = a->n_context > 0; /* which has begun before */
    json_t *m;
    size_t i;
    json_array_foreach(a->messages, i, m) has |= has_role(m, "system") || has_role(m, "developer");
    if (o->system && !has) {
        m = json_pack("{s:s, s:s}", "role", "system", "content", o->system);
        if (!m || json_array_insert_new(a->messages, 0, m))
            return err_set(INFER_E_MEMORY, "out of memory: a message");
    }
    if (o->thinking == THINKING_OFF && !*a->effort && a->n_think < 0 &&
        !json_object_get(a->variables, "enable_thinking") && !json_object_get(a->variables, "thinking"))
        a->n_think = 0;
    if (a->n_think < 0 && !(a->think_seconds > 0)) {
        if (o->think_budget) a->n_think = o->think_budget;
        a->think_seconds = (float)o->think_seconds;
    }
    return INFER_OK;
}

enum infer_status normalize_and_render(struct job *j, struct infer_prompt *p) {
    struct server *s = j->server;
    struct ask *a = &j->ask;
    struct fitted f = {.job = j, .t = s->template};
    json_t *last = NULL, *m;
    size_t i;
    if (!s->template.text)
        return job_refuse(j, 400, "template_error", "messages",
                          "the model file has no chat template: /v1/completions takes its text as it is");
    json_array_foreach(a->messages, i, m) fit_message(s, m);
    TRY(fit_house(j));
    TRY(tool_job_messages(j));
    if (a->go_on) {
        last = json_incref(json_array_get(a->messages, json_array_size(a->messages) - 1));
        json_array_remove(a->messages, json_array_size(a->messages) - 1);
    }
    json_t *variables = variables_of(j);
    f.t.variables = variables;
    enum infer_status st = render_fitted(&f, p, a->messages);
    if (!st) st = add_tail(&f, p, a->messages, last);
    json_decref(variables);
    json_decref(last);
    buf_free(&f.tail);
    if (st == INFER_E_INPUT && !j->refusal.status)
        job_refuse(j, 400, "template_error", "messages", "%s", err_message());
    return st;
}
