/* Codes of 8 bits with scales: decoding by way of them, and the search for points of a codebook. */
#include <math.h>
#include "quant/quant_codes.h"

void quant_decode_codes(float *y, const void *blocks, size_t n, enum quant_type type) {
    const struct quant_info *q = quant_info(type);
    int8_t code[256];
    float d[16];
    for (const uint8_t *b = blocks; n; n -= q->elems, b += q->bytes, y += q->elems) {
        q->codes(code, d, b, q->elems);
        for (uint32_t i = 0; i < q->elems; i++) y[i] = d[i / 16] * (float)code[i];
    }
}

/* ---- signs ---- */

#define BYTE(s, i) ((s) >> (i)&1 ? UINT64_C(255) << 8 * (i) : 0)
#define BYTES(s)                                                                                             \
    (BYTE(s, 0) | BYTE(s, 1) | BYTE(s, 2) | BYTE(s, 3) | BYTE(s, 4) | BYTE(s, 5) | BYTE(s, 6) | BYTE(s, 7))
#define PARITY(s)  (((s) ^ (s) >> 1 ^ (s) >> 2 ^ (s) >> 3 ^ (s) >> 4 ^ (s) >> 5 ^ (s) >> 6) & 1)
#define EVEN(s)    BYTES((s) | PARITY(s) << 7)
#define FOUR(M, s) M(s), M((s) + 1), M((s) + 2), M((s) + 3)
#define MANY(M, s) FOUR(M, s), FOUR(M, (s) + 4), FOUR(M, (s) + 8), FOUR(M, (s) + 12)
#define HALF(M, s)                                                                                           \
    MANY(M, s), MANY(M, (s) + 16), MANY(M, (s) + 32), MANY(M, (s) + 48), MANY(M, (s) + 64),                  \
        MANY(M, (s) + 80), MANY(M, (s) + 96), MANY(M, (s) + 112)
const uint64_t quant_signs[256] = {HALF(BYTES, 0), HALF(BYTES, 128)};
const uint64_t quant_even_signs[128] = {HALF(EVEN, 0)};

/* ---- what codes can be ---- */

#define PLUS_MINUS(a, b, c, d, e, f, g, h)                                                                   \
    { a, b, c, d, e, f, g, h, -(a), -(b), -(c), -(d), -(e), -(f), -(g), -(h) }
#define THREE(a, b, c)                                                                                       \
    { a, b, c, c, -(a), -(b), -(c), -(c) }
static const struct quant_code_set sets[QUANT_COUNT] = {
    [QUANT_IQ2_XXS] = {QUANT_CODES_EIGHT, 32, QUANT_SCALES_STEPS, THREE(8, 25, 43)},
    [QUANT_IQ2_XS] = {QUANT_CODES_EIGHT, 16, QUANT_SCALES_STEPS, THREE(8, 25, 43)},
    [QUANT_IQ2_S] = {QUANT_CODES_EIGHT, 16, QUANT_SCALES_STEPS, THREE(8, 25, 43)},
    [QUANT_IQ3_XXS] = {QUANT_CODES_LEVELS, 32, QUANT_SCALES_STEPS, PLUS_MINUS(4, 12, 20, 28, 36, 44, 52, 62)},
    [QUANT_IQ3_S] = {QUANT_CODES_LEVELS, 32, QUANT_SCALES_STEPS, PLUS_MINUS(1, 3, 5, 7, 9, 11, 13, 15)},
    [QUANT_IQ1_S] = {QUANT_CODES_EIGHT, 32, QUANT_SCALES_STEPS, THREE(1, 7, 9)},
    [QUANT_IQ1_M] = {QUANT_CODES_EIGHT, 16, QUANT_SCALES_STEPS, THREE(1, 7, 9)},
    [QUANT_TQ1_0] = {QUANT_CODES_FOUR, 256, QUANT_SCALES_HALF, {0}},
    [QUANT_TQ2_0] = {QUANT_CODES_FOUR, 256, QUANT_SCALES_HALF, {0}},
    [QUANT_NVFP4] = {QUANT_CODES_LEVELS, 16, QUANT_SCALES_E4M3, PLUS_MINUS(0, 1, 2, 3, 4, 6, 8, 12)},
    [QUANT_Q1_0] = {QUANT_CODES_TWO, 128, QUANT_SCALES_HALF, {0}},
    [QUANT_Q2_0] = {QUANT_CODES_FOUR, 64, QUANT_SCALES_HALF, {0}},
    [QUANT_Z4] = {QUANT_CODES_RANGE, 32, QUANT_SCALES_ANY, {0}},
    [QUANT_I8_128] = {QUANT_CODES_ALL, 128, QUANT_SCALES_ANY, {0}},
    [QUANT_F8_128] = {QUANT_CODES_ALL, 16, QUANT_SCALES_ANY, {0}},
    [QUANT_NF4] = {QUANT_CODES_LEVELS,
                   64,
                   QUANT_SCALES_ANY,
                   {-112, -78, -59, -44, -32, -21, -10, 0, 9, 18, 28, 38, 49, 63, 81, 112}},
    [QUANT_FP4] = {QUANT_CODES_LEVELS,
                   64,
                   QUANT_SCALES_ANY,
                   {0, 1, 80, 120, 40, 60, 20, 30, 0, -1, -80, -120, -40, -60, -20, -30}},
};
const struct quant_code_set *quant_code_set(enum quant_type type) {
    return quant_info(type)->codes ? &sets[type] : NULL;
}

/* Scales are (1/2 + s) / 4, (1/2 + s) / 2, 1 + 2 s or (2 s + 1) / 8 times the half of the block. */
float quant_code_unit(enum quant_type type, const void *block) {
    uint16_t half;
    memcpy(&half, block, sizeof half);
    if (type == QUANT_IQ1_M) half = quant_iq1_m_half(block);
    return f16_to_f32(half) * (type == QUANT_IQ3_S ? 1 : type == QUANT_IQ3_XXS ? 0.25f : 0.125f);
}

/* ---- a plain scale ---- */

static float plain_error(const float *x, const float *w, int n, int lo, int hi, float d, double *xq,
                         double *qq) {
    float inverse = quant_inverse(d), error = 0;
    *xq = *qq = 0;
    for (int i = 0; i < n; i++) {
        float q = (float)quant_code(x[i] * inverse, lo, hi), e = x[i] - d * q;
        error += w[i] * e * e;
        *xq += (double)(w[i] * x[i] * q), *qq += (double)(w[i] * q * q);
    }
    return error;
}

float quant_fit_plain(const float *x, const float *w, int n, int lo, int hi) {
    enum { STARTS = 12, ROUNDS = 4 };
    float largest = 0, best = 0, least = INFINITY;
    for (int i = 0; i < n; i++)
        if (fabsf(x[i]) > largest && isfinite(x[i])) largest = fabsf(x[i]);
    for (int start = 0; start < STARTS && largest > 0; start++) {
        float d = largest * (1 - 0.07f * (float)start) / (float)(hi > -lo ? hi : -lo);
        for (int sign = 0; sign < 1 + (hi != -lo); sign++, d = -d) {
            float at = d;
            for (int round = 0; round < ROUNDS; round++) {
                double xq, qq;
                float half = quant_half_of(at), error = plain_error(x, w, n, lo, hi, half, &xq, &qq);
                if (error < least) least = error, best = half;
                if (!(qq > 0)) break;
                at = (float)(xq / qq);
            }
        }
    }
    return best;
}

/* ---- scales that are the largest value ---- */

float quant_largest(const float *x, int n) {
    float largest = 0;
    for (int i = 0; i < n; i++)
        if (isfinite(x[i]) && fabsf(x[i]) > largest) largest = fabsf(x[i]);
    return largest < 0x1p-110f ? 0 : largest;
}
int quant_nearest_of(const float level[16], float v) {
    int best = 0;
    for (int i = 1; i < 16; i++)
        if (fabsf(v - level[i]) < fabsf(v - level[best])) best = i;
    return best;
}

/* ---- points of a codebook ---- */

/* Eight values or four as the encoder sees them: what each level of each would cost. */
struct costs {
    float half[2][256]; /* of the first and second half of a point's bits */
};

static void make_costs(struct costs *c, const struct quant_book *b, const float *x, const float *w, float t,
                       float plus) {
    const int bits = b->len == 8 ? 2 : 3, values = b->len / 2, levels = 1 << bits;
    for (int h = 0; h < 2; h++) {
        float one[4][8];
        for (int i = 0; i < values; i++)
            for (int l = 0; l < levels; l++) {
                float e = x[h * values + i] - t * ((float)b->level[l] + plus);
                one[i][l] = w[h * values + i] * e * e;
            }
        for (int at = 0; at < 1 << bits * values; at++) {
            float sum = 0;
            for (int i = 0; i < values; i++) sum += one[i][at >> bits * i & (levels - 1)];
            c->half[h][at] = sum;
        }
    }
}

static float nearest_point(const struct quant_book *b, const float *x, const float *w, float t, float plus,
                           uint16_t *index) {
    const int bits = b->len == 8 ? 8 : 6, mask = (1 << bits) - 1;
    struct costs c;
    float least = INFINITY;
    make_costs(&c, b, x, w, t, plus);
    *index = 0;
    for (int i = 0; i < b->n; i++) {
        float cost = c.half[0][b->point[i] & mask] + c.half[1][b->point[i] >> bits];
        if (cost < least) least = cost, *index = (uint16_t)i;
    }
    return least;
}

/* A scale for a group, as if every value could have its own level. */
static float start_scale(const struct quant_book *b, const float *x, const float *w) {
    const int levels = b->len == 8 ? 3 : 8;
    const float top = b->plus ? 9 : (float)b->level[levels - 1];
    float largest = 0, best = 0, least = INFINITY;
    for (int i = 0; i < b->group; i++)
        if (isfinite(x[i]) && fabsf(x[i]) > largest) largest = fabsf(x[i]);
    for (int k = 0; k < 10 && largest > 0; k++) {
        float t = largest / top * (1.1f - 0.07f * (float)k), error = 0;
        for (int i = 0; i < b->group; i++) {
            float near = INFINITY;
            for (int l = 0; l < levels; l++) {
                float e = b->plus ? x[i] - t * (float)b->level[l] : fabsf(x[i]) - t * (float)b->level[l];
                near = e * e < near ? e * e : near;
            }
            error += w[i] * near;
        }
        if (error < least) least = error, best = t;
    }
    return best;
}

/* Signs of eight values, and in *y the values times them: not below 0, but for one where their number would be odd. */
static uint8_t take_signs(const struct quant_book *b, const float *x, const float *w, float *y) {
    unsigned signs = 0;
    int cheapest = 0;
    for (int i = 0; i < 8; i++) {
        y[i] = fabsf(x[i]);
        if (x[i] < 0) signs |= 1u << i;
        if (w[i] * y[i] < w[cheapest] * y[cheapest]) cheapest = i;
    }
    if (b->even && __builtin_parity(signs)) signs ^= 1u << cheapest, y[cheapest] = -y[cheapest];
    return (uint8_t)signs;
}

/* The points of so many values at scale t: which give the least error with one thing added. */
static void choose_points(struct quant_chosen *out, const struct quant_book *b, const float *x,
                          const float *w, int at, float t) {
    uint16_t index[2][4];
    float error[2] = {0, 0}, y[8];
    for (int sign = 0; sign < (b->plus ? 2 : 1); sign++)
        for (int i = 0; i < b->together; i += 8) {
            if (!b->plus) out->signs[(at + i) / 8] = take_signs(b, x + i, w + i, y);
            for (int k = 0; k < 8; k += b->len)
                error[sign] +=
                    nearest_point(b, b->plus ? x + i : y + k, w + i + k, t,
                                  !b->plus ? 0
                                  : sign   ? -1.0f
                                           : 1.0f,
                                  b->plus ? &index[sign][i / 8] : &out->index[(at + i + k) / b->len]);
        }
    const int taken = error[1] < error[0];
    for (int i = 0; i < b->together / 8 && b->plus; i++) {
        out->minus[at / 8 + i] = (uint8_t)taken;
        out->index[at / 8 + i] = index[taken][i];
    }
}

void quant_choose(struct quant_chosen *out, const struct quant_book *b, const float *x,
                  const float *importance) {
    float t[16], own[256], largest = 0;
    const float *w = quant_weights(importance, x, own, 256);
    memset(out, 0, sizeof *out);
    for (int g = 0; g < 256 / b->group; g++) {
        t[g] = start_scale(b, x + g * b->group, w + g * b->group);
        if (t[g] > largest) largest = t[g];
    }
    out->d = quant_half_of(largest / (b->unit * (float)b->most));
    for (int g = 0; g < 256 / b->group; g++) {
        float unit = out->d * b->unit, s = (t[g] * quant_inverse(unit) - 1) * 0.5f;
        out->scale[g] = (uint8_t)quant_code(s, 0, b->most / 2);
        for (int i = g * b->group; i < (g + 1) * b->group; i += b->together)
            choose_points(out, b, x + i, w + i, i, unit * (float)(2 * out->scale[g] + 1));
    }
}
