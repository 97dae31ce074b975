// Upload: rows of a file's blocks to units (unit_layout.h). One thread writes one row's part of one unit; every byte
// of a row's part belongs to that thread alone.
#include "cuda/common/dev.h"
#include "made/cuda_formats.cuh"

struct place {
    uint8_t *dst; // region
    int u, base, inter, stride;
    float folded;
};

template <int TYPE>
__global__ void repack_kernel(place p, const uint8_t *rows, size_t row_bytes, int row0, int n_row, int k) {
    constexpr enum layout L = layout_of((enum quant_type)TYPE);
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int r = i % n_row, unit = i / n_row;
    if (unit >= p.u) return;
    const uint8_t *s = rows + (size_t)r * row_bytes;
    int n = row0 + r, phys = p.base + n / p.inter * p.stride + n % p.inter, row = phys & 15, k0 = unit * 256;
    uint8_t *u = p.dst + ((size_t)(phys >> 4) * p.u + unit) * layout_unit_bytes(L);

    using S = src<TYPE>;
    format<L>::template repack<S>(u, row, s, k0, k,
                                  [&](int j) { return k0 + j < k ? S::code(s, k0 + j) : 0; });
    if constexpr (L == LAYOUT_LEV)
        if (p.folded > 0) levels_fold(u, row, p.folded);
}

cudaError_t cuda_repack(const struct cuda_region *r, const struct cuda_member *m, enum quant_type type,
                        void *weights, const void *rows, size_t row_bytes, int row0, int n_row,
                        cudaStream_t stream) {
    place p = {(uint8_t *)weights + r->offset, r->u, m->base, m->inter, m->stride, m->folded};
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
