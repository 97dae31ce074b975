/* A choice of positions, attention to what is chosen and rows of a table by runs of tokens on a card against ref: the same lists as on the
 * processor (tests/lib/choice_cases.h), of prompt and of decode rows. Skipped with a printed reason where there is no usable card, unless
 * INFER_REQUIRE_CUDA=1. */
#include "tests/lib/cuda_there.h"
#include "tests/lib/choice_cases.h"

#ifdef INFER_CUDA
/* The bench on ref and on the card, states behind it too; then bits of the card: fewer rows. */
static void check_card(struct bench *b, const char *what, const double tolerance[2]) {
    const size_t n = (size_t)MAX_T * (size_t)b->out.width;
    const int n_state = N_SLOT * b->state.n_elem;
    float *ref = malloc(n * 4), *got = malloc(n * 4), *part = malloc(n * 4),
          *ref_kept = malloc(sizeof(float) * (size_t)(n_state + 1)),
          *got_kept = malloc(sizeof(float) * (size_t)(n_state + 1));
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++) {
        static const int Ts[] = {1, 2, 5, 17, 33, 61};
        const struct setting card = {&backend_cuda, NULL, 1, (enum row_class)cls};
        char name[160];
        snprintf(name, sizeof name, "%s, %s", what, cls == ROW_DECODE ? "decode" : "prompt");
        b->kept = n_state ? ref_kept : NULL;
        run(b, (struct setting){&backend_ref, NULL, 1, (enum row_class)cls}, 0, MAX_T, ref, NULL);
        b->kept = n_state ? got_kept : NULL;
        run(b, card, 0, MAX_T, got, NULL);
        compare(name, got, ref, MAX_T, b->out.width, tolerance[cls]);
        if (n_state) compare(name, got_kept, ref_kept, N_SLOT, b->state.n_elem, tolerance[cls]);
        b->kept = NULL;
        for (int j = 0; j < (int)(sizeof Ts / sizeof *Ts); j++) {
            run(b, card, 0, Ts[j], part, NULL);
            if (memcmp(part, got, sizeof *got * (size_t)(Ts[j] * b->out.width)))
                fail_msg("%s: %d rows have other bits alone than among %d", name, Ts[j], MAX_T);
        }
    }
    free(ref), free(got), free(part), free(ref_kept), free(got_kept);
}

static void choices(void **state) {
    (void)state;
    choice_cases(check_card);
}
static void rows_by_runs_of_tokens(void **state) {
    (void)state;
    ngram_cases(&backend_cuda, check_card);
}
static void lists_of_heads(void **state) {
    (void)state;
    choice_head_cases(check_card);
}
#endif

int main(int argc, char **argv) {
    bool must;
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    if (!cuda_there(&must)) return must ? 1 : 77;
#ifdef INFER_CUDA
    const struct CMUnitTest tests[] = {cmocka_unit_test(choices), cmocka_unit_test(lists_of_heads),
                                       cmocka_unit_test(rows_by_runs_of_tokens)};
    return cmocka_run_group_tests(tests, NULL, NULL);
#endif
}
