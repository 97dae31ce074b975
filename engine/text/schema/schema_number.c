/* Numbers of a JSON Schema: ranges digit by digit, multiples by their remainders. */
#include "text/schema/schema_int.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void digit_range(struct stext *t, char lo, char hi) {
    if (lo == hi)
        stext_put(t, "\"%c\" ", lo);
    else
        stext_put(t, "[%c-%c] ", lo, hi);
}

static void any_digits(struct stext *t, size_t n) {
    if (n == 1) stext_put(t, "[0-9] ");
    if (n > 1) stext_put(t, "[0-9]{%zu} ", n);
}

static bool only(const char *s, size_t n, char c) {
    for (size_t i = 0; i < n; i++)
        if (s[i] != c) return false;
    return true;
}

/* Numbers of n digits from lo to hi (texts of n digits); n is at most 19, so the recursion is too. */
static void same_length(struct stext *t, const char *lo, const char *hi, size_t n) {
    size_t same = 0;
    while (same < n && lo[same] == hi[same]) same++;
    if (same) {
        stext_put(t, "\"%.*s\" ", (int)same, lo);
        lo += same, hi += same, n -= same;
    }
    if (n == 0) return;
    char nines[20], zeros[20];
    memset(nines, '9', sizeof nines);
    memset(zeros, '0', sizeof zeros);
    /* the first digit of lo with a part of what follows, whole digits between, the first digit of hi with a part */
    char a = lo[0], z = hi[0];
    bool low_whole = only(lo + 1, n - 1, '0'), high_whole = only(hi + 1, n - 1, '9');
    const char *between = "";
    stext_put(t, "( ");
    if (!low_whole) {
        stext_put(t, "\"%c\" ", a++);
        same_length(t, lo + 1, nines, n - 1);
        between = "| ";
    }
    char last = (char)(high_whole ? z : z - 1);
    if (a <= last) {
        stext_put(t, "%s", between);
        digit_range(t, a, last);
        any_digits(t, n - 1);
        between = "| ";
    }
    if (!high_whole) {
        stext_put(t, "%s\"%c\" ", between, z);
        same_length(t, zeros, hi + 1, n - 1);
    }
    stext_put(t, ") ");
}

void schema_naturals(struct stext *t, uint64_t lo, uint64_t hi) {
    const char *between = "";
    stext_put(t, "( ");
    for (uint64_t least = 0, most = 9;; least = most + 1, most = most * 10 + 9) {
        uint64_t a = lo > least ? lo : least, z = hi < most ? hi : most;
        if (a <= z) {
            char low[24], high[24];
            snprintf(low, sizeof low, "%" PRIu64, a);
            snprintf(high, sizeof high, "%" PRIu64, z);
            stext_put(t, "%s", between);
            same_length(t, low, high, strlen(low));
            between = "| ";
        }
        if (hi <= most || most >= 999999999999999999u) break;
    }
    stext_put(t, ") ");
}

/* Integers lo..hi in decimal without leading zeros. */
static void integers(struct stext *t, int64_t lo, int64_t hi) {
    stext_put(t, "( ");
    if (lo < 0) {
        stext_put(t, "\"-\" ");
        schema_naturals(t, hi < 0 ? (uint64_t)-hi : 1, (uint64_t)-lo);
        if (hi >= 0) stext_put(t, "| ");
    }
    if (hi >= 0) schema_naturals(t, lo > 0 ? (uint64_t)lo : 0, (uint64_t)hi);
    stext_put(t, ") ");
}

/* ---- bounds -------------------------------------------------------------------------------------------------- */

/* minimum and exclusiveMinimum, or maximum and exclusiveMaximum, which draft 4 has as a boolean. sign -1: upper ones. */
static enum infer_status read_bound(const json_t *j, const char *key, const char *exclusive, double sign,
                                    double *out, bool *open) {
    const json_t *v = json_object_get(j, key), *e = json_object_get(j, exclusive);
    if (v && !json_is_number(v)) return err_set(INFER_E_INPUT, "%s is not a number", key);
    if (e && !json_is_number(e) && !json_is_boolean(e))
        return err_set(INFER_E_INPUT, "%s is not a number", exclusive);
    *out = v ? json_number_value(v) : -sign * INFINITY;
    *open = v && json_is_true(e);
    if (e && json_is_number(e) && sign * json_number_value(e) >= sign * *out)
        *out = json_number_value(e), *open = true;
    return INFER_OK;
}

static enum infer_status read_bounds(struct schema *S, const json_t *j, struct schema_bounds *b) {
    TRY(read_bound(j, "minimum", "exclusiveMinimum", 1, &b->lo, &b->lo_open));
    TRY(read_bound(j, "maximum", "exclusiveMaximum", -1, &b->hi, &b->hi_open));
    bool none = b->lo > b->hi || (b->lo == b->hi && (b->lo_open || b->hi_open));
    return none ? schema_nothing(S, "no number lies between the bounds") : INFER_OK;
}

static const double most_integer = 9999999999999999.0; /* of a number without a bound: 16 digits */

/* The integers between bounds; *none: there are none. */
static enum infer_status integer_range(const struct schema_bounds *b, int64_t *lo, int64_t *hi, bool *none) {
    double least = isinf(b->lo) ? -most_integer : b->lo_open ? floor(b->lo) + 1 : ceil(b->lo);
    double most = isinf(b->hi) ? most_integer : b->hi_open ? ceil(b->hi) - 1 : floor(b->hi);
    if (fabs(least) > 9e17 || fabs(most) > 9e17) return schema_unsupported("bounds beyond 18 digits");
    *none = least > most;
    *lo = (int64_t)least;
    *hi = (int64_t)most;
    return INFER_OK;
}

/* The bounds; done: multipleOf, or no bounds at all, for which rule stands, have settled it. */
static enum infer_status begin_number(struct schema *S, const json_t *j, const char *rule,
                                      struct schema_bounds *b, struct stext *t, bool *done) {
    const json_t *step = json_object_get(j, "multipleOf");
    TRY(read_bounds(S, j, b));
    *done = step || (isinf(b->lo) && isinf(b->hi));
    if (step) return schema_multiple(S, step, rule[0] == 'i', b, t);
    if (*done) stext_put(t, "%s", rule);
    return INFER_OK;
}

/* ---- integers and numbers ------------------------------------------------------------------------------------ */

enum infer_status schema_integer(struct schema *S, const json_t *j, struct stext *t) {
    struct schema_bounds b;
    int64_t lo = 0, hi = 0;
    bool none = false, done;
    TRY(begin_number(S, j, "integer ", &b, t, &done));
    if (done) return INFER_OK;
    TRY(integer_range(&b, &lo, &hi, &none));
    if (none) return schema_nothing(S, "no integer lies between the bounds");
    integers(t, lo, hi);
    stext_put(t, "space ");
    return INFER_OK;
}

/* x >= 0 as a multiple of 10^-digits, rounded up (down: the other way) and off x itself where the bound is open. */
static int64_t scaled(double x, int digits, bool down, bool open) {
    char text[64];
    snprintf(text, sizeof text, "%.*f", digits, x);
    double rounded = strtod(text, NULL);
    char *point = strchr(text, '.');
    if (point) memmove(point, point + 1, strlen(point));
    int64_t n = strtoll(text, NULL, 10);
    if (down && (rounded > x || (open && rounded == x))) n--;
    if (!down && (rounded < x || (open && rounded == x))) n++;
    return n;
}

/* Decimals that x needs to be itself, and three more for what lies beside it; integral part and decimals have 15 digits. */
static int decimals_of(double x) {
    int digits = 1, room = 14 - (int)(x >= 1 ? log10(x) : 0);
    for (char text[64]; digits < room; digits++) {
        snprintf(text, sizeof text, "%.*f", digits, x);
        if (strtod(text, NULL) == x) break;
    }
    return digits + 3 < room ? digits + 3 : room;
}

/* n digits of x into text */
static void digits_of(char *text, int64_t x, int n) {
    for (int i = n; i-- > 0; x /= 10) text[i] = (char)('0' + x % 10);
    text[n] = 0;
}

/* sign integral "." from .. to, of n decimals, n at most 15; fewer decimals are those with zeros behind them. */
static void put_unit(struct stext *t, const char *sign, int64_t integral, int64_t from, int64_t to, int n) {
    char lo[24], hi[24];
    for (; n > 0 && from <= to; n--) {
        digits_of(lo, from, n);
        digits_of(hi, to, n);
        stext_put(t, "| \"%s%" PRId64 ".\" ", sign, integral);
        same_length(t, lo, hi, (size_t)n);
        from = from / 10 + (from % 10 > 0);
        to /= 10;
    }
}

/* Numbers with decimals between a and b, 0 <= a <= b < 1e14 or b infinite. */
static void put_decimals(struct stext *t, const char *sign, double a, bool a_open, double b, bool b_open) {
    int n = decimals_of(a), other = isinf(b) ? 0 : decimals_of(b);
    int room = 14 - (int)(isinf(b) || b < 1 ? 0 : log10(b));
    if (other > n) n = other;
    if (n > room) n = room;
    int64_t unit = 1;
    for (int i = 0; i < n; i++) unit *= 10;
    int64_t from = scaled(a, n, false, a_open), to = isinf(b) ? 0 : scaled(b, n, true, b_open);
    int64_t first = from / unit, last = isinf(b) ? (int64_t)most_integer + 1 : to / unit;
    if (!isinf(b) && from > to) return;
    /* an open bound that is an integer: all decimals of the unit below it, those of the unit above it that are not 0 */
    const bool up = b_open && b == floor(b) && !isinf(b), down = a_open && a == floor(a) && b >= a + 1;
    if (up) last++;
    if (first == last) {
        put_unit(t, sign, first, from % unit, to % unit, n);
        return;
    }
    if (down)
        stext_put(t, "| \"%s%" PRId64 ".\" \"0\"{0,%d} [1-9] [0-9]{0,%d} ", sign, first++, room / 2,
                  room - 1 - room / 2);
    else if (from % unit)
        put_unit(t, sign, first++, from % unit, unit - 1, n);
    if (!isinf(b) && !up) put_unit(t, sign, last, 0, to % unit, n);
    if (first >= last) return;
    stext_put(t, "| \"%s\" ", sign);
    schema_naturals(t, (uint64_t)first, (uint64_t)last - 1);
    stext_put(t, "\".\" [0-9]{1,%d} ", up ? room : 16);
}

/* A number with bounds: the integers between them, then what has decimals on either side of 0. */
enum infer_status schema_number(struct schema *S, const json_t *j, struct stext *t) {
    struct schema_bounds b;
    int64_t lo = 0, hi = 0;
    bool none = false, done;
    TRY(begin_number(S, j, "number ", &b, t, &done));
    if (done) return INFER_OK;
    bool large = (!isinf(b.lo) && fabs(b.lo) >= 1e13) || (!isinf(b.hi) && fabs(b.hi) >= 1e13);
    TRY(integer_range(&b, &lo, &hi, &none));
    if (none && large) return schema_unsupported("bounds of over 13 digits without an integer between them");
    struct stext r = {0};
    if (!none) {
        stext_put(&r, "| ");
        integers(&r, lo, hi);
    }
    if (b.hi > 0 && !large)
        put_decimals(&r, "", b.lo > 0 ? b.lo : 0, b.lo >= 0 && b.lo_open, b.hi, b.hi_open);
    if (b.lo < 0 && !large)
        put_decimals(&r, "-", b.hi < 0 ? -b.hi : 0, b.hi <= 0 && b.hi_open, -b.lo, b.lo_open);
    enum infer_status st =
        r.n ? INFER_OK : schema_unsupported("bounds with no number of 15 digits between them");
    stext_put(t, "( ");
    stext_add(t, r.p + 2, r.n ? r.n - 2 : 0); /* without the first "| " */
    stext_put(t, ") space ");
    t->failed |= r.failed;
    mem_free(r.p);
    return st;
}

enum infer_status schema_fraction(const json_t *j, struct stext *t) {
    static const char *const bounds[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
                                         "multipleOf"};
    for (int i = 0; i < 5; i++)
        if (json_object_get(j, bounds[i]))
            return schema_unsupported("not of integers beside bounds of a number");
    stext_put(t, "\"-\"? ( \"0\" | [1-9] [0-9]{0,6} ) \".\" [0-9]{0,6} [1-9] space ");
    return INFER_OK;
}
