/* Aho and Corasick's automaton, a rule a state. */
#include "text/tags/until.h"

#include <string.h>
#include <utf8proc.h>

struct place {
    int32_t c;             /* the character that leads here from parent */
    int parent, kid, next; /* first kid, next of parent's; 0: none */
    int fail;              /* the longest end of it that begins a text, too */
    int hit;               /* text that ends here, -1: none */
};
struct machine {
    struct place *at; /* at[n]; 0: nothing of a text */
    int n;
    int32_t *letter; /* letter[n_letter]: characters of the texts, each once */
    int n_letter;
};

static int kid_of(const struct machine *m, int s, int32_t c) {
    for (int k = m->at[s].kid; k; k = m->at[k].next)
        if (m->at[k].c == c) return k;
    return 0;
}

static enum infer_status add_text(struct machine *m, const char *text, int number) {
    const utf8proc_uint8_t *p = (const utf8proc_uint8_t *)text;
    int s = 0;
    while (*p) {
        utf8proc_int32_t c = 0;
        const utf8proc_ssize_t n = utf8proc_iterate(p, -1, &c);
        if (n <= 0) return err_set(INFER_E_INPUT, "'%.40s' is not UTF-8", text);
        p += n;
        int k = kid_of(m, s, c);
        if (!k) {
            if (m->n == UNTIL_PLACES)
                return err_set(INFER_E_INPUT, "the texts that end free text have more than %d characters",
                               UNTIL_PLACES);
            k = m->n++;
            m->at[k] = (struct place){.c = c, .parent = s, .next = m->at[s].kid, .hit = -1};
            m->at[s].kid = k;
            int i = 0;
            while (i < m->n_letter && m->letter[i] != c) i++;
            if (i == m->n_letter) m->letter[m->n_letter++] = c;
        }
        s = k;
    }
    if (m->at[s].hit < 0) m->at[s].hit = number;
    return INFER_OK;
}

static int go(const struct machine *m, int s, int32_t c) {
    for (;; s = m->at[s].fail) {
        const int k = kid_of(m, s, c);
        if (k || s == 0) return k;
    }
}

/* Breadth first: a place's fail is nearer to the beginning. */
static void link(struct machine *m, int *queue) {
    int n = 0;
    queue[n++] = 0;
    for (int i = 0; i < n; i++) {
        const int s = queue[i];
        if (s) {
            struct place *p = &m->at[s];
            p->fail = p->parent ? go(m, m->at[p->parent].fail, p->c) : 0;
            if (p->hit < 0) p->hit = m->at[p->fail].hit;
        }
        for (int k = m->at[s].kid; k; k = m->at[k].next) queue[n++] = k;
    }
}

static void put_place(struct stext *t, const char *name, const struct machine *m, const struct until *u,
                      int s, bool open) {
    stext_put(t, "%s-%d ::= ", name, s);
    if (open) stext_put(t, "| ");
    bool other = false;
    for (int i = 0; i < m->n_letter; i++) {
        const int to = go(m, s, m->letter[i]), hit = to ? m->at[to].hit : -1;
        if (!to || (hit >= 0 && !u->then[hit])) continue;
        stext_put(t, "%s[", other ? "| " : "");
        stext_char(t, m->letter[i]);
        stext_put(t, "] ");
        if (hit >= 0)
            stext_add(t, u->then[hit], strlen(u->then[hit]));
        else
            stext_put(t, "%s-%d", name, to);
        stext_put(t, " ");
        other = true;
    }
    stext_put(t, "%s[^", other ? "| " : "");
    for (int i = 0; i < m->n_letter; i++)
        if (go(m, s, m->letter[i])) stext_char(t, m->letter[i]);
    stext_put(t, "] %s-0\n", name);
}

enum infer_status until_rules(struct stext *t, const char *name, const struct until *u, bool open) {
    struct arena a = {0};
    int *queue = arena_alloc(&a, UNTIL_PLACES * sizeof *queue);
    struct machine m = {.at = arena_alloc(&a, UNTIL_PLACES * sizeof *m.at),
                        .n = 1,
                        .letter = arena_alloc(&a, UNTIL_PLACES * sizeof *m.letter)};
    enum infer_status st =
        queue && m.at && m.letter ? INFER_OK : err_set(INFER_E_MEMORY, "out of memory: a structural tag");
    if (!st) m.at[0].hit = -1;
    for (int i = 0; i < u->n_text && !st; i++) st = add_text(&m, u->text[i], i);
    if (!st) {
        link(&m, queue);
        for (int s = 0; s < m.n; s++)
            if (m.at[s].hit < 0) put_place(t, name, &m, u, s, open);
    }
    arena_free(&a);
    return st;
}
