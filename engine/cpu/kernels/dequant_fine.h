/* Weight rows of types of folders to float32, included once per instruction set. */
#include "cpu/simd/fine_values.h"

static void f32_levels(float *y, const uint8_t *w, int k, const float *level) {
    const struct levels t = levels_of(level);
    for (int at = 0; at < k; at += 64, w += 36) {
        float d;
        memcpy(&d, w, sizeof d);
        UNROLL for (int c = 0; c < 64; c += 32) {
            vf v[LEVEL_VECTORS];
            level_32(&t, w + 4 + c / 2, v);
            UNROLL for (int j = 0; j < LEVEL_VECTORS; j++)
                vf_store(y + at + c + VL * j, vf_mul(v[j], vf_set(d)));
        }
    }
}
static void fine_NF4(void *y, const void *w, const uint8_t *end, int k) {
    (void)end;
    f32_levels(y, w, k, quant_nf4_levels);
}
static void fine_FP4(void *y, const void *w, const uint8_t *end, int k) {
    (void)end;
    f32_levels(y, w, k, quant_fp4_levels);
}
static void fine_F8_128(void *out, const void *blocks, const uint8_t *end, int k) {
    const struct block_F8_128 *b = blocks;
    float *y = out;
    (void)end;
    for (; k > 0; k -= 128, b++, y += 128)
        for (int j = 0; j < 128; j += VL)
            vf_store(y + j, vf_mul(float8(b->q + j), vf_set(b->s * FLOAT8_SCALE)));
}
static void fine_I8_128(void *out, const void *blocks, const uint8_t *end, int k) {
    const struct block_I8_128 *b = blocks;
    float *y = out;
    (void)end;
    for (; k > 0; k -= 128, b++, y += 128)
        for (int j = 0; j < 128; j++) y[j] = b->s * (float)b->q[j];
}
static void fine_Z4(void *out, const void *blocks, const uint8_t *end, int k) {
    const struct block_Z4 *b = blocks;
    float *y = out;
    (void)end;
    for (; k > 0; k -= 32, b++, y += 32) {
        const float d = f16_to_f32(b->d);
        const int z = b->z;
        for (int j = 0; j < 16; j++) y[j] = d * (float)((b->q[j] & 15) - z);
        for (int j = 0; j < 16; j++) y[16 + j] = d * (float)((b->q[j] >> 4) - z);
    }
}
static cpu_dequant_fn *const fine[QUANT_COUNT] = {[QUANT_NF4] = fine_NF4,
                                                  [QUANT_FP4] = fine_FP4,
                                                  [QUANT_F8_128] = fine_F8_128,
                                                  [QUANT_I8_128] = fine_I8_128,
                                                  [QUANT_Z4] = fine_Z4};
