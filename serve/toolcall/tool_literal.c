/* Arguments as Python writes them, f(a="x", n=[1, None]), and as Gemma does, {a:<|"|>x<|"|>,n:[1,null]}, made to JSON byte by byte. */
#include <stdlib.h>
#include <string.h>
#include "serve/toolcall/tool_int.h"

void literal_begin(struct literal *l, char level) {
    *l = (struct literal){.key = true};
    l->level[0] = (uint8_t)level;
}

static bool is_object(const struct literal *l) {
    return l->level[l->depth] == '{' || l->level[l->depth] == 'f';
}

/* A byte of a text: of more than one only together with the others is a character. */
static void put(struct buf *out, char c) {
    if ((unsigned char)c < 0x80)
        buf_json_part(out, &c, 1);
    else
        buf_add(out, &c, 1);
}

/* Before an element or a key: the bracket of the outermost level, or a comma, which may have been forgotten. */
static void element(struct literal *l, struct buf *out) {
    if (is_object(l) && l->gap != GAP_VALUE) l->key = true;
    if (l->gap == GAP_COLON) buf_text(out, ": null");
    bool first = l->key || !is_object(l);
    if (first && l->filled[l->depth]) buf_text(out, ", ");
    if (!l->filled[l->depth] && l->depth == 0) buf_text(out, "{");
    if (first) l->filled[l->depth] = true;
    l->gap = l->key && is_object(l) ? GAP_COLON : GAP_NONE;
}

/* Before a comma or a closing bracket: what is missing of the last member. */
static void fill_gap(struct literal *l, struct buf *out) {
    if (l->gap != GAP_NONE) buf_text(out, l->gap == GAP_COLON ? ": null" : "null");
    l->gap = GAP_NONE;
}

/* The word, a number, true or a name, is complete. */
static void end_word(struct literal *l, struct buf *out) {
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"},
                                           {"true", "true"}, {"false", "false"}, {"null", "null"},
                                           {"nil", "null"}};
    if (l->n_word == 0) return;
    l->word[l->n_word] = 0;
    element(l, out);
    if (!l->key) {
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            if (strcmp(l->word, words[i][0]) == 0) {
                buf_text(out, words[i][1]);
                l->n_word = 0;
                return;
            }
        json_t *j = json_loadb(l->word, l->n_word, JSON_DECODE_ANY, NULL);
        bool number = json_is_number(j);
        json_decref(j);
        if (number) {
            buf_add(out, l->word, l->n_word);
            l->n_word = 0;
            return;
        }
    }
    buf_json(out, l->word, l->n_word);
    l->n_word = 0;
}

static void put_code(unsigned long cp, struct buf *out) {
    if (cp < 0x80) {
        put(out, (char)cp);
    } else if (cp <= 0xffff) {
        buf_printf(out, "\\u%04lx", cp); /* JSON's too; a pair of surrogates stays one */
    } else if (cp <= 0x10ffff) {
        cp -= 0x10000;
        buf_printf(out, "\\u%04lx\\u%04lx", 0xd800 + (cp >> 10), 0xdc00 + (cp & 0x3ff));
    }
}

/* One byte of an escape, as Python has it. */
static void escape_byte(struct literal *l, char c, struct buf *out) {
    static const char plain[] = "n\nt\tr\rb\bf\fa\av\v0\0\\\\''\"\"//";
    l->escape[l->n_escape++] = c;
    char kind = l->escape[1];
    int want = kind == 'x' ? 4 : kind == 'u' ? 6 : kind == 'U' ? 10 : 2;
    if (l->n_escape > 2 && !strchr("0123456789abcdefABCDEF", c)) want = 0;
    if (want && l->n_escape < want) return;
    l->escape[l->n_escape] = 0;
    if (want > 2) {
        put_code(strtoul(l->escape + 2, NULL, 16), out);
    } else {
        const char *hit = NULL;
        for (size_t i = 0; want == 2 && i + 1 < sizeof plain - 1; i += 2)
            if (plain[i] == kind) hit = plain + i + 1;
        if (hit)
            buf_json_part(out, hit, 1);
        else if (kind != '\n') /* a line that goes on */
            buf_json_part(out, l->escape, (size_t)l->n_escape);
    }
    l->n_escape = 0;
}

/* One byte of a text in quotes. */
static void text_byte(struct literal *l, char c, bool quote_mark, struct buf *out) {
    if (l->n_escape) {
        if (!quote_mark) {
            if ((unsigned char)c < 0x80) {
                escape_byte(l, c, out);
                return;
            }
            buf_json_part(out, l->escape, (size_t)l->n_escape);
        }
        l->n_escape = 0;
    }
    if (l->quote == TOKEN_BYTE ? quote_mark : !quote_mark && c == l->quote) {
        buf_text(out, "\"");
        l->quote = 0;
    } else if (!quote_mark && c == '\\' && l->quote != TOKEN_BYTE) {
        l->escape[l->n_escape++] = c;
    } else if (!quote_mark) {
        put(out, c);
    }
}

static void opens(struct literal *l, char c, struct buf *out) {
    element(l, out);
    if (l->depth + 1 == LITERAL_DEPTH) {
        l->bad = true;
        return;
    }
    l->level[++l->depth] = (uint8_t)(c == '(' ? '[' : c);
    l->filled[l->depth] = false;
    l->key = c == '{';
    l->gap = GAP_NONE;
    buf_text(out, c == '{' ? "{" : "[");
}

static void closes(struct literal *l, struct buf *out) {
    end_word(l, out);
    fill_gap(l, out);
    if (l->depth == 0 && !l->filled[0]) buf_text(out, "{");
    buf_text(out, is_object(l) ? "}" : "]");
    l->key = false;
    l->done = l->depth == 0;
    if (l->depth) l->depth--;
}

void literal_byte(struct literal *l, char c, bool quote_mark, struct buf *out) {
    if (l->bad || l->done) return;
    if (l->quote) {
        text_byte(l, c, quote_mark, out);
        return;
    }
    if (quote_mark || c == '"' || c == '\'') {
        end_word(l, out);
        element(l, out);
        buf_text(out, "\"");
        l->quote = quote_mark ? TOKEN_BYTE : c;
    } else if (tool_space(c)) {
        if (!l->key) end_word(l, out);
    } else if (c == ',') {
        end_word(l, out);
        fill_gap(l, out);
        l->key = is_object(l);
    } else if (l->key && (c == ':' || (c == '=' && l->level[l->depth] == 'f'))) {
        end_word(l, out);
        l->key = false;
        if (l->gap == GAP_COLON) {
            buf_text(out, ": ");
            l->gap = GAP_VALUE;
        }
    } else if (!l->key && (c == '{' || c == '[' || c == '(') && l->n_word == 0) {
        opens(l, c, out);
    } else if (c == '}' || c == ']' || c == ')') {
        closes(l, out);
    } else {
        l->word[l->n_word++] = c;
        l->bad = l->n_word + 1 == LITERAL_WORD;
    }
}

json_t *literal_value(const char *text, size_t n) {
    struct literal l;
    struct buf b = {0};
    literal_begin(&l, 'f');
    literal_byte(&l, 'v', false, &b);
    literal_byte(&l, '=', false, &b);
    for (size_t i = 0; i < n; i++) literal_byte(&l, text[i], false, &b);
    bool outside = l.depth == 0 && !l.quote;
    literal_byte(&l, ')', false, &b);
    json_t *j = outside && l.done && !l.bad && !b.failed ? json_loadb(b.p, b.n, JSON_ALLOW_NUL, NULL) : NULL;
    json_t *v = json_object_size(j) == 1 ? json_incref(json_object_get(j, "v")) : NULL;
    json_decref(j);
    buf_free(&b);
    return v;
}
