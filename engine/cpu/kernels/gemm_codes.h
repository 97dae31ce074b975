/* Matmuls on the types of QUANT_CODES (quant.def), included after gemm_int8.h: codebooks, ternary types and others whose blocks become
 * codes of 8 bits with a scale for 16 columns (quant_info.codes), 256 columns of a unit's rows at a time, which are then panels as those
 * of any other type. One kernel for all: what differs is a call for each row, and a table; but where all codes are -1, 0, 1 and 2
 * (QUANT_CODES_FOUR) sub-blocks have 32 columns, and their products fit vpmaddubsw's sums as they are.
 * Their copies: gemm_code_copy.h. */

CPU_FORMAT(CODES, 16, 128, false, true, false, false)
CPU_FORMAT(FOUR, 32, 1, false, false, false, false)

enum { CODE_ROWS = 2 * R };
struct code_rows {
    int8_t code[CODE_ROWS][COLS_MAX];
    float d[16][CODE_ROWS], unit[CODE_ROWS]; /* unit: QUANT_SCALES_STEPS */
};

/* n columns of n_row rows, stride bytes apart. Rows behind them are what was there. */
static void expand_codes(struct code_rows *to, const struct quant_info *q, const uint8_t *w, size_t stride,
                         int n_row, int n) {
    float d[16];
    for (int r = 0; r < n_row; r++) {
        q->codes(to->code[r], d, w + (size_t)r * stride, (size_t)n);
        to->unit[r] = quant_code_unit(q->type, w + (size_t)r * stride);
        for (int b = 0; b < n / 16; b++) to->d[b][r] = d[b];
    }
}

/* Rows first .. first + R of them into a panel. */
static void pack_codes(struct panel *p, const struct code_rows *from, int first, int n, bool four) {
    const struct row_span rows = rows_at((const uint8_t *)from->code[first], sizeof from->code[0]);
    const struct row_span row = {.planes = 1, .off = CODES_OFF};
    for (int i = 0; i < n; i += 32) {
        vu v[8];
        load32(rows, (size_t)i, v, false);
        UNROLL for (int j = 0; j < 8; j++) {
            if (four)
                p->q[0][i / 4 + j] = centred(v[j], -1);
            else
                put8(p, row, i / 4, j, v[j] ^ 0x80808080);
        }
    }
    for (int b = 0; b < n / (four ? FOUR_COLS : CODES_COLS); b++)
        p->d[b] = vf_load(from->d[four ? 2 * b : b] + first);
}

#define CODE_TILE(TT)                                                                                        \
    tile(p, n / COLS, xk, x.row, o, TT, NP, COLS, FOUR ? FOUR_OFF : CODES_OFF, false,                        \
         FOUR ? FOUR_WIDE : CODES_WIDE, false, 0, NULL, 0)
/* NP panels times T rows of x, onto out. */
INLINE void multiply_codes(const struct panel *p, int n, struct cpu_x x, int T, float *out, const int NP,
                           const bool FOUR) {
    const int COLS = FOUR ? FOUR_COLS : CODES_COLS;
    const uint8_t *xk = x.at;
    float *o = out;
    int t = T;
    for (; t >= 6; t -= 6, xk += 6 * x.row, o += 6 * CPU_UNIT_ROWS) CODE_TILE(6);
    for (; t >= 2; t -= 2, xk += 2 * x.row, o += 2 * CPU_UNIT_ROWS) CODE_TILE(2);
    if (t) CODE_TILE(1);
}
#undef CODE_TILE
static void multiply_panels(const struct panel *p, int panels, int n, struct cpu_x x, int T, float *out,
                            bool four) {
    if (four && panels == 2) {
        multiply_codes(p, n, x, T, out, 2, true);
    } else if (PANELS(CODES_WIDE) == 2 && panels == 2) {
        multiply_codes(p, n, x, T, out, PANELS(CODES_WIDE), false);
    } else {
        for (int i = 0; i < panels; i++, p++, out += R)
            four ? multiply_codes(p, n, x, T, out, 1, true) : multiply_codes(p, n, x, T, out, 1, false);
    }
}

#include "cpu/kernels/gemm_code_copy.h"

/* The rows from their copy, or from the file, of which a copy is made where there is room for one. */
static void rows_of_codes(const struct quant_info *q, const uint8_t *w, size_t stride, int n_row, int k,
                          struct cpu_x x, int T, float *out, uint8_t *copy, bool copied) {
    struct code_rows rows;
    struct panel p[2];
    struct code_copy c;
    code_tables(&c, quant_code_set(q->type));
    const bool four = c.set->form == QUANT_CODES_FOUR || c.set->form == QUANT_CODES_TWO;
    if (!copied) memset(&rows, 0, sizeof rows);
    for (int r0 = 0; r0 < n_row; r0 += CODE_ROWS) {
        const int here = n_row - r0 < CODE_ROWS ? n_row - r0 : CODE_ROWS, panels = here > R ? 2 : 1;
        for (int t = 0; t < T; t++)
            memset(out + t * CPU_UNIT_ROWS + r0, 0, sizeof(float) * (size_t)(panels * R));
        for (int k0 = 0; k0 < k; k0 += COLS_MAX) {
            const int n = k - k0 < COLS_MAX ? k - k0 : COLS_MAX;
            const struct cpu_x part = {x.at + (size_t)(k0 / COLS_MAX) * x.chunk, x.row, x.chunk};
            code_sizes(&c, n);
            if (!copied)
                expand_codes(&rows, q, w + (size_t)r0 * stride + quant_row_bytes(q, (size_t)k0), stride, here,
                             n);
            for (int i = 0; i < panels; i++) {
                if (!copied) pack_codes(&p[i], &rows, i * R, n, four);
                if (!copied && copy) copy = copy_codes(copy, c.set, &rows, i * R, n);
                if (!copied) continue;
                code_chunk(&c, copy);
                if (T > CODE_MANY)
                    code_form[c.set->form].panel(&p[i], &c, n);
                else
                    multiply_chunk(&c, n, part, T, out + r0 + i * R);
                copy += c.bytes;
            }
            if (copied && T <= CODE_MANY) continue;
            multiply_panels(p, panels, n, part, T, out + r0, four);
        }
    }
}
#define ROWS_OF_CODES(id)                                                                                    \
    static void rows_##id(const uint8_t *w, size_t stride, int n, int k, struct cpu_x x, int T, float *out,  \
                          uint8_t *copy, bool copied) {                                                      \
        rows_of_codes(quant_info(QUANT_##id), w, stride, n, k, x, T, out, copy, copied);                     \
    }
