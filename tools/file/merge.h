/* Adapters added to the matrices of a model while it is written again (infer merge): W + scale B A. */
#pragma once
#include "base/status.h"
#include "files/tensorfile.h"

struct merge;
struct merge_named {
    const char *path;
    float scale;
};
/* Opens adapters for the model in `model`, checked as for an engine. errors: those of model_open and adapter_open; INFER_E_UNSUPPORTED (a
 * control vector; a pair of a head that is the embedding) */
enum infer_status merge_open(struct merge **out, const char *model, const struct tensorfile_options *options,
                             const struct merge_named *adapter, int n);
void merge_close(struct merge *m);
/* Whether something is added to a tensor, by GGUF's name. */
bool merge_has(const struct merge *m, const char *name);
/* Adds to x[n], elements first .. of the matrices from `matrix` on of a tensor, in GGUF's order of rows. From any thread. */
void merge_add(const struct merge *m, const struct tensor *t, int64_t matrix, size_t first, float *x,
               size_t n);
