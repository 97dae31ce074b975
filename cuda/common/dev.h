// What the files of cuda/ call of each other. Device pointers everywhere; functions queue on a stream and return
// what the launch returned.
#pragma once
#include <cuda_runtime.h>
#include "seam/backend.h"
#include "cuda/plan/cuda_plan.h"

// What varies, on the device. Arrays follow the header in one blob (offsets fixed by the plan's largest sizes).
struct dev_step {
    int n_row, n_out, seq; // seq: number of a decode step
};

// struct infer_draw as kernels read it. edit and mask are in the host's memory.
struct dev_draw {
    double u;
    const infer_edit *edit;
    const uint64_t *mask;
    float temp, top_p, min_p;
    int top_k, n_edit; // n_edit -1: no draw
    uint8_t order[4];  // without its end where all are given
};
struct dev_tables { // addresses that every kernel may need
    const dev_step *step;
    const dev_draw *draw; // draw[outputs]
    const int32_t *id, *pos, *slot, *out_row, *want;
    int32_t *slot_last;
};
// What only embedding and rotations read of a step.
struct dev_input {
    const int32_t *at; // at[row]: which of rows the row has, -1: that of its id
    const float *rows; // rows[n_input][width]
    size_t width;
    const int32_t *axis[3]; // axis[i][row]: positions in time, lines and columns
};
struct dev_kv { // one store
    uint8_t *k, *v;
    const int32_t *pages; // table of its group: [slot][max_pages]
    int max_pages, n_kv_head, dk, dv, window;
    enum kv_type type;
};

// A member of a group for the plain kernels.
struct dev_matrix {
    const uint8_t *region;
    enum layout layout;
    int u, base, inter, stride, n, k;
    const float *bias;
    float factor; // of the sums
};

// ---- repack.cu: n_row rows of a member from row0 on, from staging memory to the weight arena
cudaError_t cuda_repack(const struct cuda_region *r, const struct cuda_member *m, enum quant_type type,
                        void *weights, const void *rows, size_t row_bytes, int row0, int n_row,
                        cudaStream_t stream);

// ---- plain_ops.cu: one operation each on float32 rows; x[t] = x + t * stride (floats). n: rows of this launch, an upper
// bound; rows beyond step->n_row (n_out where the buffer holds outputs) are left alone.
struct rows {
    float *p;
    size_t stride;
    int width;
};
struct op_queue {
    cudaStream_t stream;
    bool overlap; // a kernel may start before the one in front of it has ended (sm_90 on)
};
// w.region NULL: every row is given; in.at NULL: none is. An id that w has no row of has its first (a table beside the embedding)
cudaError_t op_embed_run(dev_tables t, dev_input in, dev_matrix w, rows out, float scale, int n, op_queue s);
cudaError_t op_norm_run(dev_tables t, rows x, rows out, enum norm_kind kind, int dim, float eps,
                        const float *w, const float *b, int n_w, int n, bool out_rows, op_queue s);
// few: decode rows; gate and up that lie together are both done by gate's call. Rows go eight at a time past one reading of the weights; a row's sums do not depend on the others.
cudaError_t op_matmul_run(dev_tables t, dev_matrix w, rows x, rows out, int n, bool out_rows, bool few,
                          op_queue s);
// axis[n_rot / 2] as in struct rope
// out of given rows, zeros where a row is of an id; n rows of x to one
cudaError_t op_input_run(dev_tables t, dev_input in, int from, rows out, int n, op_queue s);
cudaError_t op_merge_run(dev_tables t, rows x, rows out, int n_merged, bool mean, int n, op_queue s);
cudaError_t op_rope_table_run(dev_tables t, dev_input in, const float *inv_freq, const int32_t *axis,
                              int n_rot, float mscale, float2 *table, int n, op_queue s);
cudaError_t op_rope_run(dev_tables t, rows x, int n_head, int head_dim, int n_rot, bool neox,
                        const float2 *table, int n, op_queue s);
cudaError_t op_kv_put_run(dev_tables t, dev_kv kv, rows k, rows v, int n, op_queue s);
// Rope of q and k, then kv_put of k and v, in one.
struct heads_job {
    rows q, k, v;
    int n_head, n_kv_head, head_dim, n_rot;
    bool neox;
    const float2 *table;
    dev_kv kv;
};
cudaError_t op_heads_run(dev_tables t, heads_job j, int n, op_queue s);
// struct op_attend as kernels read it.
struct attend_rule {
    int n_head, window;
    float scale, softcap, temp_beta;
    int temp_len, temp_offset;
    const float *sinks;
    bool chunked;
};
cudaError_t op_attend_run(dev_tables t, dev_kv kv, rows q, rows out, attend_rule a, int n, op_queue s);
// conv.cu. state: slot 0 of its store, slots n_elem floats apart
struct conv_job {
    rows x, out;
    const float *w, *bias; // w[width][K], bias[width] or NULL
    float *state;
    int K, n_elem;
    bool silu;
};
cudaError_t op_conv_run(dev_tables t, conv_job j, int n, op_queue s);
// up.p NULL: none. A gate may be narrower than out, as in struct op_glu
cudaError_t op_glu_run(dev_tables t, rows gate, rows up, rows out, int act, act_numbers k, int n,
                       bool out_rows, op_queue s);
cudaError_t op_add_run(dev_tables t, rows a, rows b, rows out, int n, bool out_rows, op_queue s);
cudaError_t op_position_run(dev_tables t, rows x, const float *table, int n, op_queue s);
cudaError_t op_rows_run(dev_tables t, rows x, rows out, int n, op_queue s);
// A page of a store as float32 and back; page rows in the order of struct kv_store.
cudaError_t kv_page_run(dev_kv kv, int page, float *k, float *v, bool write, cudaStream_t s);
