// Rows of a table by runs of tokens, and the ids that a sequence leaves: two kernels, since the last row of a sequence replaces what its
// first ones read. As seam/ngram.h has the hash: whole numbers, the same row on every backend. A block a head of a row.
#include "cuda/plain/ngram_rows.h"
#include "cuda/plain/plain.cuh"

// Rows of the same sequence right before row r, at most so many.
DEV int ngram_before(const dev_tables &t, int r, int most) {
    int n = 0;
    while (n < most && n < r && t.slot[r - n - 1] == t.slot[r]) n++;
    return n;
}
// The id of `back` positions before row r, whatever stands behind it.
DEV int ngram_id(const dev_tables &t, const ngram_job &j, int r, int before, int back, const float *state) {
    if (t.pos[r] < back) return j.end;
    if (back > before) return (int)__ldcg(state + j.size - 1 - (back - before));
    const int at = r - back, id = t.id[at];
    if (j.input && j.input[at] >= 0) return j.given;
    return id < 0 ? t.slot_last[t.slot[at]] : id;
}
DEV float *ngram_state(const dev_tables &t, const ngram_job &j, int r, int h) {
    return j.state + (size_t)t.slot[r] * j.n_elem + (size_t)h * (j.size - 1);
}
// The row that head h reads of the table.
DEV int64_t ngram_table_row(const dev_tables &t, const ngram_job &j, int r, int h) {
    const int n = 2 + h / (j.n_head / (j.size - 1)), before = ngram_before(t, r, j.size - 1);
    const float *state = ngram_state(t, j, r, h);
    int id = ngram_id(t, j, r, before, 0, state);
    int64_t mixed = id * j.mult[0];
    for (int back = 1; back < n; back++) { // behind an end of a text there is nothing else
        id = back > 1 && id == j.end ? j.end : ngram_id(t, j, r, before, back, state);
        mixed ^= id * j.mult[back];
    }
    return mixed % j.rows[h] + j.first[h];
}
__global__ void __launch_bounds__(128) ngram_kernel(dev_tables t, const __grid_constant__ ngram_job j) {
    __shared__ int64_t at;
    const int r = blockIdx.y, h = blockIdx.x, k = j.w.k;
    op_begin();
    if (r >= t.step->n_row) return;
    if (threadIdx.x == 0) at = ngram_table_row(t, j, r, h);
    __syncthreads();
    dev_matrix w = j.w;
    w.base += (int)(at / w.n) * j.step;
    float *out = j.out.p + r * j.out.stride + (size_t)h * k;
    for (int i = threadIdx.x; i < k; i += 128) out[i] = j.scale * matrix_value(w, (int)(at % w.n), i);
}
// After it: the last row of each sequence keeps its last ids. A thread a head.
__global__ void __launch_bounds__(NGRAM_HEADS_MAX)
    ngram_keep_kernel(dev_tables t, const __grid_constant__ ngram_job j) {
    const int r = blockIdx.x, h = threadIdx.x, n = t.step->n_row;
    op_begin();
    if (r >= n || h >= j.n_head || (r + 1 < n && t.slot[r + 1] == t.slot[r])) return;
    const int kept = j.size - 1, before = ngram_before(t, r, kept);
    float *state = ngram_state(t, j, r, h);
    // place i takes the id of place i + before + 1 or later: upwards, nothing is replaced before it was read
    for (int i = 0; i < kept; i++) state[i] = (float)ngram_id(t, j, r, before, kept - 1 - i, state);
}
cudaError_t op_ngram_run(dev_tables t, const ngram_job &j, int n, op_queue s) {
    const cudaError_t e = op_launch(ngram_kernel, dim3(j.n_head, n), 128, s, t, j);
    if (e != cudaSuccess) return e;
    return op_launch(ngram_keep_kernel, n, NGRAM_HEADS_MAX, s, t, j);
}
