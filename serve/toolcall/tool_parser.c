/* The parser from outside, and what goes out of it. */
#include "serve/toolcall/tool_int.h"
#include <string.h>
#include "base/mem.h"

#define M(role, literal)           [ROLE_##role] = (literal),
#define TOOL_ROW(row, kind, marks) {row, SHAPE_##kind, {marks}},
const struct tool_row tool_rows[] = {
#include "serve/toolcall/tool_shapes.def"
};
#undef TOOL_ROW
const int n_tool_row = sizeof tool_rows / sizeof *tool_rows;

const char *const tool_pairs[TOOL_PAIRS][2] = {
    {"<think>", "</think>"},                    /* DeepSeek, Qwen, GLM, SmolLM3 and most others */
    {"[THINK]", "[/THINK]"},                    /* Mistral */
    {"<seed:think>", "</seed:think>"},          /* Seed-OSS */
    {"<|START_THINKING|>", "<|END_THINKING|>"}, /* Command R7B */
    {"<thought>", "</thought>"},
    {"<|channel>thought\n", "<channel|>"},    /* Gemma 4 */
    {"<|inner_prefix|>", "<|inner_suffix|>"}, /* Apertus */
};

/* A mark with its control tokens as two bytes each. */
static void mark_set(struct tool_format *f, struct tool_mark *m, const char *s,
                     int32_t (*control)(void *user, const char *s, size_t n), void *user) {
    size_t n = strlen(s);
    if (n > TOOL_MARK_MAX) infer_bug("a mark of %zu bytes", n);
    *m = (struct tool_mark){.n_spelt = (uint8_t)n};
    memcpy(m->spelt, s, n);
    for (size_t i = 0; i < n;) {
        size_t len = n - i; /* the longest that is a token: markup is at most a few */
        int32_t id = -1;
        for (; control && len > 2 && (id = control(user, s + i, len)) < 0; len--) continue;
        if (id < 0) {
            m->text[m->n++] = s[i++];
            continue;
        }
        int k = 0;
        while (k < f->n_control && f->control[k] != id) k++;
        if (k == TOOL_CONTROLS) infer_bug("more than %d control tokens in the marks", k);
        if (k == f->n_control) f->control[f->n_control++] = id;
        m->text[m->n++] = (char)TOKEN_BYTE;
        m->text[m->n++] = (char)(k + 1);
        i += len;
    }
}

void tool_format_set(struct tool_format *f, const struct tool_row *row,
                     int32_t (*control)(void *user, const char *s, size_t n), void *user) {
    *f = (struct tool_format){.row = row};
    for (int i = 0; row && i < ROLE_THINK; i++)
        if (row->mark[i]) mark_set(f, &f->mark[i], row->mark[i], control, user);
    for (int i = 0; i < TOOL_PAIRS; i++) {
        mark_set(f, &f->mark[ROLE_THINK + i], tool_pairs[i][0], control, user);
        mark_set(f, &f->mark[ROLE_UNTHINK + i], tool_pairs[i][1], control, user);
    }
    tool_rules(f);
}

/* ---- what goes out ---- */

static void send(struct tool_parser *p, enum tool_event_kind kind, const char *text, size_t n, bool cut) {
    if (p->status) return;
    const struct tool_event e = {kind, p->n_call - 1, text, n, kind == TOOL_CALL && p->id.n ? p->id.p : NULL,
                                 cut};
    p->status = p->o.on_event(p->o.user, &e);
}

void tool_eat(struct tool_parser *p, size_t n) {
    if (p->recording) buf_add(&p->raw, p->in.p + p->at, n);
    p->at += n;
}

/* Text goes out, white space at its end only when more follows. */
static void send_text(struct tool_parser *p, enum tool_event_kind kind, const char *text, size_t n) {
    size_t end = n;
    if (kind == TOOL_REASONING || p->calls)
        while (end && tool_space(text[end - 1])) end--;
    if (end && p->space.n) {
        buf_add(&p->space, text, end);
        if (p->space.p) send(p, kind, p->space.p, p->space.n, false);
        p->space.n = 0;
    } else if (end) {
        send(p, kind, text, end, false);
    }
    if (end < n) buf_add(&p->space, text + end, n - end);
}

/* Where the first of the stop texts begins in s[n], or else where one of them may begin. */
static size_t find_stop(const struct tool_parser *p, const char *s, size_t n, int *which) {
    size_t first = n, part = n;
    for (int i = 0; i < p->o.n_stop; i++) {
        size_t len = strlen(p->o.stop[i]), k = len ? len - 1 : 0;
        const char *hit = len ? memmem(s, n, p->o.stop[i], len) : NULL;
        if (hit && (size_t)(hit - s) < first) first = (size_t)(hit - s), *which = i;
        if (k > n) k = n;
        while (k && memcmp(s + n - k, p->o.stop[i], k) != 0) k--;
        if (n - k < part) part = n - k;
    }
    return *which >= 0 ? first : part;
}

static void content(struct tool_parser *p, const char *text, size_t n) {
    if (p->o.n_stop == 0) {
        send_text(p, TOOL_CONTENT, text, n);
        return;
    }
    struct buf held = p->held;
    int which = -1;
    p->held = (struct buf){0};
    buf_add(&held, text, n);
    size_t end = held.p ? find_stop(p, held.p, held.n, &which) : 0;
    if (end) send_text(p, TOOL_CONTENT, held.p, end);
    if (which >= 0) {
        p->stop = which;
        p->done = true;
        if (p->space.n) send(p, TOOL_CONTENT, p->space.p, p->space.n, false);
        p->space.n = 0;
    } else if (end < held.n) {
        buf_add(&p->held, held.p + end, held.n - end);
    }
    p->held.failed |= held.failed;
    buf_free(&held);
}

/* A control token in the text: shown only if it is a tag that is to be kept. */
static void say_control(struct tool_parser *p, int number) {
    for (int i = ROLE_THINK; p->o.keep_reasoning && i < N_ROLE; i++) {
        const struct tool_mark *m = &p->f->mark[i];
        if (m->n == 2 && (uint8_t)m->text[0] == TOKEN_BYTE && m->text[1] == number) {
            content(p, m->spelt, m->n_spelt);
            return;
        }
    }
}

void tool_text_out(struct tool_parser *p, enum tool_event_kind kind, const char *text, size_t n) {
    while (n && !p->done) {
        const char *control = memchr(text, TOKEN_BYTE, n);
        size_t len = control ? (size_t)(control - text) : n, from = 0;
        while (p->trim && from < len && tool_space(text[from])) from++;
        if (from < len) {
            p->trim = false;
            if (kind == TOOL_REASONING)
                send_text(p, kind, text + from, len - from);
            else
                content(p, text + from, len - from);
        }
        if (!control) return;
        say_control(p, control[1]);
        text = control + 2;
        n -= len + 2;
    }
}

void tool_unsay(struct tool_parser *p, bool trim) {
    if (p->held.n) {
        struct buf held = p->held;
        p->held = (struct buf){0};
        send_text(p, TOOL_CONTENT, held.p, held.n);
        buf_free(&held);
    }
    if (trim) p->space.n = 0;
}

void tool_args(struct tool_parser *p, const char *text, size_t n) {
    if (n) send(p, TOOL_ARGS, text, n, false);
}

static bool is_name(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!((s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z') || (s[i] >= '0' && s[i] <= '9') ||
              (s[i] && strchr("_.:/-", s[i]))))
            return false;
    return n >= 1 && n <= 128;
}

static bool known(const struct tool_parser *p, const char *name) {
    size_t i;
    const json_t *tool;
    json_array_foreach(p->o.tools, i, tool) {
        const char *s = json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
        if (s && strcmp(s, name) == 0) return true;
    }
    return false;
}

bool tool_named(struct tool_parser *p, const char *name, size_t n) {
    while (n && tool_space(name[n - 1])) n--;
    while (n && tool_space(*name)) name++, n--;
    p->name.n = 0;
    if (n > 10 && memcmp(name, "functions.", 10) == 0) { /* Kimi: functions.NAME:0 is the id */
        size_t k = n;
        while (k > 10 && name[k - 1] >= '0' && name[k - 1] <= '9') k--;
        bool numbered = k < n && name[k - 1] == ':';
        if (numbered && p->id.n == 0) buf_add(&p->id, name, n);
        n = (numbered ? k - 1 : n) - 10;
        name += 10;
    }
    buf_add(&p->name, name, n);
    if (!is_name(name, n) || !p->name.p || (p->bare && !known(p, p->name.p))) {
        tool_give_up(p);
        return false;
    }
    p->recording = false;
    p->space.n = 0;
    p->in_call = true;
    p->n_call++;
    send(p, TOOL_CALL, p->name.p, p->name.n, false);
    return true;
}

void tool_end(struct tool_parser *p, bool cut) {
    send(p, TOOL_END, "", 0, cut);
    p->in_call = false;
    if (p->o.single) p->done = true;
}

void tool_give_up(struct tool_parser *p) {
    struct buf none = {0},
               *from = p->recording               ? &p->raw
                       : p->state == STATE_HEADER ? &p->word
                                                  : &none,
               text = *from;
    if (p->in_call) tool_end(p, true);
    *from = (struct buf){0};
    p->recording = p->section = p->listed = p->open = false;
    p->word.n = 0;
    p->state = STATE_CONTENT;
    if (text.p && !p->done) tool_text_out(p, TOOL_CONTENT, text.p, text.n);
    buf_free(&text);
}

/* ---- from outside ---- */

enum infer_status tool_open(struct tool_parser **out, const struct tool_options *o) {
    static const enum tool_state states[] = {STATE_FRESH, STATE_REASON, STATE_CONTENT, STATE_HEADER};
    struct tool_parser *p;
    *out = NULL;
    TRY(mem_new(&p, sizeof *p, "the parser of an answer"));
    p->o = *o;
    p->f = o->format;
    p->calls = o->tools && p->f->row;
    p->stop = -1;
    p->state = states[o->start];
    if (o->keep_reasoning && p->state == STATE_REASON) p->state = STATE_CONTENT;
    p->reasoned = p->trim = p->state == STATE_REASON;
    *out = p;
    return INFER_OK;
}

void tool_close(struct tool_parser *p) {
    if (!p) return;
    buf_free(&p->opened);
    struct buf *all[] = {&p->in,   &p->raw,    &p->word, &p->space, &p->held,
                         &p->args, &p->quoted, &p->id,   &p->name,  &p->out};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) buf_free(all[i]);
    mem_free(p);
}

/* Whole characters for the machine; each byte of no character becomes U+FFFD. */
static void take(struct tool_parser *p, const char *s, size_t n) {
    for (size_t i = 0; i < n;) {
        size_t good = text_valid_utf8(s + i, n - i);
        buf_add(&p->in, s + i, good);
        i += good;
        if (i < n) buf_text(&p->in, "\xef\xbf\xbd");
        i++;
    }
}

/* The same for text that may end inside a character. */
static void feed(struct tool_parser *p, const char *piece, size_t n) {
    char part[256 + TOK_STREAM_MAX];
    for (size_t i = 0; i < n; i += 256)
        take(p, part, tok_stream_push(&p->stream, (struct str){piece + i, n - i < 256 ? n - i : 256}, part));
}

static void feed_end(struct tool_parser *p) {
    char rest[TOK_STREAM_MAX];
    take(p, rest, tok_stream_end(&p->stream, rest));
}

static enum infer_status go_on(struct tool_parser *p) {
    const struct buf *all[] = {&p->in,   &p->raw,    &p->word, &p->space, &p->held,
                               &p->args, &p->quoted, &p->id,   &p->name,  &p->out};
    while (tool_step(p)) continue;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i]->failed)
            return p->status = err_set(INFER_E_MEMORY, "no memory for the parts of an answer");
    if (p->at == p->in.n || p->done) {
        p->at = p->in.n = 0;
    } else if (p->at > p->in.n / 2) {
        memmove(p->in.p, p->in.p + p->at, p->in.n - p->at);
        p->in.n -= p->at;
        p->at = 0;
    }
    return p->status;
}

enum infer_status tool_push(struct tool_parser *p, int32_t id, const char *piece, size_t n) {
    if (p->done || p->status) return p->status;
    int k = 0;
    while (k < p->f->n_control && (id < 0 || p->f->control[k] != id)) k++;
    if (k == p->f->n_control) {
        feed(p, piece, n);
    } else {
        char mark[2] = {(char)TOKEN_BYTE, (char)(k + 1)};
        feed_end(p);
        buf_add(&p->in, mark, 2);
    }
    return go_on(p);
}

enum infer_status tool_finish(struct tool_parser *p) {
    if (p->done || p->status) return p->status;
    feed_end(p);
    p->finished = true;
    TRY(go_on(p));
    bool reasons = p->state == STATE_REASON;
    if (p->recording) tool_give_up(p);
    if (p->state == STATE_HEADER && p->word.n && !memchr(p->word.p, TOKEN_BYTE, p->word.n) &&
        !memmem(p->word.p, p->word.n, "<|", 2))
        tool_give_up(p);
    if (p->in_call) tool_end(p, true);
    if (p->held.n) send_text(p, TOOL_CONTENT, p->held.p, p->held.n);
    if (!reasons && p->space.n) send(p, TOOL_CONTENT, p->space.p, p->space.n, false);
    p->done = true;
    return p->status;
}

bool tool_done(const struct tool_parser *p) { return p->done; }
int tool_stop(const struct tool_parser *p) { return p->stop; }
int tool_calls(const struct tool_parser *p) { return p->n_call; }
const char *tool_opened(struct tool_parser *p) {
    static const enum tool_role marks[] = {ROLE_SECTION, ROLE_OPEN};
    if (!p->recording || p->bare || p->n_call) return NULL;
    p->opened.n = 0;
    buf_add(&p->opened, p->raw.p, p->raw.n);
    buf_add(&p->opened, p->in.p + p->at, p->in.n - p->at);
    for (int i = 0; i < 2; i++) {
        const struct tool_mark *m = &p->f->mark[marks[i]];
        if (!m->n || p->opened.n < m->n || memcmp(p->opened.p, m->text, m->n) != 0) continue;
        buf_add(&p->raw, "", 0);
        struct buf rest = p->opened;
        p->opened = (struct buf){0};
        buf_add(&p->opened, m->spelt, m->n_spelt);
        buf_add(&p->opened, rest.p + m->n, rest.n - m->n);
        buf_free(&rest);
        break;
    }
    return p->opened.failed ? NULL : p->opened.p;
}
bool tool_reasons(const struct tool_parser *p) { return p->state == STATE_REASON; }
