// Block-scaled formats: MXFP8 (e4m3, a power of two per 32), MXFP4 (e2m1, a power of two per 32), NVFP4 (e2m1, an e4m3 scale
// per 16), and the tensor-core product of sm_120 that takes their scales. The same product in plain arithmetic stands in
// where a chip has no such instruction: same registers, same scale operands.
// source: OCP Microscaling Formats 1.0; PTX ISA, mma with .block_scale, fragments of m16n8k32 and m16n8k64.
#pragma once
#include "cuda/common/util.cuh"

enum mx_kind { MX_FP8, MX_FP4, NV_FP4, MX_KIND_COUNT };
#if defined(__CUDA_ARCH_FEAT_SM120_ALL) ||                                                                   \
    (defined(__CUDA_ARCH_FAMILY_SPECIFIC__) && __CUDA_ARCH_FAMILY_SPECIFIC__ == 1200)
#define MX_NATIVE 1
#else
#define MX_NATIVE 0
#endif

// NVFP4: constant factors that bring the scales of weights and activations into the range of e4m3.
template <int KIND> constexpr float mx_weight_factor = KIND == NV_FP4 ? 64.f : 1.f;
template <int KIND> constexpr float mx_x_factor = KIND == NV_FP4 ? 16.f : 1.f;

// ---- elements and scales
DEV uint32_t e4m3_pair(float lo, float hi) { // two codes, nearest, saturating
    uint16_t r = 0;
#if __CUDA_ARCH__ >= 890
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(hi), "f"(lo));
#endif
    return r;
}
DEV float2 e4m3_floats(uint32_t pair) {
    uint32_t h = 0;
#if __CUDA_ARCH__ >= 890
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(h) : "h"((uint16_t)pair));
#endif
    return half2_bits(h);
}
DEV uint32_t e2m1_code(float v) { // nearest, ties to even, saturating
    float x = fabsf(v);
    uint32_t c =
        (x > 0.25f) + (x >= 0.75f) + (x > 1.25f) + (x >= 1.75f) + (x > 2.5f) + (x >= 3.5f) + (x > 5.f);
    return c | (__float_as_uint(v) >> 28 & 8u);
}
DEV uint32_t e2m1_pair(float lo, float hi) {
#if MX_NATIVE
    uint32_t r;
    asm("{\n.reg .b8 c;\ncvt.rn.satfinite.e2m1x2.f32 c, %1, %2;\nmov.b32 %0, {c, 0, 0, 0};\n}"
        : "=r"(r)
        : "f"(hi), "f"(lo));
    return r;
#else
    return e2m1_code(lo) | e2m1_code(hi) << 4;
#endif
}
DEV float e2m1_float(uint32_t c) {
    uint32_t m = c & 7u;
    float v = m < 4u ? 0.5f * (float)m : m == 4u ? 2.f : m == 5u ? 3.f : m == 6u ? 4.f : 6.f;
    return c & 8u ? -v : v;
}
DEV float ue8m0_float(uint32_t s) { return s ? __uint_as_float(s << 23) : 0x1p-127f; }

// Scale of a block whose largest magnitude is top, and the factor 1 / scale for its elements.
template <int KIND> DEV uint32_t mx_scale(float top, float &inverse) {
    if (KIND == NV_FP4) {
        uint32_t s = e4m3_pair(top * (1.f / 6.f), 0.f) & 255u;
        inverse = s ? 1.f / e4m3_floats(s).x : 0.f;
        return s;
    }
    uint32_t bits = __float_as_uint(top * (KIND == MX_FP8 ? 1.f / 448.f : 1.f / 6.f)),
             e = (bits + 0x7fffffu) >> 23;
    e = e < 1u ? 1u : e > 253u ? 253u : e;
    inverse = __uint_as_float((254u - e) << 23);
    return e;
}
// Eight values as codes: FP8 four of them in w[0], four in w[1]; FP4 all in w[0].
template <int KIND> DEV void mx_codes(const float (&v)[8], float inverse, uint32_t (&w)[2]) {
    if (KIND == MX_FP8) {
#pragma unroll
        for (int i = 0; i < 2; i++)
            w[i] = e4m3_pair(v[4 * i] * inverse, v[4 * i + 1] * inverse) |
                   e4m3_pair(v[4 * i + 2] * inverse, v[4 * i + 3] * inverse) << 16;
        return;
    }
    w[0] = w[1] = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) w[0] |= e2m1_pair(v[2 * i] * inverse, v[2 * i + 1] * inverse) << (8 * i);
}

// ---- D[16][8] += A B with scales; FP8: 32 columns, group Q of the scale words; FP4: 64 columns, all scales of the words.
// sa: lanes whose lowest bit is 0 hold the scales of row lane / 4, the others those of row lane / 4 + 8; sb: column lane / 4.
struct mx_sums {
    float d[4];
};
struct mx_operands {
    uint32_t a[4], b[2], sa, sb;
};
template <int KIND, int Q> __device__ __noinline__ mx_sums mx_mma_plain(mx_sums d, mx_operands o) {
    int lane = threadIdx.x & 31, g = lane & ~3, c0 = (lane & 3) * 8, c1 = c0 + 4;
    uint32_t sa[2] = {__shfl_sync(~0u, o.sa, g), __shfl_sync(~0u, o.sa, g + 1)},
             sb[2] = {__shfl_sync(~0u, o.sb, c0), __shfl_sync(~0u, o.sb, c1)};
    for (int w = 0; w < 2; w++) // word w: FP8 columns 16 w ..; FP4 columns 32 w ..
        for (int q = 0; q < 4; q++) {
            uint32_t a[2] = {__shfl_sync(~0u, o.a[2 * w], g + q), __shfl_sync(~0u, o.a[2 * w + 1], g + q)},
                     b[2] = {__shfl_sync(~0u, o.b[w], c0 + q), __shfl_sync(~0u, o.b[w], c1 + q)};
            int byte = KIND == MX_FP8 ? Q : KIND == MX_FP4 ? w : 2 * w + (q >> 1);
            for (int i = 0; i < 4; i++) {
                uint32_t x = a[i >> 1], y = b[i & 1];
                float sum = 0.f;
                if (KIND == MX_FP8)
                    for (int h = 0; h < 2; h++) {
                        float2 u = e4m3_floats(x >> (16 * h)), v = e4m3_floats(y >> (16 * h));
                        sum += u.x * v.x + u.y * v.y;
                    }
                else
                    for (int h = 0; h < 8; h++) sum += e2m1_float(x >> (4 * h)) * e2m1_float(y >> (4 * h));
                uint32_t s = sa[i >> 1] >> (8 * byte) & 255u, t = sb[i & 1] >> (8 * byte) & 255u;
                float f =
                    KIND == NV_FP4 ? e4m3_floats(s).x * e4m3_floats(t).x : ue8m0_float(s) * ue8m0_float(t);
                d.d[i] += sum * f;
            }
        }
    return d;
}
#if MX_NATIVE
template <int KIND, int Q> DEV void mx_mma_native(float (&d)[4], const mx_operands &o) {
#define MX_ARGUMENTS                                                                                         \
    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                         \
    : "r"(o.a[0]), "r"(o.a[1]), "r"(o.a[2]), "r"(o.a[3]), "r"(o.b[0]), "r"(o.b[1]), "r"(o.sa), "r"(o.sb),    \
      "n"(Q)
    if constexpr (KIND == MX_FP8)
        asm("mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e4m3.e4m3.f32."
            "ue8m0 "
            "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3}, {%10}, {%12, 0}, {%11}, {%12, "
            "0};" MX_ARGUMENTS);
    else if constexpr (KIND == MX_FP4)
        asm("mma.sync.aligned.kind::mxf4.block_scale.scale_vec::2X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue8m0 "
            "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3}, {%10}, {0, 0}, {%11}, {0, "
            "0};" MX_ARGUMENTS);
    else
        asm("mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32."
            "ue4m3 "
            "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3}, {%10}, {0, 0}, {%11}, {0, "
            "0};" MX_ARGUMENTS);
#undef MX_ARGUMENTS
}
#endif
template <int KIND, int Q> DEV void mx_mma(float (&d)[4], const mx_operands &o) {
#if MX_NATIVE
    mx_mma_native<KIND, Q>(d, o);
#else
    mx_sums s = {{d[0], d[1], d[2], d[3]}};
    s = mx_mma_plain<KIND, Q>(s, o);
    d[0] = s.d[0], d[1] = s.d[1], d[2] = s.d[2], d[3] = s.d[3];
#endif
}
