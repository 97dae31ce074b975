/* Importance matrices: of every matrix the mean square of each column of what it is multiplied with, on some text. A file of them is
 * GGUF as llama.cpp writes it (general.type "imatrix", NAME.in_sum2 [n_matrix][k], NAME.counts [n_matrix][1], imatrix.datasets,
 * imatrix.chunk_count, imatrix.chunk_size), or, to be read alone, its older .dat; the magic tells them apart.
 *
 * source: llama.cpp's tools/imatrix and the loader of its quantiser. */
#pragma once
#include "base/mem.h"
#include "base/status.h"
#include "files/gguf_write.h"

struct imatrix_entry {
    char name[80]; /* of the weight's tensor in GGUF */
    int n_matrix, k;
    double *sum2;  /* sum2[n_matrix][k] */
    double *count; /* count[n_matrix]: rows that were added up */
};

struct imatrix {
    struct arena arena;
    struct imatrix_entry *entry; /* entry[n_entry], in the order in which they were made */
    int n_entry, room;
    char dataset[256]; /* the text they come from, "" when the file does not say */
    uint32_t n_chunk, chunk_size;
};

/* The entry of this name with these sizes, made if it is not there. errors: INFER_E_MEMORY, INFER_E_INPUT (there with others) */
enum infer_status imatrix_add(struct imatrix *m, const char *name, int n_matrix, int k,
                              struct imatrix_entry **out);
/* The entry for a weight: its own, or that of a tensor from which it was cut (gate and up of gate_up, q of qkv), or the other way; NULL:
 * none. */
const struct imatrix_entry *imatrix_find(const struct imatrix *m, const char *name);
/* Whether it is of a tensor of so many matrices (of the older form, which does not say how many, too; one of a plain matrix is every
 * matrix's). */
bool imatrix_fits(const struct imatrix_entry *e, int64_t n_matrix, int64_t cols);
/* importance[n] of columns col .. of a matrix: the mean square; 1 where no row came. */
void imatrix_importance(const struct imatrix_entry *e, int64_t matrix, int64_t cols, int64_t col, int64_t n,
                        float *importance);

/* Reads either form. Free with imatrix_free, after an error too. errors: INFER_E_IO, INFER_E_INPUT (names the place), INFER_E_MEMORY */
enum infer_status imatrix_read(struct imatrix *m, const char *path);
/* All of it through a writer that was opened; errors as those of gguf_writer_begin and gguf_writer_data. */
enum infer_status imatrix_write(const struct imatrix *m, struct gguf_writer *w);
void imatrix_free(struct imatrix *m);
