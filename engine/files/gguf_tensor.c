/* GGUF: the directory of tensors, and the layout of their data. */
#include "files/gguf_impl.h"

#include <string.h>

/* ---- types ---- */

/* Types that are not in quant.def; why a file with one is refused. */
enum origin { ELSEWHERE, REMOVED, IK, PRISM };
static const struct {
    uint32_t type;
    const char *name;
    enum origin origin;
} refused[] = {
    {4, "Q4_2", REMOVED},        {5, "Q4_3", REMOVED},        {9, "Q8_1", ELSEWHERE},
    {15, "Q8_K", ELSEWHERE},     {24, "I8", ELSEWHERE},       {25, "I16", ELSEWHERE},
    {26, "I32", ELSEWHERE},      {27, "I64", ELSEWHERE},      {28, "F64", ELSEWHERE},
    {31, "Q4_0_4_4", REMOVED},   {32, "Q4_0_4_8", REMOVED},   {33, "Q4_0_8_8", REMOVED},
    {36, "IQ4_NL_4_4", REMOVED}, {37, "IQ4_NL_4_8", REMOVED}, {38, "IQ4_NL_8_8", REMOVED},
    {133, "Q6_0", IK},           {134, "IQ1_BN", IK},         {135, "IQ2_BN", IK},
    {137, "IQ2_K", IK},          {138, "IQ3_K", IK},          {139, "IQ4_K", IK},
    {140, "IQ5_K", IK},          {141, "IQ6_K", IK},          {142, "PQ2_0", PRISM},
    {143, "PTQ1_0", PRISM},      {144, "IQ4_KS", IK},         {145, "IQ2_KS", IK},
    {146, "IQ4_KSS", IK},        {152, "IQ5_KS", IK},         {153, "IQ2_KT", IK},
    {154, "IQ3_KT", IK},         {155, "IQ4_KT", IK},         {156, "IQ3_KS", IK},
    {157, "IQ2_KL", IK},         {158, "IQ1_KT", IK},
};

enum { I32 = GGUF_I32, I64 = 27 };

static enum infer_status refuse_type(const struct gguf_cursor *c, uint32_t type) {
    static const char other[] = "take a file of the model in a type of llama.cpp, as IQ4_XS or Q4_K";
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const char *name = refused[i].name;
        if (refused[i].type != type) continue;
        if (refused[i].origin == REMOVED)
            return gguf_fail(c, INFER_E_INPUT,
                             "type %s (%u) was removed from the format; quantize the model again", name,
                             type);
        if (refused[i].origin == ELSEWHERE)
            return gguf_fail(c, INFER_E_UNSUPPORTED, "type %s (%u) is no type of weights", name, type);
        return gguf_fail(c, INFER_E_UNSUPPORTED, "type %s (%u) is of the fork %s alone; %s", name, type,
                         refused[i].origin == IK ? "ik_llama.cpp" : "PrismML", other);
    }
    if (type >= 202 && type <= 399)
        return gguf_fail(c, INFER_E_UNSUPPORTED,
                         "type %u is of the fork ik_llama.cpp alone (weights in another order); %s", type,
                         other);
    return gguf_fail(c, INFER_E_INPUT, "type %u is unknown", type);
}

/* ---- one entry ---- */

static enum infer_status read_name(struct gguf_cursor *c, struct arena *a, struct tensor *t) {
    struct str name;
    TRY(gguf_string(c, &name, "the name of a tensor"));
    if (name.len == 0) return gguf_fail(c, INFER_E_INPUT, "the name of the tensor is empty");
    if (name.len > GGUF_MAX_NAME)
        return gguf_fail(c, INFER_E_INPUT, "the name of the tensor has %zu bytes, more than %d", name.len,
                         GGUF_MAX_NAME);
    c->name = name;
    if (memchr(name.data, 0, name.len))
        return gguf_fail(c, INFER_E_INPUT, "the name of the tensor holds a zero byte");
    t->name = arena_strndup(a, name.data, name.len);
    if (!t->name) return err_set(INFER_E_MEMORY, "out of memory: names of tensors");
    return INFER_OK;
}

/* GGUF lists the contiguous dimension first; here, and nowhere else, that is turned into C order. */
static enum infer_status read_shape(struct gguf_cursor *c, struct tensor *t) {
    uint32_t n_dim;
    TRY(gguf_u32(c, &n_dim, "the number of dimensions"));
    if (n_dim > GGUF_MAX_DIM)
        return gguf_fail(c, INFER_E_INPUT, "%u dimensions, more than %d", n_dim, GGUF_MAX_DIM);
    t->n_dim = n_dim ? (int)n_dim : 1; /* no dimension: one number */
    for (int i = 0; i < GGUF_MAX_DIM; i++) t->shape[i] = 1;
    for (uint32_t i = 0; i < n_dim; i++) {
        uint64_t dim;
        TRY(gguf_u64(c, &dim, "a dimension"));
        if (dim == 0) return gguf_fail(c, INFER_E_INPUT, "dimension %u is 0", i);
        if (dim > INT64_MAX)
            return gguf_fail(c, INFER_E_INPUT, "dimension %u is %llu, too large", i, (unsigned long long)dim);
        t->shape[GGUF_MAX_DIM - 1 - i] = (int64_t)dim;
    }
    return INFER_OK;
}

/* t->bytes from shape and type: whole blocks in a row, no product that wraps. */
static enum infer_status size_of(const struct gguf_cursor *c, struct tensor *t) {
    const struct quant_info *q = quant_info(t->type);
    int64_t row = t->shape[GGUF_MAX_DIM - 1], n = 1;
    if (row % q->elems)
        return gguf_fail(c, INFER_E_INPUT, "rows of %lld elements are no multiple of the %u of a block of %s",
                         (long long)row, q->elems, q->name);
    for (int i = 0; i < GGUF_MAX_DIM; i++)
        if (__builtin_mul_overflow(n, t->shape[i], &n))
            return gguf_fail(c, INFER_E_INPUT, "the product of its dimensions is too large");
    if (!size_mul((size_t)n / q->elems, q->bytes, &t->bytes) || t->bytes > PTRDIFF_MAX)
        return gguf_fail(c, INFER_E_INPUT, "its size in bytes is too large");
    return INFER_OK;
}

/* Elements of each matrix of a tensor, and bytes of all where they are NF4 in a file. */
static size_t matrix_elements(const struct tensor *t) { return (size_t)(t->shape[2] * t->shape[3]); }
static size_t packed_bytes(const struct tensor *t) {
    return (size_t)(t->shape[0] * t->shape[1]) * quant_nf4_packed_bytes(matrix_elements(t));
}

static enum infer_status read_entry(struct gguf_part *p, struct arena *a, struct tensor *t) {
    struct gguf_cursor *c = &p->c;
    uint32_t type;
    TRY(read_name(c, a, t));
    TRY(read_shape(c, t));
    TRY(gguf_u32(c, &type, "the type of a tensor"));
    const struct quant_info *q = quant_by_gguf(type);
    if (type == I64 && strcmp(t->name, "d2t") == 0) { /* ids, of heads that draft: no weights */
        t->raw = "I64";
        q = quant_info(QUANT_F32);
    }
    if (type == I32 && strstr(t->name, GGUF_IDS)) { /* experts of ids: no weights */
        t->raw = "I32";
        q = quant_info(QUANT_F32);
    }
    if (!q && type != QUANT_NF4_GGUF) return refuse_type(c, type);
    t->type = q ? q->type : QUANT_NF4;
    TRY(size_of(c, t));
    if (type == I64 && t->raw && !size_mul(t->bytes, 2, &t->bytes))
        return gguf_fail(c, INFER_E_INPUT, "its size in bytes is too large");
    if (t->type == QUANT_NF4) t->bytes = packed_bytes(t);
    TRY(gguf_u64(c, &t->offset, "the offset of a tensor"));
    if (t->offset % p->alignment)
        return gguf_fail(c, INFER_E_INPUT, "its offset %llu is no multiple of the alignment %u",
                         (unsigned long long)t->offset, p->alignment);
    return INFER_OK;
}

/* ---- layout ---- */

static void sift_down(size_t *order, size_t root, size_t n, const struct tensor *t) {
    for (size_t child; (child = 2 * root + 1) < n; root = child) {
        if (child + 1 < n && t[order[child + 1]].offset > t[order[child]].offset) child++;
        if (t[order[root]].offset >= t[order[child]].offset) return;
        size_t swap = order[root];
        order[root] = order[child];
        order[child] = swap;
    }
}

/* order[n] = indices of t[n] by ascending offset (heap sort: no memory, no bad case). */
static void sort_by_offset(size_t *order, const struct tensor *t, size_t n) {
    for (size_t i = 0; i < n; i++) order[i] = i;
    for (size_t i = n / 2; i-- > 0;) sift_down(order, i, n, t);
    for (size_t end = n; end-- > 1;) {
        size_t swap = order[0];
        order[0] = order[end];
        order[end] = swap;
        sift_down(order, 0, end, t);
    }
}

/* The data of t[n] lies in data[size] one after the other, in any order: no overlap, no hole larger than
 * the padding, nothing after the last one but padding, which may be cut. */
static enum infer_status check_layout(struct gguf_cursor *c, struct arena *a, const struct tensor *t,
                                      size_t n, size_t size, uint32_t alignment) {
    size_t *order, end = 0, padded = 0;
    TRY(gguf_alloc(a, &order, n, sizeof *order));
    sort_by_offset(order, t, n);
    c->entry = "tensor";
    for (size_t i = 0; i < n; i++) {
        const struct tensor *cur = &t[order[i]];
        const char *before = i ? t[order[i - 1]].name : "the start";
        c->index = order[i];
        c->name = (struct str){cur->name, strlen(cur->name)};
        if (cur->offset > size || cur->bytes > size - (size_t)cur->offset)
            return gguf_fail(c, INFER_E_INPUT,
                             "its data (offset %llu, %zu bytes) ends after the file (%zu bytes of data); "
                             "was the file cut?",
                             (unsigned long long)cur->offset, cur->bytes, size);
        if (cur->offset < end)
            return gguf_fail(c, INFER_E_INPUT,
                             "its data at offset %llu overlaps that of '%s', which ends at %zu",
                             (unsigned long long)cur->offset, before, end);
        if (cur->offset != padded)
            return gguf_fail(c, INFER_E_INPUT, "its data is at offset %llu, but '%s' ends at %zu",
                             (unsigned long long)cur->offset, before, padded);
        end = (size_t)cur->offset + cur->bytes;
        if (!size_align(end, alignment, &padded)) return gguf_fail(c, INFER_E_INPUT, "its end is too large");
    }
    c->entry = NULL;
    if (size > padded)
        return gguf_fail(c, INFER_E_INPUT, "%zu bytes follow the data of the last tensor", size - padded);
    return INFER_OK;
}

/* ---- the directory ---- */

/* NF4 is packed in a file; in memory its blocks stand alone. */
static enum infer_status unpack_nf4(struct tensorfile *f, const struct gguf_cursor *c, struct tensor *t) {
    const struct quant_info *q = quant_info(QUANT_NF4);
    const size_t n = matrix_elements(t), one = quant_row_bytes(q, n);
    const size_t matrices = (size_t)(t->shape[0] * t->shape[1]);
    unsigned char *out;
    TRY(gguf_alloc(&f->arena, &out, matrices, one));
    for (size_t i = 0; i < matrices; i++)
        if (!quant_nf4_unpack((struct block_NF4 *)(void *)(out + i * one),
                              (const char *)t->data + i * quant_nf4_packed_bytes(n), n))
            return gguf_fail(c, INFER_E_INPUT, "tensor '%s': a constant of its NF4 blocks is not finite",
                             t->name);
    t->data = out;
    t->bytes = matrices * one;
    f->made_bytes += t->bytes;
    return INFER_OK;
}

/* Where they lie, or a copy where the file's alignment is less than theirs. */
static const int64_t *ids_of(struct tensorfile *f, const struct tensor *t) {
    if ((uintptr_t)t->data % sizeof(int64_t) == 0) return t->data;
    int64_t *copy = arena_alloc(&f->arena, t->bytes);
    return copy ? memcpy(copy, t->data, t->bytes) : NULL;
}

enum infer_status gguf_read_tensors(struct tensorfile *f, struct gguf_part *p, int part, size_t first,
                                    const struct tensorfile_options *options) {
    struct gguf_cursor *c = &p->c;
    struct tensor *t = f->tensor + first;
    size_t n = (size_t)p->n_tensor, start;
    TRY(gguf_count(c, n, GGUF_TENSOR_MIN, "tensors"));
    c->entry = "tensor";
    for (size_t i = 0; i < n; i++) {
        int64_t old;
        c->index = i;
        c->name = (struct str){0};
        TRY(read_entry(p, &f->arena, &t[i]));
        TRY(strmap_put(f->tensor_index, t[i].name, strlen(t[i].name), (int64_t)(first + i), &old));
        if (old >= 0) return gguf_fail(c, INFER_E_INPUT, "tensor %lld has the same name", (long long)old);
    }
    c->entry = NULL;
    if (!size_align(c->pos, p->alignment, &start))
        return gguf_fail(c, INFER_E_INPUT, "the file is too large");
    if (start > c->size) {
        if (n) return gguf_fail(c, INFER_E_INPUT, "the file ends before the data of its tensors");
        start = c->size; /* no tensors: the padding may be cut too */
    }
    c->pos = start;
    TRY(check_layout(c, &f->arena, t, n, c->size - start, p->alignment));
    for (size_t i = 0; i < n; i++) {
        t[i].offset += start;
        t[i].data = c->data + t[i].offset;
        t[i].part = part;
    }
    TRY(tensorfile_check_holes(&f->part[part], t, n, options));
    for (size_t i = 0; i < n; i++)
        if (t[i].type == QUANT_NF4) TRY(unpack_nf4(f, c, &t[i]));
    for (size_t i = 0; i < n; i++)
        if (t[i].raw && strcmp(t[i].raw, "I64") == 0) {
            f->n_target_id = t[i].bytes / sizeof *f->target_id;
            t[i].n_dim = 0;
            if (!(f->target_id = ids_of(f, &t[i]))) return err_set(INFER_E_MEMORY, "out of memory for ids");
        }
    return INFER_OK;
}
