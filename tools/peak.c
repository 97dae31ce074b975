#include "tools/peak.h"
#include <immintrin.h>
#include <stdint.h>
#include <string.h>
#include "cpu/cpu_isa.h"
#include "tools/term.h"
#include "base/host.h"

/* A round is 12 instructions on 12 registers, each a variable of its own (an array would go through memory); the
 * empty asm keeps each result without storing it. */
#define EACH(f) f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7) f(8) f(9) f(10) f(11)
#define ROUNDS(type, first)                                                                                  \
    type a0 = first, a1 = a0, a2 = a0, a3 = a0, a4 = a0, a5 = a0, a6 = a0, a7 = a0, a8 = a0, a9 = a0,        \
         a10 = a0, a11 = a0;                                                                                 \
    for (int k = 0; k < n; k++) {                                                                            \
        EACH(STEP)                                                                                           \
    }                                                                                                        \
    return (double)(a0 + a1 + a2 + a3 + a4 + a5 + a6 + a7 + a8 + a9 + a10 + a11)[0];
#define KEEP(x)     __asm__ volatile("" : "+v"(x));
#define KEEP_256(x) __asm__ volatile("" : "+x"(x));

__attribute__((target("avx2,fma"))) static double fma_256(int n) {
    const __m256 x = _mm256_set1_ps(1e-3f);
#define STEP(i)                                                                                              \
    a##i = _mm256_fmadd_ps(a##i, x, x);                                                                      \
    KEEP_256(a##i)
    ROUNDS(__m256, _mm256_set1_ps(1))
#undef STEP
}

__attribute__((target("avx2"))) static double int8_256(int n) {
    const __m256i x = _mm256_set1_epi8(3);
#define STEP(i)                                                                                              \
    a##i = _mm256_maddubs_epi16(a##i, x);                                                                    \
    KEEP_256(a##i)
    ROUNDS(__m256i, _mm256_setzero_si256())
#undef STEP
}

__attribute__((target("avx2,avxvnni"))) static double vnni_256(int n) {
    const __m256i x = _mm256_set1_epi8(3);
#define STEP(i)                                                                                              \
    a##i = _mm256_dpbusd_avx_epi32(a##i, x, x);                                                              \
    KEEP_256(a##i)
    ROUNDS(__m256i, _mm256_setzero_si256())
#undef STEP
}

__attribute__((target("avx512f"))) static double fma_512(int n) {
    const __m512 x = _mm512_set1_ps(1e-3f);
#define STEP(i)                                                                                              \
    a##i = _mm512_fmadd_ps(a##i, x, x);                                                                      \
    KEEP(a##i)
    ROUNDS(__m512, _mm512_set1_ps(1))
#undef STEP
}

__attribute__((target("avx512f,avx512vnni"))) static double int8_512(int n) {
    const __m512i x = _mm512_set1_epi8(3);
#define STEP(i)                                                                                              \
    a##i = _mm512_dpbusd_epi32(a##i, x, x);                                                                  \
    KEEP(a##i)
    ROUNDS(__m512i, _mm512_setzero_si512())
#undef STEP
}

/* Tiles of 16 rows of 64 bytes: 4 accumulators, 2 x 2 as a matmul would have them. */
__attribute__((target("amx-tile,amx-bf16"))) static double amx_bf16(int n) {
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } __attribute__((aligned(64))) config = {.palette = 1};
    static const uint8_t zero[1024] __attribute__((aligned(64)));
    for (int i = 0; i < 8; i++) config.bytes[i] = 64, config.rows[i] = 16;
    _tile_loadconfig(&config);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, zero, 64);
    _tile_loadd(5, zero, 64);
    _tile_loadd(6, zero, 64);
    _tile_loadd(7, zero, 64);
    for (int k = 0; k < n; k++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    float out[256] __attribute__((aligned(64)));
    _tile_stored(0, out, 64);
    _tile_release();
    return (double)out[0];
}

static bool has_avx2(void) { return cpu_isa_best() >= CPU_ISA_AVX2; }
static bool has_avxvnni(void) {
    enum cpu_isa isa;
    return cpu_isa_pick("avxvnni", &isa) == INFER_OK;
}
static bool has_avx512(void) { return cpu_isa_best() >= CPU_ISA_AVX512; }
static bool has_amx(void) { return cpu_isa_best() >= CPU_ISA_AMX; }

const struct peak peaks[] = {
    {"f32 FMA, 256 bits", "", has_avx2, fma_256, 12 * 8 * 2},
    {"int8 vpmaddubsw, 256 bits", "avx2", has_avx2, int8_256, 12 * 32 * 2},
    {"int8 vpdpbusd, 256 bits", "avx-vnni", has_avxvnni, vnni_256, 12 * 32 * 2},
    {"f32 FMA, 512 bits", "", has_avx512, fma_512, 12 * 16 * 2},
    {"int8 vpdpbusd, 512 bits", "avx512", has_avx512, int8_512, 12 * 64 * 2},
    {"bf16 AMX tiles", "amx", has_amx, amx_bf16, 4 * 16 * 16 * 32 * 2},
};
const int n_peak = (int)(sizeof peaks / sizeof *peaks);

const struct peak *peak_of_isa(const char *isa) {
    const struct peak *best = NULL;
    for (int i = 0; isa && i < n_peak; i++)
        if (*peaks[i].isa && peaks[i].here() && strstr(isa, peaks[i].isa)) best = &peaks[i];
    return best;
}

double peak_measure(const struct peak *p, int n_thread, double seconds) {
    const int rounds = (int)(4e7 / p->ops) + 1000; /* well under a millisecond */
    static volatile double sink;
    double rate = 0, kept = 0;
    /* every thread counts for itself: one that the system holds back does not hold up the others */
#pragma omp parallel num_threads(n_thread) reduction(+ : rate, kept)
    {
        double begin = host_seconds(), now = begin, done = 0;
        while (now - begin < seconds) {
            kept += p->run(rounds);
            done += rounds;
            now = host_seconds();
        }
        rate += done * p->ops / (now - begin);
    }
    sink = kept;
    (void)sink;
    return rate;
}
