// The backend's own state, for the files that run on the host side of cuda/.
#pragma once
#include "cuda/common/dev.h"
#include "cuda/common/cuda_error.h"
#include "cuda/common/front.h"
#include "cuda/plain/select.h"
#include "cuda/plan/cuda_routes.h"

enum { CUDA_CONSTANT_MAX = 8192, CUDA_BUCKET_MAX = 64 };

struct cuda_constant {
    const void *host;
    size_t offset;
};

struct decode_program; // decode_program.cu
struct prompt_program; // prompt_program.cu
struct tune;           // tune.h
struct blas;           // blas.h
struct host_rows;      // host_rows.h
struct cuda_ranks;     // cuda_ranks.h
struct cuda_adapters;  // adapters_run.h
struct stamps;         // stamps.h
struct look;           // look.h

struct cuda_backend {
    struct backend base;
    struct backend_config c;
    struct cuda_plan plan;
    int device, sm_count;
    cudaDeviceProp prop;
    char text[320], kernels[64];
    cudaStream_t stream;
    cudaEvent_t done[CUDA_FLIGHT];
    uint8_t *arena; // all device memory: weights, kv, activations, workspace
    uint8_t *weights, *kv, *act, *work, *out;
    uint8_t *pinned; // blobs, page tables and results, CUDA_FLIGHT of each
    size_t arena_bytes;
    cudaEvent_t input_sent;
    dev_tables t;
    dev_input in;
    uint64_t pages_version;
    bool pages_known;
    const int32_t *until; // until[row] of the step that is being queued; NULL: no row sees what follows it
    unsigned n_run, n_wait, n_decode; // n_decode: of decode rows; the fused program counts them itself, too
    int *next_decode;                 // the device's count of them
    struct {
        int n_logits; // rows
        bool top;
        uint8_t *result;
        enum row_class cls;
        const uint8_t *blob; // the step as it was sent
    } flight[CUDA_FLIGHT];
    int cancel; // written by any thread or handler
    struct cuda_constant *constant;
    int n_constant;
    const struct rope *rope[CUDA_ROPE_MAX];
    int n_rope;
    struct decode_program *decode;  // NULL: the plain list
    struct prompt_program *prompt;  // the same for prompt rows
    struct tune *tune;              // what was measured before; NULL: --autotune off
    struct tune *choices;           // of kernels: the same table, or that of --autotune-file
    struct blas *blas;              // --blas on
    struct host_rows *host;         // experts that the host computes; NULL: none
    struct cuda_ranks *ranks;       // of one model; NULL: alone
    struct cuda_adapters *adapters; // NULL: none
    struct stamps *stamps;          // of a profile; NULL: nobody asks
    struct look *look;
    bool warming; // what steps compute does not matter: the cache holds nothing yet
    struct {
        int rows;
        bool shared;                   // two of them may be of one sequence
        cudaGraphExec_t exec, stamped; // stamped: with the times of its links; NULL: without a profile
    } bucket[CUDA_BUCKET_MAX];         // of each kind by rows
    int n_bucket;
    unsigned *seen, n_seen; // seen[n_slot]: the step in which a slot's row came last, by rows_share
};

static inline rows cuda_rows(const cuda_backend *b, const struct op_list *l, struct view v) {
    const struct buf *f = &l->buf[v.buf];
    return rows{(float *)(b->act + f->offset) + v.col, f->row_bytes / 4, v.width};
}
static inline bool cuda_out_rows(const struct op_list *l, struct view v) {
    return l->buf[v.buf].rows == BUF_ROWS_OUT;
}
// cuda_state.cu
const float *cuda_constant(const cuda_backend *b,
                           const void *host); // device copy of a constant, NULL for NULL
dev_kv cuda_store(const cuda_backend *b, int store);
float *cuda_state(const cuda_backend *b, int store, int slot);
dev_matrix cuda_matrix(const cuda_backend *b, int group, int member);
// By what the rows of a table, the first member of a group, are multiplied.
float embed_scale(const cuda_backend *b, int group, const op_embed *o);
float2 *cuda_rope_table(const cuda_backend *b, const struct rope *r);
int32_t *cuda_tokens(const cuda_backend *b);
select_job cuda_select(const cuda_backend *b, const struct op_list *l, const struct op_select *o);

// A norm, or an activation without a gate.
static inline front_job cuda_front(const cuda_backend *b, const struct op *o) {
    front_job f = {};
    f.norm = o->kind == OP_NORM;
    if (!f.norm) f.act = o->glu.act;
    if (!f.norm) return f;
    f.eps = o->norm.eps;
    f.w = cuda_constant(b, o->norm.w);
    f.bias = cuda_constant(b, o->norm.bias);
    return f;
}
// x = factor * x
static inline cudaError_t cuda_scale_rows(const cuda_backend *b, rows x, float factor, int n, bool out_rows,
                                          op_queue q) {
    act_numbers k = {};
    k.limit = factor;
    return op_glu_run(b->t, x, rows{}, x, ACT_SCALE, k, n, out_rows, q);
}

// Whether only the kernels that every chip has are wanted.
static inline bool cuda_only_mma(const cuda_backend *b) {
    return b->prop.major != 9 || b->c.cuda.sm_emulate ||
           (b->c.cuda.kernels && !strcmp(b->c.cuda.kernels, "mma"));
}
static inline struct route_case cuda_route_case(const cuda_backend *b) {
    struct route_case c = {};
    c.sm = b->c.cuda.sm_emulate ? b->c.cuda.sm_emulate : b->prop.major * 10 + b->prop.minor;
    c.only_mma = cuda_only_mma(b);
    c.blas = b->c.cuda.blas;
    c.strict_fp32 = b->c.strict_fp32;
    c.block_scaled = b->c.cuda.block_scaled != NULL;
    c.shared_bytes = c.sm >= 120 ? 99 << 10 : b->prop.sharedMemPerBlockOptin;
    return c;
}

uint8_t *cuda_decode_blob(const cuda_backend *b, unsigned i, size_t *row);
uint8_t *cuda_decode_result(const cuda_backend *b, unsigned i, size_t *row);

// cuda_device.cu
// The card with most free memory, on a tie the first in PCI order; its free and total bytes.
// card: 1 ..: the n-th; 0: the one that has most memory left
enum infer_status cuda_pick_device(int card, int *device, size_t *free_bytes, size_t *total_bytes);
enum infer_status cuda_probe(void);
enum infer_status cuda_memory(int card, struct backend_memory *out);
void cuda_arena_count(int device, size_t bytes, bool add);
// Memory of the device that is gone since this process first looked, beside its arenas; 0: unknown.
size_t cuda_driver_bytes(int device);
// warm.cu
enum infer_status cuda_warm(cuda_backend *b);
// upload.cu
enum infer_status cuda_upload(struct backend *base);
// run_list.cu, with the plain kernels: operations first .. first + n of a list for a step that is there; the tables of all ropes;
// both for a whole list
enum infer_status cuda_run_ops(cuda_backend *b, enum row_class cls, int first, int n, int n_row, int n_out,
                               op_queue s);
enum infer_status cuda_rope_tables(cuda_backend *b, int n_row, op_queue s);
enum infer_status cuda_run_list(cuda_backend *b, enum row_class cls, int n_row, int n_out, cudaStream_t s);
