/* multipleOf of a JSON Schema, in decimals: a step is p / 10^d, and digits are followed by what they leave over p. Sizes are limited by the number of rules or of texts. */
#include "base/mem.h"
#include "text/schema/schema_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STATES_MAX = 1000, LIST_MAX = 2000, DECIMALS_MAX = 15 };

struct decimal {
    int64_t p;
    int d;
};

/* The decimal that is written in fewest digits and is x, above 0. false: over 15 decimals or 18 digits. */
static bool decimal_of(double x, struct decimal *out) {
    char text[40];
    int digits = 0;
    do snprintf(text, sizeof text, "%.*e", digits, x);
    while (strtod(text, NULL) != x && ++digits < 17);
    int e = atoi(strchr(text, 'e') + 1) - digits;
    if (digits) memmove(text + 1, text + 2, strlen(text + 2) + 1); /* the point */
    int64_t p = strtoll(text, NULL, 10);
    for (; p && p % 10 == 0 && e < 0; e++) p /= 10;
    for (; e > 0 && p < INT64_MAX / 100; e--) p *= 10;
    *out = (struct decimal){p, -e};
    return p > 0 && e <= 0 && e >= -DECIMALS_MAX && p < 1000000000000000000;
}

static int64_t ten_to(int n) {
    int64_t x = 1;
    while (n-- > 0) x *= 10;
    return x;
}

static int64_t common(int64_t a, int64_t b) {
    while (b) {
        const int64_t rest = a % b;
        a = b, b = rest;
    }
    return a;
}

enum schema_verdict schema_is_multiple(double x, double step) {
    struct decimal a, b;
    if (x == 0 && step > 0) return SCHEMA_YES;
    if (!(step > 0) || !isfinite(x) || !decimal_of(fabs(x), &a) || !decimal_of(step, &b))
        return SCHEMA_UNKNOWN;
    const int d = a.d > b.d ? a.d : b.d;
    const __int128 whole = (__int128)a.p * ten_to(d - a.d), part = (__int128)b.p * ten_to(d - b.d);
    return whole % part == 0 ? SCHEMA_YES : SCHEMA_NO;
}

enum infer_status schema_join_multiples(const json_t *x, const json_t *y, json_t **out) {
    struct decimal a, b, check;
    *out = NULL;
    if (!json_is_number(x) || !json_is_number(y) || !decimal_of(json_number_value(x), &a) ||
        !decimal_of(json_number_value(y), &b))
        return err_set(INFER_E_UNSUPPORTED, "parts that disagree on 'multipleOf'");
    const int d = a.d > b.d ? a.d : b.d;
    int64_t p = 0, q = 0, least = 0;
    bool fits = !__builtin_mul_overflow(a.p, ten_to(d - a.d), &p) &&
                !__builtin_mul_overflow(b.p, ten_to(d - b.d), &q);
    fits = fits && !__builtin_mul_overflow(p / common(p, q), q, &least);
    char text[48];
    snprintf(text, sizeof text, "%llde-%d", (long long)least, d);
    const double step = strtod(text, NULL);
    fits = fits && decimal_of(step, &check) &&
           (__int128)check.p * ten_to(d) == (__int128)least * ten_to(check.d);
    if (!fits)
        return err_set(INFER_E_UNSUPPORTED, "parts whose 'multipleOf' have a common one of too many digits");
    *out = check.d ? json_real(step) : json_integer(check.p);
    return *out ? INFER_OK : err_set(INFER_E_MEMORY, "out of memory: a schema");
}

/* ---- digits -------------------------------------------------------------------------------------------------- */

/* Rules rule[j][r]: what may follow when j decimals are written and all digits so far leave r; 0: nothing does. */
struct digits {
    struct decimal step;
    int *rule; /* [d + 1][p] */
};

static bool ends(const struct decimal *s, int j, int64_t r) {
    return (__int128)r * ten_to(s->d - j) % s->p == 0;
}

/* Digits that go on from r, one decimal more. */
static bool put_digits(struct stext *t, const struct digits *f, int j, int64_t r, bool some) {
    for (int c = 0; c < 10; c++) {
        const int next = f->rule[(j + 1) * f->step.p + (10 * r + c) % f->step.p];
        if (next) stext_put(t, "%s\"%d\" r%d ", some ? "| " : "", c, next), some = true;
    }
    return some;
}

/* Decimals may follow whole digits that leave r. */
static bool goes_on(const struct digits *f, int64_t r) {
    bool some = false;
    for (int c = 0; c < 10 && f->step.d; c++) some |= f->rule[f->step.p + (10 * r + c) % f->step.p] != 0;
    return some;
}

/* The rules of decimals; free f->rule. */
static enum infer_status decimals_open(struct schema *S, struct digits *f) {
    const struct decimal *s = &f->step;
    TRY(mem_new(&f->rule, (size_t)((s->d + 1) * s->p) * sizeof *f->rule, "a schema"));
    for (int j = s->d; j > 0; j--)
        for (int64_t r = 0; r < s->p; r++) {
            struct stext rule;
            const int number = schema_rule_begin(S, &rule);
            bool some = ends(s, j, r);
            if (some) stext_put(&rule, "\"\" ");
            if (j < s->d) some = put_digits(&rule, f, j, r, some);
            f->rule[j * s->p + r] = some ? number : 0;
            if (!some) stext_put(&rule, "\"\" "); /* no rule refers to it */
            schema_rule_end(S, &rule, INFER_OK);
        }
    return INFER_OK;
}

/* The multiples from 0 (positive: from the first) on, with a sign before all but 0: whole digits, too, have a rule for each rest. */
static enum infer_status put_all(struct schema *S, struct stext *t, struct decimal step, bool positive,
                                 bool negative) {
    struct digits f = {.step = step};
    if (step.p * (step.d + 1) > STATES_MAX)
        return schema_unsupported("multipleOf of so many digits without narrow bounds");
    TRY(decimals_open(S, &f));
    const int first = S->n_rule + 1;
    for (int64_t r = 0; r < step.p; r++) {
        struct stext rule;
        schema_rule_begin(S, &rule);
        for (int c = 0; c < 10; c++)
            stext_put(&rule, "%s\"%d\" r%d ", c ? "| " : "", c, first + (int)((10 * r + c) % step.p));
        if (ends(&step, 0, r)) stext_put(&rule, "| \"\" ");
        if (goes_on(&f, r)) {
            stext_put(&rule, "| \".\" ( ");
            put_digits(&rule, &f, 0, r, false);
            stext_put(&rule, ") ");
        }
        schema_rule_end(S, &rule, INFER_OK);
    }
    stext_put(t, positive ? "( " : negative ? "( \"0\" | \"-\"? ( " : "( \"0\" | ( ");
    for (int c = 1; c < 10; c++)
        stext_put(t, "%s\"%d\" r%d ", c > 1 ? "| " : "", c, first + (int)(c % step.p));
    if (goes_on(&f, 0)) {
        stext_put(t, "| \"0.\" ( ");
        put_digits(t, &f, 0, 0, false);
        stext_put(t, ") ");
    }
    stext_put(t, positive ? ") space " : ") ) space ");
    mem_free(f.rule);
    return INFER_OK;
}

/* ---- lists --------------------------------------------------------------------------------------------------- */

/* n / 10^d without zeros at its end. */
static void write_decimal(char text[48], const char *sign, int64_t n, int d) {
    for (; d && n % 10 == 0; d--) n /= 10;
    const int64_t unit = ten_to(d);
    if (d)
        snprintf(text, 48, "%s%lld.%0*lld", sign, (long long)(n / unit), d, (long long)(n % unit));
    else
        snprintf(text, 48, "%s%lld", sign, (long long)n);
}

static bool lies_in(const struct schema_bounds *b, double x) {
    return (b->lo_open ? x > b->lo : x >= b->lo) && (b->hi_open ? x < b->hi : x <= b->hi);
}

/* One multiple, where it lies between the bounds; *n counts them. */
static void put_one(struct stext *t, const struct schema_bounds *b, int64_t value, int d, int *n) {
    char text[48];
    write_decimal(text, value < 0 ? "-" : "", value < 0 ? -value : value, d);
    if (lies_in(b, strtod(text, NULL))) stext_put(t, "%s\"%s\" ", (*n)++ ? "| " : "", text);
}

static enum infer_status put_list(struct schema *S, struct stext *t, struct decimal step,
                                  const struct schema_bounds *b) {
    const double size = (double)step.p / (double)ten_to(step.d), from = floor(b->lo / size) - 1,
                 to = ceil(b->hi / size) + 1;
    int n = 0;
    if (to - from > LIST_MAX + 4)
        return schema_unsupported("multipleOf with over 2000 multiples between the bounds");
    if (fmax(fabs(from), fabs(to)) * (double)step.p > 9e17)
        return schema_unsupported("bounds beyond 18 digits");
    stext_put(t, "( ");
    for (int64_t i = (int64_t)from; i <= (int64_t)to; i++) put_one(t, b, i * step.p, step.d, &n);
    stext_put(t, ") space ");
    return n ? INFER_OK : schema_nothing(S, "no multiple lies between the bounds");
}

/* ---- steps that divide 1, with bounds ------------------------------------------------------------------------ */

/* Numbers of one sign from a to b (b may be infinite): units of which every part is there, and those at the ends part by part. */
static void put_units(struct stext *t, const struct digits *f, const struct schema_bounds *all, double a,
                      bool whole, double b, const char *sign, int *n) {
    const int64_t unit = ten_to(f->step.d), first = (int64_t)floor(a),
                  last = isinf(b) ? 9999999999999 : (int64_t)floor(b);
    const int64_t from = whole ? first : first + 1, to = isinf(b) ? last : last - 1, turn = *sign ? -1 : 1;
    if (from <= to) {
        stext_put(t, "%s\"%s\" ", (*n)++ ? "| " : "", sign);
        schema_naturals(t, (uint64_t)from, (uint64_t)to);
        stext_put(t, "( \".\" ( ");
        put_digits(t, f, 0, 0, false);
        stext_put(t, ") )? ");
    }
    for (int64_t part = 0; part < unit; part += f->step.p) {
        const bool zero = turn < 0 && part == 0; /* no -0 */
        if (!whole && !(zero && first == 0)) put_one(t, all, turn * (first * unit + part), f->step.d, n);
        if (!isinf(b) && (whole || last != first) && !(zero && last == 0))
            put_one(t, all, turn * (last * unit + part), f->step.d, n);
    }
}

static enum infer_status put_parts(struct schema *S, struct stext *t, struct decimal step,
                                   const struct schema_bounds *b) {
    struct digits f = {.step = step};
    int n = 0;
    if ((!isinf(b->lo) && fabs(b->lo) > 1e12) || (!isinf(b->hi) && fabs(b->hi) > 1e12))
        return schema_unsupported("multipleOf of a fraction beside bounds of over 12 digits");
    TRY(decimals_open(S, &f));
    stext_put(t, "( ");
    if (b->hi >= 0) {
        const double a = b->lo > 0 ? b->lo : 0;
        put_units(t, &f, b, a, a == floor(a) && !(b->lo >= 0 && b->lo_open), b->hi, "", &n);
    }
    if (b->lo < 0) { /* from what lies next to 0: there no unit is whole */
        const double a = b->hi < 0 ? -b->hi : 0;
        put_units(t, &f, b, a, a == floor(a) && a > 0 && !b->hi_open, -b->lo, "-", &n);
    }
    stext_put(t, ") space ");
    mem_free(f.rule);
    return n ? INFER_OK : schema_nothing(S, "no multiple lies between the bounds");
}

/* ---- the keyword --------------------------------------------------------------------------------------------- */

enum infer_status schema_multiple(struct schema *S, const json_t *multiple, bool integers,
                                  const struct schema_bounds *b, struct stext *t) {
    struct decimal step;
    if (!json_is_number(multiple) || json_number_value(multiple) <= 0)
        return err_set(INFER_E_INPUT, "multipleOf is no number above 0");
    if (!decimal_of(json_number_value(multiple), &step))
        return schema_unsupported("multipleOf of over 15 decimals or 18 digits");
    if (integers) step = (struct decimal){step.p / common(step.p, ten_to(step.d)), 0};
    const bool low = !isinf(b->lo), high = !isinf(b->hi);
    const double size = (double)step.p / (double)ten_to(step.d);
    if (low && high && (b->hi - b->lo) / size < LIST_MAX) return put_list(S, t, step, b);
    if (step.d && ten_to(step.d) % step.p == 0 && step.p * step.d < STATES_MAX &&
        ten_to(step.d) / step.p <= LIST_MAX)
        return put_parts(S, t, step, b);
    /* the first multiple from the lower bound on: 0, or the one behind it */
    const bool zero = b->lo <= 0 && !(b->lo == 0 && b->lo_open) && b->lo > -size,
               one = !step.d && b->lo >= 0 && lies_in(b, size);
    if (high || (low && !zero && !one))
        return schema_unsupported("multipleOf with over 2000 multiples between the bounds");
    return put_all(S, t, step, low && !zero, !low);
}
