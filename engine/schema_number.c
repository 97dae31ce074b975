/* Ranges of integers as GBNF: digit by digit. */
#include "schema_int.h"

#include <inttypes.h>
#include <stdio.h>
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

/* 0 <= lo <= hi */
static void naturals(struct stext *t, uint64_t lo, uint64_t hi) {
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

void schema_integers(struct stext *t, int64_t lo, int64_t hi) {
    stext_put(t, "( ");
    if (lo < 0) {
        stext_put(t, "\"-\" ");
        naturals(t, hi < 0 ? (uint64_t)-hi : 1, (uint64_t)-lo);
        if (hi >= 0) stext_put(t, "| ");
    }
    if (hi >= 0) naturals(t, lo > 0 ? (uint64_t)lo : 0, (uint64_t)hi);
    stext_put(t, ") ");
}
