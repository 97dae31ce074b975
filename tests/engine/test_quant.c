/* quant: every row of the type table. */
#include "tests/lib/test.h"
#include "base/mem.h"
#include "files/hf/hf_mxfp4.h"
#include "quant/quant.h"
#include <math.h>

static void table_is_consistent(void **state) {
    (void)state;
    for (int t = 0; t < QUANT_COUNT; t++) {
        const struct quant_info *q = quant_info((enum quant_type)t);
        assert_int_equal(q->type, t);
        if (q->gguf >= 0) assert_ptr_equal(quant_by_gguf((uint32_t)q->gguf), q);
        assert_ptr_equal(quant_by_name(q->name), q);
        assert_int_equal(quant_row_bytes(q, 512), 512 / q->elems * q->bytes);
        assert_int_equal(256 % q->elems, 0);
    }
    assert_null(quant_by_gguf(UINT32_MAX)); /* types that GGUF does not have */
    assert_null(quant_by_gguf(4));          /* Q4_2, removed from the format long ago */
    assert_null(quant_by_name("q4_9"));
    assert_null(quant_by_name(""));
}

/* tests/golden/quant/<name>.bin: blocks, then the reference's floats (scripts/make-quant-golden). Bit for
 * bit. */
static void golden_blocks_decode(void **state) {
    (void)state;
    for (int t = 0; t < QUANT_COUNT; t++) {
        const struct quant_info *q = quant_info((enum quant_type)t);
        size_t n = q->elems == 1 ? 256 : 8 * q->elems, bytes = quant_row_bytes(q, n);
        char name[64], path[512];
        snprintf(name, sizeof name, "golden/quant/%s.bin", q->name);
        FILE *f = fopen(test_path(path, sizeof path, name), "rb");
        if (!f) fail_msg("%s: cannot open; every type needs golden blocks", path);
        unsigned char *blocks = mem_alloc(bytes);
        float *want = mem_alloc(n * 4), *got = mem_alloc(n * 4);
        assert_int_equal(fread(blocks, 1, bytes, f), bytes);
        assert_int_equal(fread(want, 4, n, f), n);
        assert_int_equal(fgetc(f), EOF);
        fclose(f);
        q->decode(got, blocks, n);
        for (size_t i = 0; i < n; i++) {
            /* 0 and -0 are the same weight; the reference makes either */
            if (quant_f32_to_bits(got[i]) != quant_f32_to_bits(want[i]) && !(got[i] == 0 && want[i] == 0))
                fail_msg("%s: element %zu is %a, the reference has %a", q->name, i, got[i], want[i]);
        }
        mem_free(blocks);
        mem_free(want);
        mem_free(got);
    }
}

/* Tolerances: root mean square of the error over that of the weights, for normal weights. Measured with these
 * encoders (8 * 2048 elements) and rounded up by about two percent. */
static const double tol_rms[QUANT_COUNT] = {
    [QUANT_F32] = 0,         [QUANT_F16] = 0.00023,   [QUANT_BF16] = 0.0018,   [QUANT_Q8_0] = 0.0055,
    [QUANT_Q4_0] = 0.0825,   [QUANT_Q4_1] = 0.0705,   [QUANT_Q5_0] = 0.0410,   [QUANT_Q5_1] = 0.0345,
    [QUANT_Q2_K] = 0.265,    [QUANT_Q3_K] = 0.147,    [QUANT_Q4_K] = 0.0715,   [QUANT_Q5_K] = 0.0355,
    [QUANT_Q6_K] = 0.0175,   [QUANT_IQ4_NL] = 0.075,  [QUANT_IQ4_XS] = 0.075,  [QUANT_MXFP4] = 0.113,
    [QUANT_IQ2_XXS] = 0.351, [QUANT_IQ2_XS] = 0.31,   [QUANT_IQ2_S] = 0.262,   [QUANT_IQ3_XXS] = 0.193,
    [QUANT_IQ3_S] = 0.145,   [QUANT_IQ1_S] = 0.469,   [QUANT_IQ1_M] = 0.439,   [QUANT_TQ1_0] = 0.455,
    [QUANT_TQ2_0] = 0.455,   [QUANT_NVFP4] = 0.092,   [QUANT_Q1_0] = 0.647,    [QUANT_Q2_0] = 0.367,
    [QUANT_Z4] = 0.0835,     [QUANT_I8_128] = 0.0066, [QUANT_F8_128] = 0.0263, [QUANT_NF4] = 0.0945,
    [QUANT_FP4] = 0.123,
};
/* A second trip may change no more than this share of the first trip's error. */
static const double tol_again = 0.25;

static uint64_t seed = 1;
static double uniform(void) { /* xorshift64*, 0 < u < 1 */
    seed ^= seed >> 12, seed ^= seed << 25, seed ^= seed >> 27;
    return ((double)(seed * 0x2545f4914f6cdd1dull >> 11) + 0.5) * 0x1p-53;
}
static double normal(void) { return sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform()); }

enum { N = 8 * 2048 };

/* y = decode(encode(x)); guard bytes behind the blocks must survive */
static void trip(const struct quant_info *q, float *y, const float *x, size_t n, const float *importance) {
    size_t bytes = quant_row_bytes(q, n);
    unsigned char *blocks = mem_alloc(bytes + 64);
    memset(blocks, 0xa5, bytes + 64);
    q->encode(blocks, x, n, importance);
    for (int i = 0; i < 64; i++) assert_int_equal(blocks[bytes + i], 0xa5);
    q->decode(y, blocks, n);
    mem_free(blocks);
}

static double rms(const float *a, const float *b, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double e = (double)a[i] - (b ? (double)b[i] : 0);
        sum += e * e;
    }
    return sqrt(sum / (double)n);
}

static void round_trip_error_is_small(void **state) {
    (void)state;
    static float x[N], y[N], z[N];
    seed = 1;
    for (int i = 0; i < N; i++) x[i] = (float)(0.02 * normal());
    for (int t = 0; t < QUANT_COUNT; t++) {
        const struct quant_info *q = quant_info((enum quant_type)t);
        trip(q, y, x, N, NULL);
        double error = rms(x, y, N), share = error / rms(x, NULL, N);
        if (!(share <= tol_rms[t])) fail_msg("%s: relative error %g above %g", q->name, share, tol_rms[t]);
        trip(q, z, y, N, NULL);
        double again = rms(y, z, N);
        if (!(again <= tol_again * error)) fail_msg("%s: second trip moves %g of %g", q->name, again, error);
        if (q->elems == 1) assert_true(again == 0);
    }
}

/* Errors do not add up in one direction: the dot product of a row moves by what independent errors give. */
static void dots_agree_with_double(void **state) {
    (void)state;
    static float x[N], y[N];
    static double v[N];
    seed = 2;
    for (int i = 0; i < N; i++) x[i] = (float)(0.05 * normal()), v[i] = normal();
    for (int t = 0; t < QUANT_COUNT; t++) {
        const struct quant_info *q = quant_info((enum quant_type)t);
        trip(q, y, x, N, NULL);
        double exact = 0, got = 0, bound = 5 * tol_rms[t] * 0.05 * sqrt(N);
        for (int i = 0; i < N; i++) exact += (double)x[i] * v[i], got += (double)y[i] * v[i];
        if (!(fabs(exact - got) <= bound))
            fail_msg("%s: dot product %g, in double %g, bound %g", q->name, got, exact, bound);
    }
}

/* What kernels multiply is what decoding gives, to the nearest code of 8 bits. */
static void codes_are_the_values(void **state) {
    (void)state;
    static float x[N], y[N], d[N / 16];
    static int8_t code[N];
    int with_codes = 0;
    seed = 7;
    for (int i = 0; i < N; i++) x[i] = (float)(0.02 * normal());
    for (int t = 0; t < QUANT_COUNT; t++) {
        const struct quant_info *q = quant_info((enum quant_type)t);
        if (!q->codes) continue;
        with_codes++;
        void *blocks = mem_alloc(quant_row_bytes(q, N));
        q->encode(blocks, x, N, NULL);
        q->decode(y, blocks, N);
        q->codes(code, d, blocks, N);
        mem_free(blocks);
        for (int i = 0; i < N; i++)
            if (!(fabsf(d[i / 16] * code[i] - y[i]) <= 0.505f * fabsf(d[i / 16])))
                fail_msg("%s: element %d is %g, its code %d times %g", q->name, i, (double)y[i], code[i],
                         (double)d[i / 16]);
    }
    assert_true(with_codes > 0);
}

/* Is a scale what copies keep of it? Those that are no numbers, or 0, are multiples of any unit. */
static bool is_scale(enum quant_scale_form form, float d, float unit) {
    const uint16_t half = f32_to_f16(form == QUANT_SCALES_E4M3 ? d / 128 : d);
    if (form == QUANT_SCALES_ANY || !isfinite(d)) return true;
    if (form == QUANT_SCALES_HALF) return f16_to_f32(half) == d;
    if (form == QUANT_SCALES_E4M3) return half < 0x4000 && half % 128 == 0 && f16_to_f32(half) * 128 == d;
    const float steps = d / unit;
    return d == 0 ? unit == 0 : steps >= 1 && steps <= 31 && steps == floorf(steps) && unit * steps == d;
}

/* Codes of random blocks are of the set that copies of them keep; of range: less the least of each 32. */
static void codes_are_of_their_set(void **state) {
    (void)state;
    static int8_t code[N];
    static float d[N / 16];
    seed = 8;
    for (int t = 0; t < QUANT_COUNT; t++) {
        const struct quant_info *q = quant_info((enum quant_type)t);
        const struct quant_code_set *set = quant_code_set((enum quant_type)t);
        assert_int_equal(set != NULL, q->codes != NULL);
        if (!set) continue;
        const size_t n = quant_row_bytes(q, N);
        uint8_t *blocks = mem_alloc(n);
        for (size_t i = 0; i < n; i++) blocks[i] = (uint8_t)(int)(normal() * 1000);
        if (t == QUANT_Z4) /* zero points are at most 16 */
            for (size_t i = 0; i < n; i += q->bytes) blocks[i + 2] %= 17;
        q->codes(code, d, blocks, N);
        for (int i = 0; i < N; i++) {
            bool there = set->form == QUANT_CODES_ALL;
            int least = 127;
            for (int j = i / 32 * 32; j < i / 32 * 32 + 32; j++) least = code[j] < least ? code[j] : least;
            const int levels = set->form == QUANT_CODES_LEVELS ? 16 : set->form == QUANT_CODES_EIGHT ? 8 : 0;
            for (int l = 0; l < levels; l++) there |= set->level[l] == code[i];
            if (set->form == QUANT_CODES_TWO) there = code[i] == -1 || code[i] == 1;
            if (set->form == QUANT_CODES_FOUR) there = code[i] >= -1 && code[i] <= 2;
            if (set->form == QUANT_CODES_RANGE) there = least >= -16 && least <= 15 && code[i] - least < 16;
            if (!there) fail_msg("%s: code %d of element %d is not of its set", q->name, code[i], i);
            if (memcmp(&d[i / 16], &d[i / set->group * set->group / 16], sizeof *d))
                fail_msg("%s: element %d has a scale of its own", q->name, i);
            const float unit = quant_code_unit((enum quant_type)t, blocks + i / q->elems * q->bytes);
            if (!is_scale(set->scales, d[i / 16], unit))
                fail_msg("%s: element %d has a scale %g of another form", q->name, i, (double)d[i / 16]);
            const bool half = set->form == QUANT_CODES_RANGE && (quant_f32_to_bits(d[i / 16]) & 31);
            if (half) fail_msg("%s: the scale of element %d has more bits than a half", q->name, i);
        }
        mem_free(blocks);
    }
}

/* Importance moves the error to where it does not count. */
static void importance_is_heeded(void **state) {
    (void)state;
    static float x[N], y[N], w[N];
    seed = 3;
    for (int i = 0; i < N; i++) x[i] = (float)normal(), w[i] = i % 4 == 0 ? 100.0f : 1.0f;
    for (int t = 0; t < QUANT_COUNT; t++) {
        const struct quant_info *q = quant_info((enum quant_type)t);
        if (q->elems == 1 || t == QUANT_Q8_0 || (q->gguf < 0 && t != QUANT_Z4))
            continue; /* their encoders have nothing to choose */
        double error[2] = {0, 0};
        for (int use = 0; use < 2; use++) {
            trip(q, y, x, N, use ? w : NULL);
            for (int i = 0; i < N; i += 4) error[use] += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        }
        if (!(error[1] < 0.97 * error[0]))
            fail_msg("%s: error of important elements %g, without importance %g", q->name, error[1],
                     error[0]);
    }
}

static void fill_extreme(float *x, size_t n, int kind) {
    memset(x, 0, n * sizeof *x);
    seed = 4;
    for (size_t i = 0; i < n; i++) {
        if (kind == 1) x[i] = i == 37 ? 1000.0f : 0;     /* one outlier */
        if (kind == 2) x[i] = (float)(1e-7 * normal());  /* scales are subnormal halves */
        if (kind == 3) x[i] = (float)(1e-42 * normal()); /* subnormal floats */
        if (kind == 4) x[i] = 0.75f;                     /* all equal */
        if (kind == 5) x[i] = -0.75f;
        if (kind == 6) x[i] = (float)(1e30 * normal());                 /* beyond the largest half */
        if (kind == 7) x[i] = i % 50 == 3 ? INFINITY : (float)normal(); /* not finite */
        if (kind == 8) x[i] = i % 50 == 3 ? NAN : i % 50 == 4 ? -INFINITY : (float)normal();
        if (kind == 9) x[i] = (float)fabs(normal()) + 5; /* far from zero, one sign */
    }
}

static void extreme_inputs(void **state) {
    (void)state;
    static float x[512], y[512];
    for (int t = 0; t < QUANT_COUNT; t++) {
        const struct quant_info *q = quant_info((enum quant_type)t);
        for (int kind = 0; kind < 10; kind++) {
            fill_extreme(x, 512, kind);
            trip(q, y, x, 512, NULL);
            if (kind == 0)
                for (int i = 0; i < 512; i++) assert_true(y[i] == 0);
            if (kind == 1) /* the outlier stays, zeros stay near zero */
                for (int i = 0; i < 512; i++)
                    if (!(fabsf(y[i] - x[i]) <= (q->codes ? 2000.0f : 1000.0f) * (float)tol_rms[t] + 1e-3f))
                        fail_msg("%s: outlier block: element %d is %g", q->name, i, (double)y[i]);
            if (kind == 2 || kind == 3) /* hardly worse than all zero (large values count more) */
                if (!(rms(y, x, 512) <= 1.1 * rms(x, NULL, 512)))
                    fail_msg("%s: kind %d: error %g of %g", q->name, kind, rms(y, x, 512), rms(x, NULL, 512));
            if ((kind == 4 || kind == 5 || kind == 9) &&
                !(kind == 5 && t == QUANT_Z4)) /* 0 .. 15 less 16 at most */
                if (!(rms(y, x, 512) <= ((q->codes ? 2.5 : 1) * tol_rms[t] + 1e-3) *
                                            rms(x, NULL, 512))) /* no point of a codebook */
                    fail_msg("%s: kind %d: error %g of %g", q->name, kind, rms(y, x, 512), rms(x, NULL, 512));
            if (kind >= 6 && kind <= 8 && q->elems > 1)
                for (int i = 0; i < 512; i++) assert_true(isfinite(y[i]));
        }
    }
}

/* Any bits are blocks, and whatever they decode to can be encoded in every type. */
static void any_bits_do_no_harm(void **state) {
    (void)state;
    static unsigned char bits[256 * 4 * 8];
    static float x[256 * 8], y[256 * 8];
    seed = 5;
    for (int t = 0; t < QUANT_COUNT; t++) {
        const struct quant_info *q = quant_info((enum quant_type)t);
        for (size_t i = 0; i < sizeof bits; i++) bits[i] = (unsigned char)(uniform() * 256);
        q->decode(x, bits, 256 * 8);
        for (int k = 0; k < QUANT_COUNT; k++) trip(quant_info((enum quant_type)k), y, x, 256 * 8, NULL);
        for (int i = 0; i < 256 * 8; i++) x[i] = quant_bits_to_f32((uint32_t)(uniform() * 0x1p32));
        trip(q, y, x, 256 * 8, x); /* importance may be anything, too */
    }
}

/* MXFP4 blocks by hand: the whole range of exponents, and what encoding makes of the ends of float's range. */
static void exponents_of_mxfp4(void **state) {
    (void)state;
    static const struct {
        int e;
        float scale;
    } row[] = {{0, 0x1p-127f}, {1, 0x1p-126f}, {126, 0.5f}, {127, 1}, {252, 0x1p125f}, {254, 0x1p127f}};
    static const float code[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, 0, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    const struct quant_info *q = quant_info(QUANT_MXFP4);
    struct block_MXFP4 b;
    float y[32], z[32];
    for (int i = 0; i < 16; i++) b.q[i] = (uint8_t)(i | (15 - i) << 4);
    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        b.e = (uint8_t)row[r].e;
        q->decode(y, &b, 32);
        for (int i = 0; i < 16; i++) {
            assert_true(y[i] == row[r].scale * code[i]);
            assert_true(y[i + 16] == row[r].scale * code[15 - i]);
        }
        if (row[r].e > 252) continue; /* 6 is infinite there */
        trip(q, z, y, 32, NULL);
        assert_memory_equal(y, z, sizeof y);
    }
    b.e = 255;
    q->decode(y, &b, 32);
    for (int i = 0; i < 32; i++) assert_true(isnan(y[i]));
}

/* Blocks of a folder are the same numbers: byte i of 16 has elements 2 i and 2 i + 1. Row r of the result is row r * step. */
static void folders_mxfp4(void **state) {
    (void)state;
    enum { ROWS = 7, BLOCKS = 3, ALL = ROWS * BLOCKS };
    static const float code[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, 0, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    uint8_t blocks[ALL * 16], scales[ALL];
    struct block_MXFP4 out[ALL + 1];
    float y[32];
    seed = 6;
    for (int i = 0; i < ALL * 16; i++) blocks[i] = (uint8_t)(uniform() * 256);
    for (int i = 0; i < ALL; i++) scales[i] = (uint8_t)(100 + i);
    blocks[5] = 0x5a, scales[0] = 126;
    for (int run = 0; run < 8; run++) {
        const size_t step = run & 1 ? 2 : 1, first = run & 2 && step == 2,
                     rows = (ROWS - first + step - 1) / step;
        memset(out, 0xa5, sizeof out);
        hf_mxfp4_rows(out, blocks + first * BLOCKS * 16, scales + first * BLOCKS, rows, BLOCKS, step,
                      run & 4 ? 3 : 1);
        for (size_t i = 0; i < rows * BLOCKS; i++) {
            const size_t from = (first + i / BLOCKS * step) * BLOCKS + i % BLOCKS;
            assert_int_equal(out[i].e, scales[from]);
            quant_info(QUANT_MXFP4)->decode(y, out + i, 32);
            for (int j = 0; j < 32; j++)
                assert_true(y[j] == ldexpf(code[blocks[from * 16 + (size_t)j / 2] >> j % 2 * 4 & 15],
                                           scales[from] - 127));
        }
        assert_int_equal(out[rows * BLOCKS].e, 0xa5);
        if (first) continue;
        quant_info(QUANT_MXFP4)->decode(y, out, 32);
        assert_true(y[10] == -0.5f && y[11] == 1.5f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_is_consistent),
        cmocka_unit_test(golden_blocks_decode),
        cmocka_unit_test(round_trip_error_is_small),
        cmocka_unit_test(dots_agree_with_double),
        cmocka_unit_test(codes_are_the_values),
        cmocka_unit_test(codes_are_of_their_set),
        cmocka_unit_test(importance_is_heeded),
        cmocka_unit_test(extreme_inputs),
        cmocka_unit_test(any_bits_do_no_harm),
        cmocka_unit_test(exponents_of_mxfp4),
        cmocka_unit_test(folders_mxfp4),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
