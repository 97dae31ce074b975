/* The memory report: one line a class of memory. */
#include "seam/op_list.h"
#include "plan/plan.h"

#include <stdarg.h>
#include <stdio.h>

struct text {
    char *data;
    size_t n, cap;
};

static void print(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void print(struct text *t, const char *format, ...) {
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(t->data + t->n, t->cap - t->n, format, ap);
    va_end(ap);
    if (n > 0) t->n = t->n + (size_t)n < t->cap ? t->n + (size_t)n : t->cap - 1;
}

static void print_bytes(struct text *t, const char *what, size_t bytes, const char *note) {
    print(t, "  %-22s %12.1f MiB%s%s\n", what, (double)bytes / (1 << 20), *note ? "  " : "", note);
}

/* Of the layers of a part, all slots. */
static size_t states_of(const struct plan_part *part) {
    const struct backend_config *c = &part->config;
    size_t n = 0;
    for (int i = 0; i < c->n_state; i++)
        if (config_uses_state(c, i)) n += (size_t)c->state[i].n_elem * sizeof(float);
    return n * (size_t)c->n_state_slot;
}

static void print_states(struct text *t, const struct plan *p, const struct plan_part *part) {
    char note[160];
    const size_t all = states_of(part);
    if (!all) return;
    snprintf(note, sizeof note, "f32, %.1f MiB a sequence: %d slots, %d snapshots%s%s",
             (double)all / part->config.n_state_slot / (1 << 20), p->set.n_slot, p->n_state_copy,
             p->set.state_host ? " in host memory" : "",
             p->n_state_mark ? ", and one a slot for guesses" : "");
    print_bytes(t, "states", all, note);
}

/* Bits of a number of a key or a value, the mean over what a position has in the part's layers. */
static double kv_mean_bits(const struct backend_config *c) {
    double bytes = 0, numbers = 0;
    for (int i = 0; i < c->n_store; i++) {
        const struct kv_store *s = &c->store[i];
        if (!config_uses_store(c, i)) continue;
        bytes += (double)kv_page_bytes(s);
        numbers += (double)s->n_kv_head * kv_page_rows(s) * (s->head_dim_k + kv_v_dim(s));
    }
    return numbers > 0 ? 8 * bytes / numbers : 0;
}

static void print_part(struct text *t, const struct plan *p, const struct plan_part *part) {
    const struct backend_sizes *s = &part->size;
    char note[160];
    if (p->n_part > 1)
        print(t, " %slayers %d to %d on %s\n", part->experts ? "experts of " : "", part->range.first,
              part->range.end - 1, part->type->name);
    if (part->experts && p->experts.there)
        print_bytes(t, "weights, in place", p->experts.host_weights, "of the mapped file");
    if (s->weight_bytes)
        print_bytes(t, "weights, copied", s->weight_bytes, "in the order of the device's kernels");
    if (s->adapter_bytes) print_bytes(t, "  of these adapters", s->adapter_bytes, "matrices as halves");
    int stores = 0;
    for (int i = 0; i < part->config.n_store;
         i++) /* those of keys alone stand beside another of their layer */
        stores += part->config.store[i].head_dim_v && config_uses_store(&part->config, i);
    int n = snprintf(note, sizeof note, "%s, pages of %d tokens in %d layers:", kv_type_name(p->set.kv_type),
                     KV_PAGE, stores);
    if (p->set.kv)
        n = snprintf(note, sizeof note, "mixed, %.2f bits a number, pages of %d tokens in %d layers:",
                     kv_mean_bits(&part->config), KV_PAGE, stores);
    for (int g = 0; g < part->config.n_kv_group && n < (int)sizeof note; g++) {
        const struct kv_group *k = &p->kv_group[g];
        n += snprintf(note + n, sizeof note - (size_t)n, k->window ? "%s %d (window %d)" : "%s %d",
                      g ? "," : "", k->n_page, k->window);
    }
    if (!part->experts) print_bytes(t, "key/value cache", s->kv_bytes - states_of(part), note);
    if (!part->experts) print_states(t, p, part);
    print_bytes(t, "activations", part->config.activation_bytes, "");
    print_bytes(t, "workspace", s->workspace_bytes,
                !strcmp(part->type->name, "cuda") && p->set.kv_type != KV_F16 && part->config.n_store
                    ? "with one layer's keys and values in f16"
                    : "");
    if (s->output_bytes) print_bytes(t, "outputs", s->output_bytes, "tokens and logits");
    if (s->driver_bytes)
        print_bytes(t, "driver", s->driver_bytes,
                    part->measured ? "measured" : "assumed until it is measured");
    print_bytes(t, "taken", part->total_bytes, "");
    if (part->limit_bytes != SIZE_MAX)
        print_bytes(t, "available", part->limit_bytes,
                    part->total_bytes <= part->limit_bytes ? "fits" : "DOES NOT FIT");
    if (s->pinned_bytes) print_bytes(t, "host, pinned", s->pinned_bytes, "for copies to and from the device");
}

static void print_share(struct text *t, const struct plan_share *s, int n_layer, const char *what,
                        bool taken) {
    if (!s->there) return;
    print(t,
          "  %-22s %12.*f tok/s  %d of %d layers; a token reads %.1f MiB on the card, %.1f on the host%s\n",
          what, s->tok_s < 10, s->tok_s, s->n, n_layer, (double)s->device_bytes / (1 << 20),
          (double)s->host_bytes / (1 << 20), taken ? "  TAKEN" : "");
}

/* What the ways to share a model between card and host come to. */
static void print_shares(struct text *t, const struct plan *p, int n_layer) {
    if (!(p->rates.host_gb_s > 0)) return;
    print(t, " decode as predicted, not measured: %.0f GB/s %s, %.*f GB/s of this machine's memory\n",
          p->rates.device_gb_s, p->rates.assumed ? "assumed of the card" : "of the card",
          p->rates.host_gb_s < 100, p->rates.host_gb_s);
    print_share(t, &p->experts, n_layer, "experts on the CPU", p->n_part > 1 && p->part[0].experts);
    print_share(t, &p->layers, n_layer, "layers on the CPU", !(p->n_part > 1 && p->part[0].experts));
}

enum infer_status plan_write(struct plan *p, struct arena *arena, const struct model *m) {
    struct text t = {arena_alloc(arena, 8192), 0, 8192};
    const struct plan_part *last = &p->part[p->n_part - 1];
    if (!t.data) return err_set(INFER_E_MEMORY, "out of memory for the memory report");
    print(&t, "%s on %s", m->arch->name, last->type->name);
    if (m->share.n) print(&t, ", one of %d ranks that are each this large", m->share.n);
    if (*p->place.memory.name && last->type == p->place.device) print(&t, " (%s)", p->place.memory.name);
    print(&t, ": %d positions, %d slot%s", p->set.n_ctx, p->set.n_slot, p->set.n_slot == 1 ? "" : "s");
    if (p->set.n_kv_token) print(&t, " with %d positions in all", plan_kv_tokens(p));
    print(&t, ", %d prompt rows, %d decode rows a step\n", p->set.n_batch, p->set.n_decode_rows);
    if (p->set.n_ctx > m->n_ctx_train)
        print(&t, "  beyond the %d positions that the model was trained for\n", m->n_ctx_train);
    print_bytes(&t, "weights, mapped", p->map_bytes, "the file itself, shared with other processes");
    if (m->file->made_bytes)
        print_bytes(&t, "weights, made", m->file->made_bytes,
                    "in memory, of the folder's quantised tensors; they are there by now");
    for (int i = 0; i < p->n_part; i++) print_part(&t, p, &p->part[i]);
    print_shares(&t, p, m->n_layer);
    for (int i = 0; i < p->n_nearest; i++) {
        const double tok_s = p->nearest_tok_s[i];
        print(&t, "  would fit: %s", p->nearest[i]);
        if (tok_s > 0) print(&t, "  (%.*f tok/s at most as predicted)", tok_s < 10, tok_s);
        print(&t, "\n");
    }
    if (!p->fits)
        print(
            &t,
            p->n_nearest
                ? "  or the model in a smaller type (infer quantize)\n"
                : "  no smaller context, batch or cache type would fit: it takes a smaller model or type\n");
    p->text = t.data;
    return INFER_OK;
}
