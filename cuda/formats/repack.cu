// Upload: rows of a file's blocks to units (unit_layout.h). One thread writes one row's part of one unit; every byte
// of a row's part belongs to that thread alone.
#include "cuda/common/dev.h"
#include "cuda/formats/file_blocks.cuh"

struct place {
    uint8_t *dst; // region
    int u, base, inter, stride;
};

DEV void put_word(uint8_t *u, int word, uint32_t v) { *(uint32_t *)(u + word * 4) = v; }
// word of (row, tig, e) inside a part of 512 bytes
DEV int code_word(int row, int tig, int e) { return ((row & 7) * 4 + tig) * 4 + 2 * e + (row >> 3); }

template <class F> DEV void put_nibbles(uint8_t *u, int row, F code) {
    for (int p = 0; p < 4; p++)
        for (int c = 0; c < 8; c++) {
            int tig = c & 3, e = c >> 2;
            uint32_t w = 0;
            for (int j = 0; j < 4; j++) {
                int k = p * 64 + e * 16 + tig * 4 + j;
                w |= (uint32_t)((code(k) & 15) | (code(k + 32) & 15) << 4) << (8 * j);
            }
            put_word(u + p * 512, code_word(row, tig, e), w);
        }
}
template <class F> DEV void put_bytes(uint8_t *u, int row, F code) {
    for (int g = 0; g < 8; g++)
        for (int c = 0; c < 8; c++) {
            int tig = c & 3, e = c >> 2;
            uint32_t w = 0;
            for (int j = 0; j < 4; j++) w |= (uint32_t)(code(g * 32 + e * 16 + tig * 4 + j) & 255) << (8 * j);
            put_word(u + g * 512, code_word(row, tig, e), w);
        }
}
// bits bits of each code, groups packed from group g0 on, n groups a byte
template <int BITS, int N, class F> DEV void put_planes(uint8_t *u, int row, F code) {
    for (int part = 0; part < 8 / N; part++)
        for (int c = 0; c < 8; c++) {
            int tig = c & 3, e = c >> 2;
            uint32_t w = 0;
            for (int j = 0; j < 4; j++)
                for (int f = 0; f < N; f++)
                    w |= (uint32_t)(code((part * N + f) * 32 + e * 16 + tig * 4 + j) & ((1 << BITS) - 1))
                         << (8 * j + BITS * f);
            put_word(u + part * 512, code_word(row, tig, e), w);
        }
}

// One row of a unit, from column k0 of s on; k columns are there. code(j): of column k0 + j, 0 behind the last.
template <enum layout L> DEV void repack_floats(uint8_t *u, int row, const uint8_t *s, int k0, int k) {
    if (L == LAYOUT_F32) {
        for (int j = 0; j < 256; j++)
            *(float *)(u + layout_f32_byte(row, j)) = k0 + j < k ? ((const float *)s)[k0 + j] : 0.f;
        return;
    }
    const uint16_t *h = (const uint16_t *)s;
    for (int c = 0; c < 32; c++) {
        uint16_t v[8];
        for (int j = 0; j < 8; j++) v[j] = k0 + c * 8 + j < k ? h[k0 + c * 8 + j] : 0;
        *(uint4 *)(u + ((2 * (c >> 2) + (row >> 3)) * 32 + (row & 7) * 4 + (c & 3)) * 16) = *(const uint4 *)v;
    }
}
template <class S, class F>
DEV void repack_iq4(uint8_t *u, int row, const uint8_t *s, int k0, int k, F code) {
    for (int p = 0; p < 4; p++)
        for (int c = 0; c < 8; c++) {
            uint32_t w = 0;
            for (int j = 0; j < 8; j++)
                w |= (uint32_t)code(p * 64 + (j >> 2) * 32 + (c >> 2) * 16 + (c & 3) * 4 + (j & 3))
                     << (4 * j);
            put_word(u + p * 512, code_word(row, c & 3, c >> 2), w);
        }
    for (int g = 0; g < 8; g++)
        *(uint16_t *)(u + 2048 + row * 16 + (g & 3) * 4 + (g >> 2) * 2) =
            (uint16_t)(k0 + g * 32 < k ? S::d(s, k0 + g * 32) : 0);
}
// Q8, Q4, and both with minima
template <enum layout L, class S, class F>
DEV void repack_plain(uint8_t *u, int row, const uint8_t *s, int k0, int k, F code) {
    constexpr bool wide = L == LAYOUT_Q8 || L == LAYOUT_Q8M, mins = L == LAYOUT_Q8M || L == LAYOUT_Q4M;
    if (wide)
        put_bytes(u, row, code);
    else
        put_nibbles(u, row, code);
    uint8_t *q = u + (wide ? 4096 : 2048) + row * (mins ? 32 : 16);
    for (int g = 0; g < 8; g++) {
        bool in = k0 + g * 32 < k;
        uint16_t *h = (uint16_t *)(q + (g & 3) * (mins ? 8 : 4) + (g >> 2) * 2);
        h[0] = in ? S::d(s, k0 + g * 32) : 0;
        if (mins) h[2] = in ? S::m(s, k0 + g * 32) : 0;
    }
}
// Q4K and Q5K
template <enum layout L, class S, class F>
DEV void repack_k45(uint8_t *u, int row, const uint8_t *s, int k0, F code) {
    put_nibbles(u, row, code);
    if (L == LAYOUT_Q5K) put_planes<1, 8>(u + 2048, row, [&](int j) { return code(j) >> 4; });
    const auto &b = S::b(s, k0);
    uint8_t *q = u + (L == LAYOUT_Q5K ? 2560 : 2048) + row * 16;
    ((uint16_t *)q)[0] = b.d;
    ((uint16_t *)q)[1] = b.dmin;
    for (int t = 0; t < 4; t++) {
        int a, am, c, cm;
        k4_scale(b.sc, t, &a, &am);
        k4_scale(b.sc, t + 4, &c, &cm);
        q[4 + t] = (uint8_t)(am | (a & 3) << 6);
        q[8 + t] = (uint8_t)(cm | (c & 3) << 6);
        q[12 + t] = (uint8_t)(a >> 2 | (c >> 2) << 4);
    }
}
// Q6K and Q3K
template <enum layout L, class S, class F>
DEV void repack_k36(uint8_t *u, int row, const uint8_t *s, int k0, F code) {
    constexpr int scales = L == LAYOUT_Q6K ? 3072 : 1536;
    if (L == LAYOUT_Q6K) {
        put_nibbles(u, row, [&](int j) { return code(j) >> 2; });
        put_planes<2, 4>(u + 2048, row, code);
    } else {
        put_planes<2, 4>(u, row, code);
        put_planes<1, 8>(u + 1024, row, [&](int j) { return code(j) >> 2; });
    }
    for (int g = 0; g < 8; g++)
        for (int e = 0; e < 2; e++)
            u[scales + row * 16 + (g & 3) * 4 + (g >> 2) * 2 + e] =
                (uint8_t)(S::scale(s, k0 + g * 32 + e * 16) + 128);
    *(uint16_t *)(u + scales + 256 + row * 2) = S::d(s, k0);
}
template <class S, class F> DEV void repack_k2(uint8_t *u, int row, const uint8_t *s, int k0, F code) {
    put_planes<2, 4>(u, row, code);
    const block_Q2_K &b = S::b(s, k0);
    for (int j = 0; j < 16; j++) // group j / 2, e = j & 1
        u[1024 + row * 16 + (j >> 1 & 3) * 4 + (j >> 3) * 2 + (j & 1)] = b.sc[j];
    ((uint16_t *)(u + 1280 + row * 4))[0] = b.d;
    ((uint16_t *)(u + 1280 + row * 4))[1] = b.dmin;
}

template <int TYPE>
__global__ void repack_kernel(place p, const uint8_t *rows, size_t row_bytes, int row0, int n_row, int k) {
    constexpr enum layout L = layout_of((enum quant_type)TYPE);
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int r = i % n_row, unit = i / n_row;
    if (unit >= p.u) return;
    const uint8_t *s = rows + (size_t)r * row_bytes;
    int n = row0 + r, phys = p.base + n / p.inter * p.stride + n % p.inter, row = phys & 15, k0 = unit * 256;
    uint8_t *u = p.dst + ((size_t)(phys >> 4) * p.u + unit) * layout_unit_bytes(L);

    if constexpr (L == LAYOUT_F32 || L == LAYOUT_F16 || L == LAYOUT_BF16) {
        repack_floats<L>(u, row, s, k0, k);
    } else {
        using S = src<TYPE>;
        auto code = [&](int j) { return k0 + j < k ? S::code(s, k0 + j) : 0; };
        if constexpr (L == LAYOUT_IQ4)
            repack_iq4<S>(u, row, s, k0, k, code);
        else if constexpr (L == LAYOUT_Q8 || L == LAYOUT_Q8M || L == LAYOUT_Q4 || L == LAYOUT_Q4M)
            repack_plain<L, S>(u, row, s, k0, k, code);
        else if constexpr (L == LAYOUT_Q4K || L == LAYOUT_Q5K)
            repack_k45<L, S>(u, row, s, k0, code);
        else if constexpr (L == LAYOUT_Q6K || L == LAYOUT_Q3K)
            repack_k36<L, S>(u, row, s, k0, code);
        else
            repack_k2<S>(u, row, s, k0, code);
    }
}

cudaError_t cuda_repack(const struct cuda_region *r, const struct cuda_member *m, enum quant_type type,
                        void *weights, const void *rows, size_t row_bytes, int row0, int n_row,
                        cudaStream_t stream) {
    place p = {(uint8_t *)weights + r->offset, r->u, m->base, m->inter, m->stride};
    size_t threads = (size_t)n_row * (size_t)r->u;
    unsigned grid = (unsigned)((threads + 255) / 256);
    switch (type) {
#define QUANT(id, gguf, name, elems, bytes)                                                                  \
    case QUANT_##id:                                                                                         \
        repack_kernel<QUANT_##id>                                                                            \
            <<<grid, 256, 0, stream>>>(p, (const uint8_t *)rows, row_bytes, row0, n_row, m->k);              \
        break;
#include "quant/quant.def"
    default:
        return cudaErrorInvalidValue;
    }
    return cudaGetLastError();
}
