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

const struct route cuda_routes[] = {
    {ROW_PROMPT, GROUP_WGMMA, EVERY, 90, 90, 256, "gemm_wgmma_kernel<256>"},
    {ROW_PROMPT, GROUP_WGMMA, EVERY & ~BIT(F32), 90, 90, 320, "gemm_wgmma_kernel<320>"},
    {ROW_PROMPT, GROUP_WGMMA, EVERY & ~BIT(F32), 90, 90, 288, "gemm_wgmma_kernel<288>"},
    {ROW_PROMPT, GROUP_WGMMA, EVERY & ~BIT(F32), 90, 90, 224, "gemm_wgmma_kernel<224>"},
    {ROW_PROMPT, GROUP_WGMMA, EVERY & ~BIT(F32), 90, 90, 192, "gemm_wgmma_kernel<192>"},
    {ROW_PROMPT, GROUP_WGMMA, EVERY, 90, 90, 128, "gemm_wgmma_kernel<128>"},
    {ROW_PROMPT, GROUP_WGMMA, EVERY, 90, 90, 64, "gemm_wgmma_kernel<64>"},
    {ROW_PROMPT, GROUP_MMA, EVERY, 80, 129, 128, "gemm_mma_kernel<128>"},
    {ROW_PROMPT, GROUP_MMA, EVERY, 80, 129, 64, "gemm_mma_kernel<64>"},
    {ROW_PROMPT, GROUP_MX, BLOCK_SCALED, 120, 129, 128, "gemm_mx_kernel"},
    {ROW_PROMPT, GROUP_MX, BIT(F8), 90, 90, 128, "gemm_fp8_kernel"},
    {ROW_PROMPT, GROUP_BLAS, EVERY & ~BIT(F32), 80, 129, 0, "dequant_rows_kernel + cublasLtMatmul"},
    {ROW_DECODE, GROUP_STREAM, STREAMED, 90, 129, 1, "gemv_one_kernel"},
    {ROW_DECODE, GROUP_STREAM, CODES, 90, 129, 8, "gemv_few_kernel"},
    {ROW_DECODE, GROUP_STREAM, STREAMED, 90, 129, 32, "skinny_kernel"},
    {ROW_DECODE, GROUP_STREAM_NARROW, CODES, 90, 129, 1, "gemv_one_kernel, half the warps"},
    {ROW_DECODE, GROUP_STREAM_NARROW, CODES, 90, 129, 32, "skinny_kernel"},
    {ROW_PROMPT, GROUP_PLAIN, EVERY, 80, 129, 64, "matmul_kernel"},
    {ROW_DECODE, GROUP_PLAIN, EVERY, 80, 129, 64, "few_kernel"},
};
const int n_cuda_route = (int)(sizeof cuda_routes / sizeof *cuda_routes);

enum link_form route_form(const struct route_case *c, enum row_class cls, bool int8, enum layout l) {
    const bool halves = layout_kind(l) == KIND_HALVES;
    int index[ROUTE_MAX];
    if (cls == ROW_DECODE)
        return !route_entries(GROUP_STREAM, l, c->sm, index) || (int8 && layout_kind(l) != KIND_CODES)
                   ? FORM_ROWS
               : int8             ? FORM_INT8_32
               : l == LAYOUT_BF16 ? FORM_BF16
               : halves           ? FORM_HALVES
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
    if (c->sm >= 90 && c->sm < 100 && !c->only_mma)
        return c->block_scaled && l == LAYOUT_F8 ? GROUP_MX : GROUP_WGMMA;
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

/* What a tile costs, in tokens. GROUP_WGMMA as measured (H100, Q4_K, Q6_K and F16): tiles of 64, 128, 192, 224, 288 and 320 tokens take 0.57, 0.71,
 * 0.86, 0.94, 1.10 and 1.21 of the time of one of 256. */
static long tile_cost(enum route_group g, int tokens) {
    if (g != GROUP_WGMMA) return tokens + 64;
    return tokens + 180 + (tokens > 256 ? (tokens - 256) / 2 : 0);
}
int route_default(enum route_group g, enum layout l, int sm, int sm_count, int n_slab, int n) {
    int index[ROUTE_MAX], count = route_entries(g, l, sm, index), best = -1;
    long least = 0;
    for (int i = 0; i < count; i++) {
        const struct route *r = &cuda_routes[index[i]];
        if (!r->tokens) return index[i];
        /* a cluster of two blocks takes 16 slabs, a block 8 */
        int slabs = g == GROUP_WGMMA ? 16 : 8, at_once = g == GROUP_WGMMA ? sm_count / 2 : sm_count;
        long tiles = (long)((n_slab + slabs - 1) / slabs) * ((n + r->tokens - 1) / r->tokens);
        long cost = (tiles + at_once - 1) / at_once * tile_cost(g, r->tokens);
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
