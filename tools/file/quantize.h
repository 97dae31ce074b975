/* A model file written again with its matrices in other element types. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "files/model_keys.h"
#include "quant/quant.h"

/* What a tensor lost: sums over its elements. */
struct quantize_error {
    const char *name;
    enum quant_type from, to;
    double error2, square, largest;
};

struct merge;
struct quantize_options {
    const char *in, *out;
    const char *type; /* a name of mix.h; NULL with bpw */
    double bpw;       /* at most so many bits a weight, of any types; 0: type says */
    const char *only; /* shell pattern of tensor names; NULL: all */
    bool pure;        /* no mix: the type in every matrix */
    bool tower;       /* of a folder: what it has for images, as an mmproj file */
    /* may be NULL */
    void (*progress)(void *user, const char *what, double done, double total, const char *unit);
    void *user;
    bool force;                /* replaces a model that is larger than the input, too */
    bool sparse_ok;            /* holes of the input are zeros that are meant */
    const char *task;          /* of a folder with adapters for tasks: the one that is added; NULL: none */
    struct key_ignore ignore;  /* keys of config.json that are not known */
    const char *imatrix;       /* file of importance matrices; NULL: none */
    const struct merge *merge; /* adapters that are added (merge.h); NULL: none */
    /* each matrix, with bpw; NULL: nobody asks */
    void (*chose)(void *user, const char *name, enum quant_type type);
    /* of each tensor that changed; NULL: nobody asks */
    void (*check)(void *user, const struct quantize_error *e);
};

struct quantize_report {
    uint64_t bytes_in, bytes_out;
    int n_tensor, n_matrix; /* all tensors; matrices that --only lets through */
    int n_changed;          /* tensors whose type changed */
    int n_lossy;            /* of these, read from a type below 16 bits */
    double bpw;             /* with bpw: what all tensors take */
    int n_rounded;          /* with the type "keep": matrices of types that GGUF lacks, */
    double rounded;         /* and the largest of their relative errors */
    int n_unweighed; /* matrices in blocks without an entry in the importance matrices that are given */
    int fallback[QUANT_COUNT]
                [QUANT_COUNT]; /* [wanted][taken]: matrices whose rows do not fit the wanted type */
};

/* Decodes and encodes tensor by tensor, rows over all OpenMP threads; what keeps its type is copied byte for
 * byte, norms and vectors become F32. Memory: some tens of MiB beside the map. OUT appears when it is complete;
 * it may not be IN. The result does not depend on the number of threads.
 * errors: INFER_E_INPUT (broken file, unknown type, pattern without a match, OUT is IN or a larger model, a weight that is not finite
 * or does not fit F16, a type below 2.5 bits without importance, importance of another model: names the tensor), INFER_E_IO, INFER_E_MEMORY, INFER_E_UNSUPPORTED. */
enum infer_status quantize_file(const struct quantize_options *o, struct quantize_report *report);
