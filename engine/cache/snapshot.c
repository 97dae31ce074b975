#include "cache/snapshot.h"
#include <stdio.h>
#include <string.h>
#include "files/outfile.h"

static const char magic[8] = {'I', 'N', 'F', 'E', 'R', 'K', 'V', '4'};
enum { PLACE = 64 };
struct header {
    char magic[8];
    uint64_t model;
    char place[PLACE];
    uint64_t n_ids, n_group, state_bytes, n_shift, checksum;
};
static_assert(sizeof(struct header) == 8 + 8 + PLACE + 40 && sizeof(struct snapshot_group) == 16,
              "what is written has no padding");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are written as they lie in memory");

/* ---- checksums ----------------------------------------------------------------------------------------------- */

/* FNV-1a over words of 8 bytes, the last one filled up with its length. source: Fowler, Noll, Vo */
static uint64_t hash(uint64_t h, const void *data, size_t n) {
    const unsigned char *p = data;
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t w;
        memcpy(&w, p, 8);
        h = (h ^ w) * UINT64_C(0x100000001b3);
        h ^= h >> 32;
    }
    uint64_t w = (uint64_t)n << 56;
    memcpy(&w, p, n);
    return (h ^ w) * UINT64_C(0x100000001b3);
}

enum { HASH_START = 0x1234567, SAMPLE = 4096 };

uint64_t snapshot_fingerprint(const struct tensorfile *f) {
    uint64_t h = HASH_START;
    for (size_t i = 0; i < f->n_meta; i++) {
        const struct meta *m = &f->meta[i];
        h = hash(h, m->key.data, m->key.len);
        if (m->type == META_STRING) h = hash(h, m->strings[0].data, m->strings[0].len);
        bool numbers = m->type != META_STRING &&
                       (m->type != META_ARRAY || (m->elem != META_STRING && m->elem != META_ARRAY));
        for (uint64_t k = 0; numbers && k < m->n; k++) {
            double x = meta_elem_f64(m, k);
            h = hash(h, &x, sizeof x);
        }
    }
    for (size_t i = 0; i < f->n_tensor; i++) {
        const struct tensor *t = &f->tensor[i];
        h = hash(h, t->name, strlen(t->name));
        h = hash(h, &(int64_t){t->type}, 8);
        h = hash(h, t->shape, sizeof t->shape);
        if (t->row_factor) h = hash(h, t->row_factor, (size_t)t->shape[2] * sizeof *t->row_factor);
        if (t->columns) h = hash(h, t->columns, (size_t)t->shape[3] * sizeof *t->columns);
        h = hash(h, t->data, t->bytes < SAMPLE ? t->bytes : SAMPLE);
    }
    return h ? h : 1;
}

/* ---- header -------------------------------------------------------------------------------------------------- */

/* What a snapshot of n_ids tokens says here. */
static void make_header(const struct snapshot_place *p, int n_ids, struct header *h,
                        struct snapshot_group *group) {
    const struct backend_config *c = p->config;
    struct backend_info info;
    p->backend->type->info(p->backend, &info);
    *h = (struct header){.n_ids = (uint64_t)n_ids, .n_group = (uint64_t)c->n_kv_group};
    memcpy(h->magic, magic, sizeof magic);
    if (!*p->fingerprint) *p->fingerprint = snapshot_fingerprint(p->file);
    h->model = p->adapter ? *p->fingerprint * 3 + p->adapter : *p->fingerprint;
    char types[KV_TYPES_NAME];
    snprintf(h->place, PLACE, "%s %.38s %s", p->backend->type->name, info.isa ? info.isa : "",
             kv_types_name(types, c->store, c->n_store));
    for (int g = 0; g < c->n_kv_group; g++)
        group[g] = (struct snapshot_group){(uint64_t)kv_first_page(p->kv, g, n_ids), 0};
    for (int i = 0; i < c->n_state; i++) h->state_bytes += (uint64_t)c->state[i].n_elem * sizeof(float);
    for (int i = 0; i < c->n_store; i++) group[c->store[i].group].page_bytes += kv_page_bytes(&c->store[i]);
}

static uint64_t pages_of(uint64_t n_ids) { return n_ids / KV_PAGE + (n_ids % KV_PAGE != 0); }

/* Of names and shifts. */
static uint64_t given_bytes(const struct header *h) {
    return h->n_shift ? sizeof(struct prefix_secret) + h->n_shift * 4 : 0;
}

/* Bytes of all that is there; false: more than an address has, or no snapshot's numbers. */
static bool size_of(const struct header *h, const struct snapshot_group *group, size_t *out) {
    size_t n;
    bool fits = h->n_ids <= INT32_MAX && (!h->n_shift || h->n_shift == h->n_ids);
    *out = sizeof *h + (size_t)h->n_group * sizeof *group;
    fits = fits && size_add(*out, h->n_ids * 5, out) && size_add(*out, given_bytes(h), out) &&
           size_add(*out, h->state_bytes, out);
    for (uint64_t g = 0; fits && g < h->n_group; g++) {
        uint64_t pages = pages_of(h->n_ids);
        fits = group[g].first <= pages && size_mul(pages - group[g].first, group[g].page_bytes, &n) &&
               size_add(*out, n, out);
    }
    return fits;
}

enum infer_status snapshot_parse(struct snapshot_view *out, const unsigned char *data, size_t n) {
    struct header h;
    size_t size;
    if (n >= sizeof magic && memcmp(data, magic, 7) == 0 && data[7] >= '1' && data[7] < magic[7])
        return err_set(INFER_E_UNSUPPORTED, "made by an older version of infer");
    if (n < sizeof h || memcmp(data, magic, sizeof magic) != 0)
        return err_set(INFER_E_INPUT, "no snapshot of a sequence");
    memcpy(&h, data, sizeof h);
    if (h.place[PLACE - 1]) return err_set(INFER_E_INPUT, "broken: its place has no end");
    *out = (struct snapshot_view){.model = h.model, .state_bytes = h.state_bytes};
    bool fits = h.n_group <= KV_GROUPS && (n - sizeof h) / sizeof *out->group >= h.n_group;
    if (fits) memcpy(out->group, data + sizeof h, (size_t)h.n_group * sizeof *out->group);
    if (!fits || !size_of(&h, out->group, &size) || size != n)
        return err_set(INFER_E_INPUT, "broken: %zu bytes do not hold %llu tokens with their pages", n,
                       (unsigned long long)h.n_ids);
    if (hash(HASH_START, data + sizeof h, n - sizeof h) != h.checksum)
        return err_set(INFER_E_INPUT, "broken: the checksum is wrong");
    const unsigned char *ids = data + sizeof h + (size_t)h.n_group * sizeof *out->group;
    out->n_ids = (int)h.n_ids;
    out->n_group = (int)h.n_group;
    out->place = (const char *)data + offsetof(struct header, place);
    out->ids = (const int32_t *)(const void *)ids;
    if (h.n_shift) {
        memcpy(&out->names, ids + h.n_ids * 4, sizeof out->names);
        out->shift = (const int32_t *)(const void *)(ids + h.n_ids * 4 + sizeof out->names);
    }
    out->pages = ids + h.n_ids * 4 + given_bytes(&h);
    out->how = data + n - h.n_ids;
    return INFER_OK;
}

void snapshot_seal(unsigned char *data, size_t n) {
    if (n < sizeof(struct header)) return;
    uint64_t sum = hash(HASH_START, data + sizeof(struct header), n - sizeof(struct header));
    memcpy(data + offsetof(struct header, checksum), &sum, sizeof sum);
}

/* ---- pages --------------------------------------------------------------------------------------------------- */

/* The pages of a sequence that group says, and its states, out of the backend or (write) into it. */
static enum infer_status move_all(const struct snapshot_place *p, int slot,
                                  const struct snapshot_group *group, unsigned char *bytes, bool write) {
    const struct backend_config *c = p->config;
    const struct backend_type *type = p->backend->type;
    for (int g = 0; g < c->n_kv_group; g++) {
        const int32_t *page = p->kv->tables[g] + (size_t)slot * (size_t)p->kv->max_pages;
        for (int i = (int)group[g].first; i < p->kv->seq[slot].span[g].end; i++)
            for (int k = 0; k < c->n_store; k++) {
                if (c->store[k].group != g) continue;
                TRY(type->kv_page(p->backend, k, page[i], bytes, write));
                bytes += kv_page_bytes(&c->store[k]);
            }
    }
    for (int i = 0; i < c->n_state; i++) {
        float *x = (float *)(void *)bytes;
        TRY(write ? type->state_write(p->backend, i, slot, x) : type->state_read(p->backend, i, slot, x));
        bytes += (size_t)c->state[i].n_elem * sizeof *x;
    }
    return INFER_OK;
}

/* Whether a sequence has rows that are no tokens. */
static bool has_given(const struct kv_seq *s) {
    for (int i = 0; i < s->length; i++)
        if (s->ids[i] < -1 || s->shift[i]) return true;
    return false;
}

/* ---- save ---------------------------------------------------------------------------------------------------- */

enum infer_status snapshot_save(const struct snapshot_place *p, int slot, const char *path) {
    const struct kv_seq *s = &p->kv->seq[slot];
    struct snapshot_group group[KV_GROUPS];
    struct header h;
    unsigned char *data, *at;
    size_t n;
    make_header(p, s->length, &h, group);
    if (has_given(s)) h.n_shift = h.n_ids;
    if (!size_of(&h, group, &n))
        return err_set(INFER_E_MEMORY, "a snapshot of %d tokens is too large", s->length);
    TRY(mem_new(&data, n, "a snapshot"));
    memcpy(data, &h, sizeof h);
    at = data + sizeof h;
    memcpy(at, group, (size_t)h.n_group * sizeof *group);
    at += (size_t)h.n_group * sizeof *group;
    memcpy(at, s->ids, (size_t)s->length * sizeof *s->ids);
    at += (size_t)s->length * sizeof *s->ids;
    if (h.n_shift) {
        memcpy(at, &p->kv->names, sizeof p->kv->names);
        memcpy(at + sizeof p->kv->names, s->shift, (size_t)h.n_shift * sizeof *s->shift);
    }
    enum infer_status st = move_all(p, slot, group, at + given_bytes(&h), false);
    memcpy(data + n - s->length, s->how, (size_t)s->length);
    snapshot_seal(data, n);
    if (!st) st = outfile_put(path, OUTFILE_PRIVATE, data, n);
    mem_free(data);
    return st;
}

/* ---- load ---------------------------------------------------------------------------------------------------- */

static enum infer_status check_key(const struct snapshot_place *p, const struct snapshot_view *v) {
    struct snapshot_group group[KV_GROUPS];
    struct header here;
    make_header(p, v->n_ids, &here, group);
    if (v->model != here.model)
        return err_set(INFER_E_UNSUPPORTED, "made with another model file, or with other adapters or scales");
    if (strcmp(v->place, here.place) != 0)
        return err_set(INFER_E_UNSUPPORTED, "made by %s, this is %s", v->place, here.place);
    if ((uint64_t)v->n_group != here.n_group || v->state_bytes != here.state_bytes ||
        memcmp(v->group, group, (size_t)v->n_group * sizeof *group) != 0)
        return err_set(INFER_E_INPUT, "broken: it has other pages or states than this model");
    if (v->n_ids > p->kv->n_ctx)
        return err_set(INFER_E_FULL, "it holds %d tokens, the context %d (.ctx)", v->n_ids, p->kv->n_ctx);
    for (int i = 0; i < v->n_ids; i++) {
        const bool token = v->ids[i] >= 0 && v->ids[i] < p->config->n_vocab;
        if (!token && !(v->shift && v->ids[i] < -1))
            return err_set(INFER_E_INPUT, "broken: token %d is outside of the vocabulary of %d", v->ids[i],
                           p->config->n_vocab);
        if (v->shift && v->shift[i] != KV_GIVEN && (v->shift[i] < 0 || v->shift[i] > i || !token))
            return err_set(INFER_E_INPUT, "broken: row %d is moved by %d", i, v->shift[i]);
    }
    return INFER_OK;
}

static enum infer_status fill(const struct snapshot_place *p, int slot, const struct snapshot_view *v) {
    struct kv_moves moves;
    int32_t first[KV_GROUPS];
    for (int g = 0; g < v->n_group; g++) first[g] = (int32_t)v->group[g].first;
    if (v->shift && !kv_take_names(p->kv, slot, v->names))
        return err_set(INFER_E_UNSUPPORTED,
                       "it holds rows of pictures, and so do other sequences of this engine");
    TRY(kv_load(p->kv, slot, v->ids, v->how, v->shift, v->n_ids, first));
    enum infer_status st = move_all(p, slot, v->group, (unsigned char *)v->pages, true);
    if (st) (void)kv_rewind(p->kv, slot, 0, KV_LOST, &moves);
    return st;
}

enum infer_status snapshot_load(const struct snapshot_place *p, int slot, const char *path) {
    struct mapfile f;
    struct snapshot_view v;
    TRY(mapfile_open(&f, path, false));
    enum infer_status st = snapshot_parse(&v, f.data, f.size);
    if (!st) st = check_key(p, &v);
    if (!st) st = fill(p, slot, &v);
    mapfile_close(&f);
    return st ? err_prefix(st, "%s", path) : INFER_OK;
}
