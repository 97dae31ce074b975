#include "serve/core/grammars.h"
#include <pthread.h>
#include <string.h>
#include "base/mem.h"

enum { MOST = 64 };
struct kept_grammar {
    struct infer_grammar *grammar;
    char *text; /* text[n] */
    size_t n;
    enum infer_grammar_kind kind;
    bool listed; /* listed: among those that are looked through */
    int users;
    unsigned long long used; /* when it was taken last */
};
struct grammars {
    struct metrics *metrics;
    pthread_mutex_t lock;
    struct kept_grammar *of[MOST]; /* of[n] */
    int n;
    unsigned long long clock;
};

static void let_go(struct kept_grammar *k) {
    infer_grammar_free(k->grammar);
    mem_free(k->text);
    mem_free(k);
}

enum infer_status grammars_open(struct grammars **out, struct metrics *m) {
    TRY(mem_new(out, sizeof **out, "grammars"));
    (*out)->metrics = m;
    pthread_mutex_init(&(*out)->lock, NULL);
    return INFER_OK;
}

void grammars_close(struct grammars *g) {
    if (!g) return;
    for (int i = 0; i < g->n; i++) let_go(g->of[i]);
    pthread_mutex_destroy(&g->lock);
    mem_free(g);
}

static struct kept_grammar *find(struct grammars *g, enum infer_grammar_kind kind, const char *text,
                                 size_t n) {
    for (int i = 0; i < g->n; i++)
        if (g->of[i]->n == n && g->of[i]->kind == kind && memcmp(g->of[i]->text, text, n) == 0)
            return g->of[i];
    return NULL;
}

/* Among those that are known, in place of the one that nobody has had for longest; all in use: it lives with its users alone. */
static void list(struct grammars *g, struct kept_grammar *k) {
    int at = g->n < MOST ? g->n++ : -1;
    if (at < 0)
        for (int i = 0; i < MOST; i++)
            if (!g->of[i]->users && (at < 0 || g->of[i]->used < g->of[at]->used)) at = i;
    if (at < 0) return;
    if (g->of[at]) let_go(g->of[at]);
    g->of[at] = k;
    k->listed = true;
}

static enum infer_status make(struct kept_grammar **out, enum infer_grammar_kind kind, const char *text,
                              size_t n) {
    struct kept_grammar *k;
    TRY(mem_new(&k, sizeof *k, "a grammar"));
    *k = (struct kept_grammar){.n = n, .kind = kind, .users = 1};
    enum infer_status st = mem_new(&k->text, n + 1, "a grammar");
    if (!st) memcpy(k->text, text, n);
    if (!st) st = infer_grammar_open(&k->grammar, kind, text, n);
    if (st)
        let_go(k);
    else
        *out = k;
    return st;
}

enum infer_status grammars_take(struct grammars *g, enum infer_grammar_kind kind, const char *text, size_t n,
                                struct kept_grammar **kept, struct infer_grammar **out) {
    pthread_mutex_lock(&g->lock);
    struct kept_grammar *k = find(g, kind, text, n);
    if (k) k->users++, k->used = ++g->clock;
    pthread_mutex_unlock(&g->lock);
    atomic_fetch_add(k ? &g->metrics->grammars_known : &g->metrics->grammars_made, 1);
    if (!k) {
        TRY(make(&k, kind, text, n));
        pthread_mutex_lock(&g->lock);
        k->used = ++g->clock;
        if (!find(g, kind, text, n)) list(g, k);
        pthread_mutex_unlock(&g->lock);
    }
    *kept = k;
    *out = k->grammar;
    return INFER_OK;
}

void grammars_give(struct grammars *g, struct kept_grammar *k) {
    if (!k) return;
    pthread_mutex_lock(&g->lock);
    const bool gone = --k->users == 0 && !k->listed;
    pthread_mutex_unlock(&g->lock);
    if (gone) let_go(k);
}
