// The program of decode rows, for the files that build and run it, and for the kinds of links (cuda/links/).
#pragma once
#include "cuda/decode/gemv/act_front.h"
#include "cuda/decode/attend/attend_decode.h"
#include "cuda/decode/gemv/gemv_adapted.h"
#include "cuda/decode/gemv/gemv_streamk.h"
#include "cuda/decode/gemv/gemv_twin.h"
#include "cuda/decode/gemv/post_norm.h"
#include "cuda/decode/skinny/skinny.h"
#include "cuda/run/decode_program.h"
#include "cuda/run/program.h"

// Where a vector lies in a form; bytes between rows and between units of 256 columns.
struct act_form {
    enum mm_give give;
    int ga; // columns of a group of a record, 0: halves
    uint8_t *at;
    size_t row, unit;
};
act_form decode_form(const cuda_backend *b, enum link_form f, enum act_slot slot);
template <class J> static void give_to(J *j, const act_form &to) {
    j->give = to.give;
    j->xo = to.at;
    j->xo_row = to.row;
    j->xo_unit = to.unit;
}
// To whom a writer of the residual stream hands its rows: the next norm's weights, scales and sums of squares of rows.
struct handoff_to {
    bool normed; // else nobody reads it with a norm, and norm is any floats
    const float *norm;
    float *scale, *square;
    size_t square_row;
    act_form form;
};

struct matmul_link {
    const struct mm_kernel *k;
    gemv_args job;
    size_t x_bytes;                       // shared memory for the input of one row
    int blocks;                           // one row
    bool few[3];                          // the kernels for up to 2, 4 and 8 rows fit
    const struct streamk_kernel *streamk; // one row of codes: instead of k; NULL: not
    streamk_job streamk_job;
    gemv_twin twin; // one row of codes: instead of k, beside the link in front; NULL: not
    const struct gemv_adapted_kernel
        *adapted;                 // one row of codes with what adapters add: instead of k; NULL: not
    gemv_adapted_job adapted_job; // but for .j
    int nth;                      // of a norm: those that handed the residual stream on before it
};
struct decode_link : program_link {
    // Kinds with a matmul. Behind an edge of rows: what makes its input of them; in front of one: what makes rows of a result.
    struct matmul_link mm, other; // other: another launch, of the second region; k NULL: none
    act_rows_job input, output;
    post_job post; // POST, REDUCED: behind the matmul
};

struct decode_program {
    struct decode_link *link;
    int n_link, settled; // settled: first link that begins when all that wrote the step is done for sure
    float (*up)[2];      // of each region of a group: what scales are multiplied by, see unit_halves.cuh
    float2 *cand;
    int n_cand; // a row, as the head's launch leaves them
};
// A program while it is built.
struct decode_maker {
    cuda_backend *b;
    struct decode_program *p;
    bool int8;    // codes times codes
    bool refused; // a link whose operations fit had no kernel
    bool first;   // no link has looked at the step yet
    int nth; // of those that handed the residual stream on last: their scales lie in four buffers in turn
};
// What to leave out, for measuring: all but one name, or one name.
struct selection {
    const char *only, *without;
};
// A step on its way through the links.
struct decode_step {
    cuda_backend *b;
    struct decode_program *p;
    int rows, outs; // at most
    bool shared;    // two rows may be of one sequence
    bool beside;    // one row may go in packets
    selection s;
    cudaStream_t stream;
};
static inline bool decode_chosen(const selection &s, const char *name) {
    return s.only ? !strcmp(s.only, name) : !s.without || strcmp(s.without, name) != 0;
}
static inline int decode_rows(const decode_step &s, const decode_link *d) {
    return d->out_rows ? s.outs : s.rows;
}

// What a kind of link does with decode rows.
struct decode_code {
    bool needed; // without its kernel there is no program of int8 codes
    bool looks;  // at the step, before it waits
    // Whether there is a kernel for the link's sizes that reads and gives these forms.
    bool (*has)(const decode_maker &m, const struct cuda_link *k, enum link_form in, enum link_form out);
    void (*make)(decode_maker &m, decode_link *d);
    // One row in packets with that tag, to the link behind; NULL: never.
    void (*hand_over)(const cuda_backend *b, decode_link *d, uint32_t tag);
    enum infer_status (*run)(const decode_step &s, const decode_link *d, bool overlap);
    cudaError_t (*prepare)(void); // attributes of kernels, once a device; NULL: none
};
#define LINK(id, name, file) extern const struct decode_code decode_##name;
#include "cuda/plan/links.def"

const struct decode_code *decode_code_of(const decode_link *d);

// Shared memory that a block may have on the chip, or on the one that is emulated.
static inline size_t decode_shared_memory(const cuda_backend *b) {
    return b->c.cuda.sm_emulate == 120 ? 99 << 10 : b->prop.sharedMemPerBlockOptin;
}
static inline int skinny_chip(const cuda_backend *b) { return cuda_only_mma(b) ? 80 : 90; }
static inline const struct op_list *decode_list(const cuda_backend *b) { return b->c.list[ROW_DECODE]; }
// decode_edge.cu: what lies between links.
// Of a writer of the residual stream, which hands it on if the link behind takes a form.
handoff_to decode_hands(decode_maker &m, const decode_link *d);
void decode_give(act_rows_job *j, const handoff_to &to);
// A result that is wanted as rows is given as bfloat16 in two parts, and made rows behind the kernel.
act_form decode_gives_result(const cuda_backend *b, decode_link *d, enum act_slot slot);
// The form in which the writers of the stream leave what nobody takes.
act_form decode_idle_form(const decode_maker &m);
// The input of a link with a matmul: rows become what it reads; norms and scales of the stream.
void decode_takes(decode_maker &m, decode_link *d);
// Scales of the rows that the nth hands on, and of those that its reader leaves.
void decode_scales(const cuda_backend *b, gemv_args *j, int nth);
// How the result of a link lies in a step of so many rows: rows of a tile, 0: plain rows.
int decode_output_pitch(const decode_link *d, int rows);

// decode_matmul.cu
bool decode_matmul_has(const decode_maker &m, const struct cuda_link *k, enum link_form in,
                       enum link_form out);
// Kernel, weights and input; next: the matmul behind, whose block fetches beside this one's if both fit.
bool decode_matmul_make(const decode_maker &m, decode_link *d, const matmul_link *next);
size_t decode_block_bytes(const matmul_link *l);
bool decode_fit_together(const cuda_backend *b, size_t one, size_t other);
// Input of rows; the same, then the product.
enum infer_status decode_matmul_input(const decode_step &s, const decode_link *d, bool overlap);
enum infer_status decode_matmul_run(const decode_step &s, const decode_link *d, int pitch, bool overlap);
enum infer_status decode_matmul_launch(const decode_step &s, const matmul_link *l, const gemv_args &j,
                                       int rows);
int decode_input_pitch(const decode_link *d, int rows);
// Packets for a matmul, in place of a wait for the whole kernel in front; NULL: not for this one.
uint8_t *decode_take_over(const cuda_backend *b, decode_link *to, int columns, uint32_t tag);
cudaError_t decode_matmul_prepare(void);
// The same with what adapters add, in one kernel of one row; gives the link i that kernel.
bool decode_adapted_has(const decode_maker &m, const struct cuda_link *k, enum link_form in,
                        enum link_form out);
void decode_adapted_make(const decode_maker &m, decode_link *d);
// link_post.cu: a product on zeros, whose sum with the residual stream is another kernel's; what comes between is not said yet; where that
// kernel leaves the stream
void decode_post_give(decode_maker &m, decode_link *d);
void decode_post_make(decode_maker &m, decode_link *d);
// decode_streamk.cu: gives the link i, a matmul whose packets and stream are known, a kernel of gemv_streamk.cuh where that is faster.
void decode_streamk(const cuda_backend *b, decode_link *d, int i);
// decode_twins.cu: gives links that read the row of the one in front kernels that run beside that one's.
void decode_twins(const cuda_backend *b, struct decode_program *p);
