#include "tools/measure/bench_result.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_percentile(double *x, size_t n, double q) {
    if (n == 0) return NAN;
    qsort(x, n, sizeof *x, compare);
    return x[(size_t)lround(q * (double)(n - 1))];
}

/* ---- JSON ---- */

static const struct {
    const char *key;
    size_t offset;
} keys[] = {
    {"tok_s", offsetof(struct bench_result, tok_s)},
    {"tok_s_min", offsetof(struct bench_result, tok_s_min)},
    {"tok_s_max", offsetof(struct bench_result, tok_s_max)},
    {"gb_s", offsetof(struct bench_result, gb_s)},
    {"share", offsetof(struct bench_result, share)},
    {"ms_p50", offsetof(struct bench_result, ms_p50)},
    {"ms_p95", offsetof(struct bench_result, ms_p95)},
    {"ms_p99", offsetof(struct bench_result, ms_p99)},
    {"waited", offsetof(struct bench_result, waited)},
    {"joules", offsetof(struct bench_result, joules)},
    {"celsius", offsetof(struct bench_result, celsius)},
    {"mhz", offsetof(struct bench_result, mhz)},
    {"throttled", offsetof(struct bench_result, throttled)},
    {"guesses_right", offsetof(struct bench_result, right)},
    {"tokens_a_step", offsetof(struct bench_result, per_step)},
};
enum { N_KEY = sizeof keys / sizeof *keys, N_OLD = 9 /* that results of earlier versions have */ };

json_t *bench_result_json(const struct bench_result *r) {
    json_t *j = json_pack("{s:s}", "test", r->test);
    for (int i = 0; j && i < N_KEY; i++) {
        double v = *(const double *)((const char *)r + keys[i].offset);
        if (json_object_set_new(j, keys[i].key, isfinite(v) ? json_real(v) : json_null()) != 0) {
            json_decref(j);
            return NULL;
        }
    }
    json_t *rate = json_array();
    for (int i = 0; i < r->n_rate; i++) json_array_append_new(rate, json_real(r->rate[i]));
    if (j) json_object_set_new(j, "rates", rate);
    return j;
}

enum infer_status bench_result_read(struct bench_result *r, const json_t *j) {
    const char *test = json_string_value(json_object_get(j, "test"));
    if (!test || strlen(test) >= sizeof r->test)
        return err_set(INFER_E_INPUT, "a result without the name of its test");
    snprintf(r->test, sizeof r->test, "%s", test);
    for (int i = 0; i < N_KEY; i++) {
        const json_t *v = json_object_get(j, keys[i].key);
        if (!v && i >= N_OLD) {
            *(double *)((char *)r + keys[i].offset) = NAN;
            continue;
        }
        if (!v || !(json_is_number(v) || json_is_null(v)))
            return err_set(INFER_E_INPUT, "%s: \"%s\" is no number", test, keys[i].key);
        *(double *)((char *)r + keys[i].offset) = json_is_null(v) ? NAN : json_number_value(v);
    }
    const json_t *rate = json_object_get(j, "rates");
    r->n_rate = json_array_size(rate) > BENCH_KEPT ? BENCH_KEPT : (int)json_array_size(rate);
    for (int i = 0; i < r->n_rate; i++) {
        r->rate[i] = json_number_value(json_array_get(rate, (size_t)i));
        if (!(r->rate[i] > 0)) return err_set(INFER_E_INPUT, "%s: rate %d is none", test, i);
    }
    return INFER_OK;
}

/* ---- comparison ---- */

/* How far the median may be off: the range of the repetitions, for a run may have had all but one of them in a slow
 * phase of the machine. Not a standard error, which shrinks with more of them: what slows a repetition down (another
 * program, the clock) slows its neighbours too. */
static double noise_of(const struct bench_result *r, int reps) {
    return reps < 3 || !(r->tok_s > 0) ? INFINITY : (r->tok_s_max - r->tok_s_min) / r->tok_s;
}

/* What other programs took of the processors is a slowdown of about as much, and the next run may be spared it. */
static double waits_of(const struct bench_result *r) { return isfinite(r->waited) ? r->waited : 0; }

/* Mean and variance of the mean of log x[n], the outermost fifths of both sides pulled in. source: Yuen 1974, trimmed t for unequal
 * variances; neighbours that are alike count for less, by their correlation (Bayley & Hammersley 1946). */
struct trimmed {
    double mean, variance, freedom;
};
static struct trimmed trimmed_of(const double *x, int n) {
    double sorted[BENCH_KEPT], log_x[BENCH_KEPT], mean = 0, square = 0, near = 0, far = 0;
    const int cut = n / 5, left = n - 2 * cut;
    for (int i = 0; i < n; i++) sorted[i] = log_x[i] = log(x[i]);
    qsort(sorted, (size_t)n, sizeof *sorted, compare);
    for (int i = cut; i < n - cut; i++) mean += sorted[i] / left;
    for (int i = 0; i < n; i++) {
        const double v = fmin(fmax(sorted[i], sorted[cut]), sorted[n - 1 - cut]) - mean;
        square += v * v / (n - 1);
        const double a = fmin(fmax(log_x[i], sorted[cut]), sorted[n - 1 - cut]) - mean;
        far += a * a;
        if (i) near += a * (fmin(fmax(log_x[i - 1], sorted[cut]), sorted[n - 1 - cut]) - mean);
    }
    const double alike = far > 0 ? fmin(fmax(near / far, 0), 0.8) : 0, of = left * (1 - alike) / (1 + alike);
    return (struct trimmed){mean, square * (n - 1) / ((left - 1) * fmax(of, 1)), fmax(of - 1, 1)};
}

/* Of 97.5% of Student's distribution. source: Abramowitz & Stegun 26.7.5 */
static double student(double freedom) {
    const double z = 1.959964, z3 = z * z * z, z5 = z3 * z * z, z7 = z5 * z * z;
    return z + (z3 + z) / (4 * freedom) + (5 * z5 + 16 * z3 + 3 * z) / (96 * freedom * freedom) +
           (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * freedom * freedom * freedom);
}

double bench_interval(const struct bench_result *r) {
    if (r->n_rate < BENCH_FEW) return NAN;
    const struct trimmed t = trimmed_of(r->rate, r->n_rate);
    return student(t.freedom) * sqrt(t.variance);
}

bool bench_ratio(const struct bench_result *new_one, const struct bench_result *old, double *ratio,
                 double *half) {
    if (new_one->n_rate < BENCH_FEW || old->n_rate < BENCH_FEW) return false;
    const struct trimmed a = trimmed_of(new_one->rate, new_one->n_rate),
                         b = trimmed_of(old->rate, old->n_rate);
    const double v = a.variance + b.variance;
    const double freedom =
        v > 0 ? v * v / (a.variance * a.variance / a.freedom + b.variance * b.variance / b.freedom) : 1e9;
    *ratio = exp(a.mean - b.mean), *half = student(freedom) * sqrt(v);
    return true;
}

struct bench_change bench_compare(const struct bench_result *new_one, const struct bench_result *old,
                                  int reps_new, int reps_old) {
    double speed = new_one->tok_s / old->tok_s, drift = 0, half = 0;
    const bool many = bench_ratio(new_one, old, &speed, &half);
    struct bench_change c = {.ratio = speed, .speed = speed, .half = many ? half : NAN};
    if (isfinite(new_one->share) && isfinite(old->share) && old->share > 0) {
        double share = new_one->share / old->share;
        drift = fabs(speed / share - 1); /* tok/s over share: the ceiling, probed beside each */
        if (fabs(log(share)) < fabs(log(speed))) c.ratio = share, c.by_share = true;
        if ((speed < 1) != (share < 1)) c.ratio = 1;
    }
    const double unsure = drift + waits_of(new_one) + waits_of(old);
    c.threshold = many ? fmax(0.015, half) + unsure
                       : fmax(0.025, hypot(noise_of(new_one, reps_new), noise_of(old, reps_old)) + unsure);
    if (c.ratio > 1 + c.threshold)
        c.verdict = BENCH_FASTER;
    else if (c.ratio < 1 - c.threshold)
        c.verdict = BENCH_SLOWER;
    else
        c.verdict = c.threshold > 0.10 ? BENCH_NOISY : BENCH_SAME;
    return c;
}

static double middle(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, compare);
    return (x[(n - 1) / 2] + x[n / 2]) / 2;
}

struct bench_turns_change bench_compare_turns(double *ratio, int n_block) {
    const double least = 0.01, small = 0.025, wide = 0.10;
    double round[BENCH_ROUNDS], mean = 0, square = 0;
    for (int i = 0; i < BENCH_ROUNDS; i++) {
        round[i] = log(middle(ratio + (size_t)i * (size_t)n_block, n_block));
        mean += round[i] / BENCH_ROUNDS;
    }
    for (int i = 0; i < BENCH_ROUNDS; i++) square += (round[i] - mean) * (round[i] - mean);
    const double half = student(BENCH_ROUNDS - 1) * sqrt(square / (BENCH_ROUNDS * (BENCH_ROUNDS - 1)));
    struct bench_turns_change c = {.ratio = exp(mean), .least = exp(mean - half), .most = exp(mean + half)};
    if (c.ratio < 1 - least && c.most < 1)
        c.verdict = BENCH_SLOWER;
    else if (c.ratio > 1 + least && c.least > 1)
        c.verdict = BENCH_FASTER;
    else
        c.verdict = fabs(c.ratio - 1) > small || c.most - c.least > wide ? BENCH_NOISY : BENCH_SAME;
    return c;
}

const char *bench_moved(const struct bench_change *c, char text[64]) {
    if (c->ratio == 1 && c->speed != 1)
        snprintf(text, 64, "speed %+.1f%%, share the other way", 100 * (c->speed - 1));
    else
        snprintf(text, 64, "%s %+.1f%%", c->by_share ? "share" : "speed", 100 * (c->ratio - 1));
    return text;
}

const char *bench_verdict_name(enum bench_verdict v) {
    static const char *const names[] = {"no change", "faster", "SLOWER", "too noisy to tell"};
    return names[v];
}
