/* One rank's share of a model, as a model. */
#pragma once
#include "model/model.h"

/* Views into what `of` has, which outlives it; its list has `reduce` and `gather` where ranks add up. What the share leaves whole:
 * struct model .share. errors: INFER_E_INPUT (more ranks than RANKS_MAX), INFER_E_UNSUPPORTED (fewer tokens than ranks), INFER_E_MEMORY */
enum experts_by {
    EXPERTS_CUT,  /* columns of every expert; all of them where these cannot be cut */
    EXPERTS_FIT,  /* the same, but whole experts where these cannot be cut */
    EXPERTS_WHOLE /* whole experts */
};
enum infer_status model_shard_by(struct model **out, const struct model *of, int rank, int n,
                                 enum experts_by by);
/* EXPERTS_FIT */
enum infer_status model_shard(struct model **out, const struct model *of, int rank, int n);
