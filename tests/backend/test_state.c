/* Operations with a matrix of each head as state: on the reference and on the processor. */
#include "tests/lib/pace.h"
#include "tests/lib/state_cases.h"
#include "cpu/cpu_isa.h"

static void reference(void **state) {
    (void)state;
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls += EVERY(2)) {
        struct state_setting set = {&backend_ref, NULL, 1, (enum row_class)cls, 1e-6};
        state_check(OP_DELTA, set, 1);
        state_check(OP_SSM, set, 1);
    }
}

static void processor(void **state) {
    (void)state;
    static const char *const isas[] = {"avx2", "avxvnni", "avx512", "amx"};
    enum cpu_isa isa;
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++)
        for (int i = 0; i < 4; i += EVERY(2)) {
            struct state_setting set = {&backend_cpu, isas[i], 1, (enum row_class)cls, 2e-6};
            if (cpu_isa_pick(isas[i], &isa) == INFER_OK) {
                state_check(OP_DELTA, set, 3);
                state_check(OP_SSM, set, 3);
            }
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(reference), cmocka_unit_test(processor)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
