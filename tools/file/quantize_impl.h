/* Inside quantize_file: quantize_file.c lists the tensors and chooses their types, quantize_data.c converts their numbers. */
#pragma once
#include "tools/file/imatrix.h"
#include "tools/file/merge.h"
#include "tools/file/mix.h"
#include "tools/file/quantize.h"
#include "tools/file/stacks.h"

/* Elements in memory at a time, at least one row; elements of one thread's share; shares at a time. */
enum { CHUNK = 4 << 20, SHARE = QUANT_NF4_GROUP, SHARES = 2 * CHUNK / SHARE };

/* What was lost: sums over elements. */
struct loss {
    double error2, square; /* of the error and of the values; where importance is given, of that times both */
    double weighted_error2, weighted_square;
    double largest; /* error */
};

struct job {
    const struct quantize_options *o;
    struct quantize_report *report;
    struct tensorfile *f;
    struct gguf_writer *w;
    const struct mix *mix;
    struct mix_model model;
    struct imatrix imatrix; /* n_entry 0: none */
    struct listed *list;    /* list[n_list]: the tensors to write */
    size_t n_list;
    enum quant_type *target; /* target[n_list] */
    float *values;           /* [CHUNK] */
    unsigned char *blocks;   /* [4 * CHUNK] */
    float *importance;       /* [CHUNK]; NULL: none is given */
    float *again;            /* [CHUNK]: decoded, for errors; NULL: nobody asks */
    struct loss *share_loss; /* [SHARES] */
    double done;
};

/* One run of whole rows of a tensor on its way. */
struct run {
    const struct tensor *t;
    enum quant_type to;
    const struct imatrix_entry *importance; /* NULL: none */
    int64_t matrix;                         /* of the stack, that the run begins in */
    struct loss loss;                       /* of all so far */
    bool merges;                            /* adapters are added to it */
};

/* Key of the architecture, without its name in front; NULL: absent. An integer of it, the first of an array; 0 when absent. */
const struct meta *quantize_meta(const struct tensorfile *f, const char *key);
int64_t quantize_parameter(const struct tensorfile *f, const char *key);
/* The key that says so where folders of Hugging Face have the rows of q and k in halves and GGUF has neighbours (true), or the other way
 * round, as GLM-4's with sections of positions (false); NULL elsewhere. */
const struct meta *quantize_in_halves(const struct tensorfile *f);

/* The importance of a tensor of the list, NULL when there is none. errors: INFER_E_INPUT (of another shape) */
enum infer_status quantize_importance(const struct job *j, const struct tensor *t,
                                      const struct imatrix_entry **out);
/* What y[n] lost of x[n]; importance NULL: all alike. */
struct loss quantize_loss(const float *x, const float *y, const float *importance, size_t n);
void quantize_add_loss(struct loss *sum, const struct loss *l);
/* Whether the tensor's type may be chosen: a matrix, and --only lets it through. */
bool quantize_is_free(const struct job *j, const struct tensor *t);
/* quantize_mix.c: j->target of the tensors whose type may be chosen, so that with the others they take at most bpw bits a weight. errors:
 * INFER_E_INPUT (too few) */
enum infer_status quantize_best(struct job *j);
/* Writes a tensor of the list in a type. */
enum infer_status quantize_tensor(struct job *j, const struct listed *l, enum quant_type to);
