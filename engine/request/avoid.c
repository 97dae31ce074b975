#define _GNU_SOURCE /* memmem */
#include "request/avoid.h"
#include <string.h>
#include "base/mem.h"

/* The tokens that complete a text whose first bytes stand there already: of text t, known bytes k, ids[from .. to). */
struct part {
    int from, to;
};
struct infer_avoid {
    int n;
    struct avoid_text {
        char bytes[INFER_AVOID_BYTES];
        int n;
        struct part part[INFER_AVOID_BYTES]; /* part[k]; k 0: tokens that hold all of it */
    } text[INFER_AVOID_TEXTS];
    int32_t *ids; /* ids[n_id] */
    int n_id, cap;
    const int32_t *by_byte; /* ids in the order of their first byte, those of byte b from[b] .. from[b + 1) */
    int from[257];
};

static enum infer_status add(struct infer_avoid *a, int32_t id) {
    if (a->n_id == a->cap) {
        const int cap = a->cap ? 2 * a->cap : 256;
        int32_t *grown = mem_realloc(a->ids, (size_t)cap * sizeof *grown);
        if (!grown) return err_set(INFER_E_MEMORY, "out of memory: texts that must not come");
        a->ids = grown;
        a->cap = cap;
    }
    a->ids[a->n_id++] = id;
    return INFER_OK;
}

static const char *piece(const struct infer_model *m, int32_t id, size_t *n) {
    return infer_piece(m, id, false, false, n);
}

/* The vocabulary by first bytes: a text has as many endings as bytes, and each is looked for among a few tokens. */
static enum infer_status sort(struct infer_avoid *a, const struct infer_model *m, int n_vocab, int32_t *to) {
    int at[256];
    size_t n;
    for (int32_t id = 0; id < n_vocab; id++) {
        const char *s = piece(m, id, &n);
        if (n) a->from[(unsigned char)s[0] + 1]++;
    }
    for (int b = 0; b < 256; b++) a->from[b + 1] += a->from[b];
    memcpy(at, a->from, sizeof at);
    for (int32_t id = 0; id < n_vocab; id++) {
        const char *s = piece(m, id, &n);
        if (n) to[at[(unsigned char)s[0]]++] = id;
    }
    a->by_byte = to;
    return INFER_OK;
}

static enum infer_status find(struct infer_avoid *a, struct avoid_text *t, const struct infer_model *m) {
    size_t n;
    t->part[0].from = a->n_id;
    for (int i = 0; i < a->from[256]; i++) {
        const char *s = piece(m, a->by_byte[i], &n);
        if (n >= (size_t)t->n && memmem(s, n, t->bytes, (size_t)t->n)) TRY(add(a, a->by_byte[i]));
    }
    t->part[0].to = a->n_id;
    for (int k = 1; k < t->n; k++) {
        const unsigned char first = (unsigned char)t->bytes[k];
        const size_t rest = (size_t)(t->n - k);
        t->part[k].from = a->n_id;
        for (int i = a->from[first]; i < a->from[first + 1]; i++) {
            const char *s = piece(m, a->by_byte[i], &n);
            if (n >= rest && memcmp(s, t->bytes + k, rest) == 0) TRY(add(a, a->by_byte[i]));
        }
        t->part[k].to = a->n_id;
    }
    return INFER_OK;
}

static enum infer_status fill(struct infer_avoid *a, const struct infer_model *m, const char *const *text,
                              int n) {
    struct infer_model_info info;
    int32_t *sorted;
    infer_model_info(m, &info);
    TRY(mem_new(&sorted, ((size_t)info.n_vocab + 1) * sizeof *sorted, "texts that must not come"));
    enum infer_status st = sort(a, m, info.n_vocab, sorted);
    for (int i = 0; i < n && !st; i++) {
        struct avoid_text *t = &a->text[a->n++];
        const size_t bytes = strlen(text[i]);
        if (bytes < 1 || bytes > INFER_AVOID_BYTES) {
            st = err_set(INFER_E_INPUT, "a text that must not come has %zu bytes, not 1 to %d", bytes,
                         INFER_AVOID_BYTES);
            break;
        }
        memcpy(t->bytes, text[i], bytes);
        t->n = (int)bytes;
        st = find(a, t, m);
    }
    a->by_byte = NULL;
    mem_free(sorted);
    return st;
}

enum infer_status infer_avoid_open(struct infer_avoid **out, const struct infer_model *m,
                                   const char *const *text, int n) {
    struct infer_avoid *a;
    *out = NULL;
    if (n < 0 || n > INFER_AVOID_TEXTS)
        return err_set(INFER_E_INPUT, "%d texts that must not come, at most %d", n, INFER_AVOID_TEXTS);
    TRY(mem_new(&a, sizeof *a, "texts that must not come"));
    enum infer_status st = fill(a, m, text, n);
    if (st)
        infer_avoid_close(a);
    else
        *out = a;
    return st;
}

void infer_avoid_close(struct infer_avoid *a) {
    if (!a) return;
    mem_free(a->ids);
    mem_free(a);
}

int avoid_most(const struct infer_avoid *a) { return a->n_id; }

int avoid_next(const struct infer_avoid *a, const char *tail, size_t n, int32_t *ids) {
    int got = 0;
    for (int i = 0; i < a->n; i++) {
        const struct avoid_text *t = &a->text[i];
        for (int k = 0; k < t->n && (size_t)k <= n; k++) {
            const struct part *p = &t->part[k];
            if (memcmp(tail + n - k, t->bytes, (size_t)k) != 0) continue;
            memcpy(ids + got, a->ids + p->from, (size_t)(p->to - p->from) * sizeof *ids);
            got += p->to - p->from;
        }
    }
    return got;
}
