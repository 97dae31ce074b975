#include "join/join.h"
#include "seam/op_list.h"

#include <stdio.h>

static struct join *join_of(struct backend *b) { return (struct join *)b; }
static struct backend *rest_of(struct backend *b) { return join_of(b)->rest; }

static enum infer_status upload(struct backend *b) {
    struct join *j = join_of(b);
    TRY(j->first->type->upload(j->first));
    return j->rest->type->upload(j->rest);
}
static enum infer_status compile(struct backend *b, enum row_class cls) {
    struct join *j = join_of(b);
    TRY(j->first->type->compile(j->first, cls));
    return j->rest->type->compile(j->rest, cls);
}
static enum infer_status run(struct backend *b, enum row_class cls, const struct step *step) {
    return rest_of(b)->type->run(rest_of(b), cls, step);
}
enum infer_status join_wait(struct join *j, enum infer_status of_rest) {
    if (atomic_exchange(&j->cancelled, false) && of_rest == INFER_OK)
        return err_set(INFER_E_CANCEL, "cancelled");
    return of_rest;
}
static enum infer_status wait(struct backend *b, struct step_result *out) {
    return join_wait(join_of(b), rest_of(b)->type->wait(rest_of(b), out));
}
static enum infer_status read_rows(struct backend *b, enum row_class cls, struct view v, int n_row,
                                   float *out) {
    return rest_of(b)->type->read(rest_of(b), cls, v, n_row, out);
}

/* ---- what layers keep, where they are ---- */

static struct backend *holder(struct backend *b, int store) {
    struct join *j = join_of(b);
    return config_uses_store(&j->first_part->config, store) ? j->first : j->rest;
}
static struct backend *state_holder(struct backend *b, int store) {
    struct join *j = join_of(b);
    return config_uses_state(&j->first_part->config, store) ? j->first : j->rest;
}
static enum infer_status kv_read(struct backend *b, int store, int page, float *k, float *v) {
    struct backend *h = holder(b, store);
    return h->type->kv_read(h, store, page, k, v);
}
static enum infer_status kv_write(struct backend *b, int store, int page, const float *k, const float *v) {
    struct backend *h = holder(b, store);
    return h->type->kv_write(h, store, page, k, v);
}
static enum infer_status kv_page(struct backend *b, int store, int page, void *bytes, bool write) {
    struct backend *h = holder(b, store);
    return h->type->kv_page(h, store, page, bytes, write);
}
static enum infer_status state_read(struct backend *b, int store, int slot, float *out) {
    struct backend *h = state_holder(b, store);
    return h->type->state_read(h, store, slot, out);
}
static enum infer_status state_write(struct backend *b, int store, int slot, const float *x) {
    struct backend *h = state_holder(b, store);
    return h->type->state_write(h, store, slot, x);
}
static enum infer_status kv_copy(struct backend *b, int group, int from, int to) {
    struct join *j = join_of(b);
    TRY(j->first->type->kv_copy(j->first, group, from, to));
    return j->rest->type->kv_copy(j->rest, group, from, to);
}
static enum infer_status state_copy(struct backend *b, int from, int to) {
    struct join *j = join_of(b);
    TRY(j->first->type->state_copy(j->first, from, to));
    return j->rest->type->state_copy(j->rest, from, to);
}

/* ---- the rest ---- */

static void cancel(struct backend *b) {
    struct join *j = join_of(b);
    atomic_store(&j->cancelled, true);
    if (atomic_load(&j->in_first)) j->first->type->cancel(j->first);
}
static void info(const struct backend *b, struct backend_info *out) {
    const struct join *j = (const struct join *)b;
    struct backend_info first;
    j->first->type->info(j->first, &first);
    j->rest->type->info(j->rest, out);
    out->n_thread = first.n_thread;
    out->isa = j->isa;
    if (first.grid > out->grid) out->grid = first.grid;
}
void join_describe(struct join *j) {
    struct backend_info first, rest;
    j->first->type->info(j->first, &first);
    j->rest->type->info(j->rest, &rest);
    snprintf(j->isa, sizeof j->isa, "%s; %s", rest.isa, first.isa);
}
void join_close(struct backend *b) {
    struct join *j = join_of(b);
    if (j->rest) j->rest->type->close(j->rest);
    if (j->first) j->first->type->close(j->first);
    mem_free(j);
}

const struct backend_type join_type = {
    .upload = upload,
    .compile = compile,
    .run = run,
    .wait = wait,
    .read = read_rows,
    .kv_read = kv_read,
    .kv_write = kv_write,
    .kv_page = kv_page,
    .kv_copy = kv_copy,
    .state_read = state_read,
    .state_write = state_write,
    .state_copy = state_copy,
    .cancel = cancel,
    .info = info,
    .close = join_close,
};

enum infer_status join_rest(struct backend **out, const struct plan *plan, int first,
                            const struct remote *remote) {
    const struct plan_part *part = &plan->part[first];
    *out = NULL;
    if (part->experts) return join_experts(out, plan, first);
    if (first + 1 < plan->n_part) return join_layers(out, plan, first);
    struct backend_config config = part->config;
    config.remote = remote;
    return part->type->open(out, &config);
}
enum infer_status join_open(struct backend **out, const struct plan *plan) {
    return join_rest(out, plan, 0, NULL);
}
