#include "tools/file/quantize.h"
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "files/gguf_write.h"
#include "base/mem.h"
#include "tools/file/mix.h"
#include "tools/file/stacks.h"

struct job {
    const struct quantize_options *o;
    struct quantize_report *report;
    struct tensorfile *f;
    struct gguf_writer *w;
    const struct mix *mix;
    struct mix_model model;
    struct listed *list; /* list[n_list]: the tensors to write */
    size_t n_list;
    enum quant_type *target; /* target[n_list] */
    float *values;           /* [CHUNK] */
    unsigned char *blocks;   /* [4 * CHUNK] */
    double done;
};

/* Elements in memory at a time, at least one row; elements of one thread's share. */
enum { CHUNK = 4 << 20, SHARE = 1 << 14 };

/* ---- what the mix wants to know ---- */

/* A key of the architecture, without its name in front. */
static const struct meta *arch_meta(const struct tensorfile *f, const char *key) {
    struct str arch = {"", 0};
    bool present;
    char full[160];
    if (meta_str(f, "general.architecture", &arch, &present) != INFER_OK || !present) return NULL;
    snprintf(full, sizeof full, "%.*s.%s", (int)(arch.len < 96 ? arch.len : 96), arch.data, key);
    return tensorfile_meta(f, full);
}

/* An integer of the architecture, the first of an array; 0 when absent. */
static int64_t hyper_parameter(const struct tensorfile *f, const char *key) {
    const struct meta *m = arch_meta(f, key);
    if (!m || m->n == 0 || m->type == META_STRING || (m->type == META_ARRAY && m->elem >= META_STRING))
        return 0;
    int64_t v = meta_elem_i64(m, 0);
    return v > 0 && v < 1 << 20 ? v : 0;
}

static struct mix_model describe(const struct tensorfile *f) {
    int64_t heads = hyper_parameter(f, "attention.head_count");
    int64_t kv = hyper_parameter(f, "attention.head_count_kv");
    struct mix_model m = {
        .n_layer = (int)hyper_parameter(f, "block_count"),
        .n_gqa = heads && kv ? (int)(heads / kv) : 1,
        .n_expert = (int)hyper_parameter(f, "expert_count"),
        .tied = !tensorfile_find(f, "output.weight"),
    };
    m.extra_v = m.n_layer == 80 && m.n_gqa > 1;
    return m;
}

/* ---- the list ---- */

static bool chosen(const struct quantize_options *o, const char *name) {
    return !o->only || fnmatch(o->only, name, 0) == 0;
}

static enum quant_type target_type(struct job *j, const struct tensor *t) {
    if (!chosen(j->o, t->name)) return t->type;
    if (!mix_is_matrix(t->name, t->n_dim)) return QUANT_F32;
    enum quant_type wanted, type = mix_type(j->mix, &j->model, t->name, t->shape[3], &wanted);
    j->report->n_matrix++;
    if (type != wanted) j->report->fallback[wanted][type]++;
    return type;
}

static enum infer_status choose_types(struct job *j) {
    struct quantize_report *r = j->report;
    bool any = false;
    for (size_t i = 0; i < j->n_list; i++) {
        const struct tensor *t = &j->list[i].t;
        any |= chosen(j->o, t->name);
        j->target[i] = target_type(j, t);
        if (j->target[i] == t->type) continue;
        r->n_changed++;
        r->n_lossy += quant_info(t->type)->elems > 1;
    }
    r->n_tensor = (int)j->n_list;
    r->bytes_in = j->f->file_bytes;
    if (!any) return err_set(INFER_E_INPUT, "%s: no tensor's name matches '%s'", j->f->path, j->o->only);
    return INFER_OK;
}

static bool key_is(const struct meta *m, const char *key) {
    return m->key.len == strlen(key) && memcmp(m->key.data, key, m->key.len) == 0;
}

/* The key that says so where folders of Hugging Face have the rows of q and k in halves and GGUF has neighbours; NULL elsewhere. */
static const struct meta *in_halves(const struct tensorfile *f) {
    const struct meta *m = arch_meta(f, "rope.neox");
    return m && meta_elem_i64(m, 0) ? m : NULL;
}

static void put_head(struct job *j) {
    const struct meta *halves = in_halves(j->f);
    for (size_t i = 0; i < j->f->n_meta; i++) {
        const struct meta *m = &j->f->meta[i];
        bool split = m->key.len > 6 && memcmp(m->key.data, "split.", 6) == 0; /* the parts become one file */
        bool own =
            !j->o->only && (key_is(m, "general.file_type") || key_is(m, "general.quantization_version"));
        if (!split && !own && m != halves) gguf_writer_meta(j->w, m);
    }
    if (!j->o->only) {
        gguf_writer_u32(j->w, "general.file_type", mix_file_type(j->mix));
        gguf_writer_u32(j->w, "general.quantization_version", 2);
    }
    for (size_t i = 0; i < j->n_list; i++) {
        const struct tensor *t = &j->list[i].t;
        gguf_writer_tensor(j->w, t->name, j->target[i], t->n_dim, t->shape);
    }
}

/* ---- the data ---- */

/* The first value that the type cannot hold, or n. */
static size_t unfit(const float *x, size_t n, enum quant_type type) {
    float limit = type == QUANT_F16 ? 65520.0f : INFINITY;
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(x[i]) < limit)) return i;
    return n;
}

/* n elements from the tensor's bytes at src, n a multiple of both blocks; first: which element that is. */
static enum infer_status convert(struct job *j, const struct tensor *t, enum quant_type to,
                                 const unsigned char *src, size_t first, size_t n, size_t share) {
    const struct quant_info *from_q = quant_info(t->type), *to_q = quant_info(to);
    long shares = (long)((n + share - 1) / share);
    float bad = 0;
    bool failed = false;
#pragma omp parallel for schedule(dynamic)
    for (long i = 0; i < shares; i++) {
        size_t at = (size_t)i * share, count = n - at < share ? n - at : share;
        float *x = j->values + at;
        from_q->decode(x, src + quant_row_bytes(from_q, at), count);
        for (size_t k = 0; t->row_factor && k < count; k++)
            x[k] *= t->row_factor[(first + at + k) / (size_t)t->shape[3]];
        size_t wrong = to == QUANT_F32 ? count : unfit(x, count, to);
        if (wrong < count) {
#pragma omp critical
            failed = true, bad = x[wrong];
            continue;
        }
        to_q->encode(j->blocks + quant_row_bytes(to_q, at), x, count, NULL);
    }
    if (failed)
        return err_set(INFER_E_INPUT, "%s: tensor %s holds %g, which %s cannot hold", j->f->path, t->name,
                       (double)bad, to_q->name);
    return gguf_writer_data(j->w, j->blocks, quant_row_bytes(to_q, n));
}

static void tell(struct job *j, size_t bytes) {
    j->done += (double)bytes;
    if (j->o->progress) j->o->progress(j->o->user, j->done, (double)j->f->file_bytes);
}

/* Rows per head of a matrix or bias whose rows have to change places, 0 for the rest. */
static int64_t head_rows(const struct job *j, const struct tensor *t) {
    bool q = strstr(t->name, ".attn_q.") != NULL, k = strstr(t->name, ".attn_k.") != NULL;
    if ((!q && !k) || !in_halves(j->f)) return 0;
    int64_t n = hyper_parameter(j->f, "attention.key_length");
    int64_t rows = t->n_dim == 1 ? t->shape[3] : t->shape[2];
    return n > 0 && rows % n == 0 ? n : 0;
}

/* The tensor's bytes with rows i and i + rot / 2 of each head of n rows as neighbours, i < rot / 2; free with mem_free. */
static enum infer_status interleave(const struct tensor *t, size_t n, size_t rot, unsigned char **out) {
    size_t rows = (size_t)(t->n_dim == 1 ? t->shape[3] : t->shape[2]), bytes = t->bytes / rows;
    TRY(mem_new(out, t->bytes, t->name));
    for (size_t r = 0; r < rows; r++) {
        size_t head = r / n * n, i = r % n, from = i < rot ? i / 2 + i % 2 * (rot / 2) : i;
        memcpy(*out + r * bytes, (const char *)t->data + (head + from) * bytes, bytes);
    }
    return INFER_OK;
}

static enum infer_status write_data(struct job *j, const struct tensor *t, enum quant_type to,
                                    const unsigned char *src) {
    const struct quant_info *q = quant_info(t->type);
    if (to == t->type && !t->row_factor) {
        for (size_t at = 0, n; at < t->bytes; at += n) {
            n = t->bytes - at < 64 << 20 ? t->bytes - at : 64 << 20;
            TRY(gguf_writer_data(j->w, src + at, n));
            tell(j, n);
        }
        return INFER_OK;
    }
    /* Rows are whole blocks of both types; a share is whole rows, or 256s of a long one. */
    size_t cols = (size_t)t->shape[3], total = t->bytes / q->bytes * q->elems;
    size_t share = cols % 256 == 0 ? SHARE : cols * (cols < SHARE ? SHARE / cols : 1);
    if (share > CHUNK)
        return err_set(INFER_E_UNSUPPORTED, "%s: tensor %s has rows of %zu elements", j->f->path, t->name,
                       cols);
    size_t chunk = CHUNK / share * share;
    for (size_t at = 0, n; at < total; at += n) {
        n = total - at < chunk ? total - at : chunk;
        TRY(convert(j, t, to, src + quant_row_bytes(q, at), at, n, share));
        tell(j, quant_row_bytes(q, n));
    }
    return INFER_OK;
}

static enum infer_status write_tensor(struct job *j, const struct listed *l, enum quant_type to) {
    const struct tensor *t = &l->t;
    struct tensor part = *t;
    part.bytes = l->part_bytes;
    int64_t n = head_rows(j, t);
    for (int64_t i = 0; i < (n ? 0 : l->n_part); i++) TRY(write_data(j, &part, to, l->part[i]));
    if (!n) return INFER_OK;
    unsigned char *rows;
    int64_t rot = hyper_parameter(j->f, "rope.dimension_count");
    TRY(interleave(t, (size_t)n, (size_t)(rot > 0 && rot < n ? rot : n), &rows));
    enum infer_status s = write_data(j, t, to, rows);
    mem_free(rows);
    return s;
}

static enum infer_status write_file(struct job *j) {
    put_head(j);
    TRY(gguf_writer_begin(j->w));
    j->report->bytes_out = gguf_writer_bytes(j->w);
    for (size_t i = 0; i < j->n_list; i++) TRY(write_tensor(j, &j->list[i], j->target[i]));
    return INFER_OK;
}

/* ---- the call ---- */

static enum infer_status run(struct job *j) {
    TRY(tensorfile_differs(j->o->out, j->o->in));
    j->model = describe(j->f);
    TRY(stacks_list(j->f, &j->list, &j->n_list));
    TRY(mem_new(&j->target, j->n_list * sizeof *j->target, "list of types"));
    TRY(mem_new(&j->values, CHUNK * sizeof *j->values, "decoded weights"));
    TRY(mem_new(&j->blocks, 4 * CHUNK, "encoded weights"));
    TRY(choose_types(j));
    TRY(gguf_writer_open(&j->w, j->o->out));
    return write_file(j);
}

enum infer_status quantize_file(const struct quantize_options *o, struct quantize_report *report) {
    struct job j = {.o = o, .report = report};
    char names[256];
    memset(report, 0, sizeof *report);
    j.mix = o->type ? mix_find(o->type, o->pure) : NULL;
    if (!j.mix)
        return err_set(INFER_E_INPUT, "no type '%s'; there are: %s", o->type ? o->type : "",
                       mix_names(names, sizeof names));
    TRY(tensorfile_open(&j.f, o->in, &(struct tensorfile_options){.for_gguf = true, .ignore = o->ignore}));
    enum infer_status s = run(&j);
    if (s)
        gguf_writer_abort(j.w);
    else
        s = gguf_writer_close(j.w);
    stacks_free(j.list, j.n_list);
    mem_free(j.target);
    mem_free(j.values);
    mem_free(j.blocks);
    tensorfile_close(j.f);
    return s;
}
