/* The CPU kernels for AVX2, FMA and F16C, the floor; AVX-VNNI is the same with its own matmuls on quantised weights. */
#include "cpu/kernels/elementwise.h"
#include "cpu/kernels/attend.h"
#include "cpu/kernels/index.h"
#include "cpu/kernels/gemm_f32.h"
#include "cpu/kernels/ssm.h"

#define KERNELS(set)                                                                                         \
    {                                                                                                        \
        .name = #set, .norm = vec_norm, .rope = vec_rope, .glu = vec_glu, .conv = vec_conv,                  \
        .delta = vec_delta, .ssm = vec_ssm, .add = vec_add, .sum_rows = vec_sum_rows, .mix = vec_mix,        \
        .quantise = vec_quantise, .quantise16 = vec_quantise16, .quantise_twice = vec_quantise_twice,        \
        .kv_store = vec_kv_store, .kv_load = vec_kv_load, .kv_turn = vec_kv_turn, .finite = vec_finite,      \
        .argmax = vec_argmax, .above = vec_above, .exp_sums = vec_exp_sums,                                  \
        .gemv_float = cpu_gemv_float_avx2, .gemv_fine = cpu_gemv_fine_avx2,                                  \
        .gemm_int8 = cpu_gemm_int8_##set, .gemm_int16 = cpu_gemm_int16_##set,                                \
        .fine_int16 = cpu_fine_int16_##set, .dequant_f32 = cpu_dequant_f32_avx2, .attend_row = attend_row,   \
        .attend_merge = attend_merge, .attend_block = attend_block, .attend_rows = attend_rows,              \
        .index_row = index_row, .prep_f32 = prep_f32, .gemm_f32 = gemm_f32, .untile = untile                 \
    }
const struct cpu_kernels cpu_kernels_avx2 = KERNELS(avx2), cpu_kernels_avxvnni = KERNELS(avxvnni);
