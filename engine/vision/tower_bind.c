/* Tensors of a tower's file to its parts. */
#include "vision/tower_impl.h"
#include "seam/weight.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct binder {
    struct tower *t;
    uint8_t *used; /* used[n_tensor] */
};

static enum infer_status no_memory(const struct tower *t, const char *what) {
    return err_set(INFER_E_MEMORY, "%s: out of memory for %s", t->file->path, what);
}

static const struct tensor *find(struct binder *b, const char *name) {
    const struct tensor *x = tensorfile_find(b->t->file, name);
    if (x) b->used[x - b->t->file->tensor] = 1;
    return x;
}

static enum infer_status missing(const struct binder *b, const char *name) {
    return err_set(INFER_E_INPUT, "%s: tensor %s is missing", b->t->file->path, name);
}

static int64_t elements(const struct tensor *x) {
    return x->shape[0] * x->shape[1] * x->shape[2] * x->shape[3];
}

static enum infer_status misshapen(const struct binder *b, const struct tensor *x, int64_t rows,
                                   int64_t cols) {
    return err_set(INFER_E_INPUT,
                   "%s: tensor %s has shape [%lld][%lld][%lld][%lld], the tower's sizes ask for [%lld][%lld]",
                   b->t->file->path, x->name, (long long)x->shape[0], (long long)x->shape[1],
                   (long long)x->shape[2], (long long)x->shape[3], (long long)rows, (long long)cols);
}

/* As floats: the map itself where it has such, else a decoded copy. */
static enum infer_status floats(struct binder *b, const struct tensor *x, const float **out) {
    const size_t n = (size_t)elements(x);
    if (x->type == QUANT_F32) {
        *out = x->data;
        return INFER_OK;
    }
    float *copy = arena_alloc(&b->t->arena, n * sizeof *copy);
    if (!copy) return no_memory(b->t, x->name);
    quant_info(x->type)->decode(copy, x->data, n);
    *out = copy;
    return INFER_OK;
}

/* n numbers; 0: as many as there are, *n says how many. *out NULL where it may be absent and is. */
static enum infer_status vector(struct binder *b, const char *name, int *n, bool must, const float **out) {
    const struct tensor *x = find(b, name);
    *out = NULL;
    if (!x) return must ? missing(b, name) : INFER_OK;
    if (*n && elements(x) != *n) return misshapen(b, x, 1, *n);
    if (elements(x) > 1 << 24) return misshapen(b, x, 1, 1 << 24);
    *n = (int)elements(x);
    return floats(b, x, out);
}

/* name.weight and name.bias; n 0: of any length */
static enum infer_status norm(struct binder *b, const char *name, int n, bool must, struct tower_norm *out) {
    char full[96];
    out->n = n;
    snprintf(full, sizeof full, "%s.weight", name);
    TRY(vector(b, full, &out->n, must, &out->w));
    snprintf(full, sizeof full, "%s.bias", name);
    if (out->w) TRY(vector(b, full, &out->n, false, &out->bias));
    return INFER_OK;
}

static struct weight matrix_of(const struct tensor *x, int rows, int cols) {
    return (struct weight){
        .name = x->name, .type = x->type, .n = rows, .k = cols, .data = x->data, .factor = 1, .n_stack = 1};
}

/* What bounds inputs and outputs of a product: four tensors of one number each. */
static enum infer_status bounds(struct binder *b, const char *name, struct tower_linear *l) {
    static const char *const end[] = {"input_min", "input_max", "output_min", "output_max"};
    float v[4] = {-INFINITY, INFINITY, -INFINITY, INFINITY};
    for (int i = 0; i < 4; i++) {
        char full[96];
        const float *x;
        int one = 1;
        snprintf(full, sizeof full, "%s.%s", name, end[i]);
        TRY(vector(b, full, &one, false, &x));
        if (!x) continue;
        if (isnan(*x)) return err_set(INFER_E_INPUT, "%s: tensor %s is not a number", b->t->file->path, full);
        v[i] = *x;
        l->bounded = true;
    }
    memcpy(l->in, v, sizeof l->in);
    memcpy(l->out, v + 2, sizeof l->out);
    return INFER_OK;
}

/* The matrix name.weight [rows][cols] as the next member of l, rows 0: as many as it has; with its bias. */
static enum infer_status member(struct binder *b, const char *name, int rows, int cols, bool must,
                                struct tower_linear *l) {
    struct weight_group *g = &l->w;
    char full[96];
    snprintf(full, sizeof full, "%s.weight", name);
    const struct tensor *x = find(b, full);
    if (!x) return must ? missing(b, full) : INFER_OK;
    if (!rows && elements(x) / cols <= INT32_MAX) rows = (int)(elements(x) / cols);
    const bool matrix = x->shape[3] == cols || x->n_dim == 4 || x->n_dim == 3;
    if (elements(x) != (int64_t)rows * cols || !matrix || rows < 1 || cols % (int)quant_info(x->type)->elems)
        return misshapen(b, x, rows, cols);
    struct weight w = matrix_of(x, rows, cols);
    snprintf(full, sizeof full, "%s.bias", name);
    TRY(vector(b, full, &rows, false, &w.bias));
    b->t->weight_bytes += weight_bytes(&w);
    g->member[g->n_member++] = w;
    g->n += w.n, g->k = w.k;
    return bounds(b, name, l);
}

static enum infer_status number(struct binder *b, struct tower_linear *l) {
    struct tower *t = b->t;
    if (!l->w.n_member) return INFER_OK;
    l->w.id = t->n_group;
    if (t->n_group == TOWER_GROUPS * (t->n_layer + 4)) infer_bug("more than %d groups", t->n_group);
    t->group[t->n_group++] = &l->w;
    return INFER_OK;
}

/* q, k, v: rows of one tensor, or three that are one product unless they are bounded each for itself. */
static enum infer_status several(struct binder *b, const char *const *name, int n, int rows, int cols,
                                 struct tower_linear *l, int *n_linear) {
    struct tower_linear one[3] = {0};
    bool bounded = false;
    for (int i = 0; i < n; i++) {
        TRY(member(b, name[i], rows, cols, true, &one[i]));
        bounded |= one[i].bounded;
    }
    *n_linear = bounded ? n : 1;
    for (int i = 0; i < n; i++) {
        if (bounded)
            l[i] = one[i];
        else
            l->w.member[i] = one[i].w.member[0], l->w.n_member = i + 1, l->w.n += rows, l->w.k = cols;
    }
    for (int i = 0; i < *n_linear; i++) TRY(number(b, &l[i]));
    return INFER_OK;
}

static bool has(const struct binder *b, const char *name) {
    char full[96];
    snprintf(full, sizeof full, "%s.weight", name);
    return tensorfile_find(b->t->file, full) != NULL;
}

static enum infer_status layer_norms(struct binder *b, struct tower_layer *l, int il) {
    const struct {
        const char *name;
        struct tower_norm *to;
        int n;
        bool must;
    } rows[] = {{"ln1", &l->ln1, b->t->n_embd, true},
                {"ln2", &l->ln2, b->t->n_embd, true},
                {"attn_post_norm", &l->attn_post, b->t->n_embd, false},
                {"ffn_post_norm", &l->ffn_post, b->t->n_embd, false},
                {"attn_q_norm", &l->q_norm, 0, false},
                {"attn_k_norm", &l->k_norm, 0, false},
                {"ls1", &l->ls1, b->t->n_embd, false},
                {"ls2", &l->ls2, b->t->n_embd, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char name[64];
        snprintf(name, sizeof name, "v.blk.%d.%s", il, rows[i].name);
        TRY(norm(b, name, rows[i].n, rows[i].must, rows[i].to));
    }
    const int dim = b->t->head_dim, row = dim * b->t->n_head;
    for (int i = 0; i < 2; i++) {
        const struct tower_norm *q = i ? &l->k_norm : &l->q_norm;
        if (q->w && q->n != dim && q->n != row)
            return err_set(INFER_E_INPUT, "%s: a norm of q or k of block %d has %d numbers, heads have %d",
                           b->t->file->path, il, q->n, dim);
    }
    return INFER_OK;
}

/* Old files have the names of up and down the other way round. source: llama.cpp's clip */
static bool ffn_swapped(const struct binder *b, const char *down) {
    char full[96];
    snprintf(full, sizeof full, "%s.weight", down);
    const struct tensor *x = tensorfile_find(b->t->file, full);
    return x && b->t->n_ff != b->t->n_embd && x->shape[3] == b->t->n_embd && x->shape[2] == b->t->n_ff;
}

static enum infer_status bind_layer(struct binder *b, struct tower_layer *l, int il) {
    const struct tower *t = b->t;
    const int n = t->n_head * t->head_dim;
    char q[64], k[64], v[64], qkv[64], out[64], gate[64], up[64], down[64];
#define NAME(to, part) snprintf(to, sizeof to, "v.blk.%d." part, il)
    NAME(q, "attn_q"), NAME(k, "attn_k"), NAME(v, "attn_v"), NAME(qkv, "attn_qkv"), NAME(out, "attn_out");
    NAME(gate, "ffn_gate"), NAME(up, "ffn_up"), NAME(down, "ffn_down");
    if (ffn_swapped(b, down)) NAME(down, "ffn_up"), NAME(up, "ffn_down");
#undef NAME
    TRY(layer_norms(b, l, il));
    if (has(b, qkv))
        TRY(several(b, (const char *const[]){qkv}, 1, 3 * n, t->n_embd, l->qkv, &l->n_qkv));
    else
        TRY(several(b, (const char *const[]){q, k, v}, 3, n, t->n_embd, l->qkv, &l->n_qkv));
    TRY(member(b, out, t->n_embd, n, true, &l->out));
    TRY(number(b, &l->out));
    l->gated = has(b, gate);
    TRY(several(b, l->gated ? (const char *const[]){gate, up} : (const char *const[]){up, NULL},
                l->gated ? 2 : 1, t->n_ff, t->n_embd, l->up, &l->n_up));
    TRY(member(b, down, t->n_embd, t->n_ff, true, &l->down));
    return number(b, &l->down);
}

/* ---- outside of the blocks -------------------------------------------------------------------------------------- */

/* Both kernels of towers that see two frames are of the same picture: one, their sum. */
static enum infer_status add_second(struct binder *b, struct weight *w) {
    const struct tensor *second = find(b, "v.patch_embd.weight.1");
    const size_t n = (size_t)w->n * (size_t)w->k;
    const float *y;
    if (!second) return INFER_OK;
    if (elements(second) != (int64_t)n) return misshapen(b, second, w->n, w->k);
    float *sum = arena_alloc(&b->t->arena, n * sizeof *sum);
    if (!sum) return no_memory(b->t, second->name);
    TRY(floats(b, second, &y));
    quant_info(w->type)->decode(sum, w->data, n);
    for (size_t i = 0; i < n; i++) sum[i] += y[i];
    w->type = QUANT_F32, w->data = sum;
    return INFER_OK;
}

static enum infer_status bind_patches(struct binder *b) {
    struct tower *t = b->t;
    const struct tensor *x = find(b, "v.patch_embd.weight");
    if (!x) return missing(b, "v.patch_embd.weight");
    if (t->family->no_blocks) { /* patches of another size than the key says: rows' */
        const double side = sqrt((double)elements(x) / 3 / t->n_embd);
        t->patch = (int)side;
    }
    TRY(member(b, "v.patch_embd", t->n_embd, 3 * t->patch * t->patch, true, &t->patch_embd));
    TRY(add_second(b, &t->patch_embd.w.member[0]));
    TRY(number(b, &t->patch_embd));
    for (int i = 0; t->family->no_blocks && i < 3; i++) {
        char name[32];
        snprintf(name, sizeof name, "v.patch_norm.%d", i + 1);
        TRY(norm(b, name, i ? t->n_embd : t->patch_embd.w.k, true, &t->patch_norm[i]));
    }
    TRY(norm(b, "v.norm_embd", t->n_embd, false, &t->embd_norm));
    TRY(norm(b, "v.pre_ln", t->n_embd, false, &t->pre_ln));
    return norm(b, "v.post_ln", t->n_embd, false, &t->post_ln);
}

/* A row that blocks see beside the patches, with its place, the table's first or last. */
static enum infer_status bind_class(struct binder *b) {
    struct tower *t = b->t;
    const float *own;
    int n = t->n_embd;
    if (!t->family->class_row) return INFER_OK;
    TRY(vector(b, "v.class_embd", &n, true, &own));
    float *sum = arena_alloc(&t->arena, (size_t)n * sizeof *sum);
    if (!sum) return no_memory(t, "v.class_embd");
    const float *place = t->table + (t->family->class_last ? (size_t)n * (size_t)(t->n_table - 1) : 0);
    for (int i = 0; i < n; i++) sum[i] = own[i] + place[i];
    t->class_embd = sum;
    if (!t->family->class_last) t->table += n;
    t->n_table--;
    return INFER_OK;
}

static enum infer_status bind_table(struct binder *b) {
    struct tower *t = b->t;
    const char *name = "v.position_embd.weight";
    const bool none = t->family->table_may && !tensorfile_find(t->file, name);
    int n = 0;
    t->places = none ? TABLE_NONE : t->family->table;
    const int planes = t->places == TABLE_TWO ? 2 : 1;
    if (t->places == TABLE_NONE) return INFER_OK;
    TRY(vector(b, name, &n, true, &t->table));
    const struct tensor *x = tensorfile_find(t->file, name);
    if (n < 1 || n % (t->n_embd * planes) || x->shape[3] != t->n_embd)
        return misshapen(b, x, n / t->n_embd, t->n_embd);
    t->n_table = n / t->n_embd / planes;
    TRY(bind_class(b));
    const int side = (int)sqrt(t->n_table + 0.5);
    if (planes == 1 && (side * side != t->n_table || !side))
        return err_set(INFER_E_INPUT, "%s: %s has %d rows, which is no square", t->file->path, name,
                       t->n_table);
    return INFER_OK;
}

static enum infer_status bind_deepstack(struct binder *b) {
    struct tower *t = b->t;
    const int wide = t->merge * t->merge * t->n_embd;
    for (int il = 0; il < t->n_layer; il++) {
        char name[64];
        snprintf(name, sizeof name, "v.deepstack.%d.fc1", il);
        if (!has(b, name)) continue;
        if (t->n_deepstack == TOWER_DEEPSTACK)
            return err_set(INFER_E_UNSUPPORTED, "%s: more than %d tensors v.deepstack.N.fc1", t->file->path,
                           TOWER_DEEPSTACK);
        const int i = t->n_deepstack++;
        t->deepstack[i].layer = il;
        TRY(member(b, name, 0, wide, true, &t->deepstack[i].fc1));
        TRY(number(b, &t->deepstack[i].fc1));
        snprintf(name, sizeof name, "v.deepstack.%d.fc2", il);
        TRY(member(b, name, t->n_out, t->deepstack[i].fc1.w.n, true, &t->deepstack[i].fc2));
        TRY(number(b, &t->deepstack[i].fc2));
        snprintf(name, sizeof name, "v.deepstack.%d.norm", il);
        TRY(norm(b, name, wide, true, &t->deepstack[i].norm));
    }
    return INFER_OK;
}

/* [cols][rows] in the file, turned. */
static enum infer_status transposed(struct binder *b, const char *name, int cols, struct tower_linear *l) {
    struct tower *t = b->t;
    char full[96];
    const float *from;
    snprintf(full, sizeof full, "%s.weight", name);
    const struct tensor *x = find(b, full);
    if (!x) return missing(b, full);
    const int rows = (int)x->shape[3];
    if (x->shape[2] != cols || elements(x) != (int64_t)rows * cols) return misshapen(b, x, cols, rows);
    TRY(floats(b, x, &from));
    float *to = arena_alloc(&t->arena, (size_t)elements(x) * sizeof *to);
    if (!to) return no_memory(t, full);
    for (int i = 0; i < rows; i++)
        for (int k = 0; k < cols; k++)
            to[(size_t)i * (size_t)cols + (size_t)k] = from[(size_t)k * (size_t)rows + (size_t)i];
    l->w = (struct weight_group){.n_member = 1, .n = rows, .k = cols, .member = {matrix_of(x, rows, cols)}};
    l->w.member[0].type = QUANT_F32, l->w.member[0].data = to;
    t->weight_bytes += weight_bytes(&l->w.member[0]);
    return INFER_OK;
}

static enum infer_status bind_projector(struct binder *b) {
    struct tower *t = b->t;
    const struct tower_family *f = t->family;
    for (int i = 0; f->tensor[i].name; i++) {
        const struct tower_tensor *x = &f->tensor[i];
        const int cols = x->columns == COLUMNS_EMBD     ? t->n_embd
                         : x->columns == COLUMNS_MERGED ? t->n_embd * t->merge * t->merge
                         : x->columns == COLUMNS_LIKE   ? t->more[i - 1].w.k
                         : x->columns == COLUMNS_FOUR   ? 4 * t->n_embd
                                                        : t->more[i - 1].w.n;
        if (x->may && t->merge == 1) continue;
        if (x->transposed)
            TRY(transposed(b, x->name, cols, &t->more[i]));
        else
            TRY(member(b, x->name, x->may ? t->n_embd : 0, cols, true, &t->more[i]));
        TRY(number(b, &t->more[i]));
        if (!x->may) t->n_out = t->more[i].w.n;
    }
    if (!f->soft_norm.name) return INFER_OK;
    const int n = f->soft_norm.columns == COLUMNS_FOUR     ? 4 * t->n_embd
                  : f->soft_norm.columns == COLUMNS_MERGED ? t->n_embd * t->merge * t->merge
                  : f->soft_norm.columns == COLUMNS_BEFORE ? t->n_out
                                                           : t->n_embd;
    return norm(b, f->soft_norm.name, n, !f->soft_norm.may, &t->soft_norm);
}

/* y[n] = norm(x) */
static void normed(const struct tower_norm *w, const float *x, float eps, float *y) {
    double mean = 0, var = 0;
    for (int i = 0; i < w->n; i++) mean += (double)x[i] / w->n;
    for (int i = 0; i < w->n; i++) var += ((double)x[i] - mean) * ((double)x[i] - mean) / w->n;
    for (int i = 0; i < w->n; i++)
        y[i] = (float)(((double)x[i] - mean) / sqrt(var + (double)eps) * (double)w->w[i] +
                       (w->bias ? (double)w->bias[i] : 0));
}

/* to[q][i] = bias[i] + the sum over k of w[i][k] from[q][k]; line: w->k floats. Side by side the queries, so that all of them read a number
 * of w at once. */
static void ask(const struct weight *w, int n, const float *from, float *line, float *sum, float *to) {
    const struct quant_info *q = quant_info(w->type);
    const size_t bytes = (size_t)w->k / q->elems * q->bytes;
    for (int i = 0; i < w->n; i++) {
        q->decode(line, (const char *)w->data + (size_t)i * bytes, (size_t)w->k);
        for (int r = 0; r < n; r++) sum[r] = w->bias ? w->bias[i] : 0;
        for (int k = 0; k < w->k; k++)
            for (int r = 0; r < n; r++) sum[r] += line[k] * from[(size_t)k * (size_t)n + (size_t)r];
        for (int r = 0; r < n; r++) to[(size_t)r * (size_t)w->n + (size_t)i] = sum[r];
    }
}

/* Learned queries, the same for each picture: normalised and multiplied once. source: OpenBMB's resampler of MiniCPM-V 2.6 */
static enum infer_status bind_asked(struct binder *b, int n, const float *query) {
    struct tower *t = b->t;
    struct tower_norm ln;
    struct tower_linear q = {0};
    const int wide = t->n_out;
    float *to = arena_alloc(&t->arena, (size_t)n * (size_t)wide * sizeof *to), *work = NULL;
    if (!to) return no_memory(t, "queries");
    TRY(norm(b, "resampler.ln_q", wide, true, &ln));
    TRY(member(b, "resampler.attn.q", wide, wide, true, &q));
    t->query = to;
    if (t->options.plan) return INFER_OK;
    TRY(mem_new(&work, ((size_t)n * (size_t)wide + 2 * (size_t)wide + (size_t)n) * sizeof *work, "queries"));
    float *side = work, *line = side + (size_t)n * (size_t)wide, *one = line + wide;
    for (int r = 0; r < n; r++) {
        normed(&ln, query + (size_t)r * (size_t)wide, 1e-6f, one);
        for (int i = 0; i < wide; i++) side[(size_t)i * (size_t)n + (size_t)r] = one[i];
    }
    ask(&q.w.member[0], n, side, line, one + wide, to);
    mem_free(work);
    return INFER_OK;
}

static enum infer_status bind_queries(struct binder *b) {
    struct tower *t = b->t;
    const int wide = t->n_out;
    const float *query;
    int n;
    if (!t->n_query) return INFER_OK;
    if (wide % TOWER_QUERY_HEAD)
        return err_set(INFER_E_INPUT, "%s: queries of %d numbers, heads have %d", t->file->path, wide,
                       TOWER_QUERY_HEAD);
    for (int i = 0; i < 4; i++)
        if (t->more[i].w.n != wide)
            return err_set(INFER_E_INPUT, "%s: products of the resampler give %d numbers and %d",
                           t->file->path, t->more[i].w.n, wide);
    n = t->n_query * wide;
    TRY(vector(b, "resampler.query", &n, true, &query));
    TRY(norm(b, "resampler.ln_post", wide, true, &t->query_norm));
    return bind_asked(b, t->n_query, query);
}

/* (x - bias) * scale, as scale and what is added behind it. */
static enum infer_status bind_standard(struct binder *b) {
    struct tower *t = b->t;
    const float *bias;
    int n = t->n_embd;
    TRY(vector(b, "v.std_scale", &n, false, &t->std_scale));
    TRY(vector(b, "v.std_bias", &n, t->std_scale != NULL, &bias));
    if (!t->std_scale) return INFER_OK;
    float *add = arena_alloc(&t->arena, (size_t)n * sizeof *add);
    if (!add) return no_memory(t, "v.std_bias");
    for (int i = 0; i < n; i++) add[i] = -bias[i] * t->std_scale[i];
    t->std_bias = add;
    return INFER_OK;
}

/* Column i of a product over merged patches is number i / m^2 of patch i % m^2. */
static enum infer_status order_columns(struct tower *t) {
    const int n = t->merge * t->merge;
    int32_t *from = arena_alloc(&t->arena, (size_t)(n * t->n_embd) * sizeof *from);
    if (!from) return no_memory(t, "columns");
    for (int i = 0; i < n * t->n_embd; i++) from[i] = i % n * t->n_embd + i / n;
    t->unfold = from;
    return INFER_OK;
}

/* Rotations: one of all pairs of a head, or one of each half. */
static enum infer_status bind_turns(struct tower *t) {
    const enum tower_turn turn = t->family->turn;
    const int half = t->head_dim / 2, quarter = t->head_dim / 4;
    float *freq = arena_alloc(&t->arena, (size_t)(half + 1) * sizeof *freq);
    int32_t *axis = arena_alloc(&t->arena, 2 * (size_t)(half + 1) * sizeof *axis);
    if (!freq || !axis) return no_memory(t, "rotations");
    for (int i = 0; i < half && turn != TURN_NONE; i++) {
        const int k = i % quarter;
        const double exponent =
            turn == TURN_NEIGHBOURS ? (4.0 * k + (i < quarter ? 0 : 2)) / t->head_dim : 2.0 * k / half;
        freq[i] = (float)pow((double)t->family->theta, -exponent);
        axis[i] = (i < quarter) == (turn == TURN_COLUMNS) ? 3 : 2; /* column, line */
    }
    const bool neighbours = turn == TURN_NEIGHBOURS ? !t->neox : turn == TURN_COLUMNS;
    const enum rope_kind kind = neighbours ? ROPE_INTERLEAVED : ROPE_NEOX;
    if (turn == TURN_PAIRS || turn == TURN_NEIGHBOURS || turn == TURN_COLUMNS)
        t->rope[0] =
            (struct rope){.kind = kind, .n_rot = t->head_dim, .mscale = 1, .inv_freq = freq, .axis = axis};
    if (turn == TURN_HALVES) { /* column first */
        for (int i = 0; i < quarter; i++) axis[i] = 3, axis[half + i] = 2;
        t->rope[0] = (struct rope){.kind = kind, .n_rot = half, .mscale = 1, .inv_freq = freq, .axis = axis};
        t->rope[1] =
            (struct rope){.kind = kind, .n_rot = half, .mscale = 1, .inv_freq = freq, .axis = axis + half};
    }
    return INFER_OK;
}

/* Another tower's, of sound, which nothing reads; what a table of embeddings has as text; what makes fewer rows, where there are as many. */
static bool is_others(const struct tower *t, const char *name) {
    return strncmp(name, "a.", 2) == 0 || strncmp(name, "mm.a.", 5) == 0 ||
           strcmp(name, "v.token_embd.img_break") == 0 ||
           (t->n_query && strcmp(name, "resampler.pos_embed_k") == 0) || /* sines and cosines */
           (t->family->middle && t->middle_at < 0 && strncmp(name, "v.vit_merger.", 13) == 0);
}

/* Four patches to one: attention among them, then a feed-forward part of all four. */
static enum infer_status bind_middle(struct binder *b) {
    static const char *const qkv[] = {"v.vit_merger.attn_q", "v.vit_merger.attn_k", "v.vit_merger.attn_v"};
    struct tower *t = b->t;
    struct tower_layer *l = &t->middle;
    const int n = t->n_head * t->head_dim;
    if (t->middle_at < 0) return INFER_OK;
    TRY(norm(b, "v.vit_merger.ln1", t->n_embd, true, &l->ln1));
    TRY(norm(b, "v.vit_merger.ds_ln", 4 * t->n_embd, true, &l->ln2));
    TRY(several(b, qkv, 3, n, t->n_embd, l->qkv, &l->n_qkv));
    TRY(member(b, "v.vit_merger.attn_out", t->n_embd, n, true, &l->out));
    TRY(number(b, &l->out));
    TRY(member(b, "v.vit_merger.ds_ffn_up", 0, 4 * t->n_embd, true, &l->up[0]));
    TRY(number(b, &l->up[0]));
    TRY(member(b, "v.vit_merger.ds_ffn_down", t->n_embd, l->up[0].w.n, true, &l->down));
    return number(b, &l->down);
}

/* Where the key has the width of the projector's feed-forward part, or 0, as the oldest files have it: what the first matrix has beside
 * the width of a patch. */
static enum infer_status read_width(struct binder *b) {
    struct tower *t = b->t;
    const struct tensor *x = tensorfile_find(t->file, "v.blk.0.ffn_up.weight");
    if (!t->n_layer || (t->n_ff && !t->family->ff_told)) return INFER_OK;
    if (!x) return missing(b, "v.blk.0.ffn_up.weight");
    const int64_t n = x->shape[3] == t->n_embd ? x->shape[2] : x->shape[3];
    if (n < 1 || n > 1 << 20) return misshapen(b, x, t->n_ff, t->n_embd);
    t->n_ff = (int)n;
    return INFER_OK;
}

static enum infer_status bind_all(struct binder *b) {
    struct tower *t = b->t;
    TRY(bind_patches(b));
    TRY(bind_table(b));
    TRY(read_width(b));
    for (int il = 0; il < t->n_layer; il++) TRY(bind_layer(b, &t->layer[il], il));
    TRY(bind_middle(b));
    TRY(bind_projector(b));
    TRY(bind_queries(b));
    TRY(bind_deepstack(b));
    TRY(bind_standard(b));
    TRY(order_columns(t));
    TRY(bind_turns(t));
    for (size_t i = 0; i < t->file->n_tensor; i++)
        if (!b->used[i] && !is_others(t, t->file->tensor[i].name))
            return err_set(INFER_E_UNSUPPORTED,
                           "%s: tensor %s is not part of projector %s as this build knows it", t->file->path,
                           t->file->tensor[i].name, t->family->projector);
    return INFER_OK;
}

enum infer_status tower_bind(struct tower *t) {
    struct binder b = {.t = t};
    const size_t groups = TOWER_GROUPS * ((size_t)t->n_layer + 4);
    t->layer = arena_alloc(&t->arena, ((size_t)t->n_layer + 1) * sizeof *t->layer);
    t->group = arena_alloc(&t->arena, groups * sizeof *t->group);
    if (!t->layer || !t->group) return no_memory(t, "blocks");
    TRY(mem_new(&b.used, t->file->n_tensor + 1, "marks of tensors"));
    enum infer_status s = bind_all(&b);
    mem_free(b.used);
    return s;
}
