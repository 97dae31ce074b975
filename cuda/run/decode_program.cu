// The program of decode rows: links one after the other, each leaving its result as the next one reads it. In a plain Llama five
// kernels a layer: q k v; rope, cache write and attention; output projection with the residual; gate, up and their product;
// down with the residual.
#include "cuda/run/decode_program_impl.h"
#include "cuda/run/decode_profile.h"
#include "cuda/run/behind.h"

// Operations of the links i .. by the plain kernels, which may join some; *n: links done. Some of these kernels look at the step
// before they wait, so they wait at their launch until the step is there for sure.
static enum infer_status run_plain(const decode_step &s, int i, int *n) {
    const decode_link *d = &s.p->link[i];
    const op_queue q = {s.stream, i > s.p->settled};
    const bool all = !s.s.only && !s.s.without;
    for (*n = 1; all && i + *n < s.p->n_link && d[*n].is.kind == LINK_PLAIN;) ++*n;
    TRY(cuda_run_ops(s.b, ROW_DECODE, d->is.first, *n, s.rows, s.outs, q));
    return INFER_OK;
}
static enum infer_status run_link(const decode_step &s, int i, int *n) {
    const decode_link *d = &s.p->link[i];
    const bool overlap = i > s.p->settled;
    *n = 1;
    if (d->is.product != PRODUCT_CHOSEN && !decode_chosen(s.s, d->name)) return INFER_OK;
    const range shown(d->name);
    if (d->is.kind == LINK_PLAIN) return run_plain(s, i, n);
    TRY(decode_code_of(d)->run(s, d, overlap));
    if (d->to_rows) CU(act_rows_take(d->output, decode_rows(s, d), overlap, s.stream));
    return behind_link(s.b, decode_list(s.b), d, overlap, s.stream);
}
// Whether a link of that name takes or gives packets.
static bool in_packets(const struct decode_program *p, const char *name) {
    for (int i = 1; i < p->n_link; i++)
        if (p->link[i].is.in.packets &&
            (!strcmp(p->link[i].name, name) || !strcmp(p->link[i - 1].name, name)))
            return true;
    return false;
}
// Of a list that selects no token: layers with others behind them. The step is done, as select says it of the others.
__global__ void step_done_kernel(int *next) { ++*next; }

static enum infer_status run_links(cuda_backend *b, struct decode_program *p, int rows, bool shared,
                                   const selection &sel, cudaStream_t stream) {
    const int most = b->c.list[ROW_DECODE]->max_out, outs = rows < most ? rows : most;
    const bool whole = !sel.only && (!sel.without || !in_packets(p, sel.without));
    const bool beside = rows == 1 && !shared && whole && !look_watches(b); // packets leave no rows
    const decode_step s = {b, p, rows, outs, shared, beside, sel, stream};
    for (int i = 0, n; i < p->n_link; i += n) TRY(run_link(s, i, &n));
    if (most || sel.only) return INFER_OK;
    step_done_kernel<<<1, 1, 0, stream>>>(b->next_decode);
    CU(cudaGetLastError());
    return INFER_OK;
}
enum infer_status decode_run(cuda_backend *b, struct decode_program *p, int rows, bool shared,
                             cudaStream_t s) {
    return run_links(b, p, rows, shared, selection{}, s);
}

// ---- measuring
// Microseconds of a replay of the chosen links, for rows rows of the step that ran last.
static enum infer_status time_links(cuda_backend *b, struct decode_program *p, int rows,
                                    const selection &keep, float *us) {
    cudaGraph_t g;
    cudaGraphExec_t ge;
    cudaEvent_t t0, t1;
    CU(cudaEventCreate(&t0));
    CU(cudaEventCreate(&t1));
    CU(cudaStreamBeginCapture(b->stream, cudaStreamCaptureModeThreadLocal));
    enum infer_status st = run_links(b, p, rows, false, keep, b->stream);
    CU(cudaStreamEndCapture(b->stream, &g));
    TRY(st);
    CU(cudaGraphInstantiate(&ge, g, 0));
    float best = 1e9f, ms;
    for (int i = 0; i < 8; i++) {
        CU(cudaEventRecord(t0, b->stream));
        CU(cudaGraphLaunch(ge, b->stream));
        CU(cudaEventRecord(t1, b->stream));
        CU(cudaEventSynchronize(t1));
        CU(cudaEventElapsedTime(&ms, t0, t1));
        if (i > 1 && ms < best) best = ms;
    }
    *us = best * 1e3f;
    CU(cudaGraphExecDestroy(ge));
    CU(cudaGraphDestroy(g));
    CU(cudaEventDestroy(t0));
    CU(cudaEventDestroy(t1));
    return INFER_OK;
}

// The nth name of the program in the order of its links, and how many have it; NULL: no more.
static const char *nth_name(const cuda_backend *b, int nth, int *count) {
    const struct decode_program *p = b->decode;
    const struct op_list *l = b->c.list[ROW_DECODE];
    const bool head =
        p->link[p->n_link - 1].is.product == PRODUCT_CHOSEN; // whose choice has a name of its own
    auto name = [&](int i) { return i < p->n_link ? p->link[i].name : l->op[l->n_op - 1].name; };
    for (int i = 0; i < p->n_link + head; i++) {
        int same = 0;
        while (same < i && strcmp(name(same), name(i)) != 0) same++;
        if (same < i || nth--) continue;
        *count = 0;
        for (int k = i; k < p->n_link + head; k++) *count += !strcmp(name(k), name(i));
        return name(i);
    }
    return NULL;
}
enum infer_status decode_profile(struct backend *base, int rows,
                                 void (*line)(const char *name, float alone, float without, int n)) {
    cuda_backend *b = (cuda_backend *)base;
    float all, alone, without;
    const char *name;
    if (!b->decode) return err_set(INFER_E_UNSUPPORTED, "cuda: decode is not fused");
    int has;
    CU(cudaStreamSynchronize(b->stream));
    CU(cudaMemcpy(&has, &b->t.step->n_row, sizeof has, cudaMemcpyDeviceToHost));
    if (has > rows) return err_set(INFER_E_INPUT, "a profile of %d rows of a step that has %d", rows, has);
    TRY(time_links(b, b->decode, rows, selection{}, &all));
    line("all", all, 0, 1);
    for (int i = 0, n; (name = nth_name(b, i, &n)) != NULL; i++) {
        TRY(time_links(b, b->decode, rows, selection{name, NULL}, &alone));
        TRY(time_links(b, b->decode, rows, selection{NULL, name}, &without));
        line(name, alone, all - without, n);
    }
    return INFER_OK;
}
