#include "text/grammar/grammar_names.h"

#include <string.h>

static void open_one(struct names *s, bool object) {
    if (s->depth == NAMES_DEPTH) {
        s->lost = true;
        return;
    }
    s->open[s->depth++] = (struct names_open){object, s->n_name, s->n_text};
    s->place = object ? NAMES_BEFORE : NAMES_VALUE;
}
static void close_one(struct names *s, bool trial) {
    if (s->depth == 0) return;
    const struct names_open *o = &s->open[--s->depth];
    if (!trial) s->n_name = o->name, s->n_text = o->text;
    s->place = NAMES_VALUE;
}

int names_next(const struct names *s, const char *begun, size_t n, uint64_t next[4], bool *whole) {
    int found = 0;
    memset(next, 0, 4 * sizeof *next);
    *whole = false;
    if (s->depth == 0) return 0;
    for (uint32_t i = s->open[s->depth - 1].name; i < s->n_name; i++) {
        const char *text = s->text + s->name[i].at;
        if (s->name[i].depth != s->depth || s->name[i].n < n || memcmp(text, begun, n) != 0) continue;
        found++;
        if (s->name[i].n == n)
            *whole = true;
        else
            next[(uint8_t)text[n] >> 6] |= 1ull << (text[n] & 63);
    }
    return found;
}

bool names_some(const struct names *s) {
    bool whole;
    uint64_t next[4];
    return names_next(s, "", 0, next, &whole) > 0;
}

/* The quote behind a name; false: the object has it already. */
static bool close_name(struct names *s) {
    bool whole;
    uint64_t next[4];
    const uint32_t n = s->n_text - s->begin;
    names_next(s, s->text + s->begin, n, next, &whole);
    if (whole) return false;
    if (s->n_name == NAMES_MOST) {
        s->lost = true;
        return true;
    }
    s->name[s->n_name].at = s->begin;
    s->name[s->n_name].n = n;
    s->name[s->n_name++].depth = s->depth;
    s->place = NAMES_VALUE;
    return true;
}

/* A byte inside of quotes. */
static bool go_text(struct names *s, char c) {
    const bool ends = c == '"' && !s->escape;
    s->escape = c == '\\' && !s->escape;
    if (ends && s->place == NAMES_IN) return close_name(s);
    if (ends) s->place = NAMES_VALUE;
    if (s->place != NAMES_IN) return true;
    if (s->n_text == NAMES_TEXT)
        s->lost = true;
    else
        s->text[s->n_text++] = c;
    return true;
}

bool names_go(struct names *s, const char *text, size_t n, bool trial) {
    for (size_t i = 0; i < n && !s->lost; i++) {
        const char c = text[i];
        if (s->place == NAMES_IN || s->place == NAMES_IN_TEXT) {
            if (!go_text(s, c)) return false;
        } else if (c == '"') {
            s->begin = s->n_text;
            s->place = s->place == NAMES_BEFORE ? NAMES_IN : NAMES_IN_TEXT;
        } else if (c == '{' || c == '[') {
            open_one(s, c == '{');
        } else if (c == '}' || c == ']') {
            close_one(s, trial);
        } else if (c == ',' && s->depth && s->open[s->depth - 1].object) {
            s->place = NAMES_BEFORE;
        }
    }
    return true;
}

void names_keep(const struct names *s, struct names_mark *mark) {
    *mark = (struct names_mark){.place = s->place,
                                .escape = s->escape,
                                .lost = s->lost,
                                .depth = s->depth,
                                .n_name = s->n_name,
                                .n_text = s->n_text,
                                .begin = s->begin};
    memcpy(mark->open, s->open, (size_t)s->depth * sizeof *s->open);
}
void names_back(struct names *s, const struct names_mark *mark) {
    s->place = mark->place;
    s->escape = mark->escape;
    s->lost = mark->lost;
    s->depth = mark->depth;
    s->n_name = mark->n_name;
    s->n_text = mark->n_text;
    s->begin = mark->begin;
    memcpy(s->open, mark->open, (size_t)s->depth * sizeof *s->open);
}
