// One matmul of prompt rows by whatever group of kernels the table gives it, and the tuner, which measures the entries that
// are free to choose.
#include <stdio.h>
#include "cuda/plan/blas.h"
#include "base/mem.h"
#include "cuda/plain/dequant_rows.h"
#include "cuda/formats/unit_operands.cuh"
#include "cuda/prompt/gemm_act.h"
#include "cuda/prompt/gemm_fp8.h"
#include "cuda/run/prompt_program_impl.h"
#include "cuda/plan/tune.h"

// ---- cuBLASLt: weights as plain rows of halves, CUDA_PANEL_ROWS at a time
static enum infer_status blas_rows(const cuda_backend *b, const prompt_job *j, const void *w, int n, int rows,
                                   float *out, int out_row, bool add, cudaStream_t s) {
    int k = j->k_tiles * 64;
    struct blas_job job = {BLAS_F16, n, rows, k, k, out_row, w, j->x, out, add};
    return blas_matmul(b->blas, &job, b->work + b->plan.blas_space, s);
}
static enum infer_status blas_run(const cuda_backend *b, const prompt_gemm *l, int i, int rows,
                                  cudaStream_t s) {
    const prompt_job *j = &l->job[i];
    const cuda_group *g = &b->plan.group[l->weights];
    __half *panel = (__half *)(b->work + b->plan.panel);
    int k = j->k_tiles * 64, most = CUDA_PANEL_ROWS;
    for (int m = 0; m < g->n_member; m++) {
        if (g->member[m].region != i) continue;
        dev_matrix w = cuda_matrix(b, l->weights, m);
        if (l->epilogue == EPILOGUE_GLU) { // gate above up in one panel
            float *y = (float *)(b->work + b->plan.panel_out);
            most = CUDA_PANEL_ROWS / 2;
            for (int at = 0; at < w.n; at += most) {
                int n = w.n - at < most ? w.n - at : most;
                CU(dequant_rows_run(w, at, n, k, panel, false, s));
                CU(dequant_rows_run(cuda_matrix(b, l->weights, 1), at, n, k, panel + (size_t)n * k, false,
                                    s));
                TRY(blas_rows(b, j, panel, 2 * n, rows, y, 2 * n, false, s));
                CU(dequant_rows_glu_run(y, n, j->act, j->n_row, (__half *)j->glu + at, j->glu_k_tiles * 64,
                                        rows, s));
            }
            return INFER_OK;
        }
        float *out = j->out + g->member[m].col;
        for (int at = 0; at < w.n; at += most) {
            int n = w.n - at < most ? w.n - at : most;
            CU(dequant_rows_run(w, at, n, k, panel, false, s));
            TRY(blas_rows(b, j, panel, n, rows, out + at, (int)j->stride, l->epilogue == EPILOGUE_ADD, s));
        }
        if (w.bias) CU(dequant_rows_bias_run(out, j->stride, w.bias, w.n, j->n_row, rows, s));
    }
    return INFER_OK;
}

// ---- block-scaled: one job, whose activations are made first where an earlier job has not made the same
static enum infer_status scaled_run(const cuda_backend *b, const prompt_program *p, const prompt_gemm *l,
                                    int i, bool quantised, int n, cudaStream_t s) {
    const prompt_job *j = &l->job[i];
    if (l->layout[i] == LAYOUT_F8) {
        if (!quantised) CU(fp8_quantise(*j, n, s));
        CU(fp8_launch(*j, l->epilogue, n, b->sm_count, s));
        return INFER_OK;
    }
    if (!quantised) CU(prompt_mx_quantise(*j, p->mx_kind, n, s));
    CU(prompt_mx_launch(*j, l->layout[i], p->mx_kind, l->epilogue, n, s));
    return INFER_OK;
}

// ---- any group
static enum infer_status launch(const cuda_backend *b, const prompt_gemm *l, int i, const struct route *r,
                                int n, cudaStream_t s) {
    if (l->acted)
        CU(prompt_act_launch(l->job[i], l->layout[i], r->tokens, n, b->sm_count, s));
    else
        CU(prompt_matmul_launch(l->job[i], l->layout[i], l->epilogue, r, n, b->sm_count, s));
    return INFER_OK;
}
enum infer_status prompt_gemm_run(const cuda_backend *b, const prompt_program *p, const prompt_gemm *l,
                                  bool made, int n, cudaStream_t s) {
    bool quantised = made; // the regions of a group share their input
    for (int i = 0; i < l->n_job; i++) {
        if (l->group[i] == GROUP_BLAS) {
            TRY(blas_run(b, l, i, n, s));
        } else if (l->group[i] == GROUP_MX) {
            TRY(scaled_run(b, p, l, i, quantised, n, s));
            quantised = true;
        } else {
            int r = l->tuned[i][route_bucket(n)];
            if (r < 0)
                r = route_default(l->group[i], l->layout[i], p->route.sm, b->sm_count, l->job[i].n_slab, n);
            TRY(launch(b, l, i, &cuda_routes[r], n, s));
        }
    }
    return INFER_OK;
}

// ---- the tuner
// What an entry of the tuner's table is called.
static void tune_name(char *buf, size_t n, const cuda_backend *b, const prompt_gemm *l, int i, int bucket) {
    static const char *const epilogue[] = {"store", "add", "glu"};
    snprintf(buf, n, "%s%s %s %s %dx%d <=%d", route_group_name(l->group[i]),
             b->c.cuda.sm_emulate ? " emulated" : "", route_layout_name(l->layout[i]),
             l->acted ? "act" : epilogue[l->epilogue], l->job[i].n_slab * UNIT_ROWS, l->job[i].u * UNIT_COLS,
             route_bucket_rows(bucket));
}
// Calls f for every launch of the program that has a choice, with the link and the launch's index.
template <class F> static enum infer_status each_choice(prompt_program *p, F f) {
    for (int i = 0; i < p->n_link; i++) {
        prompt_link *d = &p->link[i];
        for (int r = 0; d->is.matmul >= 0 && r < d->gemm.n_job; r++) {
            int index[ROUTE_MAX], n = route_entries(d->gemm.group[r], d->gemm.layout[r], p->route.sm, index);
            if (n > 1) TRY(f(d, r, index, n));
        }
    }
    return INFER_OK;
}

void prompt_tuned_load(const cuda_backend *b, prompt_program *p) {
    if (!b->choices) return;
    (void)each_choice(p, [&](prompt_link *d, int i, const int *index, int n) {
        prompt_gemm *l = &d->gemm;
        for (int k = 0; k < ROUTE_BUCKETS; k++) {
            char name[128];
            tune_name(name, sizeof name, b, l, i, k);
            int tokens = tune_get(b->choices, name, 0);
            for (int e = 0; e < n; e++)
                if (cuda_routes[index[e]].tokens == tokens) l->tuned[i][k] = (int8_t)index[e];
        }
        return INFER_OK;
    });
}

// Best milliseconds of a launch of n rows by entry r.
static enum infer_status time_entry(const cuda_backend *b, const prompt_gemm *l, int i, int r, int n,
                                    cudaEvent_t t0, cudaEvent_t t1, float *best) {
    dev_step step = {n, n, 0};
    float ms;
    *best = 1e9f;
    CU(cudaMemcpyAsync((void *)b->t.step, &step, sizeof step, cudaMemcpyHostToDevice, b->stream));
    for (int k = 0; k < 4; k++) {
        CU(cudaEventRecord(t0, b->stream));
        TRY(launch(b, l, i, &cuda_routes[r], n, b->stream));
        CU(cudaEventRecord(t1, b->stream));
        CU(cudaEventSynchronize(t1));
        CU(cudaEventElapsedTime(&ms, t0, t1));
        if (k && ms < *best) *best = ms; // the first one loads the kernel
    }
    return INFER_OK;
}
static enum infer_status tune_all(cuda_backend *b, prompt_program *p, cudaEvent_t t0, cudaEvent_t t1,
                                  int *n_measured) {
    int most = b->c.list[ROW_PROMPT]->max_rows;
    return each_choice(
        p, [&](prompt_link * d, int i, const int *index, int n) -> enum infer_status {
            prompt_gemm *l = &d->gemm;
            for (int k = 0; k < ROUTE_BUCKETS; k++) {
                char name[128];
                int rows = route_bucket_rows(k);
                if (k && route_bucket_rows(k - 1) >= most) break;
                if (rows > most) rows = most;
                if (d->out_rows && rows > b->c.list[ROW_PROMPT]->max_out) break;
                tune_name(name, sizeof name, b, l, i, k);
                int known = tune_get(b->choices, name, 0), best = -1;
                float least = 0, ms;
                for (int e = 0; e < n && known > 0; e++) // a matrix of this shape was measured by this run
                    if (cuda_routes[index[e]].tokens == known) best = index[e];
                for (int e = 0; e < n && known <= 0; e++) {
                    TRY(time_entry(b, l, i, index[e], rows, t0, t1, &ms));
                    if (best >= 0 && ms >= least) continue;
                    best = index[e];
                    least = ms;
                }
                l->tuned[i][k] = (int8_t)best;
                if (known > 0) continue;
                tune_set(b->choices, name, cuda_routes[best].tokens);
                ++*n_measured;
            }
            return INFER_OK;
        });
}
enum infer_status prompt_tune(cuda_backend *b, prompt_program *p) {
    cudaEvent_t t0 = NULL, t1 = NULL;
    int n = 0;
    // measured anew: what is in the table counts as unknown
    TRY(each_choice(p, [&](prompt_link *d, int i, const int *, int) {
        for (int k = 0; k < ROUTE_BUCKETS; k++) {
            char name[128];
            tune_name(name, sizeof name, b, &d->gemm, i, k);
            if (tune_get(b->choices, name, 0) > 0) tune_set(b->choices, name, 0);
        }
        return INFER_OK;
    }));
    CU(cudaEventCreate(&t0));
    enum infer_status st = cudaEventCreate(&t1) == cudaSuccess
                               ? tune_all(b, p, t0, t1, &n)
                               : cuda_error(cudaGetLastError(), "cudaEventCreate");
    cudaEventDestroy(t0);
    if (t1) cudaEventDestroy(t1);
    if (!st) log_line(LOG_NOTE, "cuda: kernels of %d sizes of matrices measured and kept", n);
    return st;
}
