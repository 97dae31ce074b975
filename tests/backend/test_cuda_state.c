/* Operations with a matrix of each head as state on a card, row after row. Skipped with a printed reason where there is no usable card,
 * unless INFER_REQUIRE_CUDA=1. */
#include "tests/lib/cuda_there.h"
#include "tests/lib/state_cases.h"

#ifdef INFER_CUDA
static void check(enum row_class cls, enum op_kind kind) {
    state_check(kind, (struct state_setting){&backend_cuda, NULL, 0, cls, 1e-5}, 0);
}
static void delta_of_prompts(void **state) {
    (void)state;
    check(ROW_PROMPT, OP_DELTA);
}
static void delta_of_decode_rows(void **state) {
    (void)state;
    check(ROW_DECODE, OP_DELTA);
}
static void ssm_of_prompts(void **state) {
    (void)state;
    check(ROW_PROMPT, OP_SSM);
}
static void ssm_of_decode_rows(void **state) {
    (void)state;
    check(ROW_DECODE, OP_SSM);
}
#endif

int main(int argc, char **argv) {
    bool must;
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    if (!cuda_there(&must)) return must ? 1 : 77;
#ifdef INFER_CUDA
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(delta_of_prompts), cmocka_unit_test(delta_of_decode_rows),
        cmocka_unit_test(ssm_of_prompts), cmocka_unit_test(ssm_of_decode_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
#endif
}
