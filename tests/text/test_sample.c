/* Sampling: the vectors of the reference implementation, and the properties that sample.h promises. */
#include "tests/lib/chi_square.h"
#include "tests/lib/pace.h"
#include "tests/lib/test.h"
#include <jansson.h>
#include <math.h>
#include "seam/draw.h"
#include "text/sample/sample.h"

static float number(json_t *args, const char *key, float missing) {
    json_t *v = json_object_get(args, key);
    return v ? (float)json_number_value(v) : missing;
}

static int descending(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* One vector: logits are the logarithms of probs, expected the probabilities that are left, zeros and sum aside. */
static void run_vector(json_t *args, const struct infer_sample_params *p) {
    json_t *probs = json_object_get(args, "probs"), *expected = json_object_get(args, "expected");
    int n = (int)json_array_size(probs), n_want = 0;
    float logits[16], got[16], want[16], sum = 0;
    for (int i = 0; i < n; i++) logits[i] = logf((float)json_number_value(json_array_get(probs, i)));
    struct sampler *s;
    assert_ok(sample_open(&s, n, p));
    json_t *last = json_object_get(args, "last_tokens");
    for (size_t i = 0; last && i < json_array_size(last); i++)
        sample_accept(s, (int32_t)json_integer_value(json_array_get(last, i)));
    const struct sample_candidate *c;
    int m = sample_distribution(s, logits, &c);
    for (int i = 0; i < m; i++) got[i] = c[i].p;
    for (size_t i = 0; i < json_array_size(expected); i++) {
        float x = (float)json_number_value(json_array_get(expected, i));
        if (x > 0 || m > n_want) want[n_want++] = x, sum += x;
    }
    assert_int_equal(m, n_want);
    qsort(got, (size_t)m, sizeof *got, descending);
    qsort(want, (size_t)m, sizeof *want, descending);
    for (int i = 0; i < m; i++)
        if (!(fabsf(got[i] - want[i] / sum) < 1e-4f))
            fail_msg("place %d: %g, wanted %g", i, got[i], want[i] / sum);
    sample_close(s);
}

/* Token i has the logit log(i); the same filters on the integer weights i say what must be left. */
static void run_queue(json_t *args) {
    int n = (int)number(args, "n_vocab", 0), high = n - 1, low = 1; /* token 0 has no probability */
    struct infer_sample_params p = infer_sample_defaults();
    p.temp = 1;
    p.top_k = (int)number(args, "top_k", 0), p.top_p = number(args, "top_p", 1),
    p.min_p = number(args, "min_p", 0);
    const char *order = json_string_value(json_object_get(args, "order"));
    memset(p.order, 0, sizeof p.order);
    for (int i = 0; order[i]; i++) {
        double total = 0, sum = 0;
        p.order[i] = order[i] == 'k'   ? INFER_SAMPLE_TOP_K
                     : order[i] == 'p' ? INFER_SAMPLE_TOP_P
                                       : INFER_SAMPLE_MIN_P;
        if (order[i] == 'k' && high - low + 1 > p.top_k) low = high - p.top_k + 1;
        if (order[i] == 'm')
            while (low < high && low < (double)p.min_p * high - 1e-3) low++;
        if (order[i] != 'p' || p.top_p >= 1) continue;
        for (int t = low; t <= high; t++) total += t;
        int t = high + 1;
        do sum += --t;
        while (t > low && sum < (double)p.top_p * total);
        low = t;
    }
    float *logits = malloc((size_t)n * sizeof *logits);
    for (int i = 0; i < n; i++) logits[i] = logf((float)i);
    struct sampler *s;
    const struct sample_candidate *c;
    assert_ok(sample_open(&s, n, &p));
    int m = sample_distribution(s, logits, &c);
    if (m != high - low + 1) fail_msg("queue %s: %d left, wanted %d", order, m, high - low + 1);
    for (int i = 0; i < m; i++) assert_in_range(c[i].id, low, high);
    sample_close(s);
    free(logits);
}

static void dry_params(json_t *args, struct infer_sample_params *p) {
    p->dry_multiplier = number(args, "multiplier", 0), p->dry_base = number(args, "base", 1);
    p->dry_allowed = (int)number(args, "allowed_length", 0),
    p->dry_last = (int)number(args, "penalty_last_n", 0);
    json_t *breakers = json_object_get(args, "seq_breakers"), *one;
    size_t i;
    json_array_foreach(breakers, i, one) {
        assert_int_equal(json_array_size(one), 1);
        p->dry_breaker[p->n_dry_breaker++] = (int32_t)json_integer_value(json_array_get(one, 0));
    }
}

static void test_vectors(void **state) {
    (void)state;
    char path[512];
    if (!testdata_path(path, sizeof path, "sampling/sampling_vectors.json")) skip();
    json_t *root = json_load_file(path, 0, NULL), *t;
    assert_non_null(root);
    size_t i;
    json_array_foreach(json_object_get(root, "tests"), i, t) {
        const char *fn = json_string_value(json_object_get(t, "fn"));
        json_t *args = json_object_get(t, "args");
        struct infer_sample_params p = infer_sample_defaults();
        p.temp = 1;
        if (strcmp(fn, "temp") == 0)
            p.temp = number(args, "temperature", 1);
        else if (strcmp(fn, "temp_ext") == 0)
            p.temp = number(args, "temperature", 1), p.temp_range = number(args, "delta", 0),
            p.temp_exponent = number(args, "exponent", 1);
        else if (strcmp(fn, "top_k") == 0)
            p.top_k = (int)number(args, "k", 0);
        else if (strcmp(fn, "top_p") == 0)
            p.top_p = number(args, "p", 1);
        else if (strcmp(fn, "min_p") == 0)
            p.min_p = number(args, "p", 0);
        else if (strcmp(fn, "xtc") == 0)
            p.xtc_probability = number(args, "probability", 0),
            p.xtc_threshold = number(args, "threshold", 1);
        else if (strcmp(fn, "typical") == 0)
            p.typical_p = number(args, "p", 1);
        else if (strcmp(fn, "top_n_sigma") == 0)
            p.top_n_sigma = number(args, "n", 0);
        else if (strcmp(fn, "dry") == 0)
            dry_params(args, &p);
        else if (strcmp(fn, "penalties") == 0)
            p.repeat_penalty = number(args, "repeat", 1), p.frequency_penalty = number(args, "frequency", 0),
            p.presence_penalty = number(args, "presence", 0);
        else if (strcmp(fn, "sampler_queue") == 0) {
            run_queue(args);
            continue;
        } else
            fail_msg("no case for %s", fn);
        run_vector(args, &p);
    }
    assert_int_equal(i, 37);
    json_decref(root);
}

/* The probabilities of one distribution, by id. */
static void distribution(struct sampler *s, const float *logits, int n, float *p) {
    const struct sample_candidate *c;
    memset(p, 0, (size_t)n * sizeof *p);
    int m = sample_distribution(s, logits, &c);
    for (int i = 0; i < m; i++) p[c[i].id] = c[i].p;
}

/* Numbers worked out by hand from the definitions. */
static void test_steps(void **state) {
    (void)state;
    struct infer_sample_params p = infer_sample_defaults();
    struct sampler *s;
    float equal[5] = {0}, got[5];
    p.temp = 1;
    /* DRY: after 0 1 2 0 1 a 2 would repeat: it loses 1 * 1.1^0, then 2 * 1.1^1 with an allowed length of 1 */
    p.dry_multiplier = 1, p.dry_base = 1.1f;
    assert_ok(sample_open(&s, 5, &p));
    const int32_t seen[] = {0, 1, 2, 0, 1};
    for (int i = 0; i < 5; i++) sample_accept(s, seen[i]);
    distribution(s, equal, 5, got);
    assert_true(fabsf(got[2] / got[0] - expf(-1)) < 1e-5f && got[0] == got[4]);
    p.dry_multiplier = 2, p.dry_allowed = 1;
    assert_ok(sample_set(s, &p));
    distribution(s, equal, 5, got);
    assert_true(fabsf(got[2] / got[0] - expf(-2.2f)) < 1e-5f);
    p.dry_breaker[p.n_dry_breaker++] = 1; /* the newest token breaks: nothing repeats across it */
    assert_ok(sample_set(s, &p));
    distribution(s, equal, 5, got);
    assert_true(fabsf(got[2] - 0.2f) < 1e-6f);
    /* biases */
    p = infer_sample_defaults(), p.temp = 1;
    const struct infer_sample_bias bias[] = {{1, 1}, {3, -INFINITY}, {99, 5}};
    p.bias = bias, p.n_bias = 3;
    assert_ok(sample_set(s, &p));
    distribution(s, equal, 5, got);
    assert_true(got[3] == 0 && fabsf(got[1] / got[0] - expf(1)) < 1e-5f);
    /* dynamic temperature: equal logits have the greatest entropy, so temp + range; two unlike ones less */
    p = infer_sample_defaults(), p.temp = 1, p.temp_range = 0.5f;
    assert_ok(sample_set(s, &p));
    float two[5] = {0, 1, -INFINITY, -INFINITY, -INFINITY};
    distribution(s, two, 5, got);
    double q = 1 / (1 + exp(-1.0)), h = -(q * log(q) + (1 - q) * log(1 - q)) / log(2);
    assert_true(fabs(got[1] / got[0] - exp(1 / (0.5 + h))) < 1e-4);
    sample_close(s);
}

/* Mirostat holds the mean surprise near tau. */
static void test_mirostat(void **state) {
    (void)state;
    enum { N = 5000, DRAWS = 3000 / EVERY(5) };
    static float logits[N];
    for (int i = 0; i < N; i++) logits[i] = -1.2f * logf((float)i + 1); /* Zipf's law */
    struct infer_sample_params p = infer_sample_defaults();
    struct sampler *s;
    p.temp = 1, p.mirostat = 2, p.mirostat_tau = 3;
    assert_ok(sample_open(&s, N, &p));
    double surprise = 0;
    for (int i = 0; i < DRAWS; i++) {
        struct sampler *copy = s;
        const struct sample_candidate *c;
        int n = sample_distribution(copy, logits, &c); /* takes nothing from the random stream */
        static float prob[N];
        memset(prob, 0, sizeof prob);
        for (int k = 0; k < n; k++) prob[c[k].id] = c[k].p;
        surprise -= log2(prob[sample_token(s, logits)]);
    }
    assert_true(fabs(surprise / DRAWS - 3) < 0.1);
    sample_close(s);
}

static void test_order(void **state) {
    (void)state;
    struct infer_sample_params p = infer_sample_defaults();
    assert_ok(infer_sample_set_order(&p, "temp;min_p"));
    assert_int_equal(p.order[0], INFER_SAMPLE_TEMP);
    assert_int_equal(p.order[1], INFER_SAMPLE_MIN_P);
    assert_int_equal(p.order[2], INFER_SAMPLE_END);
    assert_int_equal(infer_sample_set_order(&p, "temp;heat"), INFER_E_INPUT);
    assert_int_equal(infer_sample_set_order(&p, "temp,temp"), INFER_E_INPUT);
    /* min-p before a low temperature keeps both, behind it one */
    float logits[2] = {0, 1}, got[2];
    struct sampler *s;
    p.temp = 0.2f, p.min_p = 0.2f;
    assert_ok(sample_open(&s, 2, &p));
    distribution(s, logits, 2, got);
    assert_true(got[0] == 0);
    assert_ok(infer_sample_set_order(&p, "min_p;temp"));
    assert_ok(sample_set(s, &p));
    distribution(s, logits, 2, got);
    assert_true(got[0] > 0);
    sample_close(s);
}

static void test_greedy(void **state) {
    (void)state;
    struct infer_sample_params p = infer_sample_defaults();
    assert_true(sample_is_greedy(&p));
    struct sampler *s;
    assert_ok(sample_open(&s, 6, &p));
    float ties[6] = {1, 3, 2, 3, NAN, -INFINITY};
    assert_int_equal(sample_token(s, ties), 1);
    float none[6] = {NAN, NAN, NAN, NAN, NAN, NAN};
    assert_int_equal(sample_token(s, none), 0);
    p.repeat_penalty = 2;
    assert_false(sample_is_greedy(&p));
    assert_ok(sample_set(s, &p));
    sample_accept(s, 1);
    assert_int_equal(sample_token(s, ties), 3);
    sample_close(s);
}

/* Frequencies of many draws follow the probabilities; one seed gives one stream, another seed another. */
static void test_draws(void **state) {
    (void)state;
    enum { N = 1000, DRAWS = 40000 };
    static float logits[N];
    static int count[N], first[DRAWS];
    for (int i = 0; i < N; i++) logits[i] = (float)((i * 37) % 101) / 20;
    struct infer_sample_params p = infer_sample_defaults();
    p.temp = 0.7f, p.top_k = 20, p.top_p = 0.9f, p.min_p = 0.05f, p.seed = 7;
    struct sampler *s;
    assert_ok(sample_open(&s, N, &p));
    const struct sample_candidate *c;
    int n = sample_distribution(s, logits, &c);
    assert_true(n > 1 && n < 20);
    float expected[20], total = 0;
    int32_t ids[20];
    for (int i = 0; i < n; i++) expected[i] = c[i].p, ids[i] = c[i].id, total += c[i].p;
    assert_true(fabsf(total - 1) < 1e-5f);
    for (int i = 0; i < DRAWS; i++) count[first[i] = sample_token(s, logits)]++;
    for (int i = 0; i < n; i++) {
        float mean = expected[i] * DRAWS;
        assert_true(fabsf((float)count[ids[i]] - mean) < 6 * sqrtf(mean));
        count[ids[i]] = 0;
    }
    for (int i = 0; i < N; i++) assert_int_equal(count[i], 0);
    sample_reset(s);
    for (int i = 0; i < 1000; i++) assert_int_equal(sample_token(s, logits), first[i]);
    p.seed = 8;
    assert_ok(sample_set(s, &p));
    int same = 0;
    for (int i = 0; i < 1000; i++) same += sample_token(s, logits) == first[i];
    assert_true(same < 500);
    sample_close(s);
}

static uint64_t seed = 99;
static uint32_t below(uint32_t n) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (uint32_t)((seed >> 32) * n >> 32);
}
static float one_of(const float *x) { return x[below(4)]; }

/* Any parameters; half of the chains are those that a draw knows. */
static void any_params(struct infer_sample_params *p, struct infer_sample_bias bias[8], int n_vocab) {
    *p = infer_sample_defaults();
    p->seed = below(1000);
    p->temp = one_of((float[]){0.3f, 0.8f, 1, 2});
    p->top_k = (int)one_of((float[]){0, 20, 128, 500});
    p->top_p = one_of((float[]){1, 0.95f, 0.7f, 0.999f});
    p->min_p = one_of((float[]){0, 0, 0.05f, 0.2f});
    p->repeat_penalty = one_of((float[]){1, 1, 1.1f, 1.5f});
    p->frequency_penalty = one_of((float[]){0, 0, 0, 0.3f});
    p->presence_penalty = one_of((float[]){0, 0, 0, 0.5f});
    p->dry_multiplier = one_of((float[]){0, 0, 0, 0.8f});
    p->n_bias = (int)below(9), p->bias = bias;
    for (int i = 0; i < 8; i++)
        bias[i] = (struct infer_sample_bias){(int32_t)below((uint32_t)n_vocab),
                                             one_of((float[]){1, -2, 4, -INFINITY})};
    if (below(2)) return;
    p->typical_p = one_of((float[]){1, 0.9f, 0.5f, 0.99f});
    p->xtc_probability = one_of((float[]){0, 1, 0.5f, 0});
    p->temp_range = one_of((float[]){0, 0, 0.5f, 0.2f});
    p->top_n_sigma = one_of((float[]){0, 0, 0, 2});
}

/* A draw's edits and steps on the whole row, and the greatest logits under the edits, give the token that the sampler's own
 * steps give. */
static void test_draw_is_the_sampler(void **state) {
    (void)state;
    enum { N = 3000, CASES = 4000 };
    static float logits[N], x[N];
    static struct draw_candidate heap[N];
    struct infer_sample_bias bias[8];
    int by_count[3] = {0};
    for (int k = 0; k < CASES; k++) {
        int n = k % 5 ? N : 40;
        struct infer_sample_params p;
        any_params(&p, bias, n);
        struct sampler *s, *twin;
        assert_ok(sample_open(&s, n, &p));
        assert_ok(sample_open(&twin, n, &p));
        for (int i = 0; i < n; i++)
            logits[i] = (float)below(1 << 20) / (1 << 17) - 3 * logf((float)below(100) + 1);
        for (int i = 0; i < 50; i++) {
            int32_t id = (int32_t)below((uint32_t)n / 8);
            sample_accept(s, id), sample_accept(twin, id);
        }
        struct infer_draw d;
        struct infer_top top;
        enum sample_by by = sample_draw(s, 0, &d);
        by_count[by]++;
        memcpy(x, logits, (size_t)n * sizeof *x);
        draw_edit(x, 0, n, &d);
        draw_top(&top, x, n, &d);
        if (by == SAMPLE_BY_DRAW) {
            const struct sample_candidate *c;
            int32_t got = draw_token(&top, x, n, &d, heap);
            int m = sample_distribution(twin, logits, &c), before = 0, at = -1;
            double sum = 0;
            for (int i = 0; i < m; i++)
                if (c[i].id == got) at = i;
            if (at < 0) fail_msg("case %d: %d is not among the %d candidates", k, got, m);
            for (int i = 0; i < m; i++)
                if (c[i].logit > c[at].logit || (c[i].logit == c[at].logit && c[i].id < got))
                    sum += c[i].p, before++;
            if (!(d.u > sum - 1e-5 && d.u < sum + c[at].p + 1e-5))
                fail_msg("case %d: u %g, token %d stands at %g to %g", k, d.u, got, sum, sum + c[at].p);
            int32_t token = sample_token(twin, logits);
            if (token != got) fail_msg("case %d: %d, the sampler itself gives %d", k, got, token);
        } else if (by == SAMPLE_BY_TOP) {
            int32_t got = sample_from_top(s, &top), want = sample_token(twin, logits);
            if (got != want) fail_msg("case %d: %d from the greatest, %d from the row", k, got, want);
        }
        sample_close(s);
        sample_close(twin);
    }
    assert_true(by_count[SAMPLE_BY_DRAW] > CASES / 3 && by_count[SAMPLE_BY_TOP] > CASES / 20 &&
                by_count[SAMPLE_BY_ROW] > CASES / 20);
}

/* Token k of a stream has the number k, whoever draws: tokens that are certain count too. */
static void test_numbers(void **state) {
    (void)state;
    float flat[64] = {0}, peak[64] = {[5] = 100};
    struct infer_sample_params p = infer_sample_defaults();
    struct sampler *s, *twin;
    struct infer_draw d;
    p.temp = 1, p.seed = 3;
    assert_ok(sample_open(&s, 64, &p));
    assert_ok(sample_open(&twin, 64, &p));
    for (int i = 0; i < 20; i++) {
        assert_int_equal(sample_draw(twin, i, &d), SAMPLE_BY_DRAW);
        int32_t token = sample_token(s, i % 3 ? flat : peak);
        assert_int_equal(token, i % 3 ? (int32_t)(d.u * 64) : 5);
    }
    sample_close(s);
    sample_close(twin);
}

static void test_refusals(void **state) {
    (void)state;
    struct sampler *s;
    struct infer_sample_params p = infer_sample_defaults();
    p.top_p = 1.5f;
    assert_int_equal(sample_open(&s, 5, &p), INFER_E_INPUT);
    assert_non_null(strstr(err_message(), ".top_p 1.5 is not within 0 to 1"));
    p = infer_sample_defaults(), p.temp = NAN;
    assert_int_equal(sample_open(&s, 5, &p), INFER_E_INPUT);
    p = infer_sample_defaults(), p.repeat_last = INFER_SAMPLE_MAX_LAST + 1;
    assert_int_equal(sample_open(&s, 5, &p), INFER_E_INPUT);
    p = infer_sample_defaults();
    assert_int_equal(sample_open(&s, 0, &p), INFER_E_INPUT);
}

/* Tokens that another model guesses are those that nobody guesses, and have their distribution, whatever that model holds likely; and it
 * guesses right as often as both agree. */
static void test_guesses(void **state) {
    (void)state;
    enum { N = 12, DRAWS = 20000 };
    static const struct guesser {
        const char *name;
        float logits[N];
    } guessers[] = {
        {"the same", {2, 1.5f, 1, 1, 0.5f, 0, 0, -1, -1, -2, -3, -INFINITY}},
        {"another", {0, 1.5f, 2, -1, 0.5f, 3, 0, -1, 1, -2, 0, 2}},
        {"the opposite", {-2, -1.5f, -1, -1, -0.5f, 0, 0, 1, 1, 2, 3, 3}},
        {"sure", {-9, -9, 9, -9, -9, -9, -9, -9, -9, -9, -9, -9}},
    };
    static const struct infer_sample_bias bias[] = {{3, 1}, {4, -INFINITY}};
    const struct infer_sample_params chains[] = {
        {.temp = 1},
        {.temp = 0.6f},
        {.temp = 1.3f, .top_k = 5},
        {.temp = 1, .top_p = 0.8f},
        {.temp = 0.9f, .min_p = 0.1f},
        {.temp = 1, .repeat_penalty = 1.5f, .n_bias = 2},
        {.temp = 1, .typical_p = 0.7f},
    };
    for (size_t c = 0; c < sizeof chains / sizeof *chains; c++)
        for (size_t g = 0; g < sizeof guessers / sizeof *guessers; g++) {
            struct infer_sample_params p = infer_sample_defaults();
            const struct sample_candidate *list;
            struct sampler *s;
            struct infer_top top;
            int count[N] = {0}, right = 0;
            double want[N] = {0}, away;
            p.temp = chains[c].temp, p.top_k = chains[c].top_k, p.min_p = chains[c].min_p, p.seed = 7 + c;
            if (chains[c].top_p > 0) p.top_p = chains[c].top_p;
            if (chains[c].typical_p > 0) p.typical_p = chains[c].typical_p;
            if (chains[c].repeat_penalty > 0) p.repeat_penalty = chains[c].repeat_penalty;
            p.bias = bias, p.n_bias = chains[c].n_bias;
            assert_ok(sample_open(&s, N, &p));
            sample_accept(s, 0);
            int n = sample_distribution(s, guessers[0].logits, &list);
            for (int i = 0; i < n; i++) want[list[i].id] = (double)list[i].p;
            draw_top(&top, guessers[g].logits, N, NULL);
            for (int i = 0; i < DRAWS; i++) {
                int32_t guess = sample_guess(s, &top, 0), token = sample_token(s, guessers[0].logits);
                count[token]++;
                right += token == guess;
            }
            if ((away = chi_square(count, want, N, DRAWS)) > 5)
                fail_msg("chain %zu, guesses by %s: %g standard deviations from what it should be", c,
                         guessers[g].name, away);
            if (g == 0 && c < 5 && right < DRAWS * 0.99) fail_msg("chain %zu: %d right", c, right);
            sample_close(s);
        }
}

/* Draws behind tokens that are supposed are those behind tokens that have come, and what was supposed leaves nothing. */
static void test_supposed(void **state) {
    (void)state;
    enum { N = 12 };
    static const float logits[N] = {2, 1.5f, 1, 1, 0.5f, 0, 0, -1, -1, -2, -3, 1};
    struct infer_sample_params p = infer_sample_defaults();
    p.temp = 1, p.repeat_penalty = 1.4f, p.frequency_penalty = 0.3f, p.dry_multiplier = 0.7f, p.seed = 11;
    for (int before = 0; before < 2 * INFER_SAMPLE_MAX_LAST; before += INFER_SAMPLE_MAX_LAST - 3) {
        struct sampler *supposes, *knows;
        assert_ok(sample_open(&supposes, N, &p));
        assert_ok(sample_open(&knows, N, &p));
        for (int i = 0; i < before; i++) {
            sample_accept(supposes, i % 5);
            sample_accept(knows, i % 5);
        }
        for (int turn = 0; turn < 3; turn++) {
            struct infer_draw ahead, now;
            struct infer_edit edits[SAMPLE_SUPPOSED][N];
            int n_edit[SAMPLE_SUPPOSED];
            double u[SAMPLE_SUPPOSED];
            for (int i = 0; i < SAMPLE_SUPPOSED; i++) {
                assert_int_equal(sample_draw(supposes, i, &ahead), SAMPLE_BY_DRAW);
                n_edit[i] = ahead.n_edit, u[i] = ahead.u;
                memcpy(edits[i], ahead.edit, (size_t)ahead.n_edit * sizeof edits[i][0]);
                if (i + 1 < SAMPLE_SUPPOSED) sample_suppose(supposes, (i * 3 + turn) % N);
            }
            sample_forget(supposes);
            for (int i = 0; i < 4; i++) { /* four of them come */
                assert_int_equal(sample_draw(knows, 0, &now), SAMPLE_BY_DRAW);
                assert_int_equal(now.n_edit, n_edit[i]);
                assert_true(now.u == u[i]);
                assert_memory_equal(now.edit, edits[i], (size_t)now.n_edit * sizeof *now.edit);
                assert_int_equal(sample_token(knows, logits), sample_token(supposes, logits));
                sample_accept(knows, (i * 3 + turn) % N);
                sample_accept(supposes, (i * 3 + turn) % N);
            }
        }
        sample_close(supposes);
        sample_close(knows);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),  cmocka_unit_test(test_steps),
        cmocka_unit_test(test_mirostat), cmocka_unit_test(test_order),
        cmocka_unit_test(test_greedy),   cmocka_unit_test(test_draws),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_draw_is_the_sampler),
        cmocka_unit_test(test_numbers),  cmocka_unit_test(test_guesses),
        cmocka_unit_test(test_supposed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
