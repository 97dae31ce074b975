/* Sets of code points. Categories and cases are utf8proc's, of the Unicode that it has. */
#include "text/grammar/regex_int.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { LAST = 0x10ffff, MOST_LOOKED = 32 * LAST };

enum infer_status regex_set_add(struct regex *R, struct rset *s, int32_t lo, int32_t hi) {
    if (s->n && lo <= s->r[s->n - 1].hi + 1 &&
        lo >= s->r[s->n - 1].lo) { /* goes on where the last one ends */
        if (hi > s->r[s->n - 1].hi) s->r[s->n - 1].hi = hi;
        return INFER_OK;
    }
    if (s->n == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 4;
        struct grange *r = arena_alloc(&R->arena, cap * sizeof *r);
        if (!r) return err_set(INFER_E_MEMORY, "out of memory: %zu ranges of characters", cap);
        if (s->n) memcpy(r, s->r, s->n * sizeof *r);
        s->r = r;
        s->cap = cap;
    }
    s->r[s->n++] = (struct grange){lo, hi};
    return INFER_OK;
}

enum infer_status regex_set_join(struct regex *R, struct rset *s, const struct rset *other) {
    for (size_t i = 0; i < other->n; i++) TRY(regex_set_add(R, s, other->r[i].lo, other->r[i].hi));
    return INFER_OK;
}

static int by_low(const void *a, const void *b) {
    int32_t x = ((const struct grange *)a)->lo, y = ((const struct grange *)b)->lo;
    return (x > y) - (x < y);
}

void regex_set_tidy(struct rset *s) {
    size_t n = 0;
    if (s->n) qsort(s->r, s->n, sizeof *s->r, by_low);
    for (size_t i = 0; i < s->n; i++) {
        if (n && s->r[i].lo <= s->r[n - 1].hi + 1) {
            if (s->r[i].hi > s->r[n - 1].hi) s->r[n - 1].hi = s->r[i].hi;
        } else {
            s->r[n++] = s->r[i];
        }
    }
    s->n = n;
}

enum infer_status regex_set_negate(struct regex *R, struct rset *s) {
    struct rset not = {0};
    int32_t next = 0;
    regex_set_tidy(s);
    for (size_t i = 0; i < s->n; i++) {
        if (s->r[i].lo > next) TRY(regex_set_add(R, &not, next, s->r[i].lo - 1));
        next = s->r[i].hi + 1;
    }
    if (next <= LAST) TRY(regex_set_add(R, &not, next, LAST));
    *s = not ;
    return INFER_OK;
}

/* A pattern of many sets is no reason to look at all characters for minutes. */
static enum infer_status looked(struct regex *R, int32_t n) {
    R->looked += n;
    return R->looked > MOST_LOOKED ? regex_bad(R, "too many sets of characters of Unicode") : INFER_OK;
}

enum infer_status regex_set_fold(struct regex *R, struct rset *s) {
    struct rset other = {0};
    for (size_t i = 0; i < s->n; i++) {
        TRY(looked(R, s->r[i].hi - s->r[i].lo));
        for (int32_t c = s->r[i].lo; c <= s->r[i].hi; c++) {
            const int32_t low = utf8proc_tolower(c), up = utf8proc_toupper(c);
            if (low != c) TRY(regex_set_add(R, &other, low, low));
            if (up != c) TRY(regex_set_add(R, &other, up, up));
        }
    }
    TRY(regex_set_join(R, s, &other));
    regex_set_tidy(s);
    return INFER_OK;
}

/* Bits of general categories, 1 << UTF8PROC_CATEGORY_X. */
static enum infer_status categories(struct regex *R, struct rset *s, uint32_t bits) {
    TRY(looked(R, LAST));
    for (int32_t c = 0; c <= LAST; c++)
        if (bits >> utf8proc_category(c) & 1 && (c < 0xd800 || c > 0xdfff)) TRY(regex_set_add(R, s, c, c));
    return INFER_OK;
}

static enum infer_status ranges(struct regex *R, struct rset *s, const struct grange *r, int n) {
    for (int i = 0; i < n; i++) TRY(regex_set_add(R, s, r[i].lo, r[i].hi));
    return INFER_OK;
}

#define BIT(x)  (1u << UTF8PROC_CATEGORY_##x)
#define LETTERS (BIT(LU) | BIT(LL) | BIT(LT) | BIT(LM) | BIT(LO))
#define MARKS   (BIT(MN) | BIT(MC) | BIT(ME))

enum infer_status regex_set_letter(struct regex *R, struct rset *s, char letter, bool unicode) {
    static const struct grange digits[] = {{'0', '9'}},
                               word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
                               space[] = {{'\t', '\r'}, {' ', ' '}},
                               spaces[] = {{'\t', '\r'},     {' ', ' '},       {0x85, 0x85},
                                           {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
                                           {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f},
                                           {0x3000, 0x3000}}; /* White_Space */
    if (letter == 's') return unicode ? ranges(R, s, spaces, 10) : ranges(R, s, space, 2);
    if (letter == 'd') return unicode ? categories(R, s, BIT(ND)) : ranges(R, s, digits, 1);
    return unicode ? categories(R, s, LETTERS | MARKS | BIT(ND) | BIT(NL) | BIT(PC)) : ranges(R, s, word, 4);
}

enum infer_status regex_set_named(struct regex *R, struct rset *s, const char *name, size_t n, bool *known) {
    static const struct {
        const char *name, *name2;
        uint32_t bits;
    } category[] = {
        {"L", "Letter", LETTERS},
        {"Lu", "Uppercase_Letter", BIT(LU)},
        {"Ll", "Lowercase_Letter", BIT(LL)},
        {"Lt", "Titlecase_Letter", BIT(LT)},
        {"Lm", "Modifier_Letter", BIT(LM)},
        {"Lo", "Other_Letter", BIT(LO)},
        {"M", "Mark", MARKS},
        {"N", "Number", BIT(ND) | BIT(NL) | BIT(NO)},
        {"Nd", "Decimal_Number", BIT(ND)},
        {"Nl", "Letter_Number", BIT(NL)},
        {"No", "Other_Number", BIT(NO)},
        {"P", "Punctuation", BIT(PC) | BIT(PD) | BIT(PS) | BIT(PE) | BIT(PI) | BIT(PF) | BIT(PO)},
        {"Pc", "Connector_Punctuation", BIT(PC)},
        {"Pd", "Dash_Punctuation", BIT(PD)},
        {"S", "Symbol", BIT(SM) | BIT(SC) | BIT(SK) | BIT(SO)},
        {"Sm", "Math_Symbol", BIT(SM)},
        {"Sc", "Currency_Symbol", BIT(SC)},
        {"Z", "Separator", BIT(ZS) | BIT(ZL) | BIT(ZP)},
        {"Zs", "Space_Separator", BIT(ZS)},
        {"Cc", "Control", BIT(CC)},
    };
    static const struct {
        const char *name;
        struct grange r[4];
        int n;
    } posix[] = {{"alpha", {{'A', 'Z'}, {'a', 'z'}}, 2},
                 {"digit", {{'0', '9'}}, 1},
                 {"alnum", {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}}, 3},
                 {"upper", {{'A', 'Z'}}, 1},
                 {"lower", {{'a', 'z'}}, 1},
                 {"space", {{'\t', '\r'}, {' ', ' '}}, 2},
                 {"blank", {{'\t', '\t'}, {' ', ' '}}, 2},
                 {"punct", {{'!', '/'}, {':', '@'}, {'[', '`'}, {'{', '~'}}, 4},
                 {"xdigit", {{'0', '9'}, {'A', 'F'}, {'a', 'f'}}, 3},
                 {"word", {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}, 4},
                 {"cntrl", {{0, 0x1f}, {0x7f, 0x7f}}, 2},
                 {"print", {{' ', '~'}}, 1},
                 {"graph", {{'!', '~'}}, 1},
                 {"ASCII", {{0, 0x7f}}, 1},
                 {"Any", {{0, LAST}}, 1}};
    *known = true;
    for (size_t i = 0; i < sizeof category / sizeof *category; i++)
        if ((strlen(category[i].name) == n && memcmp(category[i].name, name, n) == 0) ||
            (strlen(category[i].name2) == n && memcmp(category[i].name2, name, n) == 0))
            return categories(R, s, category[i].bits);
    for (size_t i = 0; i < sizeof posix / sizeof *posix; i++)
        if (strlen(posix[i].name) == n && memcmp(posix[i].name, name, n) == 0)
            return ranges(R, s, posix[i].r, posix[i].n);
    *known = false;
    return INFER_OK;
}
