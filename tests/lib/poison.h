/* NaN in every page that no sequence holds: who reads one, even to multiply it by 0, is found out. Nothing may be adopted after. */
#pragma once
#include <math.h>
#include <stdlib.h>
#include "engine_impl.h"

static inline void poison_free_pages(struct infer_engine *e) {
    const struct backend_config *c = &last_part(e)->config;
    for (int s = 0; s < c->n_store; s++) {
        const struct kv_store *st = &c->store[s];
        const struct kv_pool *pool = &e->kv.pool[st->group];
        size_t n = (size_t)st->n_kv_head * KV_PAGE *
                   (size_t)(st->head_dim_k > st->head_dim_v ? st->head_dim_k : st->head_dim_v);
        float *nan = malloc(n * sizeof *nan);
        for (size_t i = 0; i < n; i++) nan[i] = NAN;
        for (int p = 0; p < pool->n_page; p++)
            if (!pool->page[p].n_ref) assert_ok(e->backend->type->kv_write(e->backend, s, p, nan, nan));
        free(nan);
    }
}
