/* Files of a real model's shape with random weights: for measurements, which depend on shapes and types alone, and
 * for tests. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "quant/quant.h"

struct synth_options {
    const char *arch;  /* NULL: the shape's own */
    const char *shape; /* a row of the table in synth_file.c */
    const char *type;  /* a name of mix.h, element types pure */
    const char *path;
    uint64_t seed;
    int layers;         /* the first so many; 0: all */
    bool draft;         /* a layer that drafts behind them, of shapes with the delta rule */
    int vocab, experts; /* in place of the shape's, for tests of real widths; 0: its own */
    void (*progress)(void *user, double done, double total); /* bytes; may be NULL */
    void *user;
};

struct synth_report {
    uint64_t bytes; /* of the file */
    int n_matrix;   /* matrices in all */
    int fallback[QUANT_COUNT]
                [QUANT_COUNT]; /* [wanted][taken]: matrices whose rows do not fit the wanted type */
};

/* Writes a GGUF file. The same options give the same bytes, whatever the number of threads. Weights are normal
 * with a deviation of about 1 / sqrt(columns), so that activations keep their size and logits are of order 1; norm
 * weights are near 1. Memory: a few tens of MiB whatever the size of the file.
 * errors: INFER_E_INPUT (unknown shape, type or architecture), INFER_E_IO, INFER_E_MEMORY. */
enum infer_status synth_write(const struct synth_options *o, struct synth_report *report);

/* Writes an adapter (LoRA) in GGUF with random matrices of a rank for all matrices of the model's layers, in F16: 2 x rank numbers for each
 * row and column. What it adds to a product is about a tenth of that. errors: those of model_open; INFER_E_IO, INFER_E_MEMORY. */
enum infer_status synth_adapter(const char *model, int rank, uint64_t seed, const char *path,
                                uint64_t *bytes);

/* Names of the shapes, separated by spaces. */
const char *synth_shapes(char *buf, size_t n);
