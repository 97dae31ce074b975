/* times.c: what steps take, as far as it was seen. */
#include "tests/lib/test.h"
#include "engine/request/request_impl.h"

static void nothing_is_known(void **state) {
    static struct step_times t;
    (void)state;
    assert_true(times_of(&t, 1) == 0);
    times_saw(&t, 4, 2);
    assert_true(times_of(&t, 1) == 2); /* fewer rows take no longer */
    assert_true(times_of(&t, 8) > 2 && times_of(&t, 8) < 2.5);
}

/* A first step that was slow, since something was loaded or the machine stood still, does not end all guesses: it is tried once more. */
static void one_slow_step_is_not_believed(void **state) {
    static struct step_times t;
    (void)state;
    times_saw(&t, 1, 1);
    times_saw(&t, 1, 1);
    times_saw(&t, 4, 50);
    assert_true(times_of(&t, 4) < 1.5);
    assert_true(times_of(&t, 3) < 50); /* between both, which may be far */
    times_saw(&t, 4, 1.25);
    assert_true(times_of(&t, 4) == 1.25);
    times_saw(&t, 4, 50); /* nor one among others */
    assert_true(times_of(&t, 4) < 2);
}

/* What was slow twice is so. */
static void slow_steps_are_known(void **state) {
    static struct step_times t;
    (void)state;
    times_saw(&t, 1, 1);
    times_saw(&t, 8, 7);
    assert_true(times_of(&t, 8) < 7);
    times_saw(&t, 8, 7);
    assert_true(times_of(&t, 8) == 7);
    assert_true(times_of(&t, 4) > 1 && times_of(&t, 4) < 7);
}

/* One that was quick the first time is believed. */
static void quick_ones_are_believed(void **state) {
    static struct step_times t;
    (void)state;
    times_saw(&t, 1, 1);
    times_saw(&t, 4, 1.01);
    assert_true(times_of(&t, 4) < 1.02);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_known), cmocka_unit_test(one_slow_step_is_not_believed),
        cmocka_unit_test(slow_steps_are_known), cmocka_unit_test(quick_ones_are_believed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
