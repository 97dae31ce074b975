#include "tools/file/stacks.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

enum { MANY_EXPERTS = 4096 };

/* blk.N.ffn_up.E.weight: the length of what stands before ".E", and E; 0: another name. */
static int single(const char *name, int *expert) {
    int layer, front = 0, end = 0;
    char kind[8];
    if (sscanf(name, "blk.%d.ffn_%7[a-z]%n.%d.weight%n", &layer, kind, &front, expert, &end) != 3 || !end)
        return 0;
    bool known = strcmp(kind, "gate") == 0 || strcmp(kind, "up") == 0 || strcmp(kind, "down") == 0;
    return known && !name[end] ? front : 0;
}

static const struct tensor *expert(const struct tensorfile *f, const char *first, int front, int e) {
    char name[96];
    snprintf(name, sizeof name, "%.*s.%d.weight", front, first, e);
    return tensorfile_find(f, name);
}

/* How many experts follow the first one, all of its type and shape; 0: they cannot be one stack. */
static int count_experts(const struct tensorfile *f, const struct tensor *first, int front) {
    int n = 0;
    for (const struct tensor *t; n < MANY_EXPERTS && (t = expert(f, first->name, front, n)); n++)
        if (t->type != first->type || t->n_dim != 2 || memcmp(t->shape, first->shape, sizeof t->shape) != 0)
            return 0;
    return n;
}

/* A tensor of n pieces; room for them. */
static enum infer_status begin(struct listed *l, const struct tensor *t, int64_t n, size_t bytes) {
    *l = (struct listed){.t = *t, .n_part = n, .part_bytes = bytes};
    snprintf(l->name, sizeof l->name, "%s", t->name);
    TRY(mem_new(&l->part, (size_t)n * sizeof *l->part, "list of experts"));
    for (int64_t i = 0; i < n; i++) l->part[i] = (const char *)t->data + (size_t)i * t->bytes / (size_t)n;
    return INFER_OK;
}

static enum infer_status put_stack(const struct tensorfile *f, const struct tensor *t, int front, int n,
                                   struct listed *l) {
    TRY(begin(l, t, n, t->bytes));
    snprintf(l->name, sizeof l->name, "%.*s_exps.weight", front, t->name);
    for (int e = 0; e < n; e++) l->part[e] = expert(f, t->name, front, e)->data;
    l->t.n_dim = 3;
    l->t.shape[1] = n;
    l->t.bytes = t->bytes * (size_t)n;
    return INFER_OK;
}

/* A part of the table that runs of tokens read: "per_layer_token_embd.3.weight". */
static bool part_of_table(const char *name, int *part) {
    int end = 0;
    return sscanf(name, "per_layer_token_embd.%d.weight%n", part, &end) == 1 && end && !name[end];
}
static const struct tensor *table_part(const struct tensorfile *f, int part) {
    char name[64];
    snprintf(name, sizeof name, "per_layer_token_embd.%d.weight", part);
    return tensorfile_find(f, name);
}
/* All parts, as rows of one matrix; the rest of them are nothing. */
static enum infer_status put_table(const struct tensorfile *f, const struct tensor *t, int part,
                                   struct listed *list, size_t *n) {
    int many = 0;
    while (table_part(f, many)) many++;
    if (part) return INFER_OK;
    struct listed *l = &list[(*n)++];
    TRY(begin(l, t, many, t->bytes));
    snprintf(l->name, sizeof l->name, "per_layer_token_embd.weight");
    for (int i = 0; i < many; i++) l->part[i] = table_part(f, i)->data;
    l->t.shape[2] *= many;
    l->t.bytes *= (size_t)many;
    return INFER_OK;
}

/* half: 0 the gates, 1 what they multiply */
static enum infer_status put_half(const struct tensor *t, int half, struct listed *l) {
    int front = (int)(strstr(t->name, "gate_up_exps.") - t->name);
    size_t bytes = t->bytes / (size_t)t->shape[1] / 2;
    TRY(begin(l, t, t->shape[1], bytes));
    snprintf(l->name, sizeof l->name, "%.*s%s_exps.weight", front, t->name, half ? "up" : "gate");
    for (int64_t e = 0; e < l->n_part; e++) l->part[e] = (const char *)l->part[e] + (size_t)half * bytes;
    l->t.shape[2] /= 2;
    l->t.bytes /= 2;
    return INFER_OK;
}

static bool is_pair(const struct tensorfile *f, const struct tensor *t) {
    char bias[80];
    const char *end = strstr(t->name, ".ffn_gate_up_exps.weight");
    if (!end || t->n_dim != 3 || t->shape[2] % 2) return false;
    snprintf(bias, sizeof bias, "%.*s.ffn_gate_up_exps.bias", (int)(end - t->name), t->name);
    return !tensorfile_find(f, bias);
}

/* The rows of one tensor of the file: none (an expert that its stack has), one, or two. */
static enum infer_status put(const struct tensorfile *f, const struct tensor *t, struct listed *list,
                             size_t *n) {
    int e = 0, front = single(t->name, &e);
    if (part_of_table(t->name, &e)) return put_table(f, t, e, list, n);
    const struct tensor *first = front ? expert(f, t->name, front, 0) : NULL;
    int many = front ? count_experts(f, first ? first : t, front) : 0;
    if (front && many > e) return e ? INFER_OK : put_stack(f, t, front, many, &list[(*n)++]);
    if (!is_pair(f, t)) return begin(&list[(*n)++], t, 1, t->bytes);
    TRY(put_half(t, 0, &list[(*n)++]));
    return put_half(t, 1, &list[(*n)++]);
}

enum infer_status stacks_list(const struct tensorfile *f, struct listed **list, size_t *n) {
    *n = 0;
    TRY(mem_new(list, 2 * f->n_tensor * sizeof **list, "list of tensors"));
    for (size_t i = 0; i < f->n_tensor; i++) {
        enum infer_status s = put(f, &f->tensor[i], *list, n);
        if (s) {
            stacks_free(*list, *n);
            *list = NULL;
            *n = 0;
            return s;
        }
    }
    for (size_t i = 0; i < *n; i++) (*list)[i].t.name = (*list)[i].name;
    return INFER_OK;
}

void stacks_free(struct listed *list, size_t n) {
    for (size_t i = 0; i < n; i++) mem_free(list[i].part);
    mem_free(list);
}
