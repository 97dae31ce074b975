/* quant: every row of the type table. */
#include "test.h"
#include "mem.h"
#include "quant.h"
#include <math.h>

static void table_is_consistent(void **state) {
    (void)state;
    for (int t = 0; t < QUANT_COUNT; t++) {
        const struct quant_info *q = quant_info((enum quant_type)t);
        assert_int_equal(q->type, t);
        assert_ptr_equal(quant_by_gguf(q->gguf), q);
        assert_ptr_equal(quant_by_name(q->name), q);
        assert_int_equal(quant_row_bytes(q, 512), 512 / q->elems * q->bytes);
        assert_int_equal(256 % q->elems, 0);
    }
    assert_null(quant_by_gguf(4)); /* Q4_2, removed from the format long ago */
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_is_consistent),
        cmocka_unit_test(golden_blocks_decode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
