#include "tools/measure/verify_record.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- rows ---- */

/* Bits that are as good as drawn, another one for each i. source: splitmix64, Steele, Lea & Flood 2014. */
static uint64_t bits_of(uint64_t i) {
    i = (i + 1) * 0x9e3779b97f4a7c15u;
    i = (i ^ (i >> 30)) * 0xbf58476d1ce4e5b9u;
    i = (i ^ (i >> 27)) * 0x94d049bb133111ebu;
    return i ^ (i >> 31);
}

struct verify_row verify_row_of(const float *x, int width, int pos) {
    struct verify_row r = {.pos = (float)pos};
    double sum[VERIFY_SUMS] = {0}, mean = 0, square = 0;
    for (int i = 0; i < width; i++) {
        const double v = (double)x[i];
        const uint64_t bits = bits_of((uint64_t)i);
        mean += v, square += v * v;
        if (fabsf(x[i]) > fabsf(r.peak)) r.peak = x[i], r.peak_at = (float)i;
        for (int k = 0; k < VERIFY_SUMS; k++) sum[k] += bits >> k & 1 ? v : -v;
    }
    r.mean = (float)(mean / width), r.rms = (float)sqrt(square / width);
    for (int k = 0; k < VERIFY_SUMS; k++) r.sum[k] = (float)(sum[k] / sqrt(width));
    for (int k = 0; k < VERIFY_VALUES; k++) r.value[k] = x[verify_at(width, k)];
    return r;
}

bool verify_same(const struct verify_op *a, const struct verify_op *b) {
    return a->layer == b->layer && a->decode == b->decode && strcmp(a->name, b->name) == 0;
}

/* ---- watching ---- */

/* While the engine is made: operations and room for their rows. */
static enum infer_status add_op(struct verify_record *r, const struct infer_watched *w) {
    if (r->n_op == r->cap_op) {
        const int cap = r->cap_op ? 2 * r->cap_op : 1024;
        struct verify_op *more = arena_alloc(&r->arena, (size_t)cap * sizeof *more);
        if (!more) return err_set(INFER_E_MEMORY, "out of memory for a record");
        if (r->n_op) memcpy(more, r->op, (size_t)r->n_op * sizeof *more);
        r->op = more, r->cap_op = cap;
    }
    struct verify_op *o = &r->op[r->n_op];
    *o = (struct verify_op){.route = strcmp(w->kind, "route") == 0,
                            .attend = strcmp(w->kind, "attend") == 0,
                            .decode = w->decode,
                            .layer = w->layer,
                            .width = w->width};
    snprintf(o->name, sizeof o->name, "%s", w->name);
    for (int i = r->n_op - 1; i >= 0 && r->op[i].layer == o->layer && r->op[i].decode == o->decode; i--)
        if (verify_same(&r->op[i], o)) { /* of a layer that has the name twice */
            snprintf(o->name, sizeof o->name, "%.40s.2", w->name);
            break;
        }
    o->row = arena_alloc(&r->arena, (w->decode ? VERIFY_DECODE : VERIFY_PROMPT) * sizeof *o->row);
    if (!o->row) return err_set(INFER_E_MEMORY, "out of memory for a record");
    r->n_op++;
    return INFER_OK;
}

static bool is_op(const struct verify_op *o, const struct infer_watched *w, int row) {
    return o->layer == w->layer && o->decode == w->decode && o->width == w->width &&
           (!o->n_row || (int)o->row[o->n_row - 1].pos != row) &&
           strncmp(o->name, w->name, strlen(w->name)) == 0 &&
           (!o->name[strlen(w->name)] || strcmp(o->name + strlen(w->name), ".2") == 0);
}

void verify_watch(void *record, const struct infer_watched *w) {
    struct verify_record *r = record;
    if (r->status) return;
    if (!w->x) {
        r->status = add_op(r, w);
        return;
    }
    for (int i = 0; i < r->n_op;
         i++) { /* an operation's rows come one behind the other, then those of the next */
        struct verify_op *o = &r->op[(r->at + i) % r->n_op];
        if (!is_op(o, w, w->pos) || o->n_row == (w->decode ? VERIFY_DECODE : VERIFY_PROMPT)) continue;
        r->at = (int)(o - r->op);
        o->row[o->n_row++] = verify_row_of(w->x, w->width, w->pos);
        if (r->whole && verify_same(r->whole, o) && r->whole_pos == w->pos)
            memcpy(r->x, w->x, (size_t)w->width * sizeof *r->x);
        return;
    }
}

/* ---- the file ---- */

/* source: FNV-1a, Fowler, Noll & Vo, RFC 9923 */
static uint64_t add_bytes(uint64_t sum, const void *data, size_t n) {
    for (size_t i = 0; i < n; i++) sum = (sum ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
    return sum;
}
static uint64_t add_text(uint64_t sum, const char *text) {
    return text ? add_bytes(sum, text, strlen(text) + 1) : sum;
}

/* Of all that a record says: one that was damaged is no witness. */
static uint64_t sum_of(const struct verify_record *r) {
    uint64_t sum = 0xcbf29ce484222325u;
    const char *const texts[] = {r->device, r->isa, r->version, r->arch, r->type};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) sum = add_text(sum, texts[i]);
    sum = add_bytes(sum, &r->model, sizeof r->model);
    sum = add_bytes(sum, &r->bits, sizeof r->bits);
    sum = add_bytes(sum, &r->exact, sizeof r->exact);
    sum = add_bytes(sum, r->ids, (size_t)r->n_id * sizeof *r->ids);
    for (int i = 0; i < r->n_text; i++) {
        sum = add_text(add_text(sum, r->text[i].name), r->text[i].text);
        sum = add_bytes(sum, r->text[i].ids, (size_t)r->text[i].n_id * sizeof *r->text[i].ids);
    }
    for (int i = 0; i < r->n_op; i++) {
        const struct verify_op *o = &r->op[i];
        sum =
            add_bytes(add_text(sum, o->name),
                      (int32_t[4]){o->layer, o->width, o->n_row, o->decode | o->route << 1 | o->attend << 2},
                      4 * sizeof(int32_t));
        sum = add_bytes(sum, o->row, (size_t)o->n_row * sizeof *o->row);
    }
    return sum;
}

static size_t n_rows(const struct verify_record *r) {
    size_t n = 0;
    for (int i = 0; i < r->n_op; i++) n += (size_t)r->op[i].n_row;
    return n;
}

static enum infer_status put_texts(struct gguf_writer *w, const struct verify_record *r) {
    char key[64];
    gguf_writer_u32(w, "verify.texts", (uint32_t)r->n_text);
    for (int i = 0; i < r->n_text; i++) {
        snprintf(key, sizeof key, "verify.text.%d.name", i);
        gguf_writer_str(w, key, r->text[i].name);
        snprintf(key, sizeof key, "verify.text.%d.ids", i);
        gguf_writer_array(w, key, META_I32, r->text[i].ids, (uint64_t)r->text[i].n_id);
        snprintf(key, sizeof key, "verify.text.%d.rendered", i);
        if (r->text[i].text) gguf_writer_str(w, key, r->text[i].text);
    }
    return INFER_OK;
}

/* layer, width, rows, flags of each operation */
static enum infer_status put_ops(struct gguf_writer *w, const struct verify_record *r) {
    struct str *name;
    int32_t *number;
    TRY(mem_new(&name, (size_t)r->n_op * sizeof *name, "a record"));
    enum infer_status st = mem_new(&number, (size_t)r->n_op * 4 * sizeof *number, "a record");
    for (int i = 0; i < r->n_op && !st; i++) {
        const struct verify_op *o = &r->op[i];
        name[i] = (struct str){o->name, strlen(o->name)};
        memcpy(number + (size_t)4 * (size_t)i,
               (int32_t[4]){o->layer, o->width, o->n_row, o->decode | o->route << 1 | o->attend << 2},
               4 * sizeof *number);
    }
    if (!st) {
        gguf_writer_strings(w, "verify.op.name", name, (uint64_t)r->n_op);
        gguf_writer_array(w, "verify.op.number", META_I32, number, 4 * (uint64_t)r->n_op);
    }
    mem_free(name);
    mem_free(number);
    return st;
}

static enum infer_status put_all(struct gguf_writer *w, const struct verify_record *r) {
    gguf_writer_str(w, "general.type", "verify");
    gguf_writer_u32(w, "verify.version", VERIFY_VERSION);
    const uint64_t sum = sum_of(r);
    gguf_writer_value(w, "verify.sum", META_U64, &sum);
    gguf_writer_value(w, "verify.model", META_U64, &r->model);
    gguf_writer_str(w, "verify.device", r->device);
    gguf_writer_str(w, "verify.isa", r->isa);
    gguf_writer_str(w, "verify.infer", r->version);
    gguf_writer_str(w, "verify.arch", r->arch);
    gguf_writer_str(w, "verify.type", r->type);
    gguf_writer_f32(w, "verify.bits", r->bits);
    gguf_writer_bool(w, "verify.exact", r->exact);
    gguf_writer_array(w, "verify.ids", META_I32, r->ids, (uint64_t)r->n_id);
    TRY(put_texts(w, r));
    TRY(put_ops(w, r));
    gguf_writer_tensor(w, "verify.rows", QUANT_F32, 2,
                       (int64_t[4]){1, 1, (int64_t)n_rows(r), VERIFY_NUMBERS});
    TRY(gguf_writer_begin(w));
    for (int i = 0; i < r->n_op; i++)
        TRY(gguf_writer_data(w, r->op[i].row, (size_t)r->op[i].n_row * sizeof *r->op[i].row));
    return INFER_OK;
}

enum infer_status verify_write(const struct verify_record *r, const char *path) {
    struct gguf_writer *w;
    TRY(gguf_writer_open(&w, path));
    const enum infer_status st = put_all(w, r);
    if (!st) return gguf_writer_close(w);
    gguf_writer_abort(w);
    return st;
}

static enum infer_status take_ints(struct verify_record *r, const struct tensorfile *f, const char *key,
                                   const int32_t **out, size_t *n) {
    const struct meta *m;
    TRY(meta_array(f, key, META_KIND_INT, META_ANY_LENGTH, &m, NULL));
    int32_t *x = arena_alloc(&r->arena, m->n * sizeof *x + 1);
    if (!x || m->n > INT32_MAX) return err_set(INFER_E_MEMORY, "out of memory for a record");
    for (size_t i = 0; i < m->n; i++) x[i] = (int32_t)meta_elem_i64(m, i);
    *out = x, *n = m->n;
    return INFER_OK;
}

/* A text of the file, ended by 0. present as meta_str has it. */
static enum infer_status take_text(struct verify_record *r, const struct tensorfile *f, const char *key,
                                   const char **out, bool *present) {
    struct str s = {"", 0};
    *out = NULL;
    TRY(meta_str(f, key, &s, present));
    if (present && !*present) return INFER_OK;
    *out = arena_strndup(&r->arena, s.data, s.len);
    return *out ? INFER_OK : err_set(INFER_E_MEMORY, "out of memory for a record");
}

static enum infer_status take_texts(struct verify_record *r, const struct tensorfile *f) {
    uint32_t n;
    char key[64];
    bool there;
    size_t n_id;
    TRY(meta_u32(f, "verify.texts", &n, NULL));
    if (n > 64) return err_set(INFER_E_INPUT, "%s: %u texts", f->path, n);
    r->text = arena_alloc(&r->arena, (n + 1) * sizeof *r->text);
    if (!r->text) return err_set(INFER_E_MEMORY, "out of memory for a record");
    for (r->n_text = 0; r->n_text < (int)n; r->n_text++) {
        struct verify_text *t = &r->text[r->n_text];
        snprintf(key, sizeof key, "verify.text.%d.name", r->n_text);
        TRY(take_text(r, f, key, &t->name, NULL));
        snprintf(key, sizeof key, "verify.text.%d.ids", r->n_text);
        TRY(take_ints(r, f, key, &t->ids, &n_id));
        t->n_id = (int)n_id;
        snprintf(key, sizeof key, "verify.text.%d.rendered", r->n_text);
        TRY(take_text(r, f, key, &t->text, &there));
    }
    return INFER_OK;
}

static enum infer_status take_ops(struct verify_record *r, const struct tensorfile *f) {
    const struct tensor *t = tensorfile_find(f, "verify.rows");
    const struct meta *name;
    const int32_t *number;
    size_t n, row = 0;
    TRY(meta_array(f, "verify.op.name", META_KIND_STRING, META_ANY_LENGTH, &name, NULL));
    TRY(take_ints(r, f, "verify.op.number", &number, &n));
    if (!t || t->type != QUANT_F32 || t->shape[3] != VERIFY_NUMBERS || n != 4 * name->n)
        return err_set(INFER_E_INPUT, "%s: the record's rows and operations do not fit", f->path);
    r->op = arena_alloc(&r->arena, (name->n + 1) * sizeof *r->op);
    struct verify_row *rows = arena_alloc(&r->arena, t->bytes + 1);
    if (!r->op || !rows) return err_set(INFER_E_MEMORY, "out of memory for a record");
    memcpy(rows, t->data, t->bytes);
    for (; r->n_op < (int)name->n; r->n_op++, number += 4) {
        struct verify_op *o = &r->op[r->n_op];
        if (number[1] < 1 || number[2] < 0 || (size_t)number[2] > (size_t)t->shape[2] - row)
            return err_set(INFER_E_INPUT, "%s: operation %d of the record has %d rows of %d numbers", f->path,
                           r->n_op, (int)number[2], (int)number[1]);
        *o = (struct verify_op){.layer = number[0],
                                .width = number[1],
                                .n_row = number[2],
                                .decode = number[3] & 1,
                                .route = number[3] & 2,
                                .attend = number[3] & 4,
                                .row = rows + row};
        const struct str s = name->strings[r->n_op];
        snprintf(o->name, sizeof o->name, "%.*s", (int)(s.len < VERIFY_NAME ? s.len : VERIFY_NAME), s.data);
        row += (size_t)number[2];
    }
    return INFER_OK;
}

static enum infer_status take_all(struct verify_record *r, const struct tensorfile *f) {
    struct str type = {"", 0};
    uint32_t version = 0;
    bool there;
    size_t n;
    TRY(meta_str(f, "general.type", &type, &there));
    if (!there || type.len != 6 || memcmp(type.data, "verify", 6) != 0)
        return err_set(INFER_E_INPUT, "%s is no record of infer verify", f->path);
    TRY(meta_u32(f, "verify.version", &version, NULL));
    if (version < 1 || version > VERIFY_VERSION)
        return err_set(INFER_E_INPUT, "%s: a record of version %u, this program reads %d: write it anew",
                       f->path, version, VERIFY_VERSION);
    const struct meta *model = tensorfile_meta(f, "verify.model");
    if (!model || model->type != META_U64)
        return err_set(INFER_E_INPUT, "%s: verify.model is missing", f->path);
    memcpy(&r->model, model->raw, sizeof r->model);
    TRY(take_text(r, f, "verify.device", &r->device, NULL));
    TRY(take_text(r, f, "verify.isa", &r->isa, NULL));
    TRY(take_text(r, f, "verify.infer", &r->version, NULL));
    TRY(take_text(r, f, "verify.arch", &r->arch, NULL));
    TRY(take_text(r, f, "verify.type", &r->type, NULL));
    TRY(meta_f32(f, "verify.bits", &r->bits, NULL));
    TRY(meta_bool(f, "verify.exact", &r->exact, NULL));
    TRY(take_ints(r, f, "verify.ids", &r->ids, &n));
    r->n_id = (int)n;
    if (n != VERIFY_PROMPT + VERIFY_DECODE)
        return err_set(INFER_E_INPUT, "%s: a record of %zu tokens", f->path, n);
    TRY(take_texts(r, f));
    TRY(take_ops(r, f));
    const struct meta *sum = tensorfile_meta(f, "verify.sum");
    const uint64_t is = sum_of(r);
    if (version > 1 && (!sum || sum->type != META_U64 || memcmp(sum->raw, &is, sizeof is) != 0))
        return err_set(INFER_E_INPUT, "%s: the record is damaged: what it holds is not what was written",
                       f->path);
    return INFER_OK;
}

enum infer_status verify_read(struct verify_record *r, const char *path) {
    struct tensorfile *f;
    *r = (struct verify_record){0};
    TRY(tensorfile_open(&f, path, &(struct tensorfile_options){0}));
    const enum infer_status st = take_all(r, f);
    tensorfile_close(f);
    if (st) verify_free(r);
    return st;
}

void verify_free(struct verify_record *r) {
    arena_free(&r->arena);
    *r = (struct verify_record){0};
}
