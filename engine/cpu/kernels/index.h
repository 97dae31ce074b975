/* Scores of positions (OP_INDEX), included once per instruction set behind attend.h, whose products these are. */

/* score[p] of the positions on pages page .. end that the row at pos sees, and anything behind pos on its page. */
static void index_row(const struct cpu_attend_arg *a, const struct op_index *op, int pos, int page, int end,
                      const float *q, const float *w, float *score, int row, float *scratch) {
    const int n = a->store->head_dim_k, heads = op->n_head;
    const enum kv_type type = a->store->k_type;
    const bool half = type == KV_F16 && n % VL == 0;
    float *k = scratch, *s = k + KV_PAGE * n, *turned = s + KV_PAGE * heads;
    if (kv_turned(type)) {
        memcpy(turned, q, sizeof *q * (size_t)(heads * n));
        for (int h = 0; h < heads; h++) vec_kv_turn(turned + h * n, n, kv_turn_of(a->store, false), 1);
        q = turned;
    }
    const int every = kv_every(a->store);
    if (end > pos / KV_PAGE + 1) end = pos / KV_PAGE + 1;
    for (; page < end; page++) {
        const int seen = pos - page * KV_PAGE + 1 < KV_PAGE ? pos - page * KV_PAGE + 1 : KV_PAGE,
                  hi = (seen + every - 1) /
                       every; /* rows of runs that are not over: nobody looks at their scores */
        const struct kv_rows rows =
            rows_of(a, type, k, a->k_pool, page, page + 1 < end ? page + 1 : page, 0, n, 0, hi, half);
        if (half)
            all_scores(q, &rows, n, 0, hi, 1, s, heads, true);
        else
            all_scores(q, &rows, n, 0, hi, 1, s, heads, false);
        for (int h = 0; op->by.by_head && h < heads; h++)
            memcpy(score + (size_t)h * (size_t)row + (size_t)page * KV_PAGE, s + h * KV_PAGE,
                   KV_PAGE * sizeof *s);
        for (int i = 0; !op->by.by_head && i < KV_PAGE; i += VL) {
            vf sum = vf_set(0);
            for (int h = 0; h < heads; h++) /* a NaN stays one */
                sum = vf_fma(vf_set(w ? w[h] : 1), vf_max(vf_set(0), vf_load(s + h * KV_PAGE + i)), sum);
            vf_store(every > 1 ? s + i : score + (size_t)page * KV_PAGE + i, sum);
        }
        for (int p = 0; every > 1 && p < seen; p++)
            score[page * KV_PAGE + p] = s[kv_page_row(a->store, page * KV_PAGE + p)];
    }
}
