// Launches of the kernels of prompt rows. n: rows of this launch, known to the host; kernels read the same count from the
// device, so that both must agree.
#pragma once
#include "cuda/common/dev.h"
#include "cuda/plan/matmul_route.h"

enum prompt_epilogue { EPILOGUE_STORE, EPILOGUE_ADD, EPILOGUE_GLU };
struct prompt_member {
    int slab, n, col;  // first slab of 16 physical rows; rows; first output column
    const float *bias; // NULL: none
};
struct prompt_job {
    const uint8_t *w; // region
    int u, n_slab;    // units of a row tile; slabs of 16 physical rows
    const uint8_t *x; // activation tiles
    int k_tiles;      // tiles of 64 columns
    const int *n_row; // rows of the step
    float *out;       // STORE, ADD: out[t * stride + col]
    size_t stride;
    prompt_member member[WEIGHT_GROUP_MAX];
    int n_member;
    uint8_t *glu; // GLU: activation tiles of the result
    int glu_k_tiles, glu_order, act;
    // block-scaled kernels: activations and their scales (gemm_mx.cuh), rows of a tile of theirs
    const uint8_t *mx, *mx_scale;
    size_t mx_rows;
};
// The order in which kernels of a group read activations (enum prompt_order).
int prompt_matmul_order(enum route_group g, enum layout l);
// One launch by entry r of the table, of group GROUP_WGMMA or GROUP_MMA.
cudaError_t prompt_matmul_launch(const prompt_job &j, enum layout l, enum prompt_epilogue e,
                                 const struct route *r, int n, int sm_count, cudaStream_t s);
// Block-scaled formats (kind: enum mx_kind). prompt_mx_quantise turns n rows of activation tiles j.x of that order into
// j.mx and j.mx_scale; prompt_mx_launch multiplies them.
cudaError_t prompt_mx_quantise(const prompt_job &j, int kind, int n, cudaStream_t s);
cudaError_t prompt_mx_launch(const prompt_job &j, enum layout l, int kind, enum prompt_epilogue e, int n,
                             cudaStream_t s);
// Bytes of j.mx and j.mx_scale for rows (a multiple of 256) of k_tiles.
static inline size_t prompt_mx_bytes(size_t rows, int k_tiles) { return rows * (size_t)k_tiles * 64; }
static inline size_t prompt_mx_scale_bytes(size_t rows, int k_tiles) { return rows * (size_t)k_tiles * 4; }
// Runs a kind on small random data and compares it with the same product in plain arithmetic. *agree: within rounding.
enum infer_status prompt_mx_self_test(int kind, bool *agree, double *error, cudaStream_t s);
// The same of one layout, in a file of its own.
#define PROMPT_MATMUL(id)                                                                                    \
    cudaError_t prompt_matmul_##id(const prompt_job &j, enum prompt_epilogue e, const struct route *r,       \
                                   int n, int sm_count, cudaStream_t s)
#define LAYOUT(id, name, bytes, kind) PROMPT_MATMUL(id);
#include "cuda/plan/layouts.def"

struct prompt_attend_job {
    const float *q; // q[t * q_stride + h * dk]
    size_t q_stride;
    enum kv_type type;
    const uint8_t *k, *v; // pools: [page][n_kv_head][64][dim]
    const int32_t *pages; // [slot][max_pages]
    int max_pages, n_head, n_kv_head, dk, dv, window;
    const int *n_row;
    const int32_t *pos, *slot;
    float scale, softcap;
    const float *sinks; // sinks[n_head], NULL: none
    uint8_t *out;       // activation tiles, column h * dv + i
    int out_k_tiles, out_order;
};
bool prompt_attend_has(int dk, int dv);
cudaError_t prompt_attend_launch(const prompt_attend_job &j, int n, bool mma, cudaStream_t s);

// RMS norm of rows to activation tiles; w NULL: no norm, a conversion.
cudaError_t prompt_norm_launch(rows x, const float *w, float eps, const int *n_row, uint8_t *tiles,
                               int k_tiles, int order, int n, cudaStream_t s);
// Tiles of halves, or a panel, back to rows.
cudaError_t prompt_rows_launch(const uint8_t *tiles, int k_tiles, int order, const int *n_row, rows out,
                               int n, cudaStream_t s);
// Norm (q_norm, k_norm [head_dim], NULL: none) and rotation of q in place, of k into the cache; v into the cache.
struct prompt_put_job {
    dev_tables t;
    dev_kv kv;
    float *qkv; // qkv[t * stride + col]
    size_t stride;
    int q_col, k_col, v_col, n_head, n_rot;
    bool neox;
    const float2 *rope; // [row][n_rot / 2]
    const float *q_norm, *k_norm;
    float eps;
};
cudaError_t prompt_put_launch(const prompt_put_job &j, int n, cudaStream_t s);
