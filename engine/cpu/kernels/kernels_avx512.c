/* The CPU kernels for AVX-512 (F, BW, VL, DQ, VNNI, BF16). */
#include "cpu/kernels/elementwise.h"
#include "cpu/kernels/attend.h"
#include "cpu/kernels/gemm_f32.h"

const struct cpu_kernels cpu_kernels_avx512 = {
    .name = "avx512",
    .norm = vec_norm,
    .rope = vec_rope,
    .glu = vec_glu,
    .add = vec_add,
    .quantise = vec_quantise,
    .quantise16 = vec_quantise16,
    .kv_store = vec_kv_store,
    .kv_load = vec_kv_load,
    .finite = vec_finite,
    .argmax = vec_argmax,
    .row = cpu_rows_avx512,
    .panel = cpu_panels_avx512,
    .panel16 = cpu_panels16_avx512,
    .unpack_f32 = cpu_unpack_f32_avx512,
    .unpack_bf16 = cpu_unpack_bf16_avx512,
    .attend_row = attend_row,
    .attend_merge = attend_merge,
    .attend_block = attend_block,
    .prep_f32 = prep_f32,
    .gemm_f32 = gemm_f32,
    .untile = untile,
};
