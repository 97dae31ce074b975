/* Copies of weights as decode kernels read them: what a kernel writes fits into cpu_copy_bytes, and fills it, so that a unit's copy ends
 * where the next one's begins; reading one gives the bits of making it; the copies of a group's units lie side by side. */
#include "tests/lib/test.h"
#include "cpu/cpu_list.h"
#include "seam/weight.h"

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
    for (int r = 0; r < u->n; r++)
        if (memcmp(&out[0][r], &out[1][r], sizeof out[0][r]) != 0)
            fail_msg("%s, %d columns: row %d is %g, from its copy %g", quant_info(u->type)->name, u->k, r,
                     (double)out[0][r], (double)out[1][r]);
    free(first), free(second);
}

/* Bytes that are no NaN in 16 or 32 bits. Zero points are those of codes of four bits, as quant_Z4_codes says: 0 to 16. */
static void fill_bytes(const struct unit *u) {
    for (size_t b = 0; b < u->stride * CPU_UNIT_ROWS; b++) u->w[b] = (uint8_t)(b * 2654435761u >> 13 & 0x3f);
    for (size_t b = 0; u->type == QUANT_Z4 && b < u->stride * CPU_UNIT_ROWS; b += sizeof(struct block_Z4))
        u->w[b + offsetof(struct block_Z4, z)] %= 17;
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
            u.x = bytes_of(sizeof row + cpu_x8_bytes(u.k), 0);
            if (u.floats)
                memcpy(u.x, row, sizeof(float) * (size_t)u.k);
            else
                kernels->quantise(u.x, sizeof(struct cpu_x8), row, u.k);
            fill_bytes(&u);
            fills_its_copy(&u);
            for (size_t r = 0; q->encode && r < CPU_UNIT_ROWS; r++)
                q->encode(u.w + r * u.stride, row + r, (size_t)u.k, NULL);
            if (q->encode) fills_its_copy(&u);
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

/* Marks the bytes of unit u of a member's copies, which are nobody else's; where they end. */
static const uint8_t *mark_unit(const struct weight *w, const struct cpu_copy *copy, int u, int unit_rows,
                                const uint8_t *data, uint8_t *taken, size_t all) {
    const size_t bytes = cpu_copy_bytes(w->type, weight_stride(w), unit_rows, w->k),
                 first = (size_t)(copy->data - data) + copy->step * (size_t)u;
    if (first + bytes > all)
        fail_msg("%s: unit %d has bytes %zu to %zu of %zu", w->name, u, first, first + bytes, all);
    for (size_t i = first; i < first + bytes; i++)
        if (taken[i]++) fail_msg("%s: byte %zu of unit %d is another unit's, too", w->name, i - first, u);
    return data + first + bytes;
}

/* Two matrices of n rows, or stacks of them: their units' copies share no byte, and leave none. */
static void side_by_side(enum quant_type gate, enum quant_type up, int n, int n_stack, bool paired) {
    enum { K = 512 };
    const int unit_rows = CPU_UNIT_ROWS, units = (n + unit_rows - 1) / unit_rows * n_stack;
    const struct weight_group g = {
        .k = K,
        .n_member = 2,
        .member = {{.name = "gate", .type = gate, .n = n, .k = K, .factor = 1, .n_stack = n_stack},
                   {.name = "up", .type = up, .n = n, .k = K, .factor = 1, .n_stack = n_stack}}};
    struct cpu_copy copy[2] = {0};
    const size_t all = cpu_copies_place(&g, unit_rows, paired, NULL, NULL);
    uint8_t *data = bytes_of(all, 0), *taken = bytes_of(all, 0);
    assert_int_equal(cpu_copies_place(&g, unit_rows, paired, copy, data), all);
    for (int u = 0; u < units; u++) {
        const uint8_t *end = mark_unit(&g.member[0], &copy[0], u, unit_rows, data, taken, all);
        if (paired) assert_ptr_equal(end, copy[1].data + copy[1].step * (size_t)u);
        mark_unit(&g.member[1], &copy[1], u, unit_rows, data, taken, all);
    }
    for (size_t i = 0; i < all; i++)
        if (!taken[i]) fail_msg("byte %zu of %zu is no unit's", i, all);
    free(data), free(taken);
}
static void places(void **state) {
    (void)state;
    for (int paired = 0; paired < 2; paired++)
        for (int n_stack = 1; n_stack <= 3; n_stack += 2) {
            side_by_side(QUANT_Q4_K, QUANT_Q4_K, 96, n_stack, paired);
            side_by_side(QUANT_Q4_K, QUANT_Q6_K, 72, n_stack, paired);
            side_by_side(QUANT_F16, QUANT_IQ3_S, 40, n_stack, paired);
        }
}

int main(void) {
    if (cpu_isa_best() == CPU_ISA_NONE) {
        print_message("skipped: this processor is below the floor of the CPU backend\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(places), cmocka_unit_test(avx2),
                                       cmocka_unit_test(avx512)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
