#include "tools/options.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/mem.h"
#include "tools/foreign.h"
#include "tools/options_impl.h"
#include "tools/config.h"

/* The names of two tables as choices, behind their first bar. */
static const char mix_names_listed[] =
#define MIX(name, base, rule, more, file_type) "|" name
#include "tools/mixes.def"
    ;
static const char shape_names_listed[] =
#define SHAPE(name, ...) "|" name
#include "tools/shapes.def"
#undef SHAPE
    ;
static const char samplers_help[] = "samplers and their order, with ; between them, of:"
#define INFER_STEP(ID, name, active) " " #name
#include "infer_sample.def"
    ;

static const struct option table[] = {
#define OPTION(field, letter, name, metavar, type, groups, def, lo, hi, choices, help)                       \
    {letter, name, metavar, type, groups, offsetof(struct options, field), def, lo, hi, choices, help},
#include "tools/options.def"
#undef OPTION
};
enum { N_OPTION = sizeof table / sizeof *table };
_Static_assert((int)N_OPTION <= (int)OPTION_MAX, "options.origin");
const struct option *const option_table = table;
const int n_option = N_OPTION;

const struct command *command_find(const char *name) {
    for (int i = 0; i < n_command; i++)
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    return NULL;
}

const char *command_nearest(const char *name) {
    const char *found = NULL;
    int best = 100;
    for (int i = 0; i < n_command; i++)
        if (option_nearer(name, commands[i].name, &best)) found = commands[i].name;
    return found;
}

static const char *option_nearest(const struct command *c, const char *name) {
    const char *found = NULL;
    int best = 100;
    for (int i = 0; i < N_OPTION; i++)
        if ((table[i].groups & c->groups) && option_nearer(name, table[i].name, &best)) found = table[i].name;
    return found;
}

/* ---- values ---- */

static enum infer_status bad_value(const struct option *opt, const char *text, const char *expected) {
    return err_set(INFER_E_INPUT, "--%s: '%s' is not %s", opt->name, text, expected);
}

static enum infer_status in_range(const struct option *opt, double x) {
    if (opt->least == opt->most || (x >= opt->least && x <= opt->most)) return INFER_OK;
    return err_set(INFER_E_INPUT, "--%s: %.12g is not within %.12g to %.12g", opt->name, x, opt->least,
                   opt->most);
}

/* A whole number in decimal, end at *end; the word in choices stands for -1, which others write for "inf", too. */
static enum infer_status parse_int(const struct option *opt, const char *text, char **end, int *out) {
    bool word = opt->type == OPT_INT && opt->choices;
    if (word && (strcasecmp(text, opt->choices) == 0 ||
                 (strcmp(opt->choices, "inf") == 0 && strcmp(text, "-1") == 0))) {
        *out = -1;
        *end = (char *)text + strlen(text);
        return INFER_OK;
    }
    errno = 0;
    long v = strtol(text, end, 10);
    if (*end == text || errno == ERANGE) return bad_value(opt, text, "a whole number");
    if (opt->def && text == opt->def) { /* the table's own value may be the word's -1 */
        *out = (int)v;
        return INFER_OK;
    }
    TRY(in_range(opt, (double)v));
    if (v < -2147483647 || v > 2147483647) return bad_value(opt, text, "a whole number of 32 bits");
    *out = (int)v;
    return INFER_OK;
}

static enum infer_status parse_ints(const struct option *opt, const char *text, struct option_ints *out) {
    size_t n = 1;
    for (const char *p = text; *p; p++) n += *p == ',';
    int *value;
    TRY(mem_new(&value, n * sizeof *value, "list of numbers"));
    mem_free(out->value);
    *out = (struct option_ints){.value = value};
    for (const char *p = text;; p++) {
        char *end;
        TRY(parse_int(opt, p, &end, &value[out->n++]));
        if (*end == 0) return INFER_OK;
        if (*end != ',') return bad_value(opt, text, "a list of whole numbers like 1,5,9");
        p = end;
    }
}

static enum infer_status parse_bytes(const struct option *opt, const char *text, uint64_t *out) {
    char *end;
    errno = 0;
    double x = strtod(text, &end);
    int shift = 0;
    if (*end) {
        const char *units = "KMGT", *u = strchr(units, *end & ~32);
        if (u && *u) {
            shift = 10 * (int)(u - units + 1);
            end++;
            if (*end == 'i') end++;
        }
        if (*end == 'B') end++;
    }
    if (end == text || *end || errno || !(x >= 0) || x * (double)(1ull << shift) > 1e18)
        return bad_value(opt, text, "an amount of memory like 512M or 8G");
    *out = (uint64_t)(x * (double)(1ull << shift));
    return INFER_OK;
}

/* choice[n] as a text of its own, which stays: there are few of them. */
static const char *kept_word(const char *choice, size_t n) {
    static char kept[2048];
    char *p = kept;
    for (; *p; p += strlen(p) + 1)
        if (strlen(p) == n && memcmp(p, choice, n) == 0) return p;
    if (p + n + 2 > kept + sizeof kept) infer_bug("no room for the word of %zu bytes", n);
    memcpy(p, choice, n);
    return p;
}

/* Whether text is choice p[len], whatever its case; a choice that ends in ":N" is that word with a number. */
static bool is_choice(const char *p, size_t len, const char *text) {
    if (len < 3 || memcmp(p + len - 2, ":N", 2) != 0)
        return strlen(text) == len && strncasecmp(p, text, len) == 0;
    const char *number = text + len - 1;
    return strncmp(p, text, len - 1) == 0 && *number && strspn(number, "0123456789") == strlen(number);
}

/* One of the choices as the table has it, or with its number; any text where there are none. */
static enum infer_status parse_text(const struct option *opt, const char *text, const char **out) {
    *out = text;
    for (const char *p = opt->choices; p; p = strchr(p, '|') ? strchr(p, '|') + 1 : NULL) {
        const size_t n = strcspn(p, "|");
        if (n == 2 && memcmp(p, "..", 2) == 0) return INFER_OK; /* and others, of which the library knows */
        if (!is_choice(p, n, text)) continue;
        if (p[n - 1] != 'N' || p[n - 2] != ':') *out = kept_word(p, n);
        return INFER_OK;
    }
    if (!opt->choices) return INFER_OK;
    return err_set(INFER_E_INPUT, "--%s: '%s' is none of %s", opt->name, text, opt->choices);
}

static enum infer_status set_default(struct options *o, const struct option *opt, const char *text) {
    void *field = (char *)o + opt->offset;
    char *end = NULL;
    errno = 0;
    switch (opt->type) {
    case OPT_FLAG:
        *(bool *)field = true;
        return INFER_OK;
    case OPT_INT: {
        TRY(parse_int(opt, text, &end, field));
        if (*end) return bad_value(opt, text, "a whole number");
        return INFER_OK;
    }
    case OPT_UINT64:
        if (opt->choices && (strcasecmp(text, opt->choices) == 0 || strcmp(text, "-1") == 0)) {
            *(uint64_t *)field = OPTION_RANDOM;
            return INFER_OK;
        }
        *(uint64_t *)field = strtoull(text, &end, 10);
        if (end == text || *end || errno || text[0] == '-')
            return bad_value(opt, text, "a whole number of 64 bits");
        return INFER_OK;
    case OPT_NUMBER:
        *(double *)field = strtod(text, &end);
        if (end == text || *end || !isfinite(*(double *)field)) return bad_value(opt, text, "a number");
        return in_range(opt, *(double *)field);
    case OPT_BYTES:
        return parse_bytes(opt, text, field);
    case OPT_SWITCH: {
        const char *word;
        TRY(parse_text(opt, text, &word));
        *(bool *)field = strcmp(word, "on") == 0;
        return INFER_OK;
    }
    case OPT_TEXT:
        return parse_text(opt, text, field);
    case OPT_TEXTS: {
        struct option_texts *t = field;
        if (t->n == OPTION_MAX_TEXTS)
            return err_set(INFER_E_INPUT, "--%s: given more than %d times", opt->name, OPTION_MAX_TEXTS);
        t->text[t->n++] = text;
        return INFER_OK;
    }
    case OPT_INTS:
        return parse_ints(opt, text, field);
    }
    infer_bug("option type %d", (int)opt->type);
}

/* --model and --hf-repo say the same: what is said nearer to the command line holds. */
static void one_model(struct options *o, const struct option *opt, enum option_origin from) {
    const bool model = strcmp(opt->name, "model") == 0;
    if (!model && strcmp(opt->name, "hf-repo") != 0) return;
    for (int i = 0; i < N_OPTION; i++) {
        if (strcmp(table[i].name, model ? "hf-repo" : "model") != 0 || o->origin[i] >= from) continue;
        *(const char **)(void *)((char *)o + table[i].offset) = NULL;
        o->origin[i] = ORIGIN_DEFAULT;
    }
}
enum infer_status option_set(struct options *o, const struct option *opt, const char *text,
                             enum option_origin from) {
    unsigned char *origin = &o->origin[opt - table];
    one_model(o, opt, from);
    if (opt->type == OPT_TEXTS && *origin != from)
        ((struct option_texts *)(void *)((char *)o + opt->offset))->n = 0;
    TRY(set_default(o, opt, text));
    *origin = (unsigned char)from;
    return INFER_OK;
}
enum infer_status option_unset(struct options *o, const struct option *opt) {
    *(bool *)((char *)o + opt->offset) = false;
    o->origin[opt - table] = ORIGIN_DEFAULT;
    return INFER_OK;
}
/* What the user says. */
static enum infer_status set_value(struct options *o, const struct option *opt, const char *text) {
    return option_set(o, opt, text, ORIGIN_FLAG);
}

static bool is_given(const struct options *o, const struct option *opt) {
    return opt && o->origin[opt - table] != ORIGIN_DEFAULT;
}

const char *options_keep(struct options *o, const char *text, size_t n) {
    char **more = mem_realloc(o->kept, sizeof *more * (size_t)(o->n_kept + 1)), *own;
    if (!more) return NULL;
    o->kept = more;
    if (mem_new(&own, n + 1, "a setting") != INFER_OK) return NULL;
    memcpy(own, text, n);
    return o->kept[o->n_kept++] = own;
}

/* ---- parsing ---- */

/* --n_predict is --n-predict. */
static const struct option *find_long(const struct command *c, const char *name, size_t n) {
    char dashed[64];
    if (n >= sizeof dashed) return NULL;
    for (size_t i = 0; i <= n; i++) dashed[i] = i == n ? 0 : name[i] == '_' ? '-' : name[i];
    for (int i = 0; i < N_OPTION; i++)
        if ((table[i].groups & c->groups) && strcmp(table[i].name, dashed) == 0) return &table[i];
    return NULL;
}

const struct option *option_find(const struct command *c, const char *name) {
    return find_long(c, name, strlen(name));
}

static const struct option *find_letter(const struct command *c, char letter) {
    for (int i = 0; i < N_OPTION; i++)
        if ((table[i].groups & c->groups) && table[i].letter == letter) return &table[i];
    return NULL;
}

static enum infer_status unknown_option(const struct command *c, const char *arg) {
    char name[64];
    const char *p = arg + strspn(arg, "-");
    snprintf(name, sizeof name, "%.*s", (int)strcspn(p, "="), p);
    for (int i = 0; i < n_command; i++) /* the right name at the wrong place */
        if (find_long(&commands[i], name, strlen(name)))
            return err_set(INFER_E_INPUT,
                           "%s takes no --%s ('infer %s' does); 'infer help %s' lists its options", c->name,
                           name, commands[i].name, c->name);
    const char *near = strlen(p) > 1 ? option_nearest(c, name) : NULL;
    if (near) return err_set(INFER_E_INPUT, "no flag '%s'; did you mean '--%s'?", arg, near);
    return err_set(INFER_E_INPUT, "no flag '%s'; 'infer help %s' lists them", arg, c->name);
}

/* The option that a flag of another program stands for; NULL and INFER_OK: it says what is so anyway. *i moves past the value of such a
 * one. errors: INFER_E_INPUT (what to say instead, or nobody knows it) */
static enum infer_status find_foreign(const struct command *c, int argc, char **argv, int *i,
                                      const struct option **out) {
    const char *arg = argv[*i];
    const size_t n = strcspn(arg, "=");
    const struct foreign *f = foreign_find(arg, n);
    *out = NULL;
    if (!f) return unknown_option(c, arg);
    switch (f->how) {
    case FOREIGN_SAME:
        *out = find_long(c, f->ours, strlen(f->ours));
        if (*out) return INFER_OK;
        return err_set(INFER_E_INPUT, "%.*s is --%s here, and %s does not take that", (int)n, arg, f->ours,
                       c->name);
    case FOREIGN_OTHER:
        return err_set(INFER_E_INPUT, "%.*s: here %s", (int)n, arg, f->ours);
    case FOREIGN_ANYWAY:
        break;
    }
    const char *value = arg[n] ? arg + n + 1 : *i + 1 < argc ? argv[*i + 1] : "";
    bool on = foreign_has(f->ours, value, strlen(value));
    if ((arg[n] && !on) || foreign_has("off|0|false", value, strlen(value)))
        return err_set(INFER_E_INPUT, "%.*s cannot be switched off here", (int)n, arg);
    *i += !arg[n] && on;
    return INFER_OK;
}

/* The option that argv[*i] names, and where its value begins if that is in the same word. */
static const struct option *find_option(const struct command *c, const char *arg, const char **value) {
    const struct option *opt;
    if (arg[1] == '-') {
        size_t n = strcspn(arg + 2, "=");
        opt = find_long(c, arg + 2, n);
        if (opt && arg[2 + n] == '=') *value = arg + 2 + n + 1;
        return opt;
    }
    opt = find_letter(c, arg[1]);
    if (!opt || !arg[2]) return opt;
    *value = arg + 2; /* -n128, never -temp */
    bool number =
        (opt->type == OPT_INT || opt->type == OPT_INTS) && strspn(*value, "0123456789,") == strlen(*value);
    return number ? opt : NULL;
}

/* One flag at argv[*i], with its value in the same word after = or in the next one. */
static enum infer_status parse_flag(struct options *o, const struct command *c, int argc, char **argv,
                                    int *i) {
    const char *arg = argv[*i], *value = NULL;
    const struct option *opt = find_option(c, arg, &value);
    if (!opt) {
        TRY(find_foreign(c, argc, argv, i, &opt));
        if (!opt) return INFER_OK;
        value = strchr(arg, '=') ? strchr(arg, '=') + 1 : NULL;
    }
    if (opt->type == OPT_FLAG && value) return err_set(INFER_E_INPUT, "--%s takes no value", opt->name);
    if (opt->type != OPT_FLAG && !value) {
        if (*i + 1 >= argc) return err_set(INFER_E_INPUT, "--%s needs a value: %s", opt->name, opt->metavar);
        value = argv[++*i];
    }
    return set_value(o, opt, value);
}

/* What a command's usage names outside of brackets must be there, in front of a | or behind it. */
static enum infer_status check_complete(const struct options *o, const struct command *c) {
    if (o->n_arg < c->min_arg)
        return err_set(INFER_E_INPUT, "something is missing: infer %s %s", c->name, c->usage);
    const struct option *missing = NULL;
    bool lacks = false;
    int depth = 0;
    for (const char *p = c->usage; *p; p += strspn(p, " ")) {
        const char *word = p;
        bool outside = depth == 0;
        if (outside && *word == '|') {
            if (!lacks) return INFER_OK;
            lacks = false;
        }
        for (; *p && *p != ' '; p++) depth += (*p == '[') - (*p == ']');
        const struct option *opt = !outside || *word != '-' ? NULL
                                   : word[1] == '-'         ? find_long(c, word + 2, (size_t)(p - word - 2))
                                                            : find_letter(c, word[1]);
        if (!opt || is_given(o, opt)) continue;
        if (!missing) missing = opt;
        lacks = true;
    }
    if (!lacks) return INFER_OK;
    return err_set(INFER_E_INPUT, "--%s %s is missing: %s%s%s; infer %s %s", missing->name, missing->metavar,
                   missing->help, missing->choices ? ": " : "", missing->choices ? missing->choices : "",
                   c->name, c->usage);
}

enum infer_status option_unknown(const struct command *c, const char *name) {
    const char *near = option_nearest(c, name);
    return err_set(INFER_E_INPUT, "no option '%s'%s%s%s", name, near ? "; did you mean '" : "",
                   near ? near : "", near ? "'?" : "");
}

static enum infer_status parse_line(struct options *o, const struct command *c, int argc, char **argv,
                                    bool *wants_help) {
    bool flags = true;
    o->n_arg = 0;
    for (int i = 0; i < argc; i++) {
        const char *arg = argv[i];
        if (flags && arg[0] == '-' && arg[1]) {
            if (strcmp(arg, "--") == 0) {
                flags = false;
            } else if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0) {
                *wants_help = true;
                return INFER_OK;
            } else {
                TRY(parse_flag(o, c, argc, argv, &i));
            }
        } else if (o->n_arg < c->max_arg) {
            o->arg[o->n_arg++] = arg;
        } else {
            return err_set(INFER_E_INPUT, "'%s' is one argument too many: infer %s%s%s", arg, c->name,
                           *c->usage ? " " : "", c->usage);
        }
    }
    return INFER_OK;
}
enum infer_status options_defaults(struct options *o, const struct command *c) {
    *o = (struct options){.command = c};
    for (int i = 0; i < N_OPTION; i++)
        if ((table[i].groups & c->groups) && table[i].def) TRY(set_default(o, &table[i], table[i].def));
    return INFER_OK;
}
enum infer_status options_parse(struct options *o, const struct command *c, int argc, char **argv,
                                bool *wants_help) {
    struct options line;
    TRY(options_defaults(o, c));
    enum infer_status st = options_defaults(&line, c);
    if (st == INFER_OK) st = parse_line(&line, c, argc, argv, wants_help);
    if (st == INFER_OK && !*wants_help) st = config_apply(o, &line);
    options_free(&line);
    if (st != INFER_OK || *wants_help) return st;
    TRY(parse_line(o, c, argc, argv, wants_help));
    return check_complete(o, c);
}

void options_free(struct options *o) {
    for (int i = 0; i < o->n_kept; i++) mem_free(o->kept[i]);
    mem_free(o->kept);
    o->kept = NULL;
    o->n_kept = 0;
    for (int i = 0; i < N_OPTION; i++)
        if (table[i].type == OPT_INTS) {
            struct option_ints *v = (void *)((char *)o + table[i].offset);
            mem_free(v->value);
            v->value = NULL;
        }
}

/* ---- one by one ---- */

enum infer_status options_set(struct options *o, uint64_t groups, const char *name, const char *value) {
    const char *near = NULL;
    int best = 100;
    for (int i = 0; i < N_OPTION; i++) {
        if (!(table[i].groups & groups)) continue;
        if (strcmp(table[i].name, name) == 0) return set_value(o, &table[i], value);
        if (option_nearer(name, table[i].name, &best)) near = table[i].name;
    }
    return err_set(INFER_E_INPUT, "no setting '%s'%s%s%s", name, near ? "; did you mean '" : "",
                   near ? near : "", near ? "'?" : "");
}

enum option_origin options_origin(const struct options *o, const char *name) {
    const struct option *opt = find_long(o->command, name, strlen(name));
    return opt ? (enum option_origin)o->origin[opt - table] : ORIGIN_DEFAULT;
}

bool options_given(const struct options *o, const char *name) {
    return is_given(o, find_long(o->command, name, strlen(name)));
}

void option_value(char *text, size_t n, const struct options *o, const struct option *opt) {
    const void *field = (const char *)o + opt->offset;
    *text = 0;
    if (opt->type == OPT_INT && *(const int *)field == -1 && opt->choices)
        snprintf(text, n, "%s", opt->choices);
    else if (opt->type == OPT_INT)
        snprintf(text, n, "%d", *(const int *)field);
    else if (opt->type == OPT_UINT64)
        snprintf(text, n, "%llu", *(const unsigned long long *)field);
    else if (opt->type == OPT_NUMBER)
        snprintf(text, n, "%g", *(const double *)field);
    else if (opt->type == OPT_TEXT && *(const char *const *)field)
        snprintf(text, n, "%s", *(const char *const *)field);
}

bool options_view(const struct options *o, uint64_t groups, int i, struct option_view *out) {
    for (int k = 0; k < N_OPTION; k++) {
        const struct option *opt = &table[k];
        if (!(opt->groups & groups) || i-- != 0) continue;
        *out = (struct option_view){opt->name, opt->help, opt->choices, "", opt->least, opt->most};
        if (o) option_value(out->value, sizeof out->value, o, opt);
        return true;
    }
    return false;
}
