#include "engine_impl.h"
#include "plan/kv_types.h"

int infer_kv_layers(const struct infer_model *im, struct infer_kv_layer *out, int most) {
    const struct model *m = im->m;
    int n = 0;
    for (int i = 0; i < m->n_layer; i++) {
        const int store = m->layer[i].attn.store;
        if (store < 0 || m->layer[i].attn.borrows || m->encoder) continue;
        const struct kv_store *s = &m->store[store];
        if (n < most)
            out[n] =
                (struct infer_kv_layer){i, m->layer[i].attn.window, s->n_kv_head, s->head_dim_k, kv_v_dim(s)};
        n++;
    }
    return n;
}

enum infer_status infer_kv_choices_save(const struct infer_model *m, const char *path, double kl,
                                        const char *text, int depth, int counted,
                                        const struct infer_kv_choice *choice, int n) {
    struct kv_choice *own;
    TRY(mem_new(&own, ((size_t)n + 1) * sizeof *own, "choices of cache types"));
    for (int i = 0; i < n; i++) own[i] = (struct kv_choice){choice[i].kl, choice[i].bytes, choice[i].kv_type};
    enum infer_status st = kv_tuned_write(m->m, path, &(struct kv_tuned){kl, depth, counted, text, own, n});
    mem_free(own);
    return st;
}
