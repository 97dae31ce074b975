#include "cuda/plan/cuda_routes.h"

#define BIT(l) (1u << LAYOUT_##l)
enum {
    EVERY = (1 << LAYOUT_COUNT) - 1,
    BLOCK_SCALED = 0
#define SCALED(layout) | BIT(layout)
#include "cuda/plan/layouts.def"
    ,
    STREAMED = 0
#define LAYOUT(id, name, bytes, kind) | (KIND_##kind != KIND_FLOATS) << LAYOUT_##id
#include "cuda/plan/layouts.def"
    ,
    CODES = 0
#define LAYOUT(id, name, bytes, kind)                                                                        \
    | (KIND_##kind == KIND_CODES || KIND_##kind == KIND_EIGHTS) << LAYOUT_##id
#include "cuda/plan/layouts.def"
};

#define OF(l) (1u << LINK_##l)
enum {
    PROMPT_LINKS = OF(MATMUL) | OF(GATED) | OF(RESIDUAL) | OF(POST) | OF(REDUCED),
    DECODE_LINKS = PROMPT_LINKS | OF(HEAD),
    ALONE = OF(PLAIN)
};

const struct route cuda_routes[] = {
    {ROW_PROMPT, GROUP_WGMMA, EVERY, 90, 90, 256, "gemm_wgmma_kernel<256>", PROMPT_LINKS},
    {ROW_PROMPT, GROUP_WGMMA, EVERY, 90, 90, 128, "gemm_wgmma_kernel<128>", PROMPT_LINKS},
    {ROW_PROMPT, GROUP_WGMMA, EVERY, 90, 90, 64, "gemm_wgmma_kernel<64>", PROMPT_LINKS},
    {ROW_PROMPT, GROUP_MMA, EVERY, 80, 129, 128, "gemm_mma_kernel<128>", PROMPT_LINKS},
    {ROW_PROMPT, GROUP_MMA, EVERY, 80, 129, 64, "gemm_mma_kernel<64>", PROMPT_LINKS},
    {ROW_PROMPT, GROUP_MX, BLOCK_SCALED, 120, 129, 128, "gemm_mx_kernel", PROMPT_LINKS},
    {ROW_PROMPT, GROUP_BLAS, EVERY & ~BIT(F32), 80, 129, 0, "dequant_rows_kernel + cublasLtMatmul",
     PROMPT_LINKS},
    {ROW_DECODE, GROUP_STREAM, STREAMED, 90, 129, 1, "gemv_one_kernel", DECODE_LINKS},
    {ROW_DECODE, GROUP_STREAM, CODES, 90, 129, 8, "gemv_few_kernel", DECODE_LINKS},
    {ROW_DECODE, GROUP_STREAM, STREAMED, 90, 129, 32, "skinny_kernel", DECODE_LINKS},
    {ROW_DECODE, GROUP_STREAM_NARROW, CODES, 90, 129, 1, "gemv_one_kernel, half the warps", DECODE_LINKS},
    {ROW_DECODE, GROUP_STREAM_NARROW, CODES, 90, 129, 32, "skinny_kernel", DECODE_LINKS},
    {ROW_PROMPT, GROUP_PLAIN, EVERY, 80, 129, 64, "matmul_kernel", ALONE},
    {ROW_DECODE, GROUP_PLAIN, EVERY, 80, 129, 64, "few_kernel", ALONE},
};
const int n_cuda_route = (int)(sizeof cuda_routes / sizeof *cuda_routes);

/* Of a link and a class the first row that fits. */
const struct route_other cuda_other_routes[] = {
    {ROW_PROMPT, LINK_ATTEND, OP_ATTEND, 128, 90, 99, false, "prompt_put_kernel, flash_wgmma_kernel"},
    {ROW_PROMPT, LINK_ATTEND, OP_ATTEND, 128, 80, 129, true, "prompt_put_kernel, flash_mma_kernel"},
    {ROW_PROMPT, LINK_ATTEND, OP_ATTEND, 512, 90, 99, false, "prompt_put_kernel, flash_wide_kernel"},
    {ROW_DECODE, LINK_ATTEND, OP_ATTEND, 512, 90, 129, true, "attend_decode_kernel"},
    {ROW_PROMPT, LINK_MATMUL, OP_NORM, 0, 80, 129, true, "prompt_norm_kernel"},
    {ROW_PROMPT, LINK_MOE_GROUPED, OP_EXPERTS, 0, 90, 99, false,
     "moe_grouped_order_kernel, moe_grouped_gather_kernel, moe_grouped_wgmma_kernel"},
    {ROW_PROMPT, LINK_MOE_GROUPED_MIX, OP_MIX, 0, 80, 129, true, "moe_grouped_mix_kernel"},
    {ROW_DECODE, LINK_RESIDUAL, OP_NORM, 0, 90, 129, true,
     "by the writer of the residual stream and the reader"},
    {ROW_DECODE, LINK_POST, OP_NORM, 0, 90, 129, true, "post_norm_kernel"},
    {ROW_PROMPT, LINK_POST, OP_NORM, 0, 80, 129, true, "prompt_post_kernel"},
    {ROW_DECODE, LINK_REDUCED, OP_REDUCE, 0, 90, 129, true,
     "rank_reduced_kernel; cards that do not reach each other: rank_sum_kernel, post_norm_kernel"},
    {ROW_PROMPT, LINK_REDUCED, OP_REDUCE, 0, 80, 129, true, "rank_sum_kernel"},
    {ROW_DECODE, LINK_PLAIN, OP_REDUCE, 0, 80, 129, true, "rank_reduce_kernel; or rank_sum_kernel"},
    {ROW_PROMPT, LINK_PLAIN, OP_REDUCE, 0, 80, 129, true, "rank_sum_kernel"},
    {ROW_DECODE, LINK_EMBED, OP_EMBED, 0, 90, 129, true, "embed_decode_kernel"},
    {ROW_DECODE, LINK_HEAD, OP_SELECT, 0, 90, 129, true, "select_decode_kernel"},
    {ROW_DECODE, LINK_EXPERTS, OP_EXPERTS, 0, 90, 129, true,
     "experts_router_kernel, experts_gated_kernel, experts_down_kernel; several rows: batch_router_kernel, "
     "experts_batch_kernel, batch_mix_kernel"},
    {ROW_PROMPT, LINK_DELTA, OP_DELTA, 128, 80, 129, true,
     "delta_conv_kernel, delta_pair_kernel, delta_scan_kernel, delta_norm_kernel"},
    {ROW_DECODE, LINK_MIX, OP_MIX, 0, 90, 129, true, "mix_give_kernel"},
    {ROW_DECODE, LINK_DELTA, OP_DELTA, 128, 90, 129, true, "delta_decode_kernel"},
    {ROW_DECODE, LINK_MLA, OP_ATTEND, 576, 90, 99, true,
     "mla_heads_kernel, mla_decode_kernel, mla_merge_kernel, mla_heads_kernel"},
    {ROW_PROMPT, LINK_PLAIN, OP_ATTEND, 512, 80, 129, true, "attend_kernel"},
    {ROW_DECODE, LINK_PLAIN, OP_ATTEND, 512, 80, 129, true, "attend_kernel"},
    {ROW_PROMPT, LINK_PLAIN, OP_ATTEND, 576, 90, 99, true, "by a latent: mla_prompt_kernel"},
    {ROW_PROMPT, LINK_PLAIN, OP_ATTEND, 0, 80, 129, true, "by a latent: attend_mla_kernel"},
    {ROW_DECODE, LINK_PLAIN, OP_ATTEND, 0, 80, 129, true, "by a latent: attend_mla_kernel"},
    {ROW_PROMPT, LINK_PLAIN, OP_HEADS, 0, 80, 129, true,
     "mla_heads_prompt_kernel; floats: stack_tile_kernel"},
    {ROW_DECODE, LINK_PLAIN, OP_HEADS, 0, 80, 129, true, "mla_heads_kernel; floats: stack_few_kernel"},
    {ROW_PROMPT, LINK_PLAIN, OP_NORM, 0, 80, 129, true, "norm_kernel"},
    {ROW_DECODE, LINK_PLAIN, OP_NORM, 0, 80, 129, true, "norm_kernel"},
};
const int n_cuda_other_route = (int)(sizeof cuda_other_routes / sizeof *cuda_other_routes);

const struct route_other *route_attend(const struct route_case *c, enum row_class cls, int dk, int dv) {
    for (int i = 0; i < n_cuda_other_route; i++) {
        const struct route_other *r = &cuda_other_routes[i];
        if (r->cls == cls && r->link == LINK_ATTEND && dk <= r->most_head && dv <= r->most_head &&
            dk % 8 == 0 && dv % 8 == 0 && c->sm >= r->sm_least && c->sm <= r->sm_most &&
            (r->mma || !c->only_mma))
            return r;
    }
    return NULL;
}

bool route_experts(const struct route_case *c, enum row_class cls) {
    for (int i = 0; i < n_cuda_other_route; i++) {
        const struct route_other *r = &cuda_other_routes[i];
        if (r->cls == cls && r->link == LINK_EXPERTS && c->sm >= r->sm_least && c->sm <= r->sm_most)
            return true;
    }
    return false;
}

bool route_delta(const struct route_case *c, enum row_class cls, int dk, int dv) {
    for (int i = 0; i < n_cuda_other_route; i++) {
        const struct route_other *r = &cuda_other_routes[i];
        if (r->cls == cls && r->link == LINK_DELTA && dk == r->most_head && dv == r->most_head &&
            c->sm >= r->sm_least && c->sm <= r->sm_most)
            return cls == ROW_DECODE || !c->strict_fp32;
    }
    return false;
}

/* Whether some fused kernel of decode rows takes a layout in a link of that kind. */
static bool streams(const struct route_case *c, enum link_kind kind, enum layout l) {
    int index[ROUTE_MAX];
    for (int i = route_entries(GROUP_STREAM, l, c->sm, index); i-- > 0;)
        if (cuda_routes[index[i]].links >> kind & 1) return true;
    return false;
}

enum link_form route_form(const struct route_case *c, enum row_class cls, enum link_kind kind, bool int8,
                          enum layout l) {
    const bool halves = layout_kind(l) == KIND_HALVES;
    if (cls == ROW_DECODE)
        return !streams(c, kind, l) || (int8 && layout_kind(l) != KIND_CODES) ? FORM_ROWS
               : int8                                                         ? FORM_INT8_32
               : l == LAYOUT_BF16                                             ? FORM_BF16
               : halves                                                       ? FORM_HALVES
                                                                              : FORM_CODES;
    const enum route_group g = route_prompt_group(c, l);
    return g == GROUP_PLAIN ? FORM_ROWS : route_prompt_form(g, l);
}
enum link_form route_prompt_form(enum route_group g, enum layout l) {
    const enum layout_kind k = layout_kind(l);
    return g == GROUP_BLAS    ? FORM_PANEL
           : k == KIND_FLOATS ? FORM_TF32
           : k == KIND_HALVES ? FORM_HALVES
                              : FORM_CODES;
}

enum route_group route_prompt_group(const struct route_case *c, enum layout l) {
    if (l == LAYOUT_F32 && c->strict_fp32) return GROUP_PLAIN;
    if (c->blas) return l == LAYOUT_F32 ? GROUP_PLAIN : GROUP_BLAS;
    if (c->block_scaled && c->sm >= 120 && c->sm < 130 && (BLOCK_SCALED >> l & 1)) return GROUP_MX;
    if (c->sm >= 90 && c->sm < 100 && !c->only_mma) return GROUP_WGMMA;
    return c->sm >= 80 ? GROUP_MMA : GROUP_PLAIN;
}

int route_entries(enum route_group g, enum layout l, int sm, int index[ROUTE_MAX]) {
    int n = 0;
    for (int i = 0; i < n_cuda_route; i++) {
        const struct route *r = &cuda_routes[i];
        if (r->group == g && (r->layouts >> l & 1) && sm >= r->sm_least && sm <= r->sm_most) index[n++] = i;
    }
    return n;
}

int route_default(enum route_group g, enum layout l, int sm, int sm_count, int n_slab, int n) {
    int index[ROUTE_MAX], count = route_entries(g, l, sm, index), best = -1;
    long least = 0;
    for (int i = 0; i < count; i++) {
        const struct route *r = &cuda_routes[index[i]];
        if (!r->tokens) return index[i];
        /* a cluster of two blocks takes 16 slabs, a block 8; what a tile costs beside its tokens: the weights */
        int slabs = g == GROUP_WGMMA ? 16 : 8, at_once = g == GROUP_WGMMA ? sm_count / 2 : sm_count;
        long tiles = (long)((n_slab + slabs - 1) / slabs) * ((n + r->tokens - 1) / r->tokens);
        long cost = (tiles + at_once - 1) / at_once * (r->tokens + 64);
        if (best < 0 || cost < least) {
            least = cost;
            best = index[i];
        }
    }
    return best;
}

int route_bucket(int n) {
    int b = 0;
    while (b + 1 < ROUTE_BUCKETS && n > route_bucket_rows(b)) b++;
    return b;
}
int route_bucket_rows(int bucket) { return 32 << bucket; }

const char *route_group_name(enum route_group g) {
    static const char *const name[] = {"wgmma",  "mma",           "block-scaled", "cublaslt",
                                       "stream", "stream-narrow", "plain"};
    static_assert(sizeof name / sizeof *name == GROUP_COUNT, "a name for each group");
    return name[g];
}
const char *route_link_name(enum link_kind k) {
    static const char *const name[] = {
#define LINK(id, name, file) #name,
#include "cuda/plan/links.def"
    };
    return name[k];
}
const char *route_layout_name(enum layout l) {
    static const char *const name[] = {
#define LAYOUT(id, label, bytes, kind) label,
#include "cuda/plan/layouts.def"
    };
    return name[l];
}
