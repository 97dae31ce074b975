// Blocks of a cluster (sm_90): who is who, barriers of each other, copies to all.
#pragma once
#include "cuda/common/util.cuh"

DEV uint32_t cluster_rank() {
    uint32_t r;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}
DEV void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
}
DEV void cluster_arrive(uint32_t barrier, uint32_t cta) {
    asm volatile("{\n.reg .b32 r;\nmapa.shared::cluster.u32 r, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [r];\n}" ::"r"(barrier),
                 "r"(cta)
                 : "memory");
}
DEV void bulk_multicast(uint32_t dst, const void *src, uint32_t bytes, uint32_t barrier, uint16_t mask) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
                 "[%1], %2, "
                 "[%3], %4;" ::"r"(dst),
                 "l"(src), "r"(bytes), "r"(barrier), "h"(mask)
                 : "memory");
}
