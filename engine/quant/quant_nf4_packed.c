/* NF4 as it lies in GGUF files, with double-quantised constants: a group of at most 256 blocks of 64 elements (n_block), which go on from
 * row to row of a matrix and begin anew with each matrix of a stack.
 *
 *     byte 0        4        8              8 + n_block                    8 + 33 n_block
 *          | least  | step   | a[n_block]   | q[n_block][32]               |
 *
 *     s[i] = least + step * a[i]         least, step: binary32
 *     x[i][j] = s[i] * level[code]       codes as in struct block_NF4
 *
 * 4.129 bits a weight. source: QLoRA, section 3 (double quantisation), whose constants are 8-bit floats below their mean; here they are
 * even steps between the least and the largest of a group. The number of the type is ours. */
#include <math.h>
#include "quant/quant_codes.h"

enum { BLOCK = 64, GROUP = QUANT_NF4_GROUP, BLOCKS = GROUP / BLOCK };

size_t quant_nf4_packed_bytes(size_t n) {
    const size_t rest = n % GROUP;
    return n / GROUP * (8 + BLOCKS * 33) + (rest ? 8 + rest / BLOCK * 33 : 0);
}

/* The nearest level: how many of the borders between two levels lie below. */
static int nearest(float v) {
    int code = 0;
    for (int half = 8; half; half /= 2) {
        const float *l = quant_nf4_levels + code + half;
        if (v * 2 > l[-1] + l[0]) code += half;
    }
    return code;
}

/* The scale of 64 values: of some near the largest magnitude, and what least squares make of their codes, the one with the least error. */
static float fit(const float *x, const float *w) {
    const float largest = quant_largest(x, BLOCK);
    float best = largest, gain = 0;
    for (int k = 0; k < 9 && largest > 0; k++) {
        float s = largest * (0.76f + 0.04f * (float)k), xl, ll;
        for (int again = 0; again < 2; again++) {
            const float inverse = quant_inverse(s);
            xl = ll = 0;
            for (int j = 0; j < BLOCK; j++) {
                float l = quant_nf4_levels[nearest(x[j] * inverse)];
                xl += w[j] * x[j] * l, ll += w[j] * l * l;
            }
            if (!(ll > 0) || !(xl * xl > gain * ll)) break;
            best = s = xl / ll, gain = xl * xl / ll;
        }
    }
    return best;
}

void quant_nf4_pack(void *out, const float *x, size_t n, const float *importance) {
    const int blocks = (int)(n / BLOCK);
    uint8_t *a = (uint8_t *)out + 8, *q = a + blocks;
    float s[BLOCKS], own[BLOCK], least = INFINITY, most = 0;
    for (int i = 0; i < blocks; i++) {
        const float *w = quant_weights(importance ? importance + i * BLOCK : NULL, x + i * BLOCK, own, BLOCK);
        s[i] = fit(x + i * BLOCK, w);
        if (!isfinite(s[i])) s[i] = 0;
        least = s[i] < least ? s[i] : least;
        most = s[i] > most ? s[i] : most;
    }
    if (!blocks) return;
    const float step = (most - least) / 255, inverse = quant_inverse(step);
    memcpy(out, &least, 4);
    memcpy((uint8_t *)out + 4, &step, 4);
    for (int i = 0; i < blocks; i++) {
        a[i] = (uint8_t)quant_code((s[i] - least) * inverse, 0, 255);
        const float of = quant_inverse(least + step * (float)a[i]);
        for (int j = 0; j < BLOCK; j += 2) {
            int low = nearest(x[i * BLOCK + j] * of), high = nearest(x[i * BLOCK + j + 1] * of);
            q[i * 32 + j / 2] = (uint8_t)(low | high << 4);
        }
    }
}

int quant_nf4_unpack(struct block_NF4 *out, const void *data, size_t n) {
    const uint8_t *p = data;
    for (size_t done = 0; done < n;) {
        const size_t blocks = (n - done < GROUP ? n - done : GROUP) / BLOCK;
        float least, step;
        memcpy(&least, p, 4);
        memcpy(&step, p + 4, 4);
        if (!isfinite(least) || !isfinite(step)) return 0;
        for (size_t i = 0; i < blocks; i++, out++) {
            out->s = least + step * (float)p[8 + i];
            memcpy(out->q, p + 8 + blocks + 32 * i, 32);
        }
        p += 8 + blocks * 33;
        done += blocks * BLOCK;
    }
    return 1;
}
