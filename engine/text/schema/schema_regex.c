/* JSON Schema's "pattern": a pattern without ^ or $ matches anywhere, as the standard says. */
#include "text/schema/schema_int.h"

enum infer_status schema_pattern(struct stext *t, const char *pattern, size_t n) {
    const struct regex_way way = {
        .what = "pattern", .around = t->name ? "plain* " : "char* ", .json = true, .ecma = true};
    return regex_to_gbnf(t, pattern, n, &way);
}
