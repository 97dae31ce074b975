// The table of streaming kernels that share units out evenly.
#include "cuda/decode/gemv/gemv_streamk.h"
#include "cuda/decode/gemv/gemv_shared.h"
#include "cuda/plan/streamk.h"

extern const struct streamk_kernel streamk_q4k[5], streamk_q6k[4];

template <class T, int N> static bool any(const struct streamk_kernel (&k)[N], T f) {
    for (const struct streamk_kernel &one : k)
        if (f(&one)) return true;
    return false;
}
template <class T> static bool each(T f) { return any(streamk_q4k, f) || any(streamk_q6k, f); }
const struct streamk_kernel *streamk_find(enum layout l, enum layout l2, int ga, int epilogue) {
    const struct streamk_kernel *found = NULL;
    each([&](const struct streamk_kernel *k) {
        if (k->l != l || k->l2 != l2 || k->ga != ga || k->epilogue != epilogue) return false;
        found = k;
        return true;
    });
    return found;
}
bool streamk_plan(streamk_job *e, const struct streamk_kernel *k, int blocks) {
    const int units[2] = {e->j.steps[0] * e->j.u, e->j.steps[1] * e->j.u};
    const bool two = k->l2 != LAYOUT_COUNT;
    double least = 1e30;
    e->j.split = blocks;
    for (int s = 1; two && s < blocks; s++) {
        const double a = (double)units[0] / s * layout_unit_bytes(k->l),
                     b = (double)units[1] / (blocks - s) * layout_unit_bytes(k->l2), t = a > b ? a : b;
        if (t >= least) continue;
        least = t;
        e->j.split = s;
    }
    for (int i = 0; i <= two; i++) {
        const int n = i ? blocks - e->j.split : e->j.split;
        e->share[i] = units[i] / n;
        e->more[i] = units[i] % n;
        if (k->epilogue == EPI_POST && (e->share[i] + e->j.u) / e->j.u + 1 > k->warps) return false;
    }
    return blocks <= STREAMK_BLOCKS;
}
size_t streamk_smem(const struct streamk_kernel *k, size_t x_bytes) {
    return gemv_lay_out(k->warps, k->r, x_bytes, (size_t)k->ring).bytes;
}
cudaError_t streamk_prepare(void) {
    cudaError_t e = cudaSuccess;
    each([&](const struct streamk_kernel *k) {
        for (auto run : k->run)
            if (e == cudaSuccess) e = all_shared_memory((const void *)run);
        return e != cudaSuccess;
    });
    return e;
}
