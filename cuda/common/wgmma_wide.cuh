// Warpgroup products (wgmma.cuh) of numbers of tokens that are no power of two.
#pragma once
#include "cuda/common/wgmma.cuh"

#define W72 W64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define W80 W72 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define W96 W80 ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define W112                                                                                                 \
    W96 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"

DEV void wgmma_rs(float (&d)[72], const uint32_t (&a)[4], uint32_t b) {
    asm volatile(
        "{\n" WGMMA_DESCRIPTOR("db", "%76") "wgmma.mma_async.sync.aligned.m64n144k16.f32.f16.f16 {" W72
                                            "}, {%72, %73, %74, %75}, db, 1, 1, 1, 0;\n}"
        : D64(d, 0), D4(d, 64), D4(d, 68)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b));
}
DEV void wgmma_rs(float (&d)[80], const uint32_t (&a)[4], uint32_t b) {
    asm volatile(
        "{\n" WGMMA_DESCRIPTOR("db", "%84") "wgmma.mma_async.sync.aligned.m64n160k16.f32.f16.f16 {" W80
                                            "}, {%80, %81, %82, %83}, db, 1, 1, 1, 0;\n}"
        : D64(d, 0), D16(d, 64)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b));
}
DEV void wgmma_rs(float (&d)[96], const uint32_t (&a)[4], uint32_t b) {
    asm volatile(
        "{\n" WGMMA_DESCRIPTOR("db", "%100") "wgmma.mma_async.sync.aligned.m64n192k16.f32.f16.f16 {" W96
                                             "}, {%96, %97, %98, %99}, db, 1, 1, 1, 0;\n}"
        : D64(d, 0), D16(d, 64), D16(d, 80)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b));
}
DEV void wgmma_rs(float (&d)[112], const uint32_t (&a)[4], uint32_t b) {
    asm volatile(
        "{\n" WGMMA_DESCRIPTOR("db", "%116") "wgmma.mma_async.sync.aligned.m64n224k16.f32.f16.f16 {" W112
                                             "}, {%112, %113, %114, %115}, db, 1, 1, 1, 0;\n}"
        : D64(d, 0), D16(d, 64), D16(d, 80), D16(d, 96)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b));
}
// More tokens than an instruction takes, half by half.
template <int N> DEV void wgmma_rs_halves(float (&d)[2 * N], const uint32_t (&a)[4], uint32_t b) {
    float(&half)[2][N] = reinterpret_cast<float(&)[2][N]>(d);
    wgmma_rs(half[0], a, b);
    wgmma_rs(half[1], a, b + 2 * N * 128 / 16);
}
DEV void wgmma_rs(float (&d)[144], const uint32_t (&a)[4], uint32_t b) { wgmma_rs_halves<72>(d, a, b); }
DEV void wgmma_rs(float (&d)[160], const uint32_t (&a)[4], uint32_t b) { wgmma_rs_halves<80>(d, a, b); }
