/* What bench --compare concludes of repetitions that are made up: alike for a while, some of them disturbed, runs a little apart. */
#include "tests/lib/test.h"
#include <math.h>
#include "tools/measure/bench_result.h"

enum { TRIALS = 100, REPS = 20 };

static uint64_t seed = 1;
static double uniform(void) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return ((double)(seed >> 11) + 0.5) / 9007199254740992.0;
}
static double normal(void) { return sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform()); }

/* Repetitions of 1% noise, of which neighbours are alike by 0.3; one of twenty is disturbed; runs are 0.2% apart. */
static struct bench_result made_up(double speed) {
    struct bench_result r = {.test = "tg128", .share = NAN, .waited = NAN, .n_rate = REPS};
    const double run = 0.002 * normal();
    double sorted[REPS], noise = 0.01 * normal();
    for (int i = 0; i < REPS; i++) {
        noise = 0.3 * noise + 0.01 * sqrt(1 - 0.09) * normal();
        r.rate[i] = sorted[i] = speed * exp(run + noise) * (uniform() < 0.05 ? 0.8 : 1);
    }
    r.tok_s_min = bench_percentile(sorted, REPS, 0), r.tok_s_max = sorted[REPS - 1],
    r.tok_s = sorted[REPS / 2];
    return r;
}

static int verdicts(double speed, enum bench_verdict v, int *covered) {
    int n = 0;
    *covered = 0;
    for (int i = 0; i < TRIALS; i++) {
        const struct bench_result a = made_up(100), b = made_up(100 * speed);
        const struct bench_change c = bench_compare(&b, &a, REPS, REPS);
        n += c.verdict == v;
        *covered += fabs(log(c.speed / speed)) <= c.half;
    }
    return n;
}

static void trials(void **state) {
    (void)state;
    int covered;
    const int same = verdicts(1, BENCH_SAME, &covered);
    print_message("of %d A/A trials %d alarm, %d intervals hold the truth\n", TRIALS, TRIALS - same, covered);
    assert_true(TRIALS - same <= 5 && covered >= 88);
    const int slower = verdicts(0.97, BENCH_SLOWER, &covered),
              faster = verdicts(1.03, BENCH_FASTER, &covered);
    print_message("3%% slower: %d found; faster: %d\n", slower, faster);
    assert_true(slower >= 95 && faster >= 95);
    assert_true(verdicts(0.997, BENCH_SLOWER, &covered) <= 5); /* which is no slowdown to speak of */
}

/* The interval is wider where neighbours are alike, and there is none with few repetitions. */
static void interval(void **state) {
    (void)state;
    struct bench_result r = {.n_rate = 12}, like = r;
    for (int i = 0; i < 12; i++) r.rate[i] = 100 + (i % 2), like.rate[i] = 100 + (i >= 6);
    assert_true(bench_interval(&like) > 2 * bench_interval(&r) && bench_interval(&r) > 0);
    r.n_rate = BENCH_FEW - 1;
    assert_true(isnan(bench_interval(&r)));
}

/* Two programs that take turns: blocks of 3% noise, one of eight disturbed by 20%, processes 1% apart. */
static int turns(double speed, enum bench_verdict v) {
    enum { BLOCKS = 10 };
    int n = 0;
    for (int i = 0; i < TRIALS; i++) {
        double ratio[BENCH_ROUNDS * BLOCKS];
        for (int k = 0; k < BENCH_ROUNDS; k++) {
            const double process = 0.01 * normal();
            for (int j = 0; j < BLOCKS; j++)
                ratio[k * BLOCKS + j] = speed * exp(process + (uniform() < 0.125 ? 0.2 : 0.03) * normal());
        }
        n += bench_compare_turns(ratio, BLOCKS).verdict == v;
    }
    return n;
}

static void turns_trials(void **state) {
    (void)state;
    const int slower = turns(1, BENCH_SLOWER), faster = turns(1, BENCH_FASTER),
              found = turns(0.97, BENCH_SLOWER);
    print_message("in turns %d and %d of %d alarm; 3%% slower: %d found\n", slower, faster, TRIALS, found);
    assert_true(slower + faster <= 5 && found >= 95 && turns(1.03, BENCH_FASTER) >= 95);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(trials), cmocka_unit_test(interval),
                                       cmocka_unit_test(turns_trials)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
