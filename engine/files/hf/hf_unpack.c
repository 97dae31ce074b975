/* Side tensors and their matrix -> one tensor of blocks: which there are, and whether they fit. The blocks: hf_packed.h. */
#include "files/hf/hf_packed.h"
#include "base/host.h"
#include "base/stbds.h"
#include "files/hf/hf_mxfp4.h"
#include "files/hf/hf_names.h"
#include "files/hf/hf_words.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Of columns: one for all matrices that have it. */
struct order {
    int64_t k;
    struct order *before;
    int32_t columns[];
};
struct unpacking {
    const struct hf_packing *packing;
    struct hf_list *list;
    const struct mapfile *file;
    struct arena *arena;
    struct strmap *at; /* name -> file << 32 | entry */
    size_t n_made, made_bytes;
    bool may_sort;       /* columns */
    struct order *order; /* the last one found */
};

/* One module: X, of X.weight and what stands beside it. */
struct module {
    struct unpacking *u;
    const char *name; /* X */
    size_t len;
    const char *path;
    struct tensor *weight;
    int64_t n, k;
    int64_t n_stack; /* of experts, X and not X.weight; 0: one matrix */
};

/* ---- finding ---- */

static struct tensor *find(const struct unpacking *u, const char *name) {
    int64_t at = strmap_get(u->at, name, strlen(name));
    return at < 0 ? NULL : &u->list[at >> 32].tensor[at & UINT32_MAX];
}
static struct tensor *side(const struct module *m, const char *end) {
    char name[320];
    snprintf(name, sizeof name, "%.*s%c%s", (int)m->len, m->name, m->n_stack ? '_' : '.', end);
    return find(m->u, name);
}
static int64_t stack_of(const struct module *m) { return m->n_stack ? m->n_stack : 1; }
/* Whether it has elements of the type: a name as in the file. */
static bool is(const struct tensor *t, const char *dtype) {
    static const struct {
        const char *dtype;
        enum quant_type type;
    } known[] = {{"F32", QUANT_F32}, {"F16", QUANT_F16}, {"BF16", QUANT_BF16}};
    if (t->raw) return strcmp(t->raw, dtype) == 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (t->type == known[i].type && strcmp(known[i].dtype, dtype) == 0) return t->n_dim > 0;
    return false;
}
static bool is_float(const struct tensor *t) { return is(t, "F32") || is(t, "F16") || is(t, "BF16"); }

static enum infer_status no_memory(const struct module *m) {
    return err_set(INFER_E_MEMORY, "%s: out of memory for %.*s", m->path, (int)m->len, m->name);
}
static enum infer_status missing(const struct module *m, const char *end) {
    return err_set(INFER_E_INPUT,
                   "%s: tensor %.*s%c%s is missing, which the method of quantization_config has", m->path,
                   (int)m->len, m->name, m->n_stack ? '_' : '.', end);
}
static enum infer_status misfit(const struct module *m, const struct tensor *t, const char *want) {
    return err_set(INFER_E_INPUT, "%s: tensor %.200s has shape [%lld][%lld], which is not %s", m->path,
                   t->name, (long long)t->shape[2], (long long)t->shape[3], want);
}
static enum infer_status mistyped(const struct module *m, const struct tensor *t, const char *want) {
    return err_set(INFER_E_INPUT, "%s: tensor %.200s is %s, not %s", m->path, t->name,
                   t->raw ? t->raw : quant_info(t->type)->name, want);
}
/* A matrix or vector; none of several. */
static enum infer_status flat(const struct module *m, const struct tensor *t) {
    return t->shape[0] == 1 && t->shape[1] == 1
               ? INFER_OK
               : err_set(INFER_E_INPUT, "%s: tensor %.200s has %d dimensions, which are too many", m->path,
                         t->name, t->shape[0] == 1 ? 3 : 4);
}
/* The side tensor with rows x cols elements of the type; "float": any. */
static enum infer_status must(const struct module *m, const char *end, const char *dtype, int64_t rows,
                              int64_t cols, struct tensor **out) {
    char want[96];
    struct tensor *t = *out = side(m, end);
    if (!t) return missing(m, end);
    if (strcmp(dtype, "float") == 0 ? !is_float(t) : !is(t, dtype)) return mistyped(m, t, dtype);
    snprintf(want, sizeof want, "[%lld][%lld]", (long long)rows, (long long)cols);
    const bool fits = t->shape[0] == 1 && t->shape[1] == 1 && t->shape[2] == rows && t->shape[3] == cols;
    return fits ? INFER_OK : misfit(m, t, want);
}
/* Scales that are powers of two, 2^(e - 127) as a byte. */
static bool is_power(const struct tensor *t) { return is(t, "U8") || is(t, "F8_E8M0"); }
/* None above 2^(most - 127): 255 is no number, and with others no product is one. */
static enum infer_status check_powers(const struct module *m, const struct tensor *t, int most) {
    for (size_t i = 0; i < t->bytes; i++)
        if (((const uint8_t *)t->data)[i] > most)
            return err_set(INFER_E_INPUT,
                           "%s: tensor %.200s holds the scale 2^%d, which is too large or no number", m->path,
                           t->name, ((const uint8_t *)t->data)[i] - 127);
    return INFER_OK;
}
/* The number of a side tensor of one element. */
static enum infer_status one_number(const struct module *m, const struct tensor *t, float *out) {
    if (!is_float(t)) return mistyped(m, t, "a number");
    const struct quant_info *q = quant_info(t->type);
    if (t->bytes != q->bytes) return misfit(m, t, "one number");
    q->decode(out, t->data, 1);
    return isfinite(*out) && *out > 0
               ? INFER_OK
               : err_set(INFER_E_INPUT, "%s: tensor %.200s is %g", m->path, t->name, (double)*out);
}
/* All its elements as floats, in the arena. */
static enum infer_status floats(const struct module *m, const struct tensor *t, const float **out) {
    const size_t n = (size_t)(t->shape[1] * t->shape[2] * t->shape[3]);
    float *copy;
    *out = copy = arena_alloc(m->u->arena, n * sizeof *copy + 1);
    if (!copy) return no_memory(m);
    if (is_power(t)) {
        TRY(check_powers(m, t, 246));
        for (size_t i = 0; i < n; i++) copy[i] = hf_power(((const uint8_t *)t->data)[i]);
        return INFER_OK;
    }
    quant_info(t->type)->decode(copy, t->data, n);
    for (size_t i = 0; i < n; i++)
        if (!isfinite(copy[i]))
            return err_set(INFER_E_INPUT, "%s: tensor %.200s holds %g", m->path, t->name, (double)copy[i]);
    return INFER_OK;
}
/* The same of what a matrix was divided by: its largest magnitudes, or parts of them. */
static enum infer_status magnitudes(const struct module *m, const struct tensor *t, const float **out) {
    const size_t n = (size_t)(t->shape[1] * t->shape[2] * t->shape[3]);
    TRY(floats(m, t, out));
    for (size_t i = 0; i < n; i++)
        if ((*out)[i] < 0)
            return err_set(INFER_E_INPUT, "%s: tensor %.200s holds the scale %g", m->path, t->name,
                           (double)(*out)[i]);
    return INFER_OK;
}
/* It has been read: nobody else looks for it. */
static void taken(struct tensor *t) {
    if (!t) return;
    t->n_dim = 0;
    t->raw = "read";
}

/* ---- the result ---- */

/* The entry becomes X.weight in blocks, whose data is still to be written; type F32 where rows are no whole blocks. */
static enum infer_status become(const struct module *m, enum quant_type type, int64_t n, int64_t k,
                                void **data, enum quant_type *as) {
    struct tensor *t = m->weight;
    const struct quant_info *q = quant_info(k % quant_info(type)->elems ? QUANT_F32 : type);
    const int64_t stack = stack_of(m);
    char name[320];
    size_t bytes;
    if (!size_mul((size_t)n, quant_row_bytes(q, (size_t)k), &bytes) ||
        !size_mul(bytes, (size_t)stack, &bytes))
        return misfit(m, t, "of a size that there is");
    snprintf(name, sizeof name, "%.*s%s", (int)m->len, m->name, m->n_stack ? "" : ".weight");
    t->name = arena_strndup(m->u->arena, name, strlen(name));
    *data = arena_alloc(m->u->arena, bytes + 1);
    if (!t->name || !*data) return no_memory(m);
    t->type = *as = q->type;
    t->raw = NULL;
    t->n_dim = m->n_stack ? 3 : 2;
    t->shape[0] = 1, t->shape[1] = stack;
    t->shape[2] = n, t->shape[3] = k;
    t->data = *data;
    t->bytes = bytes;
    m->u->n_made++;
    m->u->made_bytes += bytes;
    return INFER_OK;
}

/* A factor of the whole matrix: an entry that was a side tensor becomes X.scale. */
static enum infer_status put_factor(const struct module *m, struct tensor *t, float factor) {
    char name[320];
    float *f = arena_alloc(m->u->arena, sizeof *f);
    snprintf(name, sizeof name, "%.*s.scale", (int)m->len, m->name);
    t->name = arena_strndup(m->u->arena, name, strlen(name));
    if (!f || !t->name) return no_memory(m);
    *f = factor;
    *t = (struct tensor){.name = t->name,
                         .type = QUANT_F32,
                         .n_dim = 1,
                         .shape = {1, 1, 1, 1},
                         .data = f,
                         .bytes = sizeof *f,
                         .part = t->part};
    return INFER_OK;
}

/* ---- codes in words with groups: GPTQ, AWQ, compressed-tensors ---- */

/* As many groups as config.json says. */
static enum infer_status check_groups(const struct module *m, const struct tensor *scales, int64_t groups) {
    const int64_t said = m->u->packing->group;
    if (groups < 1 || m->k % groups) return misfit(m, scales, "of groups of columns");
    if (said == 0 || m->k / groups == (said < 0 ? m->k : said)) return INFER_OK;
    return err_set(INFER_E_INPUT,
                   "%s: tensor %.200s has %lld groups of %lld columns, but 'group_size' is %lld", m->path,
                   scales->name, (long long)groups, (long long)(m->k / groups), (long long)said);
}

/* Which group each column is in; NULL: they follow each other. */
static enum infer_status group_index(const struct module *m, const char *end, int64_t groups,
                                     const int32_t **out) {
    struct tensor *t = side(m, end);
    bool in_order = true;
    *out = NULL;
    if (!t) return m->u->packing->index ? missing(m, end) : INFER_OK;
    if (!is(t, "I32")) return mistyped(m, t, "I32");
    TRY(flat(m, t));
    if (t->shape[3] != m->k || t->shape[2] != 1) return misfit(m, t, "a number for each column");
    const int32_t *g = t->data;
    for (int64_t i = 0; i < m->k; i++) {
        if (g[i] < 0 || g[i] >= groups)
            return err_set(INFER_E_INPUT, "%s: tensor %.200s: column %lld is in group %d of %lld", m->path,
                           t->name, (long long)i, g[i], (long long)groups);
        in_order &= g[i] == i / (m->k / groups);
    }
    if (!in_order) *out = g;
    taken(t);
    return INFER_OK;
}

/* Whether products with its rows are all that is made of a matrix of this name: not of experts, tables or latents. */
static bool is_plain(const struct module *m) {
    static const char *const ends[] = {".q_proj",    ".k_proj",  ".v_proj",   ".o_proj",
                                       ".gate_proj", ".up_proj", ".down_proj"};
    char name[320];
    snprintf(name, sizeof name, "%.*s", (int)m->len, m->name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t e = strlen(ends[i]);
        if (m->len > e && strcmp(name + m->len - e, ends[i]) == 0) return !strstr(name, ".experts.");
    }
    return false;
}
/* The order as one of those that are there, or a new one. */
static enum infer_status share_order(const struct module *m, const int32_t *columns, const int32_t **out) {
    struct unpacking *u = m->u;
    const size_t bytes = (size_t)m->k * sizeof *columns;
    struct order *o = u->order;
    while (o && (o->k != m->k || memcmp(o->columns, columns, bytes) != 0)) o = o->before;
    if (!o) {
        o = arena_alloc(u->arena, sizeof *o + bytes);
        if (!o) return no_memory(m);
        o->k = m->k, o->before = u->order;
        memcpy(o->columns, columns, bytes);
        u->order = o;
        u->made_bytes += bytes;
    }
    *out = o->columns;
    return INFER_OK;
}
/* Columns out of order stand by group where that makes blocks of them. */
static enum infer_status sort_columns(const struct module *m, struct hf_words *w) {
    int32_t *columns;
    enum infer_status s = INFER_OK;
    if (!w->index || !m->u->may_sort || !is_plain(m)) return INFER_OK;
    TRY(mem_new(&columns, (size_t)w->k * sizeof *columns, "the order of columns"));
    if (hf_words_sort(w, columns)) w->columns = columns;
    if (w->columns && hf_words_type(w) == QUANT_F32) w->columns = NULL;
    if (w->columns) s = share_order(m, columns, &w->columns);
    mem_free(columns);
    return s;
}

static enum infer_status put_words(const struct module *m, struct hf_words *w) {
    void *data;
    TRY(sort_columns(m, w));
    enum quant_type type = hf_words_type(w);
    TRY(become(m, type, w->n, w->k, &data, &w->type));
    m->weight->columns = w->columns;
    hf_words_blocks(w, data);
    return INFER_OK;
}

/* Scales and zero points of columns of the matrix, [groups][n] and words of them. */
static enum infer_status column_scales(const struct module *m, struct hf_words *w, bool order) {
    struct tensor *scales = side(m, "scales"), *zeros;
    const float *s;
    if (!scales) return missing(m, "scales");
    if (!is_float(scales)) return mistyped(m, scales, "floats");
    TRY(flat(m, scales));
    w->groups = scales->shape[2];
    if (scales->shape[3] != m->n) return misfit(m, scales, "of groups of columns");
    TRY(check_groups(m, scales, w->groups));
    TRY(must(m, "qzeros", "I32", w->groups, m->n * w->bits / 32, &zeros));
    TRY(floats(m, scales, &s));
    TRY(hf_words_scales(w, s, m->u->arena) ? INFER_OK : no_memory(m));
    hf_words_zeros(w, zeros->data, order, m->u->packing->zero_plus);
    taken(scales), taken(zeros);
    return INFER_OK;
}

/* Bits of this module's codes: as many words of zero points as it has. */
static int bits_of_columns(const struct module *m) {
    const struct tensor *zeros = side(m, "qzeros"), *scales = side(m, "scales");
    for (int bits = 4; zeros && scales && m->u->packing->by_module && bits <= 8; bits += 4)
        if (zeros->shape[3] * 32 == scales->shape[3] * bits) return bits;
    return m->u->packing->bits;
}
static enum infer_status unpack_gptq(struct module *m) {
    struct hf_words w = {.bits = bits_of_columns(m), .order = HF_WORDS_DOWN};
    struct tensor *t = m->weight;
    if (!is(t, "I32")) return mistyped(m, t, "I32");
    TRY(flat(m, t));
    m->k = t->shape[2] * 32 / w.bits, m->n = t->shape[3];
    if (m->n * w.bits % 32) return misfit(m, t, "of rows that fill words");
    w.n = m->n, w.k = m->k, w.words = t->data;
    TRY(column_scales(m, &w, false));
    TRY(group_index(m, "g_idx", w.groups, &w.index));
    return put_words(m, &w);
}
static enum infer_status unpack_awq(struct module *m) {
    struct hf_words w = {.bits = 4, .order = HF_WORDS_AWQ};
    struct tensor *t = m->weight;
    if (!is(t, "I32")) return mistyped(m, t, "I32");
    TRY(flat(m, t));
    m->k = t->shape[2], m->n = t->shape[3] * 8;
    w.n = m->n, w.k = m->k, w.words = t->data;
    TRY(column_scales(m, &w, true));
    return put_words(m, &w);
}
/* weight_shape: what the words hold, and of how many bits where modules differ. */
static enum infer_status read_shape(struct module *m, struct hf_words *w) {
    struct tensor *t = side(m, "weight_shape");
    int64_t shape[2];
    if (!t) return missing(m, "weight_shape");
    if (!is(t, "I64") && !is(t, "I32")) return mistyped(m, t, "I64");
    if (t->shape[0] * t->shape[1] * t->shape[2] != 1 || t->shape[3] != 2) return misfit(m, t, "two numbers");
    TRY(flat(m, m->weight));
    for (int i = 0; i < 2; i++)
        shape[i] = is(t, "I64") ? ((const int64_t *)t->data)[i] : ((const int32_t *)t->data)[i];
    m->n = shape[0], m->k = shape[1];
    const struct tensor *words = m->weight;
    const int64_t cols = words->shape[3];
    for (int bits = 4; m->u->packing->by_module && bits <= 8; bits += 4)
        if (m->k > 0 && m->k <= INT32_MAX && (m->k + 32 / bits - 1) / (32 / bits) == cols) w->bits = bits;
    const int64_t per = 32 / w->bits;
    if (m->n != words->shape[2] || m->k < 1 || m->k > cols * per || (m->k + per - 1) / per != cols)
        return misfit(m, words, "what weight_shape says");
    taken(t);
    return INFER_OK;
}
static enum infer_status unpack_compressed(struct module *m) {
    struct hf_words w = {.bits = m->u->packing->bits, .order = HF_WORDS_ACROSS};
    struct tensor *scales = side(m, "weight_scale"), *zeros = side(m, "weight_zero_point");
    const float *s;
    TRY(read_shape(m, &w));
    w.n = m->n, w.k = m->k, w.words = m->weight->data, w.row_words = m->weight->shape[3];
    if (!scales) return missing(m, "weight_scale");
    if (!is_float(scales)) return mistyped(m, scales, "floats");
    TRY(flat(m, scales));
    w.groups = scales->shape[3];
    if (scales->shape[2] != m->n) return misfit(m, scales, "of groups of each row");
    TRY(check_groups(m, scales, w.groups));
    TRY(floats(m, scales, &s));
    w.by_row = true;
    TRY(hf_words_scales(&w, s, m->u->arena) ? INFER_OK : no_memory(m));
    if (zeros || m->u->packing->offset) {
        TRY(must(m, "weight_zero_point", "I32", (m->n * w.bits + 31) / 32, w.groups, &zeros));
        hf_words_zeros(&w, zeros->data, false, 0);
    }
    TRY(group_index(m, "weight_g_idx", w.groups, &w.index));
    taken(scales), taken(zeros);
    return put_words(m, &w);
}

/* ---- a scale for rows, blocks or all ---- */

/* How many rows and columns share one of b's scales, [rows][cols] of a matrix or of each of a stack. false: they do not fit, or are not
 * those that config.json says. */
static bool share_scales(const struct module *m, struct hf_bytes *b) {
    const enum hf_scales want = m->n_stack ? HF_SCALES_ANY : m->u->packing->scales;
    const bool one = b->rows == 1 && b->cols == 1, rows = b->rows == m->n && b->cols == 1,
               pair = b->rows == 2 && b->cols == 1 && m->n_stack && m->n % 2 == 0, /* of gate, and of up */
        blocks = b->rows == (m->n + 127) / 128 && b->cols == (m->k + 127) / 128;
    b->row_share = one ? m->n : rows ? 1 : pair ? m->n / 2 : 128;
    b->col_share = one || rows || pair ? m->k : 128;
    if (want == HF_SCALES_BLOCKS) b->row_share = b->col_share = 128;
    return want == HF_SCALES_ONE      ? one
           : want == HF_SCALES_ROWS   ? rows
           : want == HF_SCALES_BLOCKS ? blocks
                                      : one || rows || pair || blocks;
}
/* Scales as [rows of blocks][blocks of a row]: the numbers that they stand for, and how many rows and columns share one. */
static enum infer_status plain_scales(const struct module *m, const char *end, struct hf_bytes *b) {
    static const char *const wants[] = {"one scale, one of each row, or one of each block of 128x128",
                                        "one scale", "a scale of each row",
                                        "a scale of each block of 128x128"};
    struct tensor *t = side(m, end);
    if (!t) return missing(m, end);
    if (!is_float(t) && !is_power(t)) return mistyped(m, t, "floats");
    const bool line = t->n_dim == 1, each = line && m->n_stack;
    b->rows = each ? 1 : line ? t->shape[3] : t->shape[2], b->cols = line ? 1 : t->shape[3];
    if (t->shape[0] != 1 || (each ? t->shape[3] : t->shape[1]) != stack_of(m))
        return misfit(m, t, "scales of every expert");
    if (!share_scales(m, b)) return misfit(m, t, wants[m->n_stack ? HF_SCALES_ANY : m->u->packing->scales]);
    TRY(magnitudes(m, t, &b->scale));
    taken(t);
    return INFER_OK;
}
/* Zero points of bytes, which are all 0: those of others are not read. */
static enum infer_status no_zeros(const struct module *m) {
    struct tensor *t = side(m, "weight_zero_point"), *scales = side(m, "weight_scale");
    if (!t) return m->u->packing->offset ? missing(m, "weight_zero_point") : INFER_OK;
    if (!is(t, "I8")) return mistyped(m, t, "I8");
    if (scales && memcmp(t->shape, scales->shape, sizeof t->shape) != 0)
        return misfit(m, t, "that of weight_scale");
    for (size_t i = 0; i < t->bytes; i++)
        if (((const int8_t *)t->data)[i])
            return err_set(
                INFER_E_UNSUPPORTED,
                "%s: tensor %.200s holds zero points of 8-bit codes, which are supported where they are 0",
                m->path, t->name);
    taken(t);
    return INFER_OK;
}
static enum infer_status put_bytes(struct module *m, enum quant_type type, const char *scale, float times) {
    struct hf_bytes b = {.times = times, .bytes = m->weight->data};
    void *data;
    m->n = m->weight->shape[2], m->k = m->weight->shape[3];
    if (m->weight->shape[0] != 1 || m->weight->shape[1] != stack_of(m))
        return misfit(m, m->weight, "a matrix");
    TRY(plain_scales(m, scale, &b));
    b.n = m->n, b.k = m->k;
    TRY(become(m, type, m->n, m->k, &data, &b.type));
    for (int64_t e = 0; e < stack_of(m); e++) {
        hf_bytes_blocks(&b, (char *)data + (size_t)e * (m->weight->bytes / (size_t)stack_of(m)), type);
        b.bytes = (const char *)b.bytes + m->n * m->k;
        b.scale += b.rows * b.cols;
    }
    return INFER_OK;
}

/* ---- powers of two for 32 columns ---- */

static enum infer_status unpack_mxfp4(struct module *m, const char *scale) {
    struct tensor *t = m->weight, *s = side(m, scale);
    const void *codes = t->data;
    enum quant_type type;
    void *data;
    const bool beside_fp8 = strcmp(scale, "scale") == 0; /* as DeepSeek V4 is published */
    if (!is(t, "U8") && !(beside_fp8 && is(t, "I8"))) return mistyped(m, t, "U8");
    TRY(flat(m, t));
    m->n = t->shape[2], m->k = 2 * t->shape[3];
    if (m->k % 32) return misfit(m, t, "of rows of a multiple of 32");
    TRY(must(m, scale, s && is_power(s) ? s->raw : "U8", m->n, m->k / 32, &s));
    TRY(check_powers(m, s, 252));
    TRY(become(m, QUANT_MXFP4, m->n, m->k, &data, &type));
    hf_mxfp4_rows(data, codes, s->data, (size_t)m->n, (size_t)m->k / 32, 1, host_threads_pick(0));
    taken(s);
    return INFER_OK;
}
/* No block of a type with scales of 32 columns has bytes as floats; four significant bits are in BF16, too. */
static enum infer_status unpack_mxfp8(struct module *m, struct tensor *s) {
    const struct tensor *t = m->weight;
    const uint8_t *codes = t->data;
    enum quant_type type;
    void *data;
    TRY(flat(m, t));
    m->n = t->shape[2], m->k = t->shape[3];
    if (m->k % 32) return misfit(m, t, "of rows of a multiple of 32");
    TRY(must(m, "weight_scale", s->raw, m->n, m->k / 32, &s));
    TRY(check_powers(m, s, 246));
    type = hf_mxfp8_fits(codes, s->data, m->n * m->k / 32) ? QUANT_BF16 : QUANT_F32;
    TRY(become(m, type, m->n, m->k, &data, &type));
    hf_mxfp8_rows(data, type, codes, s->data, m->n * m->k / 32);
    taken(s);
    return INFER_OK;
}

/* ---- blocks of four-bit floats ---- */

static enum infer_status unpack_nvfp4(struct module *m, const char *factor) {
    struct tensor *t = m->weight, *s, *f = side(m, factor);
    void *data;
    float g;
    enum quant_type type;
    const void *codes = t->data;
    if (!is(t, "U8")) return mistyped(m, t, "U8");
    TRY(flat(m, t));
    m->n = t->shape[2], m->k = 2 * t->shape[3];
    if (m->k % 16) return misfit(m, t, "of rows of a multiple of 16");
    TRY(must(m, "weight_scale", "F8_E4M3", m->n, m->k / 16, &s));
    if (!f) return missing(m, factor);
    TRY(one_number(m, f, &g));
    TRY(become(m, QUANT_NVFP4, m->n, m->k, &data, &type));
    if (!hf_nvfp4_blocks(data, type, codes, s->data, m->n * m->k))
        return err_set(INFER_E_INPUT, "%s: tensor %.200s holds a scale that is negative or no number",
                       m->path, s->name);
    taken(s);
    return put_factor(m, f, m->u->packing->divided ? 1 / g : g);
}

/* NVFP4 has a factor of the matrix, or scales that MXFP4 has not. */
static enum infer_status unpack_fp4(struct module *m) {
    const struct tensor *s = side(m, "weight_scale");
    const bool nv = side(m, "weight_global_scale") || (s && is(s, "F8_E4M3"));
    return nv ? unpack_nvfp4(m, "weight_global_scale") : unpack_mxfp4(m, "weight_scale");
}

/* X.weight.NAME */
static struct tensor *beside(const struct module *m, const char *end) {
    char name[96];
    snprintf(name, sizeof name, "weight.%s", end);
    return side(m, name);
}
/* The largest magnitudes of blocks, which may be codes themselves. */
static enum infer_status read_absmax(const struct module *m, const struct hf_state4 *state,
                                     const float **out) {
    struct tensor *a = beside(m, "absmax"), *nested = beside(m, "nested_absmax"),
                  *map = beside(m, "nested_quant_map");
    const int64_t n = (m->n * m->k + 63) / 64; /* of the whole matrix: blocks run on over the ends of rows */
    if (!a) return missing(m, "weight.absmax");
    TRY(flat(m, a));
    if (a->shape[3] != n || a->shape[2] != 1) return misfit(m, a, "a number for each 64 elements");
    if (!is(a, "U8")) {
        if (!is(a, "F32")) return mistyped(m, a, "F32 or U8");
        TRY(magnitudes(m, a, out));
        taken(a);
        return INFER_OK;
    }
    if (!nested) return missing(m, "weight.nested_absmax");
    if (!map) return missing(m, "weight.nested_quant_map");
    if (!is(nested, "F32")) return mistyped(m, nested, "F32");
    if (!is(map, "F32")) return mistyped(m, map, "F32");
    TRY(flat(m, map));
    TRY(flat(m, nested));
    if (map->shape[2] != 1 || map->shape[3] != 256) return misfit(m, map, "256 numbers");
    if (state->nested_block < 1 || nested->shape[2] != 1 ||
        nested->shape[3] != (n + state->nested_block - 1) / state->nested_block)
        return misfit(m, nested, "a number for each block of absmax");
    float *copy = arena_alloc(m->u->arena, (size_t)n * sizeof *copy + 1);
    if (!copy) return no_memory(m);
    for (int64_t i = 0; i < n; i++)
        copy[i] = ((const float *)map->data)[((const uint8_t *)a->data)[i]] *
                      ((const float *)nested->data)[i / state->nested_block] +
                  state->nested_offset;
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(copy[i]))
            return err_set(INFER_E_INPUT, "%s: tensor %.200s: number %lld is %g", m->path, a->name,
                           (long long)i, (double)copy[i]);
    *out = copy;
    taken(a), taken(nested), taken(map);
    return INFER_OK;
}
static enum infer_status unpack_bnb4(struct module *m, struct tensor *state, bool nf4) {
    struct hf_state4 s;
    struct tensor *map = beside(m, "quant_map"), *t = m->weight;
    const float *absmax, *levels = nf4 ? quant_nf4_levels : quant_fp4_levels;
    const void *codes = t->data;
    void *data;
    enum quant_type type = nf4 ? QUANT_NF4 : QUANT_FP4, as;
    if (!is(state, "U8")) return mistyped(m, state, "U8");
    TRY(hf_state4_read(&s, m->path, state));
    m->n = s.n, m->k = s.k;
    if (!is(t, "U8")) return mistyped(m, t, "U8");
    if ((int64_t)t->bytes != (m->n * m->k + 1) / 2) return misfit(m, t, "what its quant_state says");
    if (!map) return missing(m, "weight.quant_map");
    if (!is(map, "F32")) return mistyped(m, map, "F32");
    TRY(flat(m, map));
    if (map->shape[2] != 1 || map->shape[3] != 16) return misfit(m, map, "16 numbers");
    for (int i = 0; i < 16; i++)
        if (!(fabsf(((const float *)map->data)[i] - levels[i]) <= 1e-7f))
            return err_set(INFER_E_UNSUPPORTED, "%s: tensor %.200s: its levels are not those of %s", m->path,
                           map->name, nf4 ? "NF4" : "FP4");
    TRY(read_absmax(m, &s, &absmax));
    TRY(become(m, type, m->n, m->k, &data, &as));
    hf_bnb4_blocks(data, as, type, codes, absmax, m->n * m->k);
    taken(map), taken(state);
    return INFER_OK;
}

/* ---- which it is ---- */

/* What is of no use here: scales of activations, of keys and values. */
static bool of_activations(const char *name) {
    static const char *const ends[] = {".input_scale",   ".activation_scale", ".input_global_scale",
                                       ".k_scale",       ".v_scale",          ".output_scale",
                                       ".weight_format", ".input_scale_ub",   ".q_scale",
                                       ".prob_scale",    ".input_zero_point", "_activation_scale"};
    const size_t n = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t e = strlen(ends[i]);
        if (n > e && strcmp(name + n - e, ends[i]) == 0) return true;
    }
    return false;
}

/* X and what follows it, where t begins a module: its weight. */
static bool starts(struct module *m, struct tensor *t, const char *end) {
    const size_t n = strlen(t->name), e = strlen(end);
    if (n <= e + 1 || n > 255 || t->name[n - e - 1] != '.' || strcmp(t->name + n - e, end) != 0) return false;
    m->name = t->name, m->len = n - e - 1, m->weight = t;
    return true;
}

/* Experts in one tensor X, beside it X_scale_inv or X_scale. */
static bool is_stack(struct module *m, struct tensor *t) {
    const size_t n = strlen(t->name);
    if (n < 6 || n > 255 || strcmp(t->name + n - 5, "_proj") != 0) return false;
    m->name = t->name, m->len = n, m->weight = t, m->n_stack = t->shape[1];
    return true;
}

static enum infer_status unpack_weight(struct module *m) {
    const enum hf_method method = m->u->packing->method;
    struct tensor *t = m->weight, *state;
    const char type = m->u->packing->type;
    if (method == HF_COMPRESSED && ((type == 'i' && is(t, "F8_E4M3")) || (type == 'f' && is(t, "I8"))))
        return mistyped(m, t, "of the 'type' in quantization_config");
    if (is(t, "F8_E4M3") && method == HF_COMPRESSED && (state = side(m, "weight_scale")) && is_power(state))
        return unpack_mxfp8(m, state);
    /* DeepSeek V4: "X.scale"; two codes of experts in a byte. source: finegrained_fp8 of transformers */
    if (method == HF_FP8 && (is(t, "I8") || is(t, "U8"))) return unpack_mxfp4(m, "scale");
    if (method == HF_FP8 && is(t, "F8_E4M3") && side(m, "scale"))
        return put_bytes(m, QUANT_F8_128, "scale", 1);
    if (is(t, "F8_E4M3")) {
        const bool inverse = side(m, "weight_scale_inv") || (m->u->packing->scales == HF_SCALES_BLOCKS &&
                                                             method == HF_FP8 && !side(m, "weight_scale"));
        return put_bytes(m, QUANT_F8_128, inverse ? "weight_scale_inv" : "weight_scale", 1);
    }
    if (is(t, "I8") && method == HF_BITSANDBYTES) return put_bytes(m, QUANT_I8_128, "SCB", 1.0f / 127);
    if (is(t, "I8") && method == HF_COMPRESSED) {
        TRY(no_zeros(m));
        return put_bytes(m, QUANT_I8_128, "weight_scale", 1);
    }
    if (is(t, "U8") && method == HF_MODELOPT) return unpack_nvfp4(m, "weight_scale_2");
    if ((state = beside(m, "quant_state.bitsandbytes__nf4"))) return unpack_bnb4(m, state, true);
    if ((state = beside(m, "quant_state.bitsandbytes__fp4"))) return unpack_bnb4(m, state, false);
    return is(t, "U8") && method == HF_BITSANDBYTES ? missing(m, "weight.quant_state.bitsandbytes__nf4")
                                                    : mistyped(m, t, "of the method in quantization_config");
}

/* Biases of zero that GPTQ's library writes for modules without one. */
static void drop_bias(const struct unpacking *u, const char *module, size_t len) {
    char name[320];
    snprintf(name, sizeof name, "%.*s.bias", (int)len, module);
    struct tensor *t = find(u, name);
    if (!t || !is_float(t)) return;
    for (size_t i = 0; i < t->bytes; i++)
        if (((const char *)t->data)[i]) return;
    taken(t);
}

/* A part of a table, "X.shard_3.weight", in bytes e4m3 with one scale for all parts, "X.weight_scale". Its rows are no whole blocks. source:
 * FP8Embedding of transformers; vLLM's Qwen4Exp */
static bool is_table_part(const struct module *m) {
    static const char part[] = ".ngram_embedding.shard_";
    const char *at = strstr(m->name, part);
    return at &&
           strspn(at + sizeof part - 1, "0123456789") + (size_t)(at - m->name) + sizeof part - 1 == m->len;
}
static enum infer_status unpack_table_part(struct module *m) {
    struct module table = *m;
    struct tensor *t = m->weight;
    const uint8_t *bytes = t->data;
    enum quant_type type;
    void *data;
    float scale;
    while (table.name[table.len - 1] != '.') table.len--;
    table.len--;
    struct tensor *s = side(&table, "weight_scale");
    if (!s) return missing(&table, "weight_scale");
    TRY(one_number(m, s, &scale));
    TRY(flat(m, t));
    m->n = t->shape[2], m->k = t->shape[3];
    TRY(become(m, QUANT_BF16, m->n, m->k, &data, &type));
    hf_e4m3_floats(data, bytes, m->n * m->k);
    return put_factor(&table, s, scale);
}

static enum infer_status unpack_one(struct unpacking *u, struct tensor *t, const char *path) {
    const enum hf_method method = u->packing->method;
    struct module m = {.u = u, .path = path};
    if (t->raw && strcmp(t->raw, "read") == 0) return INFER_OK;
    if (of_activations(t->name)) {
        taken(t);
        return INFER_OK;
    }
    if (!t->raw) return INFER_OK;
    if (method == HF_GPTQ && starts(&m, t, "qweight")) {
        drop_bias(u, m.name, m.len);
        return unpack_gptq(&m);
    }
    if (method == HF_AWQ && starts(&m, t, "qweight")) return unpack_awq(&m);
    if (method == HF_COMPRESSED && starts(&m, t, "weight_packed"))
        return is(t, "I32") ? unpack_compressed(&m) : unpack_fp4(&m);
    if (is(t, "F8_E4M3") && is_stack(&m, t))
        return put_bytes(&m, QUANT_F8_128, side(&m, "scale") ? "scale" : "scale_inv", 1);
    if (!starts(&m, t, "weight")) return INFER_OK;
    return is(t, "F8_E4M3") && is_table_part(&m) ? unpack_table_part(&m) : unpack_weight(&m);
}

/* Raw tensors that no matrix has taken: they belong to one that is not there. */
static enum infer_status check_rest(const struct unpacking *u, int n_list) {
    for (int p = 0; p < n_list; p++)
        for (size_t i = 0; i < u->list[p].n; i++) {
            const struct tensor *t = &u->list[p].tensor[i];
            if (t->raw && strcmp(t->raw, "read") != 0 && t->bytes > 8 && /* one number counts something */
                !hf_whole_numbers(t->name))
                return err_set(
                    INFER_E_INPUT,
                    "%s: tensor %.200s (%s) belongs to no matrix of the method in quantization_config",
                    u->file[p].path, t->name, t->raw);
        }
    return INFER_OK;
}

static enum infer_status unpack_all(struct unpacking *u, int n_list) {
    struct hf_list *list = u->list;
    const struct mapfile *file = u->file;
    int64_t old;
    TRY(strmap_new(&u->at, u->arena));
    for (int f = 0; f < n_list; f++)
        for (size_t i = 0; i < list[f].n; i++)
            TRY(strmap_put(u->at, list[f].tensor[i].name, strlen(list[f].tensor[i].name),
                           (int64_t)f << 32 | (int64_t)i, &old));
    for (int f = 0; f < n_list; f++)
        for (size_t i = 0; i < list[f].n; i++) TRY(unpack_one(u, &list[f].tensor[i], file[f].path));
    TRY(check_rest(u, n_list));
    if (!u->n_made && n_list)
        return err_set(INFER_E_INPUT,
                       "%s: no tensor is quantised, but quantization_config of config.json says '%s'",
                       file[0].path, u->packing->name);
    return INFER_OK;
}

enum infer_status hf_unpack(const struct hf_packing *p, struct hf_list *list, int n_list,
                            const struct mapfile *file, bool may_sort, struct arena *arena,
                            size_t *made_bytes) {
    struct unpacking u = {p, list, file, arena, NULL, 0, 0, may_sort, NULL};
    if (p->method == HF_METHOD_NONE) return INFER_OK;
    const enum infer_status s = unpack_all(&u, n_list);
    *made_bytes = u.made_bytes;
    return s;
}
