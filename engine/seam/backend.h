/* The seam between the model and the machines.
 *
 * forward.c runs once per row class when an engine is made and writes the model down as a flat list of
 * operations; a backend compiles the list and a step runs it. The list is made once, has no T in it and is
 * run in order.
 *
 *     sizes    plain C, needs no device: bytes of every buffer, of re-tiled weights and of the workspace
 *     open     takes the device and all memory
 *     upload   weights to where they are read from (nothing to do where the map is read in place)
 *     compile  one list per row class: routes, fused ops, graphs
 *     run      queues one step of one class; copies what it needs of struct step; returns at once if it can
 *     wait     the oldest queued step: its status, its tokens and logits
 *     read     any buffer as float32, for taps and tests; kv_read and kv_write move KV pages in the
 *              order below
 *
 * Shapes are C arrays, last index contiguous. T: rows of the step, T_out: rows that want an output.
 * Activations are handles (struct view: columns of a buffer); the residual stream is float32, type and layout
 * of any other buffer are the backend's choice at compile, from the ops that read it. Read by C and C++. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "seam/store.h"
#include "base/status.h"
#include "infer_draw.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- weights ------------------------------------------------------------------------------------------- */

/* One matrix, out = factor * W x + bias, or a stack of them (experts), in the map. data lies as the file has it, or in the middle of a
 * larger tensor that several matrices share (weight_slice, weight_columns); weight.h reads these fields. */
struct weight {
    const char *name;
    enum quant_type type;
    int n, k;          /* W[n][k] */
    int run, every;    /* row i is row (i / run) * every + i % run from data on (each 0: 1) */
    size_t pitch;      /* bytes from a row of data to the next; 0: those of k elements */
    const void *data;  /* at an address that the type's block can be read from */
    const float *bias; /* bias[n], NULL: none */
    float factor;      /* 1: none */
    int n_stack;       /* 1, or matrices of a stack: matrix e is at data + e * stack_bytes, */
    size_t stack_bytes;
    const void *const *part; /* or at part[e], where they lie apart; data is part[0] then */
    int stack_bias;          /* floats from the bias of a matrix to that of the next (0: n) */
    /* activations keep 13 bits at least on the CPU, weights all of theirs: quantised folders, whose methods speak
     * of weights alone. Of GGUF's types activations have 8 bits there, as is usual */
    bool fine;
    /* columns[k], a permutation (GPTQ's act-order): column i of data is column columns[i] of W; op_columns brings x into
     * that order. NULL: none. Plain matmuls alone; equal orders are one array */
    const int32_t *columns;
};

enum { WEIGHT_GROUP_MAX = 3 };
/* Matrices that share their input (q k v; gate up). Their outputs follow each other: out[0..n), n = sum of
 * member n. */
struct weight_group {
    int id; /* unique in the model, 0 .. model n_group - 1: index of a backend's private tables */
    int n_member, n, k;
    struct weight member[WEIGHT_GROUP_MAX]; /* all with the same order of columns, or */
    /* split[n_split], 0: none: the same members, by their orders; these have the ids, this has none */
    const struct weight_group *split;
    int n_split;
};

/* ---- buffers ------------------------------------------------------------------------------------------- */

enum buf_rows {
    BUF_ROWS_ALL, /* one row per row of the step: at most list.max_rows */
    BUF_ROWS_OUT, /* one per row that wants an output: at most list.max_out */
};

struct buf {
    const char *name;
    int width; /* elements of a row */
    enum buf_rows rows;
    bool float32;     /* always float32: the residual stream, choices of experts */
    int first, last;  /* set by list_lives: ops that write it first and touch it last */
    size_t row_bytes; /* set by sizes: bytes of one row in this backend's layout */
    size_t offset;    /* set by the plan: place in the activation arena */
};

/* Columns col .. col + width of buffer buf. buf -1: absent. */
struct view {
    int buf, col, width;
};

/* ---- operations ---------------------------------------------------------------------------------------- */

enum op_kind {
    OP_EMBED,
    OP_NORM,
    OP_MATMUL,
    OP_ROPE,
    OP_KV_PUT,
    OP_ATTEND,
    OP_GLU,
    OP_ADD,
    OP_ROWS,
    OP_MERGE,
    OP_INPUT,
    OP_SELECT,
    OP_CONV,
    OP_DELTA,
    OP_SSM,
    OP_ROUTE,
    OP_EXPERTS,
    OP_MIX,
    OP_POSITION,
    OP_HEADS,
    OP_COLUMNS,
    OP_REMOTE,
    OP_REDUCE,
    OP_GATHER,
    OP_LOWRANK,
    OP_INDEX,
    OP_COMPRESS,
    OP_BALANCE,
    OP_STREAMS,
    OP_NGRAM,
    OP_KIND_COUNT
};

/* embed: out[t][i] = scale * factor * W[id[t]][i], W [n_vocab][n_embd] of any type, factor the weight's. id STEP_LAST (-1):
 * the slot's last token. A row with step.input has that, as it is; of a table beside the embedding, W[0] like an id, as has an id
 * that such a table has no row of. effects: writes all
 * of out. w: the configuration's embedding, or the first member of one of its groups; NULL: every row has step.input. */
struct op_embed {
    struct view out;
    const struct weight *w;
    float scale;
    bool beside;
};
/* The row of W; given: the step's row has step.input. */
static inline int op_embed_row(const struct op_embed *o, int id, bool given) {
    return given || (o->beside && id >= o->w->n) ? 0 : id;
}

/* input: out[t][i] = step.input[t][from + i]; 0 for a row of an id. */
struct op_input {
    struct view out;
    int from;
};

/* norm, over each group of dim elements of a row (dim = width: the whole row; dim = head_dim: QK-norm), i over the row:
 *   RMS:   out[i] = x[i] / sqrt(mean(x^2) + eps) * w[i % n_w]
 *   LAYER: out[i] = (x[i] - mean(x)) / sqrt(var(x) + eps) * w[i % n_w] + bias[i % n_w]
 *   NONE:  out[i] = x[i] * w[i % n_w] + bias[i % n_w]
 * out may be x. w, bias: [n_w]; NULL: 1 and 0. n_w: 0 for dim, or a multiple of dim where groups have weights of their own.
 * source: Zhang & Sennrich 2019; Ba et al. 2016. */
enum norm_kind { NORM_RMS, NORM_LAYER, NORM_NONE };
struct op_norm {
    struct view x, out;
    enum norm_kind kind;
    int dim;
    float eps;
    const float *w, *bias;
    int n_w;
};
static inline int op_norm_weights(const struct op_norm *o) { return o->n_w ? o->n_w : o->dim; }

/* matmul: out[t][n] = factor * sum_k W[n][k] * x[t][k] + bias[n], for each member of the group in turn, none of which is a stack.
 * x.width = k, out.width = n; out does not overlap x. exact: products of weights of a float type and their sums are float32 on every
 * backend (a router, whose results decide). */
struct op_matmul {
    struct view x, out;
    const struct weight_group *w;
    bool exact;
};

/* rope, in place on x[t][n_head][head_dim], the first n_rot dims of each head (x may be columns that end with those of the last head, so
 * that the rotated dims stand anywhere in a head); i < n_rot / 2,
 * a = pos[t] * inv_freq[i] (in double on ref), c = mscale cos a, s = mscale sin a:
 *   NEOX:        (x[i], x[i + n_rot/2])  <-  (x[i] c - x[i + n_rot/2] s, x[i + n_rot/2] c + x[i] s)
 *   INTERLEAVED: (x[2i], x[2i+1])        <-  the same on neighbours
 * back: by -a. every (of struct rope): pos[t] counts as the first position of its run of so many.
 * source: Su et al. 2021; scaling is folded into inv_freq and mscale when the model is bound. */
enum rope_kind { ROPE_NONE, ROPE_NEOX, ROPE_INTERLEAVED };
struct rope {
    enum rope_kind kind;
    int n_rot;
    float mscale;
    const float *inv_freq; /* inv_freq[n_rot / 2] */
    /* axis[n_rot / 2]: whose position turns a pair: 0: pos, 1 .. 3: step.axis[0 .. 2]; NULL: pos turns all */
    const int32_t *axis;
    int every; /* 0: 1 */
};
struct op_rope {
    struct view x;
    int n_head, head_dim;
    const struct rope *rope;
    bool back;
};

/* kv_put: store.K[page(pos[t])][h][kv_page_row(pos[t])] = k[t][h], V the same, where kv_keeps(pos[t]); converts to the store's type. v is absent where the
 * store has its values in its keys. */
struct op_kv_put {
    struct view k, v;
    int store;
};

/* How attention's positions are chosen: the n_top best, or the n_top best runs of `block` positions from 0 on; n_top 0: all are looked at. Runs that
 * are there in part are chosen like others, the last n_local of a row's always; or (whole) only whole ones are, and what is behind them is
 * looked at beside them. by_head: each key head has positions of its own. ends: a run's last position stands for it, whole ones alone are
 * there, and nothing beside them is looked at; n_top 0: all of them. */
struct choice {
    int n_top, block, n_local; /* block 0: 1 */
    bool whole, by_head, ends;
};
static inline int choice_block(const struct choice *c) { return c->block > 1 ? c->block : 1; }
/* Room of a list of positions; and how many of it the row at pos has. */
static inline int choice_room(const struct choice *c) {
    if (c->ends) return c->n_top;
    return c->n_top * choice_block(c) + (c->whole ? choice_block(c) - 1 : 0);
}
static inline int choice_runs(const struct choice *c, int pos) {
    return c->whole || c->ends ? (pos + 1) / choice_block(c) : pos / choice_block(c) + 1;
}
static inline int choice_count(const struct choice *c, int pos) {
    const int n = choice_block(c), rest = (pos + 1) % n, runs = choice_runs(c, pos);
    if (c->ends) return c->n_top && runs > c->n_top ? c->n_top : runs;
    if (!c->n_top || runs <= c->n_top) return pos + 1;
    return c->n_top * n + (c->whole ? rest : rest ? rest - n : 0);
}

/* attend: for query head h, kv head g = h / (n_head / n_kv_head), p over positions of the row's sequence with
 * p <= pos[t] and (window == 0 or p > pos[t] - window; chunked: p / window == pos[t] / window):
 *   a[p] = scale * q[t][h] . K[p][g];  softcap > 0: a = softcap * tanh(a / softcap)
 *   w = softmax over p (and the sink logit sinks[h] when given);  out[t][h] = sum_p w[p] V[p][g]
 * temp_beta != 0: scale is times 1 + temp_beta ln(1 + floor((pos[t] + temp_offset) / temp_len)).
 * q [t][n_head][head_dim_k], out [t][n_head][head_dim_v]; V[p][g] of a store with v_in_k: the first head_dim_v of K[p][g]. All rows'
 * kv_put come before (the list's order).
 * store -1: K and V are the rows of k and v, k [t][n_kv_head][head_dim_k], v [t][n_kv_head][head_dim_v], and p goes over all rows of the
 * step that have the row's slot (both: over all rows), without a mask (encoders); no temperature. Without both, and with the rows of a slot
 * one behind the other: window > 0: those at most window / 2 rows away; bias (and no softcap): a[p] += bias[h][n_bias + d], d = t - p, at
 * least -n_bias and at most n_bias.
 * by.n_top > 0: of these p only those in chosen[t], as `index` has them; with a store, without window, temperature and both.
 * entries > 0 (by.ends): in the same softmax, beside these p, the entries of runs of positions that are over: keys and values of store
 * entries - 1, which has one head and v_in_k as `store` has, at the last positions of runs of by.block, all or (by.n_top) those in chosen[t].
 * source: Vaswani et al. 2017; Ainslie et al. 2023 (GQA). */
struct op_attend {
    struct view q, out;
    int store, n_head;
    float scale, softcap;
    int window;
    const float *sinks;
    float temp_beta;
    int temp_len, temp_offset;
    bool chunked; /* the window begins at a multiple of its length */
    bool both;    /* a row with step.until sees up to that position: p <= max(pos[t], until[t]) */
    struct view k, v;
    int n_kv_head; /* of k and v */
    /* store -1, with both: the first so many rows of the step ask, and see the rows behind them; out of these is not written. 0: all ask. */
    int ask;
    const float *bias; /* bias[n_head][2 n_bias + 1], NULL: none */
    int n_bias;
    struct view chosen;
    struct choice by;
    int entries; /* 0: none */
};
/* The first position that the row of position pos sees. */
static inline int op_attend_first(const struct op_attend *o, int pos) {
    if (!o->window) return 0;
    int first = o->chunked ? pos - pos % o->window : pos - o->window + 1;
    return first > 0 ? first : 0;
}

/* index: the positions that attention of a row looks at, among p <= pos[t] of its sequence, K: keys of the store's only head:
 *   s[p] = sum_h w[t][h] max(0, q[t][h] . K[p]), w absent: 1; by_head: list h has s[p] = q[t][h] . K[p]
 *   runs of positions (by.block) have the greatest s of theirs that the row sees, or (by.whole, by.ends) that of their last one.
 * A list is those of the by.n_top greatest s, the lower p first where they are equal, or all p where they are no more; ascending, -1 behind
 * the last. chosen [t][choice_room], by_head: [t][n_head][choice_room].
 * q [t][n_head][head_dim_k], w [t][n_head], chosen float32. s is rounded to float32 and chosen by as seam/choose.h has it. All rows'
 * kv_put come before. A row's choice depends on it and its keys alone. source: DeepSeek-AI 2025 (arXiv 2512.02556), section 2.1; HF
 * modeling_minimax_m3_vl, modeling_qwen4_exp. */
struct op_index {
    struct view q, w, chosen;
    int store, n_head;
    struct choice by;
};
static inline int op_index_lists(const struct op_index *o) { return o->by.by_head ? o->n_head : 1; }

/* glu: out[t][i] = act(gate[t][i]) * up[t][i]; up absent: act(gate[t][i]). out may be gate or up. Beside up the gate may be narrower, one
 * number for each r of out (a head's): gate[t][i / r], r = out.width / gate.width; out is not gate then. With x = gate[t][i]:
 *   SILU x / (1 + exp(-x));  GELU_TANH 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)));  GELU_ERF 0.5 x (1 + erf(x / sqrt(2)));
 *   RELU2 max(x, 0)^2;  CAP limit tanh(x / limit);  SCALE limit x;
 *   SWIGLU_OAI g / (1 + exp(-alpha g)) with g = min(x, limit), times u + 1 with u = up[t][i] between -limit and limit;
 *   SILU_CLAMP min(x / (1 + exp(-x)), limit), times u between -limit and limit with u = up[t][i];  SOFTPLUS ln(1 + exp(x));
 *   SILU_LIMIT g / (1 + exp(-g)) with g = min(x, limit), times that u;
 *   SIGMOID 1 / (1 + exp(-x));  CLAMP min(max(x, beta), limit);  ROOT sign(x) sqrt(max(|x|, eps)), 0 of 0;
 *   XIELU beta x + (x > 0 ? alpha x^2 : alpha_n (exp(min(x, eps)) - 1 - x)).
 * source: Shazeer 2020; Hendrycks & Gimpel 2016; gpt-oss; Huang & Schlag 2024 (arXiv 2411.13010); HF modeling_step3p7, modeling_deepseek_v4,
 * modeling_qwen4_exp. */
enum act_kind {
    ACT_SILU,
    ACT_GELU_TANH,
    ACT_RELU2,
    ACT_GELU_ERF,
    ACT_CAP,
    ACT_SCALE,
    ACT_SWIGLU_OAI,
    ACT_XIELU,
    ACT_SIGMOID,
    ACT_CLAMP,
    ACT_SOFTPLUS,
    ACT_SILU_CLAMP,
    ACT_SILU_LIMIT,
    ACT_ROOT,
    ACT_KIND_COUNT
};
/* The numbers of an activation that has some. */
struct act_numbers {
    float limit, alpha, alpha_n, beta, eps;
};
struct op_glu {
    struct view gate, up, out;
    enum act_kind act;
    struct act_numbers k;
};

/* add: out[t][i] = a[t][i] + b[t][i]; out may be a. */
struct op_add {
    struct view a, b, out;
};

/* position: x[t][i] += table[pos[t]][i], x the embeddings, table [n_pos][x.width], pos[t] < n_pos. */
struct op_position {
    struct view x;
    const float *table;
    int n_pos;
};

/* rows: out[j] = x[out_row[j]] for j < T_out; out has BUF_ROWS_OUT. */
struct op_rows {
    struct view x, out;
};

/* merge: n rows that follow each other become one, j < T_out, n * T_out <= T: out[j] = [x[n j], .. x[n j + n - 1]] beside each other, or mean:
 * out[j] = the mean of these. out has BUF_ROWS_OUT. (An image's patches, in the order in which they are merged.) */
struct op_merge {
    struct view x, out;
    int n;
    bool mean;
};

/* select, for each output j of the step, x[i] = logits[j][i] changed by draw[j] (infer_draw.h has the formulas):
 *   WANT_TOKEN:  the token that draw[j] draws from x; without one argmax_i logits[j][i], the lowest i on ties. It
 *                also becomes its slot's last token.
 *   WANT_TOP:    the INFER_TOP greatest x, the lowest i on ties, with the sums of exp(x) over the whole row.
 *   WANT_LOGITS: the row of logits as it is.
 * Sums may be made in float32 in any order that depends on n_vocab alone. */
struct op_select {
    struct view logits;
    int n_vocab;
};

/* conv: each channel over time, causal, p = pos[t], x[q] the channel's input at position q of the row's sequence, 0 for q < 0:
 *   y = bias[c] + sum_j w[c][j] * x[p - K + 1 + j][c], j < K;  out[t][c] = silu ? y / (1 + exp(-y)) : y
 * x [t][C], out [t][C], w [C][K], bias [C], NULL: 0; 2 <= K <= CONV_MAX. Rows of a slot follow each other without others between.
 * state [K - 1][C]: the last K - 1 inputs, oldest first. out does not overlap x.
 * source: Gu & Dao 2023 (Mamba); LFM2 has it without activation. */
enum { CONV_MAX = 16 };
struct op_conv {
    struct view x, out;
    int state, K; /* state: store */
    const float *w, *bias;
    bool silu;
};

/* delta: the gated delta rule of each value head h < n_value with key head g = tiled ? h % n_key : h / (n_value / n_key); the rows of a
 * slot one after the other, S the head's state [dk][dv], all in float32 at least:
 *   q' = q[t][g] / sqrt(sum q[t][g]^2 + 1e-6) / sqrt(dk);  k' = k[t][g] / sqrt(sum k[t][g]^2 + 1e-6)
 *   S[i] *= exp(A[h] * softplus(a[t][h][i] + dt_bias[h][i])), i < dk;  d = beta (v[t][h] - S^T k') / (1 + exp(-b[t][h]))
 *   S += k' d^T;  out[t][h] = S^T q'
 * softplus(x) = ln(1 + exp(x)); beta 1, or 2 where a state may turn a key's part around. qkv [t]: q [n_key][dk], k [n_key][dk], v [n_value][dv], in this order (a conv's out); a [t][n_value][dk], or
 * [t][n_value]: one number for all rows i of a head's state, as dt_bias then has; b [t][n_value]; out [t][n_value][dv], overlaps none of them; A [n_value], below 0. n_value is a multiple of n_key; dk, dv <= STATE_DIM_MAX.
 * state [n_value][dk][dv]. Rows and slots as in conv. A backend whose bits depend on where the rows of a step end says so (backend_info:
 * grid). source: Yang et al. 2024 (arXiv 2412.06464); Kimi Team 2025 (arXiv 2510.26692) for a decay of each row. */
enum { STATE_DIM_MAX = 256 };
struct op_delta {
    struct view qkv, a, b, out;
    int state, n_key, n_value, dk, dv; /* state: store */
    bool tiled;
    const float *A, *dt_bias;
    float beta; /* 0: 1 */
};
/* Whether each row of a state decays by itself. */
static inline bool op_delta_by_row(const struct op_delta *o) { return o->a.width > o->n_value; }
static inline float op_delta_beta(const struct op_delta *o) { return o->beta != 0 ? o->beta : 1; }
static inline int op_delta_key(const struct op_delta *o, int h) {
    return o->tiled ? h % o->n_key : h / (o->n_value / o->n_key);
}

/* ssm: Mamba-2's recurrence of each head h < n_head, in group g = h / (n_head / n_group); the rows of a slot one after the other, S the
 * head's state [n_state][head_dim], all in float32 at least:
 *   D = min(max(softplus(dt[t][h] + dt_bias[h]), lo), hi)
 *   S = exp(A[h] * D) * S + B[t][g] (D * x[t][h])^T;  out[t][h] = S^T C[t][g] + skip[h] * x[t][h]
 * xbc [t]: x [n_head][head_dim], B [n_group][n_state], C [n_group][n_state], in this order (a conv's out); dt [t][n_head]; out
 * [t][n_head][head_dim], overlaps neither; A (below 0), dt_bias, skip [n_head]; skip NULL: 0. lo 0 and hi INFINITY: no limits. n_head is
 * a multiple of n_group; head_dim, n_state <= STATE_DIM_MAX. state [n_head][n_state][head_dim], which is delta's with B for k, D x for v
 * and C for q. Rows, slots and grid as in delta. source: Dao & Gu 2024 (arXiv 2405.21060). */
struct op_ssm {
    struct view xbc, dt, out;
    int state, n_head, head_dim, n_group, n_state; /* state: store */
    const float *A, *dt_bias, *skip;
    float lo, hi;
};

/* compress: one entry for each run of `ratio` positions, made where its last one is, p over the run, channel by channel:
 *   out[t][c] = sum_p w[p] x[p][c],  w = softmax over p of gate[p][c] + bias[p % ratio][c];  0 in rows within a run
 * of x wider than out, twice: the channels c + n of the run's own positions, n = out.width, and, where there is a run before it, the channels c of
 * that one's, all in one softmax. x, gate [t][width], out [t][n], bias [ratio][width]; out overlaps neither. Rows and slots as in conv.
 * state [span][2][width], span = ratio, or twice that: x and gate of position p in place p % span. A row's bits do not depend on where steps
 * end. source: DeepSeek-AI 2026 (DeepSeek-V4, section 2.3), HF modeling_deepseek_v4. */
struct op_compress {
    struct view x, gate, out;
    int state, ratio; /* state: store */
    const float *bias;
};
static inline int op_compress_span(const struct op_compress *o) {
    return o->x.width > o->out.width ? 2 * o->ratio : o->ratio;
}

/* balance: by what n residual streams are read, written and mixed; x [t][2 n + n n], in these parts, y[part] = scale[part] x + base:
 *   read[j] = sigmoid(y) + eps;  write[k] = 2 sigmoid(y);  M[j][k] = softmax over k of y[j], + eps; then n_round times, the first time without
 *   what stands in front: (M[j] /= sum_k M[j][k] + eps;)  M[j][k] /= sum_j M[j][k] + eps
 * x.width = n: read alone. out.width = x.width, may be x; scale[3], or [1], base [x.width]. seam/balance.h has the arithmetic, the same bits on
 * every backend that has it. source: Xie et al. 2025 (arXiv 2512.24880), HF modeling_deepseek_v4. */
enum { STREAMS_MAX = 8 };
struct op_balance {
    struct view x, out;
    int n, n_round;
    float eps;
    const float *scale, *base;
};

/* streams: of n residual streams m = out.width / d others, d = x.width / n:
 *   out[t][k][i] = write[t][k] * y[t][i] + sum_j M[t][j][k] * x[t][j][i], j ascending behind the first; write absent: 0
 * x [t][n][d], M [t][n][m], y [t][d], write [t][m]; out may be x. All float32. */
struct op_streams {
    struct view x, M, y, write, out;
    int n;
};
static inline int op_streams_out(const struct op_streams *o) { return o->out.width / (o->x.width / o->n); }

/* ngram: rows of a table by the ids of a row and of those before it, as h = 0 .. n_head - 1 hash them:
 *   out[t][h][i] = factor * W[ngram_row(by, h, a)][i], i < W.k, a[s] the id of s positions before, a[0] the row's own
 * by->end counts as the id of a position before the first one, and of all those up to it that an end of a text stands behind; by->given as that of
 * a row with step.input. seam/ngram.h has the hash. W: a stack whose matrices, of W.n rows each, are the table one after the other; the first
 * member of one of the configuration's groups. state [n_head][size - 1]: the ids before, the oldest first. Rows and slots as in conv.
 * source: HF modeling_qwen4_exp. */
enum { NGRAM_SIZE_MAX = 8, NGRAM_HEADS_MAX = 256 };
struct ngram {
    int size, n_head;            /* heads of runs of 2 ids first, those of `size` last, as many of each */
    int end, given;              /* ids */
    const int64_t *mult;         /* mult[size], above 0; times any id below 2^63 */
    const int64_t *rows, *first; /* [n_head]: of each head in the table: how many, from which on */
};
struct op_ngram {
    struct view out;
    int state; /* store */
    const struct weight *w;
    const struct ngram *by;
};

/* route: which experts a row goes to, and how much each counts. choice[t][2 * n_used]: their ids as float32 numbers, then their
 * weights; logits[t][n_expert]. seam/router.h has the arithmetic, float32 in one order on every backend, so that equal logits give equal
 * bits. With l the logits, capped where softcap > 0 (softcap * tanh(l / softcap)):
 *   s = softmax of l over all experts | sigmoid(l) | sqrt(ln(1 + exp(l))) (ROUTE_ROOT) | l (ROUTE_CHOSEN);  c = s + bias (of the choice alone)
 *   groups: n_expert in n_group equal runs, whose score is the largest c or the sum of the two largest; only experts of the
 *   n_group_used best groups can be chosen (n_used of them there must be)
 *   the n_used experts of largest c, that one first; groups and experts: the lowest index on ties, a NaN is -infinity
 *   w = s of the chosen, ROUTE_CHOSEN: softmax of l over them, ROUTE_NEAR (no bias, no groups): for each, m its l, 1 / sum of exp(l' - m)
 *   over itself and those not chosen before it whose (m - l') / max(|l'|, m) is not above eps;  norm: w /= sum w + eps, or w /= max(sum w, eps)
 *   w *= scale * expert_scale[e] (NULL: 1)
 * told: rows of ids, in the step's order, have the experts that told[id][n_used] says, in its order, and their weights as others have.
 * choice is float32 (struct buf). source: Shazeer et al. 2017; DeepSeek-AI 2024 (groups, bias); HF modeling_deepseek_v4 (told). */
enum route_act { ROUTE_SOFTMAX, ROUTE_SIGMOID, ROUTE_CHOSEN, ROUTE_NEAR, ROUTE_ROOT };
enum route_norm { ROUTE_NORM_NONE, ROUTE_NORM_ADD, ROUTE_NORM_CLAMP };
enum { ROUTE_EXPERTS_MAX = 1024, ROUTE_USED_MAX = 64, ROUTE_GROUPS_MAX = 64 };
struct router {
    int n_expert, n_used, n_group, n_group_used; /* n_group 0 or 1: no groups */
    enum route_act act;
    enum route_norm norm;
    bool group_top2; /* score of a group: the sum of its two largest */
    float softcap, eps, scale;
    const float *bias, *expert_scale; /* [n_expert], NULL: none */
};
struct op_route {
    struct view logits, choice;
    const struct router *router;
    const int32_t *told; /* told[n_told][n_used], below n_expert; NULL: none */
    int n_told;
};

/* experts: of each row, the matrices that it chose (e = id j of choice[t], j < n_used), for each member of the group, all of them
 * stacks, in turn:
 *   out[t][member][j][n] = factor * sum_k W[e][n][k] * x[t][k] + bias[e][n]     (by_choice: x[t][j][k])
 * so that gate and up are columns of out, as they are of a matmul. n_all: the stacks have the experts from `first` on of so many, and out of a
 * choice that they have not is 0 (0: they have all). weighted: out times the choice's weight (Llama 4, where it
 * belongs to the input of the first product). x.width = k, or n_used * k; out.width = n_used * n; out does not overlap x. Matrices that
 * no row chose are not read. A row's sums have one order, whatever other rows chose. */
struct op_experts {
    struct view x, choice, out;
    const struct weight_group *w;
    int n_used;
    bool by_choice, weighted;
    int first, n_all;
};
/* The matrix of an expert, -1: the stacks have it not. */
static inline int op_experts_matrix(const struct op_experts *o, int expert) {
    const int e = expert - o->first;
    return e >= 0 && e < o->w->member[0].n_stack ? e : -1;
}

/* heads: each head's own matrix, of a group of one member, a stack W[n_head][n][k] without bias; what a head has behind its k columns
 * is copied behind its n outputs, r numbers:
 *   out[t][h][i] = factor * sum_k W[h][i][k] * x[t][h][k], i < n;   out[t][h][n + i] = x[t][h][k + i], i < r
 * x [t][n_head][k + r], out [t][n_head][n + r]; out does not overlap x. Products and sums are float32, but for a card's fused kernels.
 * source: DeepSeek-AI 2024 (arXiv 2405.04434): keys and values of a latent, absorbed into queries and outputs. */
struct op_heads {
    struct view x, out;
    const struct weight_group *w;
};
static inline int op_heads_rest(const struct op_heads *o) {
    return o->x.width / o->w->member[0].n_stack - o->w->k;
}

/* columns: out[t][i] = x[t][from[i]], from a permutation of x.width = out.width numbers; out does not overlap x. */
struct op_columns {
    struct view x, out;
    const int32_t *from;
};

/* mix: out[t][i] = s[t] * shared[t][i] + sum_j w[t][j] * x[t][j][i], j ascending behind the shared part; w of choice[t], plain: 1.
 * shared absent: 0; s: 1, or 1 / (1 + exp(-gate[t])), gate of width 1. x.width = n_used * out.width; out may be shared. */
struct op_mix {
    struct view x, choice, shared, gate, out;
    int n_used;
    bool plain;
};

/* remote: the experts of a layer, computed by another backend: rows and the router's choices go there, sums come back.
 *   out[t] = sum_j w[t][j] down[id j](act(gate[id j] x[t]) * up[id j] x[t]),  j < n_used ascending, id and w of choice[t]
 * x.width = out.width; out is float32 and does not overlap x. Who computes it: backend_config.remote, whose list has these operations of the
 * layer, experts, glu, experts and mix, on its first three buffers (enum remote_buf). A row's bits depend on it alone. */
enum remote_buf { REMOTE_X, REMOTE_CHOICE, REMOTE_OUT };
struct op_remote {
    struct view x, choice, out;
};

/* reduce: x[t][i] = sum of all ranks' x[t][i], added in the order of ranks: behind a product whose columns the ranks share. x is float32. */
struct op_reduce {
    struct view x;
};

/* gather: columns col[r] .. col[r + 1] - 1 of out[t] = rank r's x[t], for all ranks: behind a product whose rows the ranks share.
 * out.width = col[n_rank]; out is float32 and does not overlap x. */
struct op_gather {
    struct view x, out;
    const int *col; /* col[n_rank + 1] */
};

/* lowrank, behind a product of x: of each part in turn, s the scale of its adapter in the row's sequence (step.adapter); nothing where s is 0:
 *   out[t][col + i] += s * sum_j B[i][j] * (sum_k A[j][k] * x[t][k]),  i < n, j < r;  a NULL: out[t][col + i] += s * sum_j B[i][j]
 * of experts (choice is there), as they are in `experts`: of each j < n_used with its matrix e, into its columns
 * col * n_used + j * n + i of out, by x[t] or (by_choice) x[t][j]; weighted: times the choice's weight. Parts of one element are added in
 * their order. A row's bits depend on it alone. source: Hu et al. 2021 (arXiv 2106.09685) */
enum { LOWRANK_MAX = 1024 }; /* r, at most */
struct lowrank_part {
    int adapter;        /* index of its scale */
    int col, n;         /* columns of out; of experts those of a member, col: of the members before */
    int k, r, n_stack;  /* n_stack: experts; 1: plain */
    int at;             /* sum of r of the parts before */
    const float *a, *b; /* a[n_stack][r][k]; B by columns: b[n_stack][r][n] */
};
struct lowrank {
    const struct lowrank_part *part; /* part[n_part] */
    int n_part, r;                   /* r: of all parts */
};
struct op_lowrank {
    struct view x, choice, out;
    const struct lowrank *w;
    int n_used;
    bool by_choice, weighted;
    int first; /* of experts: the one whose matrices come first, as in `experts`; nothing is added where a part has not the chosen one's */
};
/* The matrix of a part for an expert, -1: it has it not. */
static inline int op_lowrank_matrix(const struct op_lowrank *o, const struct lowrank_part *p, int expert) {
    const int e = expert - o->first;
    return e >= 0 && e < p->n_stack ? e : -1;
}

struct op {
    enum op_kind kind;
    int layer;        /* -1 outside of the layers */
    const char *name; /* "attn_qkv": what a tap or a profile calls it */
    union {
        struct op_embed embed;
        struct op_norm norm;
        struct op_matmul matmul;
        struct op_rope rope;
        struct op_kv_put kv_put;
        struct op_attend attend;
        struct op_glu glu;
        struct op_add add;
        struct op_rows rows;
        struct op_merge merge;
        struct op_input input;
        struct op_select select;
        struct op_conv conv;
        struct op_delta delta;
        struct op_ssm ssm;
        struct op_route route;
        struct op_experts experts;
        struct op_mix mix;
        struct op_position position;
        struct op_heads heads;
        struct op_columns columns;
        struct op_remote remote;
        struct op_reduce reduce;
        struct op_gather gather;
        struct op_lowrank lowrank;
        struct op_index index;
        struct op_compress compress;
        struct op_balance balance;
        struct op_streams streams;
        struct op_ngram ngram;
    };
};

/* Prompt rows, and decode rows (generated, drafted or verified): given by the request, never by T. */
enum row_class { ROW_PROMPT, ROW_DECODE, ROW_CLASS_COUNT };

struct op_list {
    enum row_class cls;
    struct op *op;
    int n_op;
    struct buf *buf;
    int n_buf;
    int max_rows, max_out; /* rows and outputs of the largest step of this class */
};

/* ---- a step: all that varies --------------------------------------------------------------------------- */

enum { STEP_LAST = -1 }; /* id: the slot's last token, sampled by a queued step */
enum step_want { WANT_TOKEN = 1, WANT_LOGITS = 2, WANT_TOP = 4 };

struct step {
    int n_row, n_out;
    const int32_t *id, *pos,
        *slot;              /* [n_row]; id: of a token, or STEP_LAST; slot: of the page tables and states */
    const int32_t *out_row; /* out_row[n_out], ascending */
    const uint8_t *want;    /* want[n_out]: enum step_want bits */
    /* pages[group][slot * max_pages + i]: page id of positions i*KV_PAGE ..; -1: none, not read */
    const int32_t *const *pages;
    uint64_t pages_version; /* changes whenever any page table did */
    const struct infer_draw *const
        *draw; /* draw[n_out], an entry NULL: greedy; NULL: all are. run copies what it needs */
    /* input[n_row]: the n_embd numbers that a row has in place of an embedding (and behind them those of `input` operations), NULL: the
     * one of its id; input NULL: all have that */
    const float *const *input;
    /* axis[i][n_row]: a row's positions in time, lines and columns, for rotations that have such; NULL: pos */
    const int32_t *axis[3];
    /* until[n_row]: the last position that a row of a picture sees where operations say both, of rows of the same step; NULL: no row
     * sees what follows it */
    const int32_t *until;
    /* adapter[slot]: the scales of the adapters in that sequence, as parts of `lowrank` count them; NULL: all 0; adapter NULL: of all slots */
    const float *const *adapter;
};
/* The scale of an adapter in the sequence of a slot. */
static inline float step_adapter(const struct step *s, int slot, int adapter) {
    return s->adapter && s->adapter[slot] ? s->adapter[slot][adapter] : 0;
}

struct step_result {
    const int32_t *token; /* token[n_out], -1 where none was wanted */
    const float *logits;  /* logits[i][n_vocab] of the i-th output that wanted them; NULL when none did */
    const struct infer_top *top; /* top[n_out]: of the outputs that wanted it; NULL when none did */
};

/* ---- the backend --------------------------------------------------------------------------------------- */

struct tap;
struct comm;
struct infer_profile;
/* Who computes the operations `remote` of a list: rows of one layer, x[n_row][d], choice[n_row][2 * n_used], out[n_row][d], on the host.
 * errors: INFER_E_CANCEL, INFER_E_NAN */
struct remote {
    enum infer_status (*run)(void *user, enum row_class cls, int layer, int n_row, const float *x,
                             const float *choice, float *out);
    void *user;
};

/* What is asked of one backend (infer_options.def), which alone reads it. */
struct cpu_options {
#define INFER_FOR_CPU(type, field) type field;
#include "infer_options.def"
};
struct cuda_options {
#define INFER_FOR_CUDA(type, field) type field;
#include "infer_options.def"
};

/* A group of weights or a store that no list names takes no memory. */
struct backend_config {
    const struct weight_group *const
        *group; /* group[n_group] by id: every matrix except an untied embedding */
    int n_group;
    const struct weight *embedding; /* may share data with the head's group (tied) */
    int n_vocab, n_embd;
    const struct kv_store *store; /* store[n_store] */
    int n_store;
    const struct kv_group *kv_group; /* kv_group[n_kv_group] */
    int n_kv_group;
    enum kv_type kv_type;
    const struct state_store *state; /* state[n_state] */
    int n_state, n_state_slot;
    int n_slot, n_ctx;
    struct op_list *list[ROW_CLASS_COUNT]; /* buf.offset valid from open on */
    size_t activation_bytes;               /* of the arena that all buf.offset point into; from open on */
    int card;          /* cuda: 1 ..: the n-th card; 0: the one that has most memory left */
    int rank, n_rank;  /* one of so many that compute a model together; n_rank 0: alone */
    struct comm *comm; /* of ranks: seam/comm.h; from open on */
    struct cpu_options cpu;
    struct cuda_options cuda;
#define INFER_FOR_BACKENDS(type, field) type field;
#include "infer_options.def"
    /* from open on: weight_bytes that sizes said, which memory that changes since must not change */
    size_t copy_bytes;
    const struct remote *remote;   /* NULL: no list has such an operation */
    int n_logits;                  /* outputs of a step that may want logits */
    bool any_logits;               /* infinities and NaN are no candidates; else the step fails */
    int n_input;                   /* rows of a step that may have step.input */
    const struct tap *tap;         /* seam/tap.h (cuda: wrote alone); NULL: nobody looks */
    struct infer_profile *profile; /* seam/profile.h; NULL: nobody asks */
    void (*progress)(void *user, const char *what, double done, double total);
    void *user;
};

struct backend_sizes {
    size_t weight_bytes;    /* copies of weights this backend makes; 0 where the map is read */
    size_t adapter_bytes;   /* of these: of adapters */
    size_t kv_bytes;        /* pages and states */
    size_t workspace_bytes; /* everything else that is not an activation */
    size_t output_bytes;    /* tokens and logits */
    size_t driver_bytes;    /* assumed share of the driver */
    size_t pinned_bytes; /* of the host, for copies to and from the device; not part of the device's memory */
};

/* What a device's memory holds now. */
struct backend_memory {
    char name[128];
    size_t total_bytes, free_bytes; /* free: before this process takes anything */
};

struct backend_info {
    const char *device_name; /* "NVIDIA H200 (sm_90)", the processor's name */
    const char *isa;         /* "avx512-vnni"; kernels in use */
    bool async;              /* run queues a step and comes back before it is done */
    int n_thread;            /* of the host; 0: none of its own */
    size_t arena_bytes;      /* of a device: all that open took; 0: memory of the host */
    size_t driver_bytes;     /* the device's memory that is gone beside the arena, measured now; 0: unknown */
    int grid; /* of models with states: rows of a prompt that are cut at multiples of it, and nowhere else, have the bits of those that
                 are not cut; 0: wherever they are */
    int repack_from, repack_to; /* decode steps in which weights are copied; equal: none */
};

struct backend; /* begins with: const struct backend_type *type; */

struct backend_type {
    const char *name; /* "ref", "cpu", "cuda" */
    /* INFER_OK when this machine can run it, else INFER_E_DEVICE with the reason; NULL: always. Takes nothing. */
    enum infer_status (*probe)(void);
    /* card as in backend_config; NULL: the host's */
    enum infer_status (*memory)(int card, struct backend_memory *out);
    enum infer_status (*sizes)(const struct backend_config *c, struct backend_sizes *out);
    enum infer_status (*open)(struct backend **out, const struct backend_config *c);
    enum infer_status (*upload)(struct backend *b);
    enum infer_status (*compile)(struct backend *b, enum row_class cls);
    enum infer_status (*run)(struct backend *b, enum row_class cls, const struct step *s);
    /* As run, of a backend that computes in run, but comes back some `seconds` later though more is left to compute, with *done false: the
     * next call goes on with the same step. *done true: a step begins, and has ended. The same bits as by run. NULL: has none. */
    enum infer_status (*run_some)(struct backend *b, enum row_class cls, const struct step *s, double seconds,
                                  bool *done);
    enum infer_status (*wait)(struct backend *b, struct step_result *out);
    /* Another backend's `remote`: see struct remote. After compile, by one thread at a time, not beside run. NULL: has none. */
    enum infer_status (*run_layer)(struct backend *b, enum row_class cls, int layer, int n_row,
                                   const float *x, const float *choice, float *out);
    /* Rows of a view after the last step of cls, as float32: out[n_row][view.width]. A buffer whose place has
     * been reused holds something else: plan with keep_all for taps. */
    enum infer_status (*read)(struct backend *b, enum row_class cls, struct view v, int n_row, float *out);
    /* Page of a store as float32, in the order K then V of struct kv_store (v_in_k: no V). */
    enum infer_status (*kv_read)(struct backend *b, int store, int page, float *k, float *v);
    enum infer_status (*kv_write)(struct backend *b, int store, int page, const float *k, const float *v);
    /* The bytes of a page as this backend keeps them, kv_page_bytes of them, out of it or (write) into it. */
    enum infer_status (*kv_page)(struct backend *b, int store, int page, void *bytes, bool write);
    /* Copies a page of every store of a group, bit for bit, after all queued steps. */
    enum infer_status (*kv_copy)(struct backend *b, int group, int from, int to);
    /* A slot of a state store; and a copy of one in every state store, bit for bit, after all queued steps. */
    enum infer_status (*state_read)(struct backend *b, int store, int slot, float *out);
    enum infer_status (*state_write)(struct backend *b, int store, int slot, const float *x);
    enum infer_status (*state_copy)(struct backend *b, int from, int to);
    void (*cancel)(struct backend *b); /* async-signal-safe */
    void (*info)(const struct backend *b, struct backend_info *out);
    void (*close)(struct backend *b);
};

struct backend {
    const struct backend_type *type;
};

extern const struct backend_type backend_ref;
extern const struct backend_type backend_cpu;
extern const struct backend_type backend_cuda; /* present when built with INFER_CUDA */

/* Sizes of the CUDA backend, in every build: plans for a card that is not here. */
enum infer_status cuda_sizes(const struct backend_config *c, struct backend_sizes *out);

#ifdef __cplusplus
}
#endif
