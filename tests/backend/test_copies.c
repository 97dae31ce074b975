/* Copies of weights as decode kernels read them: what a kernel writes fits into cpu_copy_bytes, and fills it, so that a unit's copy ends
 * where the next one's begins; reading one gives the bits of making it (of types that are written here). */
#include "tests/lib/test.h"
#include "cpu/cpu_isa.h"
#include "cpu/kernels/kernels.h"

enum { MOST_K = 2080, BEHIND = 8192, FIRST_FILL = 0xaa, SECOND_FILL = 0x55 };

struct unit {
    enum quant_type type;
    cpu_row_fn *kernel;
    bool floats; /* what the kernel reads of x */
    int n, k;
    uint8_t *w, *x;
    size_t stride;
};

static uint8_t *bytes_of(size_t n, int fill) {
    uint8_t *p = aligned_alloc(64, (n + 63) / 64 * 64);
    assert_non_null(p);
    return memset(p, fill, (n + 63) / 64 * 64);
}

static void multiply(const struct unit *u, uint8_t *copy, bool copied, float *out) {
    const struct cpu_x x = {u->x, 0, u->floats ? 0 : sizeof(struct cpu_x8)};
    memset(out, 0, sizeof *out * CPU_UNIT_ROWS);
    u->kernel(u->w, u->stride, u->n, u->k, x, 1, out, copy, copied);
}

static void fills_its_copy(const struct unit *u) {
    static float out[2][CPU_UNIT_ROWS * CPU_LANES];
    const struct quant_code_set *set = quant_code_set(u->type);
    const size_t bytes = cpu_copy_bytes(u->type, u->stride, u->n, u->k), room = bytes + BEHIND;
    uint8_t *first = bytes_of(room, FIRST_FILL), *second = bytes_of(room, SECOND_FILL);
    multiply(u, first, false, out[0]);
    multiply(u, second, false, out[0]);
    size_t end = room;
    while (end && first[end - 1] != second[end - 1]) end--; /* both as they were filled */
    if (end > bytes || (!set && bytes - end >= 64))
        fail_msg("%s, %d rows of %d columns: %zu of %zu bytes are written", quant_info(u->type)->name, u->n,
                 u->k, end, bytes);
    multiply(u, first, true, out[1]);
    for (int r = 0; quant_info(u->type)->encode && r < u->n; r++)
        if (memcmp(&out[0][r], &out[1][r], sizeof out[0][r]) != 0)
            fail_msg("%s, %d columns: row %d is %g, from its copy %g", quant_info(u->type)->name, u->k, r,
                     (double)out[0][r], (double)out[1][r]);
    free(first), free(second);
}

/* Rows of numbers, or, of a type that nothing here writes, of bytes that are no NaN in 16 or 32 bits. */
static void fill_rows(const struct unit *u, const float *row) {
    const struct quant_info *q = quant_info(u->type);
    for (size_t b = 0; b < u->stride * CPU_UNIT_ROWS; b++) u->w[b] = (uint8_t)(b * 2654435761u >> 13 & 0x3f);
    for (size_t r = 0; q->encode && r < CPU_UNIT_ROWS; r++)
        q->encode(u->w + r * u->stride, row + r, (size_t)u->k, NULL);
}

static void every_type(const struct cpu_kernels *kernels, enum quant_type type) {
    static const int columns[] = {32, 64, 96, 256, 288, 768, 2048, MOST_K};
    static float row[MOST_K + 256];
    const struct quant_info *q = quant_info(type);
    struct unit u = {.type = type, .kernel = kernels->gemm_int8[type]};
    u.floats = !u.kernel;
    if (!u.kernel) u.kernel = cpu_is_float(type) ? kernels->gemv_float[type] : kernels->gemv_fine[type];
    if (!u.kernel) return;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) row[i] = (float)((i * 7919) % 255) / 128 - 1;
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        for (u.n = 16; u.n <= CPU_UNIT_ROWS; u.n += 16) {
            u.k = columns[i];
            if (u.k % (int)q->elems) continue;
            u.stride = quant_row_bytes(q, (size_t)u.k);
            u.w = bytes_of(u.stride * CPU_UNIT_ROWS + BEHIND, 0);
            fill_rows(&u, row);
            u.x = bytes_of(sizeof row + cpu_x8_bytes(u.k), 0);
            if (u.floats)
                memcpy(u.x, row, sizeof(float) * (size_t)u.k);
            else
                kernels->quantise(u.x, sizeof(struct cpu_x8), row, u.k);
            fills_its_copy(&u);
            free(u.w), free(u.x);
        }
}

static void of_kernels(const struct cpu_kernels *kernels) {
    for (int t = 0; t < QUANT_COUNT; t++) every_type(kernels, (enum quant_type)t);
}
static void avx2(void **state) {
    (void)state;
    of_kernels(&cpu_kernels_avx2);
}
static void avx512(void **state) {
    (void)state;
    if (cpu_isa_best() < CPU_ISA_AVX512) skip();
    of_kernels(&cpu_kernels_avx512);
}

int main(void) {
    if (cpu_isa_best() == CPU_ISA_NONE) {
        print_message("skipped: this processor is below the floor of the CPU backend\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(avx2), cmocka_unit_test(avx512)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
