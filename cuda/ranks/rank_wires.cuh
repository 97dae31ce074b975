// What kernels do with wires (rank_wires.h).
#pragma once
#include "cuda/common/util.cuh"
#include "cuda/ranks/rank_wires.h"

// Number of an operation, for all ranks the same; its tag is one more, so that memory of zeros has none.
DEV uint32_t rank_epoch(const rank_wires &w, int nth) { return (uint32_t)__ldcg(w.seq) * w.n_op + nth; }
DEV void rank_store(uint2 *p, float v, uint32_t tag) {
    asm volatile("st.relaxed.sys.global.b64 [%0], %1;" ::"l"(p), "l"((uint64_t)tag << 32 | __float_as_uint(v))
                 : "memory");
}
DEV uint2 rank_load(const uint2 *p) {
    uint64_t v;
    asm volatile("ld.relaxed.sys.global.b64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return make_uint2((uint32_t)v, (uint32_t)(v >> 32));
}
DEV void rank_flag_set(uint32_t *p, uint32_t tag) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(tag) : "memory");
}
DEV uint32_t rank_flag(const uint32_t *p) {
    uint32_t v;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
DEV uint64_t rank_nanoseconds() {
    uint64_t t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
}
// A wait that ends: looks now and then at the host's word that a rank left, and at the time.
struct rank_patience {
    uint64_t since;
    unsigned n;
    MEM rank_patience() : since(0), n(0) {}
    // Whether to give up waiting for a rank.
    MEM bool ends(const rank_wires &w, int rank) {
        if (++n & 1023) return false;
        const uint64_t now = rank_nanoseconds();
        if (!since) since = now;
        const bool left = w.left && *(volatile int *)w.left,
                   late = now - since > RANK_SECONDS * 1000000000ull;
        if (!left && !late) return false;
        if (late && w.left) *(volatile int *)w.left = 1;
        *(volatile int *)w.fault = left ? RANK_LEFT : 1 + rank;
        __threadfence_system();
        return true;
    }
};
// Number `at` of this rank's operation to all others.
DEV void rank_send(const rank_wires &w, uint32_t epoch, size_t at, float v) {
    const size_t to = ((epoch & 1) * w.n + w.rank) * w.slot_n + at;
    for (int r = 0; r < w.n; r++)
        if (r != w.rank) rank_store(w.slot[r] + to, v, epoch + 1);
}
// The sum of all ranks' number `at`, in their order; v: this rank's.
DEV float rank_sum(const rank_wires &w, uint32_t epoch, size_t at, float v) {
    const uint2 *own = w.slot[w.rank] + (epoch & 1) * w.n * w.slot_n + at;
    float sum = 0;
    for (int r = 0; r < w.n; r++) {
        float x = v;
        if (r != w.rank) {
            rank_patience p;
            uint2 got = rank_load(own + r * w.slot_n);
            while (got.y != epoch + 1 && !p.ends(w, r)) got = rank_load(own + r * w.slot_n);
            x = __uint_as_float(got.x);
        }
        sum = r ? __fadd_rn(sum, x) : x;
    }
    return sum;
}
