/* Operations with a matrix of each head as state: on the reference and on the processor. */
#include "state_cases.h"

static void reference(void **state) {
    (void)state;
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++) {
        struct state_setting set = {&backend_ref, NULL, 1, (enum row_class)cls, 1e-6};
        state_check(OP_DELTA, set, 1);
        state_check(OP_SSM, set, 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(reference)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
