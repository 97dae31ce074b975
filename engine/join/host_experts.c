#include "join/host_experts.h"
#include "seam/elsewhere.h"

#include <stdatomic.h>
#include <stdio.h>

struct shared {
    struct backend base;
    struct backend_type
        type; /* with a name that says what is where: "cuda+cpu:experts 12", those of 12 layers on the second */
    char name[64], isa[96];
    struct backend *device, *host;
    elsewhere_run *run_layer; /* of the host */
    struct elsewhere to_host;
    atomic_bool in_host, cancelled;
};

static struct backend *device_of(struct backend *b) { return ((struct shared *)b)->device; }

/* What the device asks for. */
static enum infer_status run_on_host(void *user, enum row_class cls, int layer, int n_row, const float *x,
                                     const float *choice, float *out) {
    struct shared *s = user;
    if (atomic_load(&s->cancelled)) return err_set(INFER_E_CANCEL, "cancelled");
    atomic_store(&s->in_host, true);
    enum infer_status st = s->run_layer(s->host, cls, layer, n_row, x, choice, out);
    atomic_store(&s->in_host, false);
    return st;
}

static enum infer_status shared_upload(struct backend *b) {
    struct shared *s = (struct shared *)b;
    TRY(s->host->type->upload(s->host));
    return s->device->type->upload(s->device);
}
/* The host's lists first, both: a device may run steps to warm up. */
static enum infer_status shared_compile(struct backend *b, enum row_class cls) {
    struct shared *s = (struct shared *)b;
    for (int i = 0; i < ROW_CLASS_COUNT && cls == 0; i++)
        TRY(s->host->type->compile(s->host, (enum row_class)i));
    return s->device->type->compile(s->device, cls);
}
static enum infer_status shared_run(struct backend *b, enum row_class cls, const struct step *step) {
    return device_of(b)->type->run(device_of(b), cls, step);
}
static enum infer_status shared_wait(struct backend *b, struct step_result *out) {
    struct shared *s = (struct shared *)b;
    enum infer_status st = s->device->type->wait(s->device, out);
    if (atomic_exchange(&s->cancelled, false) && st == INFER_OK) return err_set(INFER_E_CANCEL, "cancelled");
    return st;
}
static enum infer_status shared_read(struct backend *b, enum row_class cls, struct view v, int n_row,
                                     float *out) {
    return device_of(b)->type->read(device_of(b), cls, v, n_row, out);
}
static enum infer_status shared_kv_read(struct backend *b, int store, int page, float *k, float *v) {
    return device_of(b)->type->kv_read(device_of(b), store, page, k, v);
}
static enum infer_status shared_kv_write(struct backend *b, int store, int page, const float *k,
                                         const float *v) {
    return device_of(b)->type->kv_write(device_of(b), store, page, k, v);
}
static enum infer_status shared_kv_page(struct backend *b, int store, int page, void *bytes, bool write) {
    return device_of(b)->type->kv_page(device_of(b), store, page, bytes, write);
}
static enum infer_status shared_kv_copy(struct backend *b, int group, int from, int to) {
    return device_of(b)->type->kv_copy(device_of(b), group, from, to);
}
static enum infer_status shared_state_read(struct backend *b, int store, int slot, float *out) {
    return device_of(b)->type->state_read(device_of(b), store, slot, out);
}
static enum infer_status shared_state_write(struct backend *b, int store, int slot, const float *x) {
    return device_of(b)->type->state_write(device_of(b), store, slot, x);
}
static enum infer_status shared_state_copy(struct backend *b, int from, int to) {
    return device_of(b)->type->state_copy(device_of(b), from, to);
}
static void shared_cancel(struct backend *b) {
    struct shared *s = (struct shared *)b;
    atomic_store(&s->cancelled, true);
    if (atomic_load(&s->in_host)) s->host->type->cancel(s->host);
}
static void shared_info(const struct backend *b, struct backend_info *out) {
    const struct shared *s = (const struct shared *)b;
    struct backend_info host;
    s->host->type->info(s->host, &host);
    s->device->type->info(s->device, out);
    out->n_thread = host.n_thread;
    out->isa = s->isa;
}
static void shared_close(struct backend *b) {
    struct shared *s = (struct shared *)b;
    if (s->device) s->device->type->close(s->device);
    if (s->host) s->host->type->close(s->host);
    mem_free(s);
}

static const struct backend_type backend_shared = {
    .upload = shared_upload,
    .compile = shared_compile,
    .run = shared_run,
    .wait = shared_wait,
    .read = shared_read,
    .kv_read = shared_kv_read,
    .kv_write = shared_kv_write,
    .kv_page = shared_kv_page,
    .kv_copy = shared_kv_copy,
    .state_read = shared_state_read,
    .state_write = shared_state_write,
    .state_copy = shared_state_copy,
    .cancel = shared_cancel,
    .info = shared_info,
    .close = shared_close,
};

static enum infer_status open_parts(struct shared *s, const struct plan *plan) {
    const struct plan_part *host = &plan->part[0], *device = &plan->part[1];
    struct backend_info of_host, of_device;
    s->run_layer = host->type == &backend_ref ? ref_run_layer : cpu_run_layer;
    s->to_host = (struct elsewhere){run_on_host, s};
    device->range.elsewhere->member[0].data = &s->to_host;
    TRY(host->type->open(&s->host, &host->config));
    TRY(device->type->open(&s->device, &device->config));
    s->host->type->info(s->host, &of_host);
    s->device->type->info(s->device, &of_device);
    snprintf(s->isa, sizeof s->isa, "%s; %s", of_device.isa, of_host.isa);
    return INFER_OK;
}

enum infer_status host_experts_open(struct backend **out, const struct plan *plan) {
    struct shared *s;
    *out = NULL;
    TRY(mem_new(&s, sizeof *s, "a backend of two parts"));
    snprintf(s->name, sizeof s->name, "%s+%s:experts %d", plan->part[1].type->name, plan->part[0].type->name,
             plan->part[1].range.n_elsewhere);
    s->type = backend_shared;
    s->type.name = s->name;
    s->base.type = &s->type;
    enum infer_status st = open_parts(s, plan);
    if (st != INFER_OK) {
        shared_close(&s->base);
        return st;
    }
    *out = &s->base;
    return INFER_OK;
}
