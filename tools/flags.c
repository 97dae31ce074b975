/* The library's messages name fields of its options (".ctx"), the program's users know flags ("--ctx"): the one table between them. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include "tools/options.h"
#include "tools/tool.h"

static const struct {
    const char *field, *flag;
    uint64_t groups;
} table[] = {
#define OPTION(field, letter, name, metavar, type, groups, def, lo, hi, choices, help) {#field, name, groups},
#include "tools/options.def"
#undef OPTION
    /* --matmul-precision says what two fields do */
    {"block_scaled", "matmul-precision", G_ENGINE},
    {"strict_fp32", "matmul-precision", G_ENGINE},
};
enum { N_ROW = sizeof table / sizeof *table };

static const char *flag_of(const char *field, size_t n) {
    for (int i = 0; i < N_ROW; i++)
        if (table[i].groups & (G_ENGINE | G_LOAD | G_PLAN | G_SAMPLE | G_SERVE) &&
            strlen(table[i].field) == n && memcmp(table[i].field, field, n) == 0)
            return table[i].flag;
    return NULL;
}

const char *tool_flags(char *buf, size_t n, const char *text) {
    size_t used = 0;
    for (const char *p = text; *p && used + 1 < n;) {
        bool begins = *p == '.' && (p == text || strchr(" (\n", p[-1]));
        size_t len = begins ? strspn(p + 1, "abcdefghijklmnopqrstuvwxyz_") : 0;
        const char *flag = len && !isalnum((unsigned char)p[len + 1]) ? flag_of(p + 1, len) : NULL;
        if (flag) {
            used += (size_t)snprintf(buf + used, n - used, "--%s", flag);
            p += len + 1;
        } else {
            buf[used++] = *p++;
        }
    }
    buf[used < n ? used : n - 1] = 0;
    return buf;
}
