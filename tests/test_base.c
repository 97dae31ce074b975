/* status and mem: messages, escapes, checked sizes, arenas, the k-th failing allocation. */
#include "test.h"
#include "mem.h"
#include "quant.h"
#include <math.h>

static void escapes_controls(void **state) {
    (void)state;
    char out[64];
    text_escape(out, sizeof out, "a\x1b]52\x07\xc3\xa9\xff\xc2\x9b", 11);
    assert_string_equal(out, "a\\x1b]52\\x07\xc3\xa9\\xff\\xc2\\x9b");
    text_escape(out, 4, "abc\xc3\xa9", 5);
    assert_string_equal(out, "abc");
    assert_int_equal(err_set(INFER_E_INPUT, "bad %s at %d", "\x1b[2J", 7), INFER_E_INPUT);
    assert_string_equal(err_message(), "bad \\x1b[2J at 7");
    err_prefix(INFER_E_INPUT, "file %s", "x");
    assert_string_equal(err_message(), "file x: bad \\x1b[2J at 7");
}

static void sizes_do_not_wrap(void **state) {
    (void)state;
    size_t n = 5;
    assert_false(size_mul(SIZE_MAX / 2, 3, &n));
    assert_false(size_add(SIZE_MAX, 1, &n));
    assert_false(size_align(SIZE_MAX - 3, 64, &n));
    assert_int_equal(n, 5);
    assert_true(size_align(65, 64, &n));
    assert_int_equal(n, 128);
    assert_null(mem_alloc(SIZE_MAX - 8));
}

static void arenas_align_and_fail(void **state) {
    (void)state;
    struct arena a = {0};
    for (size_t n = 1; n < 200000; n = n * 3 + 1) {
        unsigned char *p = arena_alloc(&a, n);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % (n >= 64 ? 64 : 16), 0);
        for (size_t i = 0; i < n; i++) assert_int_equal(p[i], 0);
        memset(p, 0xee, n);
    }
    mem_fail_at(1);
    assert_null(arena_alloc(&a, 1 << 20));
    mem_fail_at(0);
    assert_non_null(arena_alloc(&a, 1 << 20));
    arena_free(&a);
}

static void halves_round_trip(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        float f = f16_to_f32((uint16_t)h), b = bf16_to_f32((uint16_t)h);
        if (!isnan(f)) assert_int_equal(f32_to_f16(f), h);
        if (!isnan(b)) assert_int_equal(f32_to_bf16(b), h);
    }
    assert_int_equal(f32_to_f16(65519.0f), 0x7bff);
    assert_int_equal(f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(f32_to_f16(0x1p-25f), 0);   /* tie to even */
    assert_int_equal(f32_to_f16(0x1.8p-24f), 2); /* tie to even, upwards */
    assert_int_equal(f32_to_f16(1.0f + 0x1p-11f), 0x3c00);
    assert_true(isnan(f16_to_f32(f32_to_f16(NAN))));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(escapes_controls),
        cmocka_unit_test(sizes_do_not_wrap),
        cmocka_unit_test(arenas_align_and_fail),
        cmocka_unit_test(halves_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
