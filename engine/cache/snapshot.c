#include "cache/snapshot.h"
#include <stdio.h>
#include <string.h>
#include "files/outfile.h"

static const char magic[8] = {'I', 'N', 'F', 'E', 'R', 'K', 'V', '1'};
enum { PLACE = 64 };
struct header {
    char magic[8];
    uint64_t model;
    char place[PLACE];
    uint64_t n_ids, page_bytes, checksum;
};
static_assert(sizeof(struct header) == 8 + 8 + PLACE + 24, "the header has no padding");
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

/* All metadata but lists of strings, and of every tensor its name, type, shape and first 4 KiB: another model, another
 * quantisation of it and another training of the same shapes differ there. */
static uint64_t fingerprint(const struct tensorfile *f) {
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
        h = hash(h, t->data, t->bytes < SAMPLE ? t->bytes : SAMPLE);
    }
    return h ? h : 1;
}

/* ---- header -------------------------------------------------------------------------------------------------- */

static void make_header(const struct snapshot_place *p, struct header *h) {
    static const char *const type[] = {"f32", "f16", "q8_0"};
    struct backend_info info;
    p->backend->type->info(p->backend, &info);
    *h = (struct header){0};
    memcpy(h->magic, magic, sizeof magic);
    if (!*p->fingerprint) *p->fingerprint = fingerprint(p->file);
    h->model = *p->fingerprint;
    snprintf(h->place, PLACE, "%s %.40s %s", p->backend->type->name, info.isa ? info.isa : "",
             type[p->config->kv_type]);
    for (int i = 0; i < p->config->n_store; i++)
        h->page_bytes += kv_page_bytes(p->config->kv_type, &p->config->store[i]);
}

enum infer_status snapshot_parse(struct snapshot_view *out, const unsigned char *data, size_t n) {
    struct header h;
    size_t pages, size;
    if (n < sizeof h || memcmp(data, magic, sizeof magic) != 0)
        return err_set(INFER_E_INPUT, "no snapshot of a sequence");
    memcpy(&h, data, sizeof h);
    if (h.place[PLACE - 1]) return err_set(INFER_E_INPUT, "broken: its place has no end");
    pages = h.n_ids / KV_PAGE + (h.n_ids % KV_PAGE != 0);
    bool fits = h.n_ids <= INT32_MAX && size_mul(pages, h.page_bytes, &size) &&
                size_add(size, h.n_ids * 4 + sizeof h, &size);
    if (!fits || size != n)
        return err_set(INFER_E_INPUT, "broken: %zu bytes do not hold %llu tokens in pages of %llu bytes", n,
                       (unsigned long long)h.n_ids, (unsigned long long)h.page_bytes);
    if (hash(HASH_START, data + sizeof h, n - sizeof h) != h.checksum)
        return err_set(INFER_E_INPUT, "broken: the checksum is wrong");
    const unsigned char *ids = data + sizeof h;
    *out = (struct snapshot_view){.model = h.model,
                                  .page_bytes = h.page_bytes,
                                  .n_ids = (int)h.n_ids,
                                  .place = (const char *)data + offsetof(struct header, place),
                                  .ids = (const int32_t *)(const void *)ids,
                                  .pages = ids + h.n_ids * 4};
    return INFER_OK;
}

void snapshot_seal(unsigned char *data, size_t n) {
    if (n < sizeof(struct header)) return;
    uint64_t sum = hash(HASH_START, data + sizeof(struct header), n - sizeof(struct header));
    memcpy(data + offsetof(struct header, checksum), &sum, sizeof sum);
}

/* ---- pages --------------------------------------------------------------------------------------------------- */

/* All pages of a sequence out of the backend or (write) into it. */
static enum infer_status move_pages(const struct snapshot_place *p, const struct kv_seq *s,
                                    unsigned char *bytes, bool write) {
    for (int i = 0; i < s->n_page; i++)
        for (int k = 0; k < p->config->n_store; k++) {
            TRY(p->backend->type->kv_page(p->backend, k, s->page[i], bytes, write));
            bytes += kv_page_bytes(p->config->kv_type, &p->config->store[k]);
        }
    return INFER_OK;
}

/* ---- save ---------------------------------------------------------------------------------------------------- */

enum infer_status snapshot_save(const struct snapshot_place *p, int slot, const char *path) {
    const struct kv_seq *s = &p->kv->seq[slot];
    const size_t n_ids = (size_t)s->length * sizeof *s->ids;
    struct header h;
    unsigned char *data;
    size_t n;
    make_header(p, &h);
    h.n_ids = (uint64_t)s->length;
    if (!size_mul((size_t)s->n_page, h.page_bytes, &n) || !size_add(n, sizeof h + n_ids, &n))
        return err_set(INFER_E_MEMORY, "a snapshot of %d tokens is too large", s->length);
    TRY(mem_new(&data, n, "a snapshot"));
    memcpy(data, &h, sizeof h);
    memcpy(data + sizeof h, s->ids, n_ids);
    enum infer_status st = move_pages(p, s, data + sizeof h + n_ids, false);
    snapshot_seal(data, n);
    if (!st) st = outfile_put(path, OUTFILE_PRIVATE, data, n);
    mem_free(data);
    return st;
}

/* ---- load ---------------------------------------------------------------------------------------------------- */

static enum infer_status check_key(const struct snapshot_place *p, const struct snapshot_view *v) {
    struct header here;
    make_header(p, &here);
    if (v->model != here.model) return err_set(INFER_E_UNSUPPORTED, "made with another model file");
    if (strcmp(v->place, here.place) != 0)
        return err_set(INFER_E_UNSUPPORTED, "made by %s, this is %s", v->place, here.place);
    if (v->page_bytes != here.page_bytes)
        return err_set(INFER_E_INPUT, "broken: pages of %llu bytes, not %llu",
                       (unsigned long long)v->page_bytes, (unsigned long long)here.page_bytes);
    if (v->n_ids > p->kv->n_ctx)
        return err_set(INFER_E_FULL, "it holds %d tokens, the context %d (--ctx)", v->n_ids, p->kv->n_ctx);
    for (int i = 0; i < v->n_ids; i++)
        if (v->ids[i] < 0 || v->ids[i] >= p->config->n_vocab)
            return err_set(INFER_E_INPUT, "broken: token %d is outside of the vocabulary of %d", v->ids[i],
                           p->config->n_vocab);
    return INFER_OK;
}

static enum infer_status fill(const struct snapshot_place *p, int slot, const struct snapshot_view *v) {
    const struct kv_seq *s = &p->kv->seq[slot];
    TRY(kv_reserve(p->kv, slot, v->n_ids));
    TRY(move_pages(p, s, (unsigned char *)v->pages, true));
    kv_append(p->kv, slot, v->ids, v->n_ids);
    return INFER_OK;
}

enum infer_status snapshot_load(const struct snapshot_place *p, int slot, const char *path) {
    struct mapfile f;
    struct snapshot_view v;
    TRY(mapfile_open(&f, path, false));
    enum infer_status st = snapshot_parse(&v, f.data, f.size);
    if (!st) st = check_key(p, &v);
    if (!st) st = fill(p, slot, &v);
    mapfile_close(&f);
    if (!st) return INFER_OK;
    int from, to;
    (void)kv_rewind(p->kv, slot, 0, &from, &to); /* pages that were reserved go back */
    return err_prefix(st, "%s", path);
}
