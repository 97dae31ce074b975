/* The object that names a function and its arguments, as it comes: {"name": .., "arguments": {..}} in any order, other members skipped. */
#include <string.h>
#include "serve/toolcall/tool_int.h"

enum { OBJECT_WORD = 512 }; /* most bytes of a key, a name or an id, as JSON writes them */

bool json_walk(struct json_walk *w, char c) {
    if (w->text) {
        if (w->escaped)
            w->escaped = false;
        else if (c == '\\')
            w->escaped = true;
        else if (c == '"')
            w->text = false;
        return false;
    }
    if (c == '"') w->text = true;
    if (c == '{' || c == '[') w->depth++;
    if (c == '}' || c == ']') return --w->depth == 0;
    return false;
}

/* The text that JSON text b stands for, in its place; false: it is none. */
static bool decode(struct buf *b) {
    json_t *j = json_loadb(b->p, b->n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    bool ok = json_is_string(j);
    b->n = 0;
    if (ok) buf_add(b, json_string_value(j), json_string_length(j));
    json_decref(j);
    return ok;
}

static int key_of(const struct buf *word) {
    static const struct {
        const char *key;
        int is;
    } keys[] = {{"name", KEY_NAME},       {"tool_name", KEY_NAME},  {"arguments", KEY_ARGS},
                {"parameters", KEY_ARGS}, {"tool_call_id", KEY_ID}, {"id", KEY_ID},
                {"function", KEY_INNER},  {"type", KEY_TYPE}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (word->n == strlen(keys[i].key) && memcmp(word->p, keys[i].key, word->n) == 0) return keys[i].is;
    return KEY_OTHER;
}

/* Arguments go out once the name is known. */
static void pass(struct tool_parser *p, const char *text, size_t n) {
    if (p->in_call)
        tool_args(p, text, n);
    else
        buf_add(&p->args, text, n);
}

/* A text in quotes is complete, in word (arguments: in args, which may be a text of JSON). */
static bool text_done(struct tool_parser *p) {
    struct object *o = &p->object;
    if (o->at == OBJECT_IN_KEY) {
        o->at = OBJECT_COLON;
        o->key = decode(&p->word) ? key_of(&p->word) : KEY_OTHER;
        return !(p->bare && !p->in_call && o->key == KEY_OTHER);
    }
    o->at = OBJECT_COMMA;
    if (o->key == KEY_ARGS) {
        if (!decode(&p->quoted)) return false;
        pass(p, p->quoted.p ? p->quoted.p : "", p->quoted.n);
        return true;
    }
    if (o->key != KEY_NAME && o->key != KEY_INNER && o->key != KEY_ID) return true;
    if (!decode(&p->word)) return false;
    if (o->key == KEY_ID) {
        p->id.n = 0;
        buf_add(&p->id, p->word.p ? p->word.p : "", p->word.n);
        return true;
    }
    if (p->in_call) return true; /* a second name */
    if (!tool_named(p, p->word.p ? p->word.p : "", p->word.n)) return true;
    if (p->args.n) tool_args(p, p->args.p, p->args.n);
    return true;
}

/* A value's first byte. */
static bool value_begins(struct object *o, char c) {
    o->quoted = c == '"';
    o->walk = (struct json_walk){0};
    if (o->key == KEY_INNER && c == '{') {
        if (o->depth > 1) return false;
        o->depth = 2;
        o->at = OBJECT_KEY;
        return true;
    }
    o->at = OBJECT_IN;
    if (o->key == KEY_ARGS && c != '"' && c != '{') o->key = KEY_OTHER; /* null */
    if (o->key == KEY_ARGS && o->has_args) o->key = KEY_OTHER;
    if (o->key == KEY_ARGS) o->has_args = true;
    if (c != '"' && o->key != KEY_ARGS) o->key = KEY_OTHER;
    return true;
}

/* One byte inside a value. *again: it belongs to what follows. */
static bool value_byte(struct tool_parser *p, char c, bool *again) {
    struct object *o = &p->object;
    *again = false;
    if (o->quoted || o->at == OBJECT_IN_KEY) {
        struct buf *to = o->at == OBJECT_IN && o->key == KEY_ARGS ? &p->quoted : &p->word;
        bool keep = o->at == OBJECT_IN_KEY || o->key != KEY_OTHER;
        if (keep) buf_add(to, &c, 1);
        if (to == &p->word && to->n > OBJECT_WORD) return false;
        json_walk(&o->walk, c);
        return o->walk.text || text_done(p);
    }
    if (o->walk.depth == 0 && c != '{' && c != '[') { /* a number or a word */
        if (c != ',' && c != '}' && !tool_space(c)) return true;
        o->at = OBJECT_COMMA;
        *again = true;
        return true;
    }
    if (json_walk(&o->walk, c)) o->at = OBJECT_COMMA;
    if (o->key == KEY_ARGS) pass(p, &c, 1);
    return true;
}

/* } of the object, or of "function": {..}. */
static bool closes(struct tool_parser *p) {
    p->object.at = OBJECT_COMMA;
    if (--p->object.depth > 0) return true;
    if (!p->in_call) return false;
    if (!p->object.has_args) tool_args(p, "{}", 2);
    tool_end(p, false);
    p->state = STATE_AFTER;
    return true;
}

/* One byte; false: that is no call. */
static bool object_byte(struct tool_parser *p, char c) {
    struct object *o = &p->object;
    bool again = true;
    while (again) {
        again = false;
        if (o->at == OBJECT_IN || o->at == OBJECT_IN_KEY) {
            if (!value_byte(p, c, &again)) return false;
            continue;
        }
        if (tool_space(c)) return true;
        if (o->at == OBJECT_COLON) {
            o->at = OBJECT_VALUE;
            return c == ':';
        }
        if (o->at == OBJECT_VALUE) {
            p->word.n = p->quoted.n = 0;
            if (!value_begins(o, c)) return false;
            again = o->at == OBJECT_IN;
            continue;
        }
        if (c == '}') return closes(p);
        if (o->at == OBJECT_COMMA) {
            o->at = OBJECT_KEY;
            return c == ',';
        }
        if (c != '"') return false;
        o->at = OBJECT_IN_KEY;
        p->word.n = 0;
        o->walk = (struct json_walk){0};
        again = true;
    }
    return true;
}

/* How many bytes of in[at..n) are arguments that can go out as they are; the walk has gone over them. */
static size_t run(struct tool_parser *p) {
    struct object *o = &p->object;
    size_t i = p->at;
    if (o->at != OBJECT_IN || o->quoted || o->key != KEY_ARGS || o->walk.depth == 0) return 0;
    while (i < p->in.n && (unsigned char)p->in.p[i] != TOKEN_BYTE) {
        if (!json_walk(&o->walk, p->in.p[i++])) continue;
        o->at = OBJECT_COMMA;
        break;
    }
    return i - p->at;
}

bool tool_object(struct tool_parser *p) {
    while (p->at < p->in.n && p->state == STATE_OBJECT && !p->done) {
        size_t n = run(p);
        if (n) {
            pass(p, p->in.p + p->at, n);
            tool_eat(p, n);
            continue;
        }
        char c = p->in.p[p->at];
        struct object *o = &p->object;
        bool inside = (o->at == OBJECT_IN || o->at == OBJECT_IN_KEY) && o->walk.text;
        if ((unsigned char)c == TOKEN_BYTE && inside) {
            tool_eat(p, 2);
            continue;
        }
        bool ok = (unsigned char)c != TOKEN_BYTE;
        const char *at = p->in.p + p->at;
        size_t len =
            ok ? text_utf8_len(at, p->in.n - p->at) : 0; /* whole characters: what fails is content */
        tool_eat(p, len);
        for (size_t i = 0; i < len && ok; i++) ok = object_byte(p, at[i]);
        if (!ok) {
            tool_give_up(p);
            return true;
        }
    }
    return p->at < p->in.n || p->state != STATE_OBJECT;
}
