/* What the fields of struct weight add up to, told once: rows, parts and matrices of it, and who computes what. */
#pragma once
#include "seam/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rows row .. row + n - 1 as a matrix of their own: q, k and v of a fused tensor. Of a stack: those of each matrix. Of rows in runs: whole
 * runs, or rows of one. */
struct weight weight_rows(const struct weight *w, int row, int n);
/* n rows from row on, each `every` rows behind the last (interleaved gate and up); biases are not interleaved. */
struct weight weight_slice(const struct weight *w, int row, int every, int n);
/* n rows from row on in runs of `run` rows that begin `every` rows apart (a head's query in front of its gate). Of a stack: those of
 * each matrix. */
struct weight weight_runs(const struct weight *w, int row, int run, int every, int n);
/* Columns col .. col + n - 1, both multiples of the type's block, as a matrix of their own: one rank's share of what follows a split
 * by columns. The sum of the products of all shares is the product: the share with column 0 keeps the bias. Of a stack: those of each. */
struct weight weight_columns(const struct weight *w, int col, int n);
/* Matrix e of a stack, as if it stood alone. */
struct weight weight_matrix(const struct weight *w, int e);
const float *weight_bias(const struct weight *w, int e); /* its bias */
/* weight_row: row i. weight_run: how many rows from a multiple of it on lie weight_stride bytes apart; n: all. weight_end: where the
 * memory that a matrix is read from ends. */
const void *weight_row(const struct weight *w, int i);
int weight_run(const struct weight *w);
size_t weight_stride(const struct weight *w);
const void *weight_end(const struct weight *w);
/* Row i without the factor: out[k]. */
void weight_decode_row(const struct weight *w, int i, float *out);
/* Bytes of the elements of all matrices. */
size_t weight_bytes(const struct weight *w);

/* What a backend says in sizes. INFER_E_UNSUPPORTED, naming backend and tensor: a matrix that the lists read is a stack and the
 * operation is not that of experts or heads. */
enum infer_status weights_known(const struct backend_config *c, const char *backend);

#ifdef __cplusplus
}
#endif
