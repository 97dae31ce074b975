// Hopper's warpgroup products (sm_90a): D[64][N] += A[64][16] B[16][N], A in registers, B in shared memory (128-byte
// swizzle; K contiguous, or N contiguous where TRANSPOSED). source: PTX ISA, wgmma.mma_async.
#pragma once
#include "cuda/common/util.cuh"

DEV void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEV void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> DEV void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
// Orders the compiler's uses of sums against wgmma_fence and wgmma_wait, which do not name them.
template <int N> DEV void wgmma_pin(float (&d)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}
// The low word of a descriptor; the high one is the same for all: 8 rows 1,024 bytes apart, 128-byte swizzle.
#define WGMMA_DESCRIPTOR(name, low)                                                                          \
    ".reg .b64 " name ";\ncvt.u64.u32 " name ", " low ";\nor.b64 " name ", " name ", 0x4000004000000000;\n"
// Operands of the asm below: the sums, and descriptors of which the low word comes in.
#define W16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define W32 W16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define W64                                                                                                  \
    W32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"                   \
        ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define W128                                                                                                 \
    W64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"                   \
        ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"                   \
        ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"       \
        ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
// Tile with N contiguous: blocks of 64 columns block_bytes apart, 8 rows (of K) an atom.
DEV uint32_t wgmma_descriptor_n(uint32_t address, uint32_t block_bytes) {
    return address >> 4 | (block_bytes >> 4) << 16;
}
// Tile whose rows are 128 bytes, 8 rows a swizzle atom (1024 bytes); 16 columns further: + 2.
DEV uint32_t wgmma_descriptor(uint32_t address) { return address >> 4 | 1 << 16; }

#define D4(d, i)  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define D16(d, i) D4(d, i), D4(d, i + 4), D4(d, i + 8), D4(d, i + 12)
#define D64(d, i) D16(d, i), D16(d, i + 16), D16(d, i + 32), D16(d, i + 48)

DEV void wgmma_rs(float (&d)[16], const uint32_t (&a)[4], uint32_t b) {
    asm volatile(
        "{\n" WGMMA_DESCRIPTOR("db", "%20") "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {" W16
                                            "}, {%16, %17, %18, %19}, db, 1, 1, 1, 0;\n}"
        : D16(d, 0)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b));
}
template <int TRANSPOSED = 0> DEV void wgmma_rs(float (&d)[32], const uint32_t (&a)[4], uint32_t b) {
    asm volatile(
        "{\n" WGMMA_DESCRIPTOR("db", "%36") "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" W32
                                            "}, {%32, %33, %34, %35}, db, 1, 1, 1, %37;\n}"
        : D16(d, 0), D16(d, 16)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "n"(TRANSPOSED));
}

template <int TRANSPOSED = 0> DEV void wgmma_rs(float (&d)[64], const uint32_t (&a)[4], uint32_t b) {
    asm volatile(
        "{\n" WGMMA_DESCRIPTOR("db", "%68") "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" W64
                                            "}, {%64, %65, %66, %67}, db, 1, 1, 1, %69;\n}"
        : D64(d, 0)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "n"(TRANSPOSED));
}

template <int TRANSPOSED = 0> DEV void wgmma_rs(float (&d)[128], const uint32_t (&a)[4], uint32_t b) {
    asm volatile(
        "{\n" WGMMA_DESCRIPTOR("db", "%132") "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {" W128
                                             "}, {%128, %129, %130, %131}, db, 1, 1, 1, %133;\n}"
        : D64(d, 0), D64(d, 64)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "n"(TRANSPOSED));
}

DEV void wgmma_rs_bf16(float (&d)[64], const uint32_t (&a)[4], uint32_t b) {
    asm volatile(
        "{\n" WGMMA_DESCRIPTOR("db", "%68") "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" W64
                                            "}, {%64, %65, %66, %67}, db, 1, 1, 1, 0;\n}"
        : D64(d, 0)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b));
}

// TF32, both from shared memory (K contiguous): D[64][N] += A[64][8] B[8][N].
DEV void wgmma_tf32(float (&d)[32], uint32_t a, uint32_t b) {
    asm volatile("{\n" WGMMA_DESCRIPTOR("da", "%32")
                     WGMMA_DESCRIPTOR("db", "%33") "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 {" W32
                                                   "}, da, db, 1, 1, 1;\n}"
                 : D16(d, 0), D16(d, 16)
                 : "r"(a), "r"(b));
}
DEV void wgmma_tf32(float (&d)[64], uint32_t a, uint32_t b) {
    asm volatile("{\n" WGMMA_DESCRIPTOR("da", "%64") WGMMA_DESCRIPTOR(
                     "db", "%65") "wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 {" W64
                                  "}, da, db, 1, 1, 1;\n}"
                 : D64(d, 0)
                 : "r"(a), "r"(b));
}
DEV void wgmma_tf32(float (&d)[128], uint32_t a, uint32_t b) {
    asm volatile("{\n" WGMMA_DESCRIPTOR("da", "%128") WGMMA_DESCRIPTOR(
                     "db", "%129") "wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32.tf32 {" W128
                                   "}, da, db, 1, 1, 1;\n}"
                 : D64(d, 0), D64(d, 64)
                 : "r"(a), "r"(b));
}

// A from shared memory too (K contiguous).
DEV void wgmma_ss(float (&d)[64], uint32_t a, uint32_t b) {
    asm volatile("{\n" WGMMA_DESCRIPTOR("da", "%64")
                     WGMMA_DESCRIPTOR("db", "%65") "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" W64
                                                   "}, da, db, 1, 1, 1, 0, 0;\n}"
                 : D64(d, 0)
                 : "r"(a), "r"(b));
}
