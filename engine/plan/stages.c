/* Stages: whole layers in a row, a backend each. */
#include "plan/plan.h"
#include "seam/op_list.h"
#include "seam/weight.h"

/* Bytes of all weights of each layer, bytes[n_layer + 1]: the last ones are those of the outputs. */
static enum infer_status layer_bytes(const struct model *m, uint64_t *bytes) {
    struct arena scratch = {0};
    struct op_list list;
    const struct layer_range all = {.end = m->n_layer, .n_ctx = 1};
    enum infer_status st = forward_emit(&list, &scratch, m, &all, ROW_DECODE, 1, 1);
    for (int i = 0; st == INFER_OK && i < list.n_op; i++) {
        const struct op_use u = op_uses(&list.op[i]);
        const int layer = list.op[i].layer < 0 ? m->n_layer : list.op[i].layer;
        for (int k = 0; u.group && k < u.n_weight; k++) bytes[layer] += weight_bytes(&u.weight[k]);
    }
    arena_free(&scratch);
    return st;
}

/* Each stage ends where the bytes are nearest to its share of all, and has a layer at least. */
static void cut(struct plan_settings *s, const uint64_t *bytes, int n_layer, const double *share) {
    double all = 0, target = 0, sum = 0;
    for (int i = 0; i <= n_layer; i++) all += (double)bytes[i];
    for (int k = 0, end = 0; k < s->n_stage; s->stage_end[k++] = end) {
        const int least = end + 1, most = n_layer - (s->n_stage - 1 - k);
        target += all * (share ? share[k] : 1.0 / s->n_stage);
        while (end < least || (end < most && sum + (double)bytes[end] / 2 <= target))
            sum += (double)bytes[end++];
    }
    s->stage_end[s->n_stage - 1] = n_layer;
}

enum infer_status plan_stages(struct plan_settings *s, const struct model *m, int n, const double *share) {
    uint64_t *bytes;
    s->n_stage = 0;
    if (n < 2) return INFER_OK;
    if (n > m->n_layer || n > PLAN_STAGES)
        return err_set(INFER_E_INPUT, ".stages %d: this model has %d layers, and there are %d stages at most",
                       n, m->n_layer, PLAN_STAGES);
    if (m->whole)
        return err_set(INFER_E_UNSUPPORTED,
                       ".stages %d: layers of this model read what others keep, so one device has all %d", n,
                       m->n_layer);
    TRY(mem_new(&bytes, ((size_t)m->n_layer + 1) * sizeof *bytes, "layers"));
    enum infer_status st = layer_bytes(m, bytes);
    s->n_stage = n;
    if (st == INFER_OK) cut(s, bytes, m->n_layer, share);
    mem_free(bytes);
    return st;
}
