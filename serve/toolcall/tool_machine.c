/* The machine: which marks count in which state, and what each does. */
#include <string.h>
#include "serve/toolcall/tool_int.h"

enum act {
    ACT_GO, /* to the next state */
    ACT_THINK,
    ACT_UNTHINK,
    ACT_LIST,     /* a list of calls begins */
    ACT_CALL,     /* a call begins */
    ACT_NAME,     /* its name comes */
    ACT_NAMED,    /* its name is read, its arguments come */
    ACT_NAMED_ID, /* its name is read, its id comes */
    ACT_ID,       /* its id is read */
    ACT_FIRST,    /* its name is read, and its first argument begins */
    ACT_NOTHING,  /* its name is read, it has no arguments */
    ACT_EMPTY,    /* it has no arguments */
    ACT_KEY,      /* the name of an argument is read */
    ACT_END,      /* its arguments have ended */
    ACT_CLOSE,
    ACT_LIST_END,
    ACT_HEADER,  /* a header comes */
    ACT_MESSAGE, /* it is read */
};
static const struct rule {
    uint8_t state, role, act, next;
} rules[] = {
    {STATE_FRESH, ROLE_THINK, ACT_THINK, STATE_REASON},
    {STATE_FRESH, ROLE_UNTHINK, ACT_UNTHINK, STATE_FRESH},
    {STATE_FRESH, ROLE_SECTION, ACT_LIST, STATE_SECTION},
    {STATE_FRESH, ROLE_OPEN, ACT_CALL, STATE_CALL},
    {STATE_CONTENT, ROLE_UNTHINK, ACT_UNTHINK, STATE_CONTENT},
    {STATE_CONTENT, ROLE_SECTION, ACT_LIST, STATE_SECTION},
    {STATE_CONTENT, ROLE_OPEN, ACT_CALL, STATE_CALL},
    {STATE_REASON, ROLE_UNTHINK, ACT_UNTHINK, STATE_FRESH},
    {STATE_REASON, ROLE_SECTION, ACT_LIST, STATE_SECTION},
    {STATE_REASON, ROLE_OPEN, ACT_CALL, STATE_CALL},
    {STATE_SECTION, ROLE_OPEN, ACT_CALL, STATE_CALL},
    {STATE_SECTION, ROLE_SECTION_END, ACT_LIST_END, STATE_CONTENT},
    {STATE_CALL, ROLE_NAME, ACT_NAME, STATE_NAME},
    {STATE_CALL, ROLE_OPEN, ACT_CALL, STATE_CALL},
    {STATE_CALL, ROLE_SECTION_END, ACT_LIST_END, STATE_CONTENT},
    {STATE_NAME, ROLE_ARGS, ACT_NAMED, STATE_ARGS},
    {STATE_NAME, ROLE_ID, ACT_NAMED_ID, STATE_ID},
    {STATE_NAME, ROLE_KEY, ACT_FIRST, STATE_KEY},
    {STATE_NAME, ROLE_CLOSE, ACT_NOTHING, STATE_AFTER},
    {STATE_NAME, ROLE_ARGS_END, ACT_NOTHING, STATE_AFTER},
    {STATE_ID, ROLE_ARGS, ACT_ID, STATE_ARGS},
    {STATE_ARGS, ROLE_CLOSE, ACT_EMPTY, STATE_AFTER},
    {STATE_KEYS, ROLE_KEY, ACT_GO, STATE_KEY},
    {STATE_KEYS, ROLE_ARGS_END, ACT_END, STATE_AFTER},
    {STATE_KEYS, ROLE_CLOSE, ACT_END, STATE_AFTER},
    {STATE_KEY, ROLE_KEY_END, ACT_KEY, STATE_BEFORE},
    {STATE_BEFORE, ROLE_VALUE, ACT_GO, STATE_VALUE},
    {STATE_AFTER, ROLE_CLOSE, ACT_CLOSE, STATE_AFTER},
    {STATE_AFTER, ROLE_SECTION_END, ACT_LIST_END, STATE_CONTENT},
    {STATE_AFTER, ROLE_NAME, ACT_NAME, STATE_NAME},
    {STATE_AFTER, ROLE_OPEN, ACT_CALL, STATE_CALL},
    {STATE_AFTER, ROLE_SECTION, ACT_LIST, STATE_SECTION},
    {STATE_AFTER, ROLE_UNTHINK, ACT_UNTHINK, STATE_AFTER},
    {STATE_CONTENT, ROLE_END_1, ACT_HEADER, STATE_HEADER},
    {STATE_REASON, ROLE_END_1, ACT_HEADER, STATE_HEADER},
    {STATE_AFTER, ROLE_END_1, ACT_HEADER, STATE_HEADER},
    {STATE_HEADER, ROLE_ARGS, ACT_MESSAGE, STATE_CONTENT},
};
enum { N_RULE = sizeof rules / sizeof *rules };

/* How many roles behind a rule's own mean the same. */
static int family(int role) {
    return role == ROLE_THINK || role == ROLE_UNTHINK ? TOOL_PAIRS : role == ROLE_END_1 ? 5 : 1;
}

void tool_rules(struct tool_format *f) {
    memset(f->first, 0, sizeof f->first);
    for (int i = 0; i < N_RULE; i++)
        for (int k = 0; k < family(rules[i].role); k++) {
            const struct tool_mark *m = &f->mark[rules[i].role + k];
            if (m->n) f->first[(uint8_t)m->text[0]] |= 1u << rules[i].state;
            if (m->n_spelt) f->first[(uint8_t)m->spelt[0]] |= 1u << rules[i].state;
        }
}

static enum match begins(const struct tool_parser *p, size_t at, const char *s, size_t n) {
    size_t have = p->in.n - at, k = have < n ? have : n;
    if (n == 0 || memcmp(p->in.p + at, s, k) != 0) return MATCH_NO;
    return k == n ? MATCH_YES : p->finished ? MATCH_NO : MATCH_PART;
}

enum match tool_match(const struct tool_parser *p, enum tool_role role, size_t at, size_t *n) {
    const struct tool_mark *m = &p->f->mark[role];
    enum match a = begins(p, at, m->text, m->n), b = MATCH_NO;
    *n = m->n;
    if (a != MATCH_YES && p->o.by_text) b = begins(p, at, m->spelt, m->n_spelt);
    if (b == MATCH_YES) *n = m->n_spelt;
    return a > b ? a : b;
}

/* Rules that do not count now. */
static bool counts(const struct tool_parser *p, const struct rule *r) {
    if (r->role == ROLE_THINK) return !p->o.keep_reasoning;
    if (r->role == ROLE_UNTHINK) return p->reasoned && !p->o.keep_reasoning;
    if (r->act == ACT_LIST || r->act == ACT_CALL) return p->calls;
    if (r->state == STATE_AFTER && r->role == ROLE_NAME) return p->open && p->f->row->shape == SHAPE_TAGGED;
    return true;
}

/* The rule whose mark in[at..] begins with. */
static enum match look(const struct tool_parser *p, size_t at, const struct rule **out, size_t *n) {
    enum match best = MATCH_NO;
    if (!(p->f->first[(uint8_t)p->in.p[at]] & 1u << p->state)) return MATCH_NO;
    for (int i = 0; i < N_RULE; i++) {
        if (rules[i].state != p->state || !counts(p, &rules[i])) continue;
        for (int k = 0; k < family(rules[i].role); k++) {
            enum match m = tool_match(p, (enum tool_role)(rules[i].role + k), at, n);
            if (m == MATCH_YES) {
                *out = &rules[i];
                return m;
            }
            if (m > best) best = m;
        }
    }
    return best;
}

/* A call begins with the next byte: from here on it is kept, until it has a name. */
static void call_begins(struct tool_parser *p, bool bare) {
    if (p->recording) return;
    tool_unsay(p, p->state == STATE_REASON);
    p->recording = true;
    p->bare = bare;
    p->raw.n = p->args.n = p->id.n = p->word.n = 0;
    p->some = false;
}

static void object_begins(struct tool_parser *p) {
    p->object = (struct object){.at = OBJECT_KEY, .depth = 1};
    p->state = STATE_OBJECT;
    tool_eat(p, 1);
}

/* Behind the mark of the arguments. */
static void args_begin(struct tool_parser *p) {
    enum tool_shape shape = p->f->row->shape;
    p->state = shape == SHAPE_TAGGED ? STATE_KEYS : STATE_ARGS;
    if (shape != SHAPE_PYTHON && shape != SHAPE_GEMMA) return;
    literal_begin(&p->literal, shape == SHAPE_PYTHON ? 'f' : '{');
    p->state = STATE_LITERAL;
}

/* The name is in word. False: it is none. */
static bool word_named(struct tool_parser *p) { return tool_named(p, p->word.p ? p->word.p : "", p->word.n); }

/* What header[n] says about the message behind it: the recipient's name, or "" and whether it is reasoning. */
static struct str recipient(const char *header, size_t n, bool *reasoning) {
    const char *to = memmem(header, n, "to=", 3), *end = header + n;
    *reasoning = memmem(header, n, "analysis", 8) != NULL;
    if (!to) return (struct str){"", 0};
    to += 3;
    size_t len = 0;
    while (to + len < end && !tool_space(to[len]) && to[len] != '<' && (uint8_t)to[len] != TOKEN_BYTE) len++;
    if (len == 9 && memcmp(to, "assistant", 9) == 0) len = 0; /* a tool's answer */
    return (struct str){to, len};
}

static void message_begins(struct tool_parser *p) {
    bool reasoning;
    struct str to = recipient(p->word.p ? p->word.p : "", p->word.n, &reasoning);
    if (to.len && p->calls) {
        call_begins(p, false);
        p->state = STATE_ARGS;
        tool_named(p, to.data, to.len);
        return;
    }
    p->state = reasoning && !p->o.keep_reasoning ? STATE_REASON : STATE_CONTENT;
    p->reasoned |= reasoning;
    p->trim = true;
}

/* The arguments are complete: }, and the call's end. */
static void keys_end(struct tool_parser *p) {
    tool_args(p, p->some ? "}" : "{}", p->some ? 1 : 2);
    tool_end(p, false);
}

/* A mark of a name or of arguments was met. */
static void apply_call(struct tool_parser *p, enum act act) {
    switch (act) {
    case ACT_NAMED:
        if (word_named(p)) args_begin(p);
        break;
    case ACT_NAMED_ID:
        p->quoted.n = 0;
        buf_add(&p->quoted, p->word.p ? p->word.p : "", p->word.n);
        break;
    case ACT_ID:
        buf_add(&p->id, p->word.p ? p->word.p : "", p->word.n);
        if (tool_named(p, p->quoted.p ? p->quoted.p : "", p->quoted.n)) args_begin(p);
        break;
    case ACT_FIRST:
        word_named(p);
        break;
    case ACT_NOTHING:
        if (!word_named(p)) break;
        keys_end(p);
        p->open = false;
        break;
    case ACT_KEY:
        tool_key(p, p->word.p ? p->word.p : "", p->word.n);
        if (!p->f->mark[ROLE_VALUE].n) p->state = STATE_VALUE;
        break;
    case ACT_EMPTY:
    case ACT_END:
        keys_end(p);
        break;
    default:
        break;
    }
    p->word.n = 0;
}

static void apply(struct tool_parser *p, const struct rule *r, size_t n) {
    enum act act = (enum act)r->act;
    const char *list = p->f->row ? p->f->row->mark[ROLE_SECTION] : NULL;
    if (act == ACT_LIST || act == ACT_CALL || act == ACT_NAME) call_begins(p, false);
    if (act == ACT_THINK || act == ACT_HEADER || p->state == STATE_REASON) tool_unsay(p, true);
    if (act == ACT_UNTHINK && p->state != STATE_CONTENT) p->trim = true;
    tool_eat(p, n);
    p->state = (enum tool_state)r->next;
    if (r->role == ROLE_CLOSE) p->open = false;
    switch (act) {
    case ACT_THINK:
        p->reasoned = p->trim = true;
        break;
    case ACT_UNTHINK:
        break;
    case ACT_LIST:
        p->section = true;
        p->listed = list[strlen(list) - 1] == '[';
        if (!p->f->mark[ROLE_OPEN].n) p->state = STATE_CALL;
        break;
    case ACT_CALL:
        p->open = true;
        break;
    case ACT_NAME:
        break;
    case ACT_LIST_END:
        p->recording = p->section = p->listed = p->open = false;
        p->trim = true;
        break;
    case ACT_HEADER:
        p->word.n = 0;
        break;
    case ACT_MESSAGE:
        message_begins(p);
        break;
    default:
        apply_call(p, act);
        return;
    }
    p->word.n = 0;
}

/* STATE_FRESH, and what comes is no mark. */
static void fresh(struct tool_parser *p, char c) {
    const struct tool_row *row = p->f->row;
    bool unmarked = row && p->calls &&
                    (row->shape == SHAPE_BARE || (row->shape == SHAPE_PYTHON && !row->mark[ROLE_SECTION]));
    if (unmarked && c == (row->shape == SHAPE_BARE ? '{' : '[')) {
        call_begins(p, true);
        p->listed = c == '[';
        p->state = STATE_CALL;
        if (c == '{')
            object_begins(p);
        else
            tool_eat(p, 1);
        return;
    }
    p->state = STATE_CONTENT;
    if (p->space.n == 0) return;
    struct buf space = p->space;
    p->space = (struct buf){0};
    tool_text_out(p, TOOL_CONTENT, space.p, space.n);
    buf_free(&space);
}

/* Behind what opens a call or a list, and it is no mark: JSON, or the name. */
static void call_plain(struct tool_parser *p, char c) {
    enum tool_shape shape = p->f->row->shape;
    bool named = p->state == STATE_CALL && !p->f->mark[ROLE_NAME].n &&
                 (shape == SHAPE_NAMED || shape == SHAPE_TAGGED || shape == SHAPE_PYTHON);
    if (c == '[' && !p->listed) {
        p->listed = true;
        p->state = STATE_CALL;
        tool_eat(p, 1);
    } else if (c == '{') {
        object_begins(p);
    } else if (named && (uint8_t)c != TOKEN_BYTE) {
        p->state = STATE_NAME;
        p->word.n = 0;
    } else {
        tool_give_up(p);
    }
}

/* Behind a call, and it is no mark. */
static void after_plain(struct tool_parser *p, char c) {
    enum tool_shape shape = p->f->row->shape;
    bool more = p->listed || p->bare || p->section;
    if (more && (c == ',' || c == ';')) {
        tool_eat(p, 1);
    } else if (p->listed && c == ']') {
        p->listed = false;
        tool_eat(p, 1);
    } else if (more && c == '{' && (p->listed || shape == SHAPE_OBJECT || shape == SHAPE_BARE)) {
        call_begins(p, p->bare);
        object_begins(p);
    } else if ((p->listed || p->section) && shape == SHAPE_PYTHON && (uint8_t)c != TOKEN_BYTE) {
        call_begins(p, p->bare);
        p->word.n = 0;
        p->state = STATE_NAME;
    } else {
        p->state = STATE_CONTENT;
        p->trim = true;
        p->section = p->listed = p->open = false;
    }
}

/* What comes is no mark, and a mark was to come. */
static void plain(struct tool_parser *p) {
    char c = p->in.p[p->at];
    switch (p->state) {
    case STATE_FRESH:
        fresh(p, c);
        break;
    case STATE_SECTION:
    case STATE_CALL:
        call_plain(p, c);
        break;
    case STATE_BEFORE:
        p->state = STATE_VALUE;
        break;
    case STATE_AFTER:
        after_plain(p, c);
        break;
    case STATE_ARGS:
        if (c == '{') {
            p->walk = (struct json_walk){0};
            p->state = STATE_JSON;
            break;
        }
        keys_end(p);
        p->state = STATE_AFTER;
        break;
    default: /* between arguments: what follows is the answer's again */
        keys_end(p);
        p->state = STATE_CONTENT;
        p->trim = true;
        p->open = false;
    }
}

/* States in which white space and then a mark comes. */
static bool expect(struct tool_parser *p) {
    size_t i = p->at, n = 0;
    const struct rule *r = NULL;
    while (i < p->in.n && tool_space(p->in.p[i])) i++;
    if (i > p->at) {
        if (p->state == STATE_FRESH && !p->trim) buf_add(&p->space, p->in.p + p->at, i - p->at);
        tool_eat(p, i - p->at);
    }
    if (p->at == p->in.n) return false;
    enum match m = look(p, p->at, &r, &n);
    if (m == MATCH_PART) return false;
    if (m == MATCH_YES)
        apply(p, r, n);
    else
        plain(p);
    return true;
}

/* States in which text comes up to a mark: it is told, or (word) kept. */
static bool scan(struct tool_parser *p, bool word) {
    static const size_t most[N_STATE] = {
        [STATE_NAME] = 200, [STATE_ID] = 200, [STATE_KEY] = 512, [STATE_HEADER] = 512};
    size_t i = p->at, n = 0;
    const struct rule *r = NULL;
    enum match m = MATCH_NO;
    const size_t room = word ? most[p->state] + 1 - p->word.n : p->in.n;
    while (i < p->in.n && (i - p->at < room || ((uint8_t)p->in.p[i] & 0xc0) == 0x80) &&
           (m = look(p, i, &r, &n)) == MATCH_NO)
        i++;
    if (i > p->at) {
        const char *text = p->in.p + p->at;
        if (word)
            buf_add(&p->word, text, i - p->at);
        else
            tool_text_out(p, p->state == STATE_REASON ? TOOL_REASONING : TOOL_CONTENT, text, i - p->at);
        tool_eat(p, i - p->at);
        if (p->done) return true;
    }
    if (word && p->word.n > most[p->state]) {
        tool_give_up(p);
        return true;
    }
    if (m != MATCH_YES) return false;
    apply(p, r, n);
    return true;
}

/* Arguments as JSON: they go out as they come. */
static bool json(struct tool_parser *p) {
    size_t i = p->at;
    bool ended = false, strange = false;
    while (i < p->in.n && !ended && !(strange = (uint8_t)p->in.p[i] == TOKEN_BYTE))
        ended = json_walk(&p->walk, p->in.p[i++]);
    if (i > p->at) {
        tool_args(p, p->in.p + p->at, i - p->at);
        tool_eat(p, i - p->at);
    }
    if (strange && p->walk.text) {
        tool_eat(p, 2); /* a control token in a text */
    } else if (strange || ended) {
        tool_end(p, strange);
        p->state = STATE_AFTER;
    }
    return strange || ended;
}

/* Arguments as Python or Gemma write them. */
static bool literal(struct tool_parser *p) {
    struct literal *l = &p->literal;
    size_t n = 0;
    bool strange = false;
    p->out.n = 0;
    while (p->at < p->in.n && !l->done && !l->bad && !strange) {
        enum match m = tool_match(p, ROLE_QUOTE, p->at, &n);
        if (m == MATCH_PART) break;
        bool control = (uint8_t)p->in.p[p->at] == TOKEN_BYTE;
        strange = m == MATCH_NO && control && !l->quote;
        if (strange) break;
        size_t len = m == MATCH_YES ? n : control ? 2 : text_utf8_len(p->in.p + p->at, p->in.n - p->at);
        if (m == MATCH_YES) literal_byte(l, 0, true, &p->out);
        for (size_t i = 0; i < len && m == MATCH_NO && !control; i++)
            literal_byte(l, p->in.p[p->at + i], false, &p->out);
        tool_eat(p, len);
    }
    if (p->out.n) tool_args(p, p->out.p, p->out.n);
    if (!l->done && !l->bad && !strange) return false;
    tool_end(p, !l->done);
    p->state = STATE_AFTER;
    return true;
}

bool tool_step(struct tool_parser *p) {
    if (p->done || p->status || p->at == p->in.n) return false;
    switch (p->state) {
    case STATE_CONTENT:
    case STATE_REASON:
        return scan(p, false);
    case STATE_NAME:
    case STATE_ID:
    case STATE_KEY:
    case STATE_HEADER:
        return scan(p, true);
    case STATE_JSON:
        return json(p);
    case STATE_OBJECT:
        return tool_object(p);
    case STATE_LITERAL:
        return literal(p);
    case STATE_VALUE:
        return tool_value(p);
    default:
        return expect(p);
    }
}
