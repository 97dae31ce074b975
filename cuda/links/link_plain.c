/* LINK_PLAIN: what no pattern takes, an operation each. */
#include "cuda/plan/link_type.h"

const struct link_type link_plain = {
    .routes = LINK_ROUTES(
        {ROW_DECODE, OP_REDUCE, 0, 80, 129, true, "rank_reduce_kernel; or rank_sum_kernel"},
        {ROW_PROMPT, OP_REDUCE, 0, 80, 129, true, "rank_sum_kernel"},
        {ROW_PROMPT, OP_ATTEND, 512, 80, 129, true, "attend_kernel"},
        {ROW_DECODE, OP_ATTEND, 512, 80, 129, true, "attend_kernel"},
        {ROW_PROMPT, OP_ATTEND, 576, 90, 99, true, "by a latent: mla_prompt_kernel"},
        {ROW_PROMPT, OP_ATTEND, 0, 80, 129, true, "by a latent: attend_mla_kernel"},
        {ROW_DECODE, OP_ATTEND, 0, 80, 129, true, "by a latent: attend_mla_kernel"},
        {ROW_PROMPT, OP_ATTEND, 0, 80, 129, true, "to chosen positions: attend_chosen_kernel"},
        {ROW_DECODE, OP_ATTEND, 0, 80, 129, true, "to chosen positions: attend_chosen_kernel"},
        {ROW_PROMPT, OP_INDEX, 0, 80, 129, true, "index_score_kernel, index_choose_kernel"},
        {ROW_DECODE, OP_INDEX, 0, 80, 129, true, "index_score_kernel, index_choose_kernel"},
        {ROW_PROMPT, OP_NGRAM, 0, 80, 129, true, "ngram_kernel, ngram_keep_kernel"},
        {ROW_DECODE, OP_NGRAM, 0, 80, 129, true, "ngram_kernel, ngram_keep_kernel"},
        {ROW_PROMPT, OP_HEADS, 0, 80, 129, true, "mla_heads_prompt_kernel; floats: stack_tile_kernel"},
        {ROW_DECODE, OP_HEADS, 0, 80, 129, true, "mla_heads_kernel; floats: stack_few_kernel"},
        {ROW_PROMPT, OP_NORM, 0, 80, 129, true, "norm_kernel"},
        {ROW_DECODE, OP_NORM, 0, 80, 129, true, "norm_kernel"})};
