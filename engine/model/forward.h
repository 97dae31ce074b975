/* THE data flow: emits a model as one flat list of operations, the same text for every model, class and backend. */
#pragma once
#include "seam/backend.h"
#include "base/mem.h"
#include "model/adapter.h"
#include "model/model.h"

/* The layers that one device computes: first .. end - 1. The device of layer 0 embeds the ids; another one begins with
 * step.input, the residual stream of the one before; so does a model that drafts, whose rows have the embedding and what is given beside it.
 * The device of the last layer computes the outputs; another one ends with the residual stream in buffer 0. */
enum { FORWARD_TAPS = 1 }; /* the buffer of what a head for the model reads */
struct layer_range {
    int first, end, n_ctx;   /* n_ctx: positions of a sequence, at most */
    int n_remote;            /* another backend has the experts of the layers before this one */
    bool hidden;             /* buffer 0 is read behind the step */
    const struct taps *taps; /* what a head for the model reads, of all layers; NULL: there is none */
    /* what is added to products and behind layers; NULL: nothing. Not with n_remote */
    const struct adapters *adapters;
};

/* Writes the list of one row class into the arena. max_rows, max_out: rows and outputs of the largest step.
 * errors: INFER_E_MEMORY */
enum infer_status forward_emit(struct op_list *out, struct arena *arena, const struct model *m,
                               const struct layer_range *range, enum row_class cls, int max_rows,
                               int max_out);
/* The list of that other backend: the experts of layers first .. end - 1. Empty where none of these has experts. errors: INFER_E_MEMORY */
enum infer_status forward_emit_experts(struct op_list *out, struct arena *arena, const struct model *m,
                                       int first, int end, enum row_class cls, int max_rows);
