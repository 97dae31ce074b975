// One step of the largest size of each class when an engine is made, so that what the driver takes for kernels, local
// memory and graphs is taken before memory is measured, and not in the first answer.
#include "cuda/run/cuda_ranks.h"
#include "base/mem.h"

// n_row rows over n_slot slots, each slot from position 0 on; at the end of the context; as rows of a picture.
enum warm_how { WARM_FIRST, WARM_DEEP, WARM_PICTURE };
static enum infer_status warm_step(cuda_backend *b, enum row_class cls, int n_row, int n_out, int n_slot,
                                   enum warm_how how, int32_t *ids, const int32_t *const *pages,
                                   const float *const *scales) {
    if (n_out > b->c.list[cls]->max_out) n_out = b->c.list[cls]->max_out; // 0: layers with others behind them
    int32_t *pos = ids + n_row, *slot = pos + n_row, *out_row = slot + n_row;
    uint8_t *want = (uint8_t *)(out_row + n_out);
    const int per_slot = (n_row + n_slot - 1) / n_slot;
    struct step_result result;
    for (int t = 0; t < n_row; t++) {
        ids[t] = 0;
        pos[t] = how == WARM_DEEP ? b->c.n_ctx - 1 : t % per_slot % b->c.n_ctx;
        slot[t] = t / per_slot;
    }
    for (int i = 0; i < n_out; i++) {
        out_row[i] = n_row - n_out + i;
        want[i] = 1;
    }
    struct step s = {n_row, n_out, ids, pos, slot, out_row, want, pages, 0, NULL};
    if (how == WARM_PICTURE) s.until = pos;
    s.adapter = scales;
    TRY(backend_cuda.run(&b->base, cls, &s));
    return backend_cuda.wait(&b->base, &result);
}

// Whether rows of a picture see each other in some layer.
static bool sees_ahead(const struct op_list *l) {
    for (int i = 0; i < l->n_op; i++)
        if (l->op[i].kind == OP_ATTEND && l->op[i].attend.both) return true;
    return false;
}

// All adapters in all slots; NULL: there are none.
static enum infer_status warm_scales(const cuda_backend *b, const float ***of, const float **all) {
    const int n = b->plan.lowrank.n_adapter;
    float *one;
    if (!n) return INFER_OK;
    TRY(mem_new(&one, (size_t)n * sizeof *one, "a first step"));
    for (int i = 0; i < n; i++) one[i] = 1;
    *all = one;
    TRY(mem_new(of, (size_t)b->c.n_slot * sizeof **of, "a first step"));
    for (int i = 0; i < b->c.n_slot; i++) (*of)[i] = one;
    return INFER_OK;
}

enum infer_status cuda_warm(cuda_backend *b) {
    const struct op_list *prompt = b->c.list[ROW_PROMPT], *decode = b->c.list[ROW_DECODE];
    bool fused = b->prompt != NULL;
    TRY(cuda_ranks_same(b, &fused));
    size_t rows = (size_t)b->plan.max_rows, entries = b->plan.n_page_entry;
    const int32_t *pages[KV_GROUPS];
    int32_t *ids;
    TRY(mem_new(&ids, (rows * 3 + (size_t)b->plan.max_out * 2 + entries) * 4, "a first step"));
    const float **scales = NULL, *all = NULL;
    enum infer_status st = warm_scales(b, &scales, &all);
    const int32_t *table = ids + rows * 3 + (size_t)b->plan.max_out * 2; // all of page 0
    for (int g = 0; g < b->c.n_kv_group; g++) pages[g] = table + b->plan.page_table[g];
    const int n_slot = b->c.n_slot, n_row = decode->max_rows, n_out = decode->max_out;
    struct stamps *stamps = b->stamps;
    b->stamps = NULL;
    b->warming = true;
    // the plain kernels take nothing that grows with the rows, and are slow
    const int n_prompt = fused || prompt->max_rows < 32 ? prompt->max_rows : 32;
    const int n_prompt_out = n_prompt < prompt->max_out ? n_prompt : prompt->max_out;
    if (st == INFER_OK)
        st = warm_step(b, ROW_PROMPT, n_prompt, n_prompt_out, n_slot, WARM_FIRST, ids, pages, scales);
    // few rows may have kernels of their own
    for (int n = 1; fused && st == INFER_OK && n < n_prompt; n *= 2)
        st = warm_step(b, ROW_PROMPT, n, 1, 1, WARM_FIRST, ids, pages, scales);
    if (st == INFER_OK && sees_ahead(prompt))
        st = warm_step(b, ROW_PROMPT, 1, 1, 1, WARM_PICTURE, ids, pages, scales);
    if (st == INFER_OK) st = warm_step(b, ROW_DECODE, n_row, n_out, n_slot, WARM_FIRST, ids, pages, scales);
    // rows of one sequence (drafts), then one row behind a full context
    if (st == INFER_OK && n_row > 1) st = warm_step(b, ROW_DECODE, 2, 2, 1, WARM_FIRST, ids, pages, scales);
    if (st == INFER_OK) st = warm_step(b, ROW_DECODE, 1, 1, 1, WARM_DEEP, ids, pages, scales);
    b->stamps = stamps;
    b->warming = false;
    mem_free(scales);
    mem_free((void *)all);
    b->pages_known = false;
    mem_free(ids);
    return st;
}
