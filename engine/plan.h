/* Every size is known here before anything is taken: KV, activations, workspace, outputs, weights, reserve. */
#pragma once
#include "backend.h"
#include "forward.h"
#include "infer.h"
#include "mem.h"
#include "model.h"

struct plan {
    const struct backend_type *backend;
    struct backend_config config;
    struct backend_sizes size;
    struct op_list list[ROW_CLASS_COUNT];
    struct kv_group *kv_group;
    int n_batch, n_decode_rows,
        n_prompt_out;   /* rows of the largest prompt and decode step; outputs of a prompt step */
    size_t map_bytes;   /* weights read in place from the map */
    size_t total_bytes; /* all that the backend takes */
    size_t limit_bytes; /* what there is to take; SIZE_MAX: unknown */
    bool fits;
    char *text; /* the report */
};

struct plan_options {
    const struct infer_engine_options *engine;
    bool keep_all; /* no two buffers share memory: for taps */
};

/* Makes the lists, asks the backend for sizes and lays out the activations. A plan that does not fit is still a plan
 * (fits is false and text says what would); errors: INFER_E_INPUT (an option is out of range), INFER_E_MEMORY,
 * INFER_E_UNSUPPORTED (the backend has no kernel for an op) */
enum infer_status plan_make(struct plan *out, struct arena *arena, const struct model *m,
                            const struct backend_type *backend, const struct plan_options *options);
