/* Matmuls on the types of QUANT_CODES (quant.def), included after gemm_int8.h: codebooks, ternary types and others whose blocks become
 * codes of 8 bits with a scale for 16 columns (quant_info.codes), 256 columns of a unit's rows at a time, which are then panels as those
 * of any other type. One kernel for all: what differs is a call for each row. They have no copies (cpu_repack.c). */

CPU_FORMAT(CODES, 16, 128, false, true, false, false)

enum { CODE_ROWS = 2 * R };
struct code_rows {
    int8_t code[CODE_ROWS][COLS_MAX];
    float d[16][CODE_ROWS];
};

/* n columns of n_row rows, stride bytes apart. Rows behind them are what was there. */
static void expand_codes(struct code_rows *to, const struct quant_info *q, const uint8_t *w, size_t stride,
                         int n_row, int n) {
    float d[16];
    for (int r = 0; r < n_row; r++) {
        q->codes(to->code[r], d, w + (size_t)r * stride, (size_t)n);
        for (int b = 0; b < n / 16; b++) to->d[b][r] = d[b];
    }
}

/* Rows first .. first + R of them into a panel. */
static void pack_codes(struct panel *p, const struct code_rows *from, int first, int n) {
    const struct row_span rows = rows_at((const uint8_t *)from->code[first], sizeof from->code[0]);
    const struct row_span row = {.planes = 1, .off = CODES_OFF};
    for (int i = 0; i < n; i += 32) {
        vu v[8];
        load32(rows, (size_t)i, v, false);
        UNROLL for (int j = 0; j < 8; j++) put8(p, row, i / 4, j, v[j] ^ 0x80808080);
    }
    for (int b = 0; b < n / 16; b++) p->d[b] = vf_load(from->d[b] + first);
}

#define CODE_TILE(TT)                                                                                        \
    tile(p, n / 16, xk, x.row, o, TT, NP, CODES_COLS, CODES_OFF, CODES_MIN, CODES_WIDE, false, 0, NULL, 0)
/* NP panels times T rows of x, onto out. */
INLINE void multiply_codes(const struct panel *p, int n, struct cpu_x x, int T, float *out, const int NP) {
    const uint8_t *xk = x.at;
    float *o = out;
    int t = T;
    for (; t >= 6; t -= 6, xk += 6 * x.row, o += 6 * CPU_UNIT_ROWS) CODE_TILE(6);
    for (; t >= 2; t -= 2, xk += 2 * x.row, o += 2 * CPU_UNIT_ROWS) CODE_TILE(2);
    if (t) CODE_TILE(1);
}
#undef CODE_TILE

static void rows_of_codes(const struct quant_info *q, const uint8_t *w, size_t stride, int n_row, int k,
                          struct cpu_x x, int T, float *out) {
    enum { NP = PANELS(CODES_WIDE) };
    struct code_rows rows;
    struct panel p[2];
    memset(&rows, 0, sizeof rows);
    for (int r0 = 0; r0 < n_row; r0 += CODE_ROWS) {
        const int here = n_row - r0 < CODE_ROWS ? n_row - r0 : CODE_ROWS;
        for (int t = 0; t < T; t++) memset(out + t * CPU_UNIT_ROWS + r0, 0, sizeof(float) * CODE_ROWS);
        for (int k0 = 0; k0 < k; k0 += COLS_MAX) {
            const int n = k - k0 < COLS_MAX ? k - k0 : COLS_MAX;
            const struct cpu_x part = {x.at + (size_t)(k0 / COLS_MAX) * x.chunk, x.row, x.chunk};
            expand_codes(&rows, q, w + (size_t)r0 * stride + quant_row_bytes(q, (size_t)k0), stride, here, n);
            for (int i = 0; i < 2; i++) pack_codes(&p[i], &rows, i * R, n);
            if (NP == 2)
                multiply_codes(p, n, part, T, out + r0, 2);
            else
                for (int i = 0; i < 2; i++) multiply_codes(p + i, n, part, T, out + r0 + i * R, 1);
        }
    }
}
#define ROWS_OF_CODES(id)                                                                                    \
    static void rows_##id(const uint8_t *w, size_t stride, int n, int k, struct cpu_x x, int T, float *out,  \
                          uint8_t *copy, bool copied) {                                                      \
        (void)copy, (void)copied;                                                                            \
        rows_of_codes(quant_info(QUANT_##id), w, stride, n, k, x, T, out);                                   \
    }
