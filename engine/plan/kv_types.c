#include "plan/kv_types.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char asked[] =
    "must be f32, f16, q8_0, f8, q5_0, q4_0 or auto, KEYS/VALUES, and behind a comma of some layers: "
    "window:TYPE, full:TYPE, 3-9:TYPE, of what chooses positions and of entries: index:TYPE, entries.3-9:TYPE";

static bool type_of(const char *name, size_t n, enum kv_type *out) {
    for (int t = KV_F32; t < KV_TYPES; t++) {
        const char *known = kv_type_name((enum kv_type)t);
        *out = (enum kv_type)t;
        if (strlen(known) == n && strncasecmp(name, known, n) == 0) return true;
    }
    return false;
}

/* TYPE or TYPE/TYPE. */
static bool pair_of(const char *text, size_t n, struct kv_types *out) {
    const char *apart = memchr(text, '/', n);
    const size_t k = apart ? (size_t)(apart - text) : n;
    if (!type_of(text, k, &out->k)) return false;
    out->v = out->k;
    return !apart || type_of(apart + 1, n - k - 1, &out->v);
}

/* What an item is of: of these layers keys and values, index keys, entries. */
struct layers {
    int first, last;
    bool full, window, index, entries;
};
static const struct layers all_layers = {0, INT32_MAX, true, true, true, true};
static bool number_of(const char **at, const char *end, int *out) {
    char *to;
    if (*at == end || **at < '0' || **at > '9') return false;
    const long n = strtol(*at, &to, 10);
    *at = to;
    *out = n < INT32_MAX ? (int)n : INT32_MAX - 1;
    return true;
}
static bool word_is(const char *text, size_t n, const char *word) {
    return n == strlen(word) && strncasecmp(text, word, n) == 0;
}
/* N or N-M, whole. */
static bool range_of(const char *text, const char *end, struct layers *out) {
    if (!number_of(&text, end, &out->first)) return false;
    out->last = out->first;
    if (text < end && *text == '-') {
        text++;
        if (!number_of(&text, end, &out->last)) return false;
    }
    return text == end && out->first <= out->last;
}
static bool layers_of(const char *text, size_t n, struct layers *out) {
    const char *end = text + n, *dot = memchr(text, '.', n);
    const size_t word = dot ? (size_t)(dot - text) : n;
    *out = (struct layers){.last = INT32_MAX,
                           .full = word_is(text, n, "full"),
                           .window = word_is(text, n, "window"),
                           .index = word_is(text, word, "index"),
                           .entries = word_is(text, word, "entries")};
    if (out->full || out->window) return true;
    if (out->index || out->entries) return !dot || range_of(dot + 1, end, out);
    out->full = out->window = true;
    return range_of(text, end, out);
}

static void set_store(struct kv_types *of, const struct model *m, int store, struct kv_types to) {
    of[store] = to;
    if (m->store[store].v_in_k || !m->store[store].head_dim_v) of[store].v = to.k;
}
static enum infer_status set_layers(struct kv_types *of, const struct model *m, const struct layers *l,
                                    struct kv_types to, const char *text) {
    if (l->last != INT32_MAX && l->last >= m->n_layer)
        return err_set(INFER_E_INPUT, ".kv_type '%.60s': the model has layers 0 to %d", text, m->n_layer - 1);
    if (!l->full && !l->window && to.k != to.v)
        return err_set(INFER_E_INPUT, ".kv_type '%.60s': index and entries are keys alone, with one type",
                       text);
    for (int i = l->first; i <= l->last && i < m->n_layer; i++) {
        const struct layer *at = &m->layer[i];
        if (at->attn.store >= 0 && !at->attn.borrows && (at->attn.window ? l->window : l->full))
            set_store(of, m, at->attn.store, to);
        if (l->index && at->index.n_head) set_store(of, m, at->index.store, to);
        if (l->entries && at->entry.every) set_store(of, m, at->entry.store, to);
    }
    return INFER_OK;
}

static enum infer_status read_items(struct kv_types *of, const struct model *m, const char *text) {
    for (const char *at = text, *end;; at = end + 1) {
        end = at + strcspn(at, ",");
        const char *colon = memchr(at, ':', (size_t)(end - at));
        const char *types = colon ? colon + 1 : at;
        struct layers l = all_layers;
        struct kv_types to;
        if ((colon && !layers_of(at, (size_t)(colon - at), &l)) ||
            !pair_of(types, (size_t)(end - types), &to))
            return err_set(INFER_E_INPUT, ".kv_type is '%.60s', %s", text, asked);
        TRY(set_layers(of, m, &l, to, text));
        if (!*end) return INFER_OK;
    }
}

/* "auto" or "auto:KL"; *kl below 0: none is named. */
static enum infer_status bound_of(const char *text, double *kl) {
    char *end = NULL;
    *kl = -1;
    if (!text[4]) return INFER_OK;
    *kl = strtod(text + 5, &end);
    if (end == text + 5 || *end || !(*kl >= 0))
        return err_set(INFER_E_INPUT, ".kv_type is '%.60s': auto:KL takes a divergence, auto:0.02", text);
    return INFER_OK;
}

enum infer_status kv_types_read(enum kv_type *all, const struct kv_types **out, struct arena *arena,
                                const struct model *m, const char *text, enum kv_type otherwise) {
    double kl;
    *all = otherwise, *out = NULL;
    if (!text) return INFER_OK;
    if (type_of(text, strlen(text), all)) return INFER_OK;
    *all = otherwise;
    if (m->draft_proj.n) return INFER_OK;
    if (strncasecmp(text, "auto", 4) == 0 && (!text[4] || text[4] == ':')) {
        TRY(bound_of(text, &kl));
        TRY(kv_tuned_read(&text, arena, m, kl));
    }
    struct kv_types *of = arena_alloc(arena, ((size_t)m->n_store + 1) * sizeof *of);
    if (!of) return err_set(INFER_E_MEMORY, "out of memory for the plan");
    for (int i = 0; i < m->n_store; i++) of[i] = (struct kv_types){otherwise, otherwise};
    TRY(read_items(of, m, text));
    bool same = true;
    for (int i = 0; i < m->n_store; i++) same = same && of[i].k == of[0].k && of[i].v == of[0].k;
    if (same && m->n_store) *all = of[0].k;
    if (same) return INFER_OK;
    *all = KV_TYPES, *out = of;
    return INFER_OK;
}
