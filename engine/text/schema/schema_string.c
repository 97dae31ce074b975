/* Strings of a JSON Schema: lengths, patterns, formats. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/schema/schema_int.h"

#include <pcre2.h>
#include <string.h>

/* Formats that have a grammar, a part of what the format allows; min and max: characters. All others are annotations, as
 * the specification has it. source: RFC 3339, 4122, 5321 (dot-atom), 2673, 4291 (the full form), 1123, 3986, ISO 8601 */
static const struct {
    const char *name, *rule;
    int min, max;
} formats[] = {
    {"date", "date ", 10, 10},
    {"time", "time ", 9, 21},
    {"date-time", "date \"T\" time ", 20, 32},
    {"uuid", "hex4 hex4 \"-\" hex4 \"-\" hex4 \"-\" hex4 \"-\" hex4 hex4 hex4 ", 36, 36},
    {"email",
     "[a-z0-9] [a-z0-9_+\\-]{0,30} ( \".\" [a-z0-9_+\\-]{1,16} )? \"@\" label \".\" label ( \".\" label )? ",
     5, 180},
    {"hostname", "label ( \".\" label ){0,3} ", 1, 132},
    {"ipv4", "octet \".\" octet \".\" octet \".\" octet ", 7, 15},
    {"ipv6", "( group \":\" ){7} group ", 15, 39},
    {"uri", "\"http\" \"s\"? \"://\" label ( \".\" label ){0,3} ( \"/\" [a-z0-9._~\\-]{0,60} ){0,8} ", 8,
     700},
    {"duration", "\"P\" ( d13 \"D\" ( \"T\" d13 \"H\" )? | \"T\" ( d13 \"H\" )? d13 \"M\" | d13 \"W\" ) ", 3,
     16},
};

static int format_at(const char *name) {
    for (int i = 0; name && i < (int)(sizeof formats / sizeof *formats); i++)
        if (strcmp(formats[i].name, name) == 0) return i;
    return -1;
}

bool schema_knows_format(const char *format) { return format_at(format) >= 0; }

enum infer_status schema_string(struct schema *S, const json_t *j, struct stext *t) {
    const json_t *pattern = json_object_get(j, "pattern");
    int format = format_at(json_string_value(json_object_get(j, "format")));
    int64_t min, max;
    TRY(schema_count(j, "minLength", 0, &min));
    TRY(schema_count(j, "maxLength", -1, &max));
    if (max >= 0 && max < min)
        return schema_nothing(S, "maxLength %lld is less than minLength %lld", (long long)max,
                              (long long)min);
    bool lengths = min > 0 || max >= 0;
    const char *one = t->name ? "plain" : "char";
    stext_put(t, "\"\\\"\" ");
    if (pattern) {
        if (!json_is_string(pattern)) return err_set(INFER_E_INPUT, "pattern is no text");
        if (lengths) return schema_unsupported("pattern together with minLength or maxLength");
        if (format >= 0) return schema_unsupported("pattern together with format");
        TRY(schema_pattern(t, json_string_value(pattern), json_string_length(pattern)));
    } else if (format >= 0) {
        if (min > formats[format].min || (max >= 0 && max < formats[format].max))
            return schema_unsupported("format together with minLength or maxLength that cut it short");
        stext_put(t, "%s", formats[format].rule);
    } else if (max < 0) {
        stext_put(t, "%s{%lld,} ", one, (long long)min);
    } else {
        stext_put(t, "%s{%lld,%lld} ", one, (long long)min, (long long)max);
    }
    stext_put(t, "\"\\\"\" space ");
    return INFER_OK;
}

/* Texts of which PCRE's . \s and \b think as ECMA-262 does: without control characters and Unicode's blanks. */
static bool is_plain(const char *text) {
    static const char *const blank[] = {"\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80",
                                        "\xe2\x81\x9f", "\xe3\x80\x80", "\xef\xbb\xbf"};
    for (const char *p = text; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) return false;
    for (size_t i = 0; i < sizeof blank / sizeof *blank; i++)
        if (strstr(text, blank[i])) return false;
    return true;
}

enum infer_status schema_matches(const char *pattern, const char *text, bool *matches) {
    const uint32_t way = PCRE2_UTF | PCRE2_DOLLAR_ENDONLY | PCRE2_ALT_BSUX | PCRE2_MATCH_UNSET_BACKREF;
    int code;
    PCRE2_SIZE at;
    *matches = false;
    if (!is_plain(text))
        return err_set(INFER_E_UNSUPPORTED,
                       "the pattern '%.100s' beside a text with blanks or control characters", pattern);
    pcre2_code *re = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, way, &code, &at, NULL);
    pcre2_match_data *found = re ? pcre2_match_data_create(1, NULL) : NULL;
    int rc = found ? pcre2_match(re, (PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, 0, 0, found, NULL)
                   : PCRE2_ERROR_NOMEMORY;
    pcre2_match_data_free(found);
    pcre2_code_free(re);
    *matches = rc >= 0;
    if (!re) return err_set(INFER_E_INPUT, "the pattern '%.100s' cannot be read", pattern);
    return rc >= 0 || rc == PCRE2_ERROR_NOMATCH
               ? INFER_OK
               : err_set(INFER_E_UNSUPPORTED, "the pattern '%.100s' takes too long", pattern);
}
