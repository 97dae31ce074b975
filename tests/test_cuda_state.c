/* Operations with a matrix of each head as state on a card, row after row. Skipped with a printed reason where there is no usable card,
 * unless INFER_REQUIRE_CUDA=1. */
#include "cuda_there.h"
#include "state_cases.h"

#ifdef INFER_CUDA
static void recurrences(void **state) {
    (void)state;
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++) {
        struct state_setting set = {&backend_cuda, NULL, 0, (enum row_class)cls, 1e-5};
        state_check(OP_DELTA, set, 0);
        state_check(OP_SSM, set, 0);
    }
}
#endif

int main(void) {
    bool must;
    if (!cuda_there(&must)) return must ? 1 : 77;
#ifdef INFER_CUDA
    const struct CMUnitTest tests[] = {cmocka_unit_test(recurrences)};
    return cmocka_run_group_tests(tests, NULL, NULL);
#endif
}
