#include "model/adapter.h"
#include "seam/weight.h"

#include <math.h>
#include <stdio.h>

struct binder {
    const struct model *m;
    const struct adapterfile *f;
    struct adapter *a;
    int room;        /* of a->part */
    int first, last; /* layers of vectors */
};

static enum infer_status no_memory(const struct binder *b) {
    return err_set(INFER_E_MEMORY, "%s: out of memory", b->f->path);
}

/* Numbers of a part in float32, zeros. */
static float *room_for(struct binder *b, int64_t n_stack, int64_t rows, int64_t cols) {
    size_t n;
    if (!size_mul((size_t)n_stack, (size_t)rows, &n) || !size_mul(n, (size_t)cols, &n) ||
        !size_mul(n, sizeof(float), &n))
        return NULL;
    b->a->bytes += n;
    return arena_alloc(&b->a->arena, n);
}

/* ---- which rows of a tensor a member of a group has ---- */

/* A member that is a stack of tensors of their own has the name of the first: "blk.0.ffn_gate.0.weight" is of
 * "blk.0.ffn_gate_exps.weight". */
static bool is_of(const struct model *m, const struct weight_group *g, const struct weight *w,
                  const char *name) {
    char whole[128], part[64];
    int layer, expert;
    if (g == &m->head && m->tied) return strcmp(name, "output.weight") == 0;
    if (strcmp(w->name, name) == 0) return true;
    if (!w->part || sscanf(w->name, "blk.%6d.%60[a-z_].%6d.weight", &layer, part, &expert) != 3) return false;
    snprintf(whole, sizeof whole, "blk.%d.%s_exps.weight", layer, part);
    return strcmp(whole, name) == 0;
}

/* Whether a product of this group is one that adapters are added to. */
static bool is_plain(const struct model *m, const struct weight_group *g) {
    bool plain = g != &m->input_table;
    for (int i = 0; i < m->n_layer; i++) plain &= g != &m->layer[i].mla.k_b && g != &m->layer[i].mla.v_b;
    return plain;
}

/* ---- rows of q and k ---- */

static bool is_folder(const struct model *m) { return strcmp(m->file->format, "safetensors") == 0; }

int adapter_row(const struct model *m, bool from_folder, bool to_folder, const char *name, int r) {
    int il, used = 0;
    if (!m->arch->hf.halves || from_folder == to_folder) return r;
    if ((sscanf(name, "blk.%6d.attn_q.weight%n", &il, &used) != 1 || !used) &&
        (sscanf(name, "blk.%6d.attn_k.weight%n", &il, &used) != 1 || !used))
        return r;
    const struct layer *l = &m->layer[il - m->first];
    const int head = l->attn.head_dim_k, rot = l->attn.rope->n_rot, i = r % head;
    if (i >= rot) return r;
    return r / head * head + (to_folder ? i % (rot / 2) * 2 + i / (rot / 2) : i / 2 + i % 2 * (rot / 2));
}

/* The other container has some matrices in another order, or times something. */
static enum infer_status check_container(const struct binder *b) {
    const struct model *m = b->m;
    const bool other = m->arch->mixer.kind != MIX_ATTENTION ||
                       (!m->arch->hf.halves && m->arch->rope.kind == ROPE_INTERLEAVED);
    if (b->f->folder == is_folder(m) || !other || !b->f->n_pair) return INFER_OK;
    return err_set(
        INFER_E_UNSUPPORTED,
        "%s: %s has matrices of this architecture in another order than %s: an adapter of the same kind "
        "as the model (GGUF, or a folder) is wanted",
        b->f->path, b->f->folder ? "a folder" : "GGUF", m->file->path);
}

/* ---- pairs ---- */

static enum infer_status misfit(const struct binder *b, const struct tensor *t, const char *name,
                                int64_t rows, int64_t cols) {
    return err_set(
        INFER_E_INPUT,
        "%s: tensor %.200s has shape [%lld][%lld][%lld], which does not fit %s of %s ([%lld][%lld] is "
        "wanted): it is of another model",
        b->f->path, t->name, (long long)t->shape[1], (long long)t->shape[2], (long long)t->shape[3], name,
        b->m->file->path, (long long)rows, (long long)cols);
}

static enum infer_status check_shapes(const struct binder *b, const struct adapter_pair *p,
                                      const struct weight *w, int64_t rows) {
    const int64_t r = p->a->shape[2], stack = p->expert < 0 ? w->n_stack : 1;
    if (p->a->shape[0] != 1 || p->a->shape[1] != stack || p->a->shape[3] != w->k)
        return misfit(b, p->a, p->name, r, w->k);
    if (p->b->shape[0] != 1 || p->b->shape[1] != stack || p->b->shape[2] != rows || p->b->shape[3] != r)
        return misfit(b, p->b, p->name, rows, r);
    if (p->expert >= w->n_stack)
        return err_set(INFER_E_INPUT, "%s: tensor %.200s: %s has %d experts", b->f->path, p->a->name, p->name,
                       w->n_stack);
    if (r > LOWRANK_MAX)
        return err_set(INFER_E_UNSUPPORTED, "%s: tensor %.200s has rank %lld, more than %d", b->f->path,
                       p->a->name, (long long)r, LOWRANK_MAX);
    return INFER_OK;
}

/* The matrix of a tensor as floats: out[rows][cols]. */
static enum infer_status decode(const struct binder *b, const struct tensor *t, int matrix, float *out) {
    const size_t n = (size_t)(t->shape[2] * t->shape[3]), bytes = t->bytes / (size_t)t->shape[1];
    quant_info(t->type)->decode(out, (const char *)t->data + bytes * (size_t)matrix, n);
    for (size_t i = 0; i < n; i++)
        if (!isfinite(out[i]))
            return err_set(INFER_E_INPUT, "%s: tensor %.200s holds %g", b->f->path, t->name, (double)out[i]);
    return INFER_OK;
}

/* What a product is times beside what the bytes of its matrix are: the factors of a model hold for what is added, too. */
static float factor_of(const struct model *m, const struct weight *w) {
    char name[128];
    float own = 1;
    const size_t n = strlen(w->name), end = strlen("weight");
    snprintf(name, sizeof name, "%.*sscale", (int)(n > end ? n - end : 0), w->name);
    const struct tensor *t = tensorfile_find(m->file, name);
    if (t && t->bytes == quant_info(t->type)->bytes && quant_info(t->type)->elems == 1)
        quant_info(t->type)->decode(&own, t->data, 1);
    return own != 0 ? w->factor / own : w->factor;
}

/* The part of a pair that has these columns of a group's product, made where it is not there: experts come one by one. */
static enum infer_status part_of(struct binder *b, const struct adapter_pair *p, const struct weight_group *g,
                                 const struct weight *w, int col, int n, struct lowrank_part **out) {
    struct adapter *a = b->a;
    const int r = (int)p->a->shape[2];
    for (int i = 0; p->expert >= 0 && i < a->n_part; i++) {
        struct lowrank_part *low = &a->part[i].low;
        if (a->part[i].group != g->id || low->col != col) continue;
        if (low->r != r)
            return err_set(INFER_E_UNSUPPORTED, "%s: tensor %.200s has rank %d, other experts %d", b->f->path,
                           p->a->name, r, low->r);
        *out = low;
        return INFER_OK;
    }
    if (a->n_part == b->room) infer_bug("more than %d parts of an adapter", b->room);
    float *ra = room_for(b, w->n_stack, r, w->k), *rb = room_for(b, w->n_stack, r, n);
    if (!ra || !rb) return no_memory(b);
    *out = &a->part[a->n_part].low;
    **out =
        (struct lowrank_part){.col = col, .n = n, .k = w->k, .r = r, .n_stack = w->n_stack, .a = ra, .b = rb};
    a->part[a->n_part++].group = g->id;
    return INFER_OK;
}

/* One matrix of a pair, as floats of the tensors', into one of a part. member[n_member] of the group: the rows of its columns. */
static enum infer_status fill(struct binder *b, const struct adapter_pair *p, const struct tensor *of,
                              const struct weight *member, int n_member, struct lowrank_part *low, int from,
                              int to) {
    const size_t r = (size_t)low->r, k = (size_t)low->k;
    const int32_t *columns = member->columns;
    const size_t bytes = (size_t)p->a->shape[2] * k > (size_t)p->b->shape[2] * r ? (size_t)p->a->shape[2] * k
                                                                                 : (size_t)p->b->shape[2] * r;
    float *x, *a = (float *)low->a + (size_t)to * r * k,
              *out = (float *)low->b + (size_t)to * (size_t)low->n * r;
    TRY(mem_new(&x, bytes * sizeof *x, "an adapter"));
    enum infer_status s = decode(b, p->a, from, x);
    for (size_t j = 0; !s && j < r; j++)
        for (size_t i = 0; i < k; i++) a[j * k + i] = x[j * k + (columns ? (size_t)columns[i] : i)];
    if (!s) s = decode(b, p->b, from, x);
    for (const struct weight *w = member; !s && w < member + n_member; w++) {
        const size_t pitch = w->pitch ? w->pitch : quant_row_bytes(quant_info(w->type), k);
        const float scale = p->scale * factor_of(b->m, w);
        for (int i = 0; i < w->n; i++, out++) {
            const size_t row = (size_t)((const char *)weight_row(w, i) - (const char *)of->data) / pitch;
            const float *src =
                x + (size_t)adapter_row(b->m, b->f->folder, is_folder(b->m), p->name, (int)row) * r;
            for (size_t j = 0; j < r; j++) out[j * (size_t)low->n] = scale * src[j];
        }
    }
    mem_free(x);
    return s;
}

/* Members first .. of a group that lie in one tensor; how many columns they have. Of stacks one alone. */
static enum infer_status bind_members(struct binder *b, const struct adapter_pair *p,
                                      const struct weight_group *g, int first, int n_member, int col, int n) {
    const struct weight *w = &g->member[first];
    const struct tensor *of = tensorfile_find(b->m->file, w->name);
    struct lowrank_part *low = NULL;
    if (!of || (const char *)w->data < (const char *)of->data ||
        (const char *)w->data >= (const char *)of->data + of->bytes || !is_plain(b->m, g))
        return err_set(INFER_E_UNSUPPORTED, "%s: %s is not multiplied as it is: no adapter is added to it",
                       b->f->path, p->name);
    TRY(check_shapes(b, p, w, of->shape[2]));
    TRY(part_of(b, p, g, w, col, n, &low));
    if (p->expert >= 0) return fill(b, p, of, w, 1, low, 0, p->expert);
    for (int e = 0; e < w->n_stack; e++) TRY(fill(b, p, of, w, n_member, low, e, e));
    return INFER_OK;
}

static enum infer_status bind_pair(struct binder *b, const struct adapter_pair *p) {
    const struct model *m = b->m;
    bool found = false;
    if (!p->a->shape[2] || !p->b->shape[3]) return misfit(b, p->a, p->name, 1, p->a->shape[3]);
    if (!isfinite(p->scale))
        return err_set(INFER_E_INPUT, "%s: the scale of %s is %g", b->f->path, p->name, (double)p->scale);
    for (int k = 0; k < m->n_group; k++) {
        const struct weight_group *g = m->group[k];
        for (int i = 0, col = 0, n_member; i < g->n_member; i += n_member) {
            int n = g->member[i].n;
            n_member = 1;
            const bool hit = is_of(m, g, &g->member[i], p->name), stack = g->member[i].n_stack > 1;
            while (hit && !stack && i + n_member < g->n_member &&
                   is_of(m, g, &g->member[i + n_member], p->name))
                n += g->member[i + n_member++].n;
            if (hit) TRY(bind_members(b, p, g, i, n_member, col, n));
            found |= hit;
            col += n;
        }
    }
    if (found) return INFER_OK;
    if (strcmp(p->name, "token_embd.weight") == 0 || tensorfile_find(m->file, p->name))
        return err_set(INFER_E_UNSUPPORTED, "%s: %s is no matrix of a product: no adapter is added to it",
                       b->f->path, p->name);
    return err_set(INFER_E_INPUT, "%s: tensor %.200s: %s has no %s: it is of another model", b->f->path,
                   p->a->name, m->file->path, p->name);
}

/* ---- vectors, and the whole ---- */

static enum infer_status bind_vector(struct binder *b, const struct adapter_vector *v) {
    const struct tensor *t = v->t;
    const int n = b->m->n_embd;
    if (t->shape[0] * t->shape[1] * t->shape[2] != 1 || t->shape[3] != n)
        return misfit(b, t, "a layer", 1, n);
    float *x = room_for(b, 1, n, 1);
    if (!x) return no_memory(b);
    TRY(decode(b, t, 0, x));
    b->a->part[b->a->n_part++] =
        (struct adapter_part){-1, v->layer, {.n = n, .k = n, .r = 1, .n_stack = 1, .b = x}};
    return INFER_OK;
}

/* FNV-1a over words. source: Fowler, Noll, Vo */
static uint64_t mix(uint64_t h, const void *data, size_t n) {
    for (size_t i = 0; i + 4 <= n; i += 4) {
        uint32_t w;
        memcpy(&w, (const char *)data + i, 4);
        h = (h ^ w) * UINT64_C(0x100000001b3);
        h ^= h >> 32;
    }
    return h;
}
static uint64_t hash_of(const struct adapter *a) {
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (int i = 0; i < a->n_part; i++) {
        const struct lowrank_part *p = &a->part[i].low;
        const int32_t head[] = {a->part[i].group, a->part[i].layer, p->col, p->n, p->k, p->r, p->n_stack};
        const size_t matrices = (size_t)p->n_stack * (size_t)p->r * sizeof(float);
        h = mix(h, head, sizeof head);
        if (p->a) h = mix(h, p->a, matrices * (size_t)p->k);
        h = mix(h, p->b, matrices * (size_t)p->n);
    }
    return h ? h : 1;
}

static enum infer_status bind(struct binder *b) {
    const struct adapterfile *f = b->f;
    struct adapter *a = b->a;
    /* a tensor that several groups have rows of is in two of them */
    b->room = (int)(2 * WEIGHT_GROUP_MAX * f->n_pair + f->n_vector);
    a->path = arena_strndup(&a->arena, f->path, strlen(f->path));
    a->part = arena_alloc(&a->arena, (size_t)b->room * sizeof *a->part);
    if (!a->path || !a->part) return no_memory(b);
    TRY(check_container(b));
    for (size_t i = 0; i < f->n_pair; i++) TRY(bind_pair(b, &f->pair[i]));
    for (size_t i = 0; i < f->n_vector; i++)
        if (f->vector[i].layer >= b->first && f->vector[i].layer <= b->last)
            TRY(bind_vector(b, &f->vector[i]));
    if (!a->n_part)
        return err_set(INFER_E_INPUT, "%s: no direction is of layers %d to %d", f->path, b->first, b->last);
    a->hash = hash_of(a);
    return INFER_OK;
}

enum infer_status adapter_open(struct adapter **out, const struct model *m, const char *path, int first_layer,
                               int last_layer) {
    struct adapterfile *f;
    struct adapter *a = NULL;
    *out = NULL;
    TRY(adapterfile_open(&f, path, m->arch, m->n_layer));
    enum infer_status s = mem_new(&a, sizeof *a, "an adapter");
    if (!s) s = bind(&(struct binder){.m = m, .f = f, .a = a, .first = first_layer, .last = last_layer});
    adapterfile_close(f);
    if (s)
        adapter_close(a);
    else
        *out = a;
    return s;
}

void adapter_close(struct adapter *a) {
    if (!a) return;
    arena_free(&a->arena);
    mem_free(a);
}

static bool is_for(const struct adapter_part *p, int group, int layer) {
    return p->group == group && (group >= 0 || p->layer == layer);
}

static int parts_at(const struct adapter *a, int group, int layer) {
    int n = 0;
    for (int k = 0; a && k < a->n_part; k++) n += is_for(&a->part[k], group, layer);
    return n;
}

/* low.r stays what there is room for. */
void adapters_fill(const struct adapters *a, struct adapter_site *site) {
    int at = 0, n = 0;
    for (int i = 0; i < a->n; i++)
        for (int k = 0; a->adapter[i] && k < a->adapter[i]->n_part; k++) {
            const struct adapter_part *p = &a->adapter[i]->part[k];
            if (!is_for(p, site->group, site->layer)) continue;
            if (n == site->n_most || at + p->low.r > site->low.r) infer_bug("an adapter without room");
            site->part[n] = p->low;
            site->part[n].adapter = i, site->part[n].at = at;
            at += site->part[n++].r;
        }
    site->low.n_part = n;
}

enum infer_status adapters_at(const struct adapters *a, struct arena *arena, const struct weight_group *group,
                              int layer, struct adapter_site **out) {
    const int id = group ? group->id : -1, room = group ? a->n_room * group->n_member : 0;
    int n = room, r = room * a->rank;
    *out = NULL;
    for (int i = 0; i < a->n - a->n_room; i++) {
        n += parts_at(a->adapter[i], id, layer);
        for (int k = 0; k < a->adapter[i]->n_part; k++)
            if (is_for(&a->adapter[i]->part[k], id, layer)) r += a->adapter[i]->part[k].low.r;
    }
    if (!n) return INFER_OK;
    struct adapter_site *site = arena_alloc(arena, sizeof *site);
    struct lowrank_part *part = arena_alloc(arena, (size_t)n * sizeof *part);
    if (!site || !part) return err_set(INFER_E_MEMORY, "out of memory for adapters");
    *site = (struct adapter_site){
        .low = {.part = part, .r = r}, .part = part, .n_most = n, .group = id, .layer = layer};
    adapters_fill(a, site);
    *out = site;
    return INFER_OK;
}

enum infer_status adapter_fits(const struct adapter *a, int rank) {
    for (int k = 0; k < a->n_part; k++) {
        if (a->part[k].group < 0) return err_set(INFER_E_INPUT, "%s is a control vector", a->path);
        int r = 0;
        for (int i = 0; i < a->n_part; i++)
            if (a->part[i].group == a->part[k].group && a->part[i].low.col == a->part[k].low.col)
                r += a->part[i].low.r;
        if (r > rank)
            return err_set(INFER_E_INPUT, "%s has rank %d, and there is room for %d (.adapter_rank)", a->path,
                           r, rank);
    }
    return INFER_OK;
}
