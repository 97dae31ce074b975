/* The numbers of a tensor out of one type into another, over all threads. */
#include <math.h>
#include <string.h>
#include "tools/file/quantize_impl.h"

enum infer_status quantize_importance(const struct job *j, const struct tensor *t,
                                      const struct imatrix_entry **out) {
    const struct imatrix_entry *e = imatrix_find(&j->imatrix, t->name);
    *out = e;
    if (!e || imatrix_fits(e, t->shape[1], t->shape[3])) return INFER_OK;
    return err_set(INFER_E_INPUT,
                   "%s: %s has %d x %d columns, the tensor in %s %lld x %lld: of another model?",
                   j->o->imatrix, e->name, e->n_matrix, e->k, j->f->path, (long long)t->shape[1],
                   (long long)t->shape[3]);
}

/* ---- one share ---- */

/* The first value that the type cannot hold, or n. */
static size_t unfit(const float *x, size_t n, enum quant_type type) {
    float limit = type == QUANT_F16 ? 65520.0f : INFINITY;
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(x[i]) < limit)) return i;
    return n;
}

/* importance[n] of elements first .. of a run. */
static void spread(const struct run *r, size_t first, size_t n, float *importance) {
    const size_t cols = (size_t)r->t->shape[3], rows = (size_t)r->t->shape[2];
    for (size_t i = 0, k; i < n; i += k) {
        size_t row = (first + i) / cols, col = (first + i) % cols;
        k = cols - col < n - i ? cols - col : n - i;
        imatrix_importance(r->importance, r->matrix + (int64_t)(row / rows), (int64_t)cols, (int64_t)col,
                           (int64_t)k, importance + i);
    }
}

struct loss quantize_loss(const float *x, const float *y, const float *importance, size_t n) {
    struct loss l = {0};
    for (size_t i = 0; i < n; i++) {
        double e = (double)x[i] - (double)y[i], w = importance ? (double)importance[i] : 1;
        l.error2 += e * e, l.square += (double)x[i] * (double)x[i];
        l.weighted_error2 += w * e * e, l.weighted_square += w * (double)x[i] * (double)x[i];
        if (fabs(e) > l.largest) l.largest = fabs(e);
    }
    return l;
}

void quantize_add_loss(struct loss *sum, const struct loss *l) {
    sum->error2 += l->error2, sum->square += l->square;
    sum->weighted_error2 += l->weighted_error2, sum->weighted_square += l->weighted_square;
    if (l->largest > sum->largest) sum->largest = l->largest;
}

/* Bytes of n elements in a type as files have it; out of x[n] and back. Of NF4 whole groups, or the last one of a matrix. */
static size_t file_bytes(enum quant_type type, size_t n) {
    return type == QUANT_NF4 ? quant_nf4_packed_bytes(n) : quant_row_bytes(quant_info(type), n);
}
static void encode(enum quant_type type, void *blocks, const float *x, size_t n, const float *importance) {
    if (type == QUANT_NF4)
        quant_nf4_pack(blocks, x, n, importance);
    else
        quant_info(type)->encode(blocks, x, n, importance);
}
static void decode(enum quant_type type, float *y, const void *blocks, size_t n) {
    struct block_NF4 nf4[QUANT_NF4_GROUP / 64];
    if (type == QUANT_NF4) quant_nf4_unpack(nf4, blocks, n);
    quant_info(type)->decode(y, type == QUANT_NF4 ? nf4 : blocks, n);
}

/* n elements, first of the run, at src and at place at of the job's memory; false: x[*wrong] does not fit. */
static bool convert_share(struct job *j, const struct run *r, const unsigned char *src, size_t first,
                          size_t at, size_t n, struct loss *loss, size_t *wrong) {
    const struct quant_info *from = quant_info(r->t->type);
    float *x = j->values + at, *importance = r->importance ? j->importance + at : NULL;
    unsigned char *blocks = j->blocks + file_bytes(r->to, at);
    from->decode(x, src + quant_row_bytes(from, at), n);
    if (r->merges) merge_add(j->o->merge, r->t, r->matrix, first, x, n);
    for (size_t k = 0; r->t->row_factor && k < n; k++)
        x[k] *= r->t->row_factor[(first + k) / (size_t)r->t->shape[3]];
    *wrong = r->to == QUANT_F32 ? n : unfit(x, n, r->to);
    if (*wrong < n) return false;
    if (importance) spread(r, first, n, importance);
    encode(r->to, blocks, x, n, importance);
    if (!j->again) return true;
    decode(r->to, j->again + at, blocks, n);
    *loss = quantize_loss(x, j->again + at, importance, n);
    return true;
}

/* n elements of the run from element first on, from its bytes at src, n a multiple of both blocks, into j->blocks. */
static enum infer_status convert(struct job *j, struct run *r, const unsigned char *src, size_t first,
                                 size_t n, size_t share) {
    const long shares = (long)((n + share - 1) / share);
    float bad = 0;
    bool failed = false;
#pragma omp parallel for schedule(dynamic)
    for (long i = 0; i < shares; i++) {
        size_t at = (size_t)i * share, count = n - at < share ? n - at : share, wrong;
        if (convert_share(j, r, src, first + at, at, count, &j->share_loss[i], &wrong)) continue;
#pragma omp critical
        failed = true, bad = j->values[at + wrong];
    }
    if (failed)
        return err_set(INFER_E_INPUT, "%s: tensor %s holds %g, which %s cannot hold", j->f->path, r->t->name,
                       (double)bad, quant_info(r->to)->name);
    for (long i = 0; j->again && i < shares; i++) quantize_add_loss(&r->loss, &j->share_loss[i]);
    return INFER_OK;
}

/* ---- a tensor ---- */

static void tell(struct job *j, size_t bytes) {
    j->done += (double)bytes;
    if (j->o->progress) j->o->progress(j->o->user, "writing", j->done, (double)j->f->file_bytes, "B");
}

/* Rows of a matrix or elements of a bias that rotate, in halves and not as neighbours: of each head rows the rot ones from first on.
 * head 0: none. end: the rows from there on stay (0: none do). back: as neighbours and not in halves. */
struct halves {
    int64_t head, first, rot, end;
    bool back;
};

/* Of q and k, also in front of v; of a latent, those behind what does not rotate (queries) and behind the latent itself (keys). */
static enum infer_status find_halves(const struct job *j, const struct tensor *t, struct halves *out) {
    const struct tensorfile *f = j->f;
    const bool k = strstr(t->name, ".attn_k.") != NULL, latent_k = strstr(t->name, ".attn_kv_a_mqa.") != NULL;
    const bool q = strstr(t->name, ".attn_q.") || strstr(t->name, ".attn_q_b."),
               qkv = strstr(t->name, ".attn_qkv.") != NULL;
    const int64_t rank = quantize_parameter(f, "attention.kv_lora_rank"),
                  rot = quantize_parameter(f, "rope.dimension_count"), rows = t->shape[t->n_dim == 1 ? 3 : 2];
    struct halves h = {.head = quantize_parameter(f, "attention.key_length"), .rot = rot};
    *out = (struct halves){0};
    if (!quantize_in_halves(f) || !(rank ? q || latent_k : q || k || qkv)) return INFER_OK;
    if (strstr(t->name, ".scale")) return INFER_OK; /* of all rows */
    h.back = !meta_elem_i64(quantize_in_halves(f), 0);
    if (!rot) h.rot = h.head;
    if (rank) h.head = latent_k ? rank + rot : quantize_parameter(f, "attention.key_length_mla");
    if (rank) h.first = h.head - rot;
    if (qkv) /* in front of values */
        h.end = h.head * (quantize_parameter(f, "attention.head_count") +
                          quantize_parameter(f, "attention.head_count_kv"));
    *out = h;
    if (h.head > 0 && h.first >= 0 && h.rot > 0 && h.first + h.rot <= h.head && rows % h.head == 0)
        return INFER_OK;
    return err_set(INFER_E_INPUT,
                   "%s: tensor %s has %lld rows, which are not those of heads of %lld of which %lld rotate",
                   f->path, t->name, (long long)rows, (long long)h.head, (long long)h.rot);
}

/* The row that comes to stand at r: rows i and i + rot / 2 of the rotated ones of a head become neighbours, i < rot / 2, or were such. */
static size_t row_at(const struct halves *h, size_t r) {
    const size_t head = (size_t)h->head, first = (size_t)h->first, rot = (size_t)h->rot,
                 i = r % head - first; /* wraps in front of first */
    if (i >= rot || (h->end && r >= (size_t)h->end)) return r;
    return r / head * head + first +
           (h->back ? i % (rot / 2) * 2 + i / (rot / 2) : i / 2 + i % 2 * (rot / 2));
}

/* The tensor's bytes and what its rows are times in that order; free with mem_free. factor NULL: t has none. */
static enum infer_status interleave(const struct tensor *t, const struct halves *h, unsigned char **out,
                                    float **factor) {
    size_t rows = (size_t)(t->n_dim == 1 ? t->shape[3] : t->shape[2]), bytes = t->bytes / rows;
    *factor = NULL;
    TRY(mem_new(out, t->bytes, t->name));
    if (t->row_factor && mem_new(factor, rows * sizeof **factor, t->name)) {
        mem_free(*out);
        return INFER_E_MEMORY;
    }
    for (size_t r = 0; r < rows; r++) {
        memcpy(*out + r * bytes, (const char *)t->data + row_at(h, r) * bytes, bytes);
        if (*factor) (*factor)[r] = t->row_factor[row_at(h, r)];
    }
    return INFER_OK;
}

static enum infer_status copy_data(struct job *j, const struct tensor *t, const unsigned char *src) {
    for (size_t at = 0, n; at < t->bytes; at += n) {
        n = t->bytes - at < 64 << 20 ? t->bytes - at : 64 << 20;
        TRY(gguf_writer_data(j->w, src + at, n));
        tell(j, n);
    }
    return INFER_OK;
}

/* A run's data, t->bytes at src. */
static enum infer_status write_data(struct job *j, struct run *r, const unsigned char *src) {
    const struct tensor *t = r->t;
    const struct quant_info *q = quant_info(t->type);
    if (r->to == t->type && r->to != QUANT_NF4 && !t->row_factor && !r->merges) return copy_data(j, t, src);
    /* Rows are whole blocks of both types; a share is whole rows, or 256s of a long one, or a group of NF4. */
    size_t cols = (size_t)t->shape[3], total = t->bytes / q->bytes * q->elems;
    size_t share = cols % 256 == 0 || r->to == QUANT_NF4 ? SHARE : cols * (cols < SHARE ? SHARE / cols : 1);
    if (share > CHUNK)
        return err_set(INFER_E_UNSUPPORTED, "%s: tensor %s has rows of %zu elements", j->f->path, t->name,
                       cols);
    size_t chunk = CHUNK / share * share;
    for (size_t at = 0, n; at < total; at += n) {
        n = total - at < chunk ? total - at : chunk;
        TRY(convert(j, r, src + quant_row_bytes(q, at), at, n, share));
        TRY(gguf_writer_data(j->w, j->blocks, file_bytes(r->to, n)));
        tell(j, quant_row_bytes(q, n));
    }
    return INFER_OK;
}

/* Whether the tensor would have kept its type if GGUF had it. */
static bool is_rounded(const struct job *j, const struct run *r) {
    return j->mix && mix_keeps(j->mix) && quant_info(r->t->type)->gguf < 0;
}

static void say_loss(const struct job *j, const struct run *r) {
    const struct loss *l = &r->loss;
    if (is_rounded(j, r) && l->square > 0) {
        const double error = sqrt(l->error2 / l->square);
        j->report->n_rounded++;
        if (error > j->report->rounded) j->report->rounded = error;
    }
    if (!j->o->check || r->to == r->t->type) return;
    j->o->check(j->o->user, &(struct quantize_error){.name = r->t->name,
                                                     .from = r->t->type,
                                                     .to = r->to,
                                                     .error2 = l->error2,
                                                     .square = l->square,
                                                     .largest = l->largest});
}

/* A tensor whose rows change places. */
static enum infer_status write_interleaved(struct job *j, struct run *r, struct tensor *part,
                                           const struct halves *h) {
    unsigned char *rows;
    float *factor;
    TRY(interleave(part, h, &rows, &factor));
    part->row_factor = factor;
    enum infer_status s = write_data(j, r, rows);
    mem_free(rows);
    mem_free(factor);
    return s;
}

enum infer_status quantize_tensor(struct job *j, const struct listed *l, enum quant_type to) {
    const struct tensor *t = &l->t;
    struct tensor part = *t;
    struct run r = {.t = &part, .to = to, .merges = merge_has(j->o->merge, t->name)};
    struct halves h;
    TRY(find_halves(j, t, &h));
    if (mix_is_matrix(t->name, t->n_dim)) TRY(quantize_importance(j, t, &r.importance));
    if (h.head) {
        TRY(write_interleaved(j, &r, &part, &h));
        say_loss(j, &r);
        return INFER_OK;
    }
    /* matrix by matrix, where the file has each apart or the type has groups that end with it */
    const int64_t each = l->n_part > 1 || to != QUANT_NF4 ? 1 : t->shape[1];
    part.bytes = l->part_bytes / (size_t)each;
    for (; r.matrix < l->n_part * each; r.matrix++)
        TRY(write_data(
            j, &r, (const unsigned char *)l->part[r.matrix / each] + (size_t)(r.matrix % each) * part.bytes));
    say_loss(j, &r);
    return INFER_OK;
}
