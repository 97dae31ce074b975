/* Time of token masks: masks VOCAB.gguf VECTORS.json [KIND], as bench/constraint_vectors.json
 * Walks every accepted text of the vectors with the longest tokens that fit; CPU time of matcher_mask before each: once with a
 * new matcher for each text (nothing kept), once with one matcher a grammar. Vocabularies below 150,000 tokens are filled up
 * with pairs of their own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "files/json.h"
#include "text/grammar/grammar.h"
#include "files/tensorfile.h"
#include "text/tok/tok.h"

enum { N_VOCAB = 150000, MOST = 1 << 16 };
struct pieces {
    char *text[N_VOCAB];
    size_t len[N_VOCAB];
    int n_real;
};
static struct pieces pieces;
static double times[MOST];
static int n_time;

static const char *piece(void *user, int32_t id, size_t *n) {
    struct pieces *p = user;
    *n = p->len[id];
    return p->text[id];
}
static bool ends(void *user, int32_t id) { return (void)user, id == N_VOCAB - 1; }

static double microseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* the machine may be shared */
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void fill_pieces(const struct tok *t) {
    uint32_t seed = 1;
    pieces.n_real = tok_size(t) < N_VOCAB ? tok_size(t) : N_VOCAB;
    for (int i = 0; i < N_VOCAB; i++) {
        struct str a = {0}, b = {0};
        if (i < pieces.n_real) {
            a = tok_piece(t, i, false, false);
        } else {
            seed = seed * 1664525u + 1013904223u;
            a = tok_piece(t, (int32_t)(seed >> 8) % pieces.n_real, false, false);
            seed = seed * 1664525u + 1013904223u;
            b = tok_piece(t, (int32_t)(seed >> 8) % pieces.n_real, false, false);
        }
        pieces.len[i] = a.len + b.len;
        pieces.text[i] = malloc(pieces.len[i] + 1);
        if (a.len) memcpy(pieces.text[i], a.data, a.len);
        if (b.len) memcpy(pieces.text[i] + a.len, b.data, b.len);
    }
}

static int longest(const char *s, size_t n) {
    int best = -1;
    for (int i = 0; i < pieces.n_real; i++) {
        size_t len = pieces.len[i];
        if (len && len <= n && (best < 0 || len > pieces.len[best]) && memcmp(pieces.text[i], s, len) == 0)
            best = i;
    }
    return best;
}

static void walk(struct matcher *m, const char *s, size_t n) {
    for (size_t at = 0; n_time < MOST;) {
        double begin = microseconds();
        const uint64_t *mask = matcher_mask(m);
        times[n_time++] = microseconds() - begin;
        if (at == n) return;
        int id = longest(s + at, n - at);
        if (id < 0 || !(mask[id / 64] >> (id % 64) & 1) || !matcher_accept(m, id)) {
            printf("no token at %zu of %s\n", at, s);
            return;
        }
        at += pieces.len[id];
    }
}

/* {"gbnf": ..}, {"schema": ..} or {"kind": "regex", "grammar": ..} */
static enum infer_status compile(struct infer_grammar **g, const json_t *t) {
    const json_t *gbnf = json_object_get(t, "gbnf"), *schema = json_object_get(t, "schema"),
                 *text = gbnf     ? gbnf
                         : schema ? schema
                                  : json_object_get(t, "grammar");
    const char *kind = json_text_of(t, "kind");
    return infer_grammar_open(g,
                              schema         ? INFER_GRAMMAR_SCHEMA
                              : *kind == 'r' ? INFER_GRAMMAR_REGEX
                              : *kind == 't' ? INFER_GRAMMAR_TAGS
                                             : INFER_GRAMMAR_TEXT,
                              json_string_value(text), json_string_length(text));
}

/* only: those of this kind, NULL: all */
static enum infer_status run(const json_t *tests, const struct infer_grammar_vocab *v, const char *only,
                             bool keep) {
    size_t i, k;
    const json_t *t, *text;
    n_time = 0;
    json_array_foreach(tests, i, t) {
        struct infer_grammar *g;
        struct matcher *m = NULL;
        if (only && strcmp(json_text_of(t, "kind"), only) != 0) continue;
        TRY(compile(&g, t));
        json_array_foreach(json_object_get(t, "accept"), k, text) {
            if (!m || !keep) {
                matcher_close(m);
                TRY(matcher_open(&m, g, v));
            }
            matcher_reset(m);
            walk(m, json_string_value(text), json_string_length(text));
        }
        matcher_close(m);
        infer_grammar_free(g);
    }
    return INFER_OK;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const char *name) {
    double sum = 0;
    qsort(times, (size_t)n_time, sizeof *times, ascending);
    for (int i = 0; i < n_time; i++) sum += times[i];
    printf("%s: %d masks, median %.2f us, p90 %.0f, p99 %.0f, mean %.0f\n", name, n_time, times[n_time / 2],
           times[n_time * 9 / 10], times[n_time * 99 / 100], sum / n_time);
}

static enum infer_status bench(const char *vocab, const json_t *tests, const char *only) {
    struct tensorfile *f;
    struct tok *t;
    struct infer_grammar_vocab *v;
    const struct tensorfile_options options = {.vocab_only = true};
    const struct grammar_tokens tokens = {N_VOCAB, piece, ends, &pieces};
    TRY(tensorfile_open(&f, vocab, &options));
    TRY(tok_open(&t, f));
    if (!t) return err_set(INFER_E_INPUT, "%s has no vocabulary", vocab);
    fill_pieces(t);
    double begin = microseconds();
    TRY(grammar_vocab_open(&v, &tokens));
    printf("trie of %d tokens (%d of the file): %.0f ms\n", N_VOCAB, pieces.n_real,
           (microseconds() - begin) / 1e3);
    TRY(run(tests, v, only, false));
    report("new matcher a text");
    TRY(run(tests, v, only, true));
    report("one matcher a grammar");
    return INFER_OK;
}

int main(int argc, char **argv) {
    json_t *file = argc == 3 || argc == 4 ? json_load_file(argv[2], 0, NULL) : NULL;
    if (!file) {
        fprintf(stderr, "usage: masks VOCAB.gguf VECTORS.json [KIND]\n");
        return 2;
    }
    enum infer_status st = bench(argv[1], json_object_get(file, "tests"), argv[3]);
    if (st) fprintf(stderr, "masks: %s\n", err_message());
    return st ? 1 : 0;
}
