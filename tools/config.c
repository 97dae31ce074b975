#include "tools/config.h"
#include <ctype.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include "base/mem.h"
#include "files/textfile.h"
#include "tools/foreign.h"
#include "tools/options_impl.h"
#include "tools/session.h"
#include "tools/tool.h"

enum { VALUE_MAX = 4096 };

/* ---- one setting ---- */

/* Whether a text says on or off, and which. */
static bool is_switch(const char *text, bool *on) {
    static const char *const words[] = {"on", "true", "yes", "1", "off", "false", "no", "0"};
    for (int i = 0; i < 8; i++) {
        *on = i < 4;
        if (!strcasecmp(text, words[i])) return true;
    }
    return false;
}
/* A flag is on or off; off is as if nobody had said it. */
static enum infer_status set(struct options *o, const struct option *opt, const char *text,
                             enum option_origin from) {
    bool on;
    if (opt->type != OPT_FLAG) return option_set(o, opt, text, from);
    if (is_switch(text, &on)) return on ? option_set(o, opt, NULL, from) : option_unset(o, opt);
    return err_set(INFER_E_INPUT, "--%s: '%s' is not on or off", opt->name, text);
}
/* What only the command line says. */
static bool only_flag(const struct option *opt) {
    return !strcmp(opt->name, "config") || !strcmp(opt->name, "print-config");
}
/* An option of some command; *other: of another one than o's. */
static const struct option *find(const struct options *o, const char *name, bool *other) {
    const struct option *opt = option_find(o->command, name);
    *other = !opt;
    for (int i = 0; i < n_command && !opt; i++) opt = option_find(&commands[i], name);
    return opt;
}

/* ---- presets ---- */

struct preset {
    const char *name, *settings;
};
static const struct preset presets[] = {
#define PRESET(name, help, settings) {#name, settings},
#include "tools/presets.def"
#undef PRESET
};
static enum infer_status apply_preset(struct options *o, const char *name) {
    for (size_t i = 0; name && i < sizeof presets / sizeof *presets; i++) {
        if (strcmp(presets[i].name, name) != 0) continue;
        char word[128], *value, *dot;
        for (const char *p = presets[i].settings; *p; p += strspn(p, " ")) {
            const size_t n = strcspn(p, " ");
            snprintf(word, sizeof word, "%.*s", (int)n, p);
            p += n;
            value = strchr(word, '=');
            *value++ = 0;
            dot = strchr(word, '.');
            if (dot) *dot = 0;
            if (dot && strcmp(word, o->command->name) != 0) continue;
            const struct option *opt = option_find(o->command, dot ? dot + 1 : word);
            if (opt) TRY(set(o, opt, options_keep(o, value, strlen(value)), ORIGIN_PRESET));
        }
    }
    return INFER_OK;
}

/* ---- the file ---- */

struct line {
    const char *path;
    int number;
};
static enum infer_status at_line(const struct line *l, enum infer_status st) {
    char message[1024];
    if (st == INFER_OK) return st;
    snprintf(message, sizeof message, "%s", err_message());
    return err_set(st, "%s:%d: %s", l->path, l->number, message);
}
static char *trimmed(char *s) {
    s += strspn(s, " \t");
    size_t n = strlen(s);
    while (n && strchr(" \t\r", s[n - 1])) s[--n] = 0;
    return s;
}
/* A ; behind a space begins a comment, but in double quotes. */
static void cut_comment(char *s) {
    bool quoted = false;
    for (char *p = s; *p; p++) {
        if (*p == '\\' && quoted && p[1]) {
            p++;
        } else if (*p == '"') {
            quoted = !quoted;
        } else if (*p == ';' && !quoted && p > s && isspace((unsigned char)p[-1])) {
            *p = 0;
            return;
        }
    }
}
/* A file's name without its ending is like that. */
static bool is_bare(const char *base, const char *like) {
    const size_t n = strlen(base);
    char bare[256];
    if (n < 6 || n > sizeof bare || strcasecmp(base + n - 5, ".gguf") != 0) return false;
    snprintf(bare, sizeof bare, "%.*s", (int)(n - 5), base);
    return !fnmatch(like, bare, 0);
}
/* Whether the section [head] is of this command and this model; "": of all. rank: 0 for all, 1 a command's, 2 a model's. presets: a name that is
 * no command's is a model's. */
static enum infer_status section(const struct options *o, const char *head, const char *model, bool presets,
                                 int *rank, bool *applies) {
    char bare[4096];
    size_t n = (size_t)snprintf(bare, sizeof bare, "%s", model ? model : "");
    while (n > 1 && n < sizeof bare && bare[n - 1] == '/') bare[--n] = 0; /* of a folder */
    const char *base = strrchr(bare, '/') ? strrchr(bare, '/') + 1 : bare;
    *rank = 0;
    *applies = true;
    if (!*head || !strcmp(head, "*")) return INFER_OK;
    if (!strncmp(head, "model", 5) && isspace((unsigned char)head[5])) {
        const char *like = head + 5 + strspn(head + 5, " \t");
        *rank = 2;
        *applies = model && (!fnmatch(like, model, 0) || !fnmatch(like, bare, 0) || !fnmatch(like, base, 0) ||
                             is_bare(base, like));
        return INFER_OK;
    }
    *rank = 1;
    *applies = !strcmp(head, o->command->name);
    if (presets && !command_find(head)) {
        *rank = 2;
        *applies = model && !strcmp(head, model);
        return INFER_OK;
    }
    return command_find(head)
               ? INFER_OK
               : err_set(
                     INFER_E_INPUT,
                     "[%s] is no section: there are [COMMAND] and [model NAME], where * and ? stand for any letters",
                     head);
}
/* What a server of several models has once: no model's section can say it. */
static bool is_of_server(const struct option *opt) {
    static const char *const names[] = {
        "listen",      "api-key-file", "insecure", "host-name",  "cors-origin", "tls-cert", "tls-key",
        "key-max",     "body-memory",  "timeout",  "drain",      "no-page",     "metrics",  "log",
        "log-prompts", "models",       "mem",      "image-urls", "queue"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(opt->name, names[i])) return true;
    return false;
}
/* An option as another program calls it, or by its letter; *passed: it says what is so anyway. errors: INFER_E_INPUT, with what to say instead */
static enum infer_status find_other_name(const struct options *o, const char *name, const struct option **out,
                                         bool *passed) {
    char flag[96];
    *out = NULL;
    for (int dashes = 2; dashes; dashes--) {
        snprintf(flag, sizeof flag, "%.*s%.80s", dashes, "--", name);
        const struct foreign *f = foreign_find(flag, strlen(flag));
        if (!f) continue;
        if (f->how == FOREIGN_OTHER) return err_set(INFER_E_INPUT, "%s: here %s", name, f->ours);
        if (f->how == FOREIGN_SAME) *out = option_find(o->command, f->ours);
        *passed = f->how == FOREIGN_ANYWAY;
        if (*out || *passed) return INFER_OK;
    }
    for (int i = 0; i < n_option && !name[1]; i++)
        if (option_table[i].letter == *name && (option_table[i].groups & o->command->groups))
            *out = &option_table[i];
    return *out ? INFER_OK : option_unknown(o->command, name);
}
/* "key = value" of a section of this rank. A value in double quotes may have spaces at its ends, \n and \". */
static enum infer_status assign(struct options *o, char *text, bool presets) {
    bool other, passed = false;
    char *value = strchr(text, '=');
    if (!value) return err_set(INFER_E_INPUT, "'%s' is neither NAME = VALUE nor [SECTION]", text);
    *value++ = 0;
    const char *name = trimmed(text);
    value = trimmed(value);
    const size_t n = strlen(value);
    if (n > VALUE_MAX) return err_set(INFER_E_INPUT, "%s: the value has over %d bytes", name, VALUE_MAX);
    if (n > 1 && value[0] == '"' && value[n - 1] == '"') {
        char *to = value;
        for (const char *p = value + 1; p < value + n - 1; p++) {
            const bool mark = *p == '\\' && p + 1 < value + n - 1;
            if (mark) p++;
            *to++ = mark && *p == 'n' ? '\n' : mark && *p == 't' ? '\t' : *p;
        }
        *to = 0;
    }
    const struct option *opt = find(o, name, &other);
    if (opt && only_flag(opt))
        return err_set(INFER_E_INPUT, "%s: no file says it, but the command line (--%s)", name, opt->name);
    if (opt && other && presets)
        return err_set(INFER_E_INPUT, "%s: 'infer %s' has no such option; requests may say it", name,
                       o->command->name);
    if (opt && other) return INFER_OK;
    if (!opt && presets && !strcmp(name, "version")) return INFER_OK; /* of llama.cpp's form, which is 1 */
    if (!opt) TRY(find_other_name(o, name, &opt, &passed));
    if (passed) return INFER_OK;
    if (presets && is_of_server(opt))
        return err_set(INFER_E_INPUT,
                       "%s is the whole server's: on the command line, or in the configuration file", name);
    bool on;
    if (presets && !strcmp(opt->name, "pin") && !is_switch(value, &on))
        return err_set(INFER_E_INPUT, "%s: '%s' is not on or off: a section's is its own model's", name,
                       value);
    const char *kept = options_keep(o, value, strlen(value));
    return kept ? set(o, opt, kept, ORIGIN_FILE)
                : err_set(INFER_E_MEMORY, "out of memory for a configuration");
}
/* The settings of sections of one rank. */
static enum infer_status read_rank(struct options *o, const char *path, const char *text, size_t n,
                                   const char *model, bool presets, int rank) {
    char row[VALUE_MAX + 256];
    struct line l = {path, 0};
    int own = 0;
    bool applies = true;
    for (const char *p = text; p < text + n;) {
        const size_t len = strcspn(p, "\n");
        l.number++;
        if (len >= sizeof row)
            return at_line(&l, err_set(INFER_E_INPUT, "a line of over %zu bytes", sizeof row));
        snprintf(row, sizeof row, "%.*s", (int)len, p);
        p += len + (p[len] == '\n');
        cut_comment(row);
        char *s = trimmed(row);
        if (!*s || *s == '#' || *s == ';') continue;
        const size_t end = strlen(s);
        if (*s == '[' && s[end - 1] == ']') {
            s[end - 1] = 0;
            TRY(at_line(&l, section(o, trimmed(s + 1), model, presets, &own, &applies)));
        } else if (own == rank && applies)
            TRY(at_line(&l, assign(o, s, presets)));
    }
    return INFER_OK;
}
static enum infer_status read_text(char **text, const char *path) {
    size_t n;
    TRY(text_read(text, &n, path, TEXT_SETTINGS));
    const bool whole = strlen(*text) == n;
    if (!strncmp(*text, "\xef\xbb\xbf", 3)) memcpy(*text, "   ", 3); /* the mark of UTF-8 */
    if (whole) return INFER_OK;
    mem_free(*text);
    return err_set(INFER_E_INPUT, "%s: it has bytes that are no text", path);
}
/* model: whose sections hold; NULL: of the model that the file says. */
static enum infer_status read_file(struct options *o, const char *path, const char *model, bool presets) {
    char *text;
    TRY(read_text(&text, path));
    enum infer_status st = INFER_OK;
    for (int rank = 0; rank < 3 && st == INFER_OK; rank++) {
        const char *own = o->model ? o->model : o->hf_repo ? o->hf_repo : DEFAULT_MODEL;
        st = read_rank(o, path, text, strlen(text), model ? model : own, presets, rank);
    }
    mem_free(text);
    return st;
}
bool config_path(char *path, size_t n) {
    const char *xdg = getenv("XDG_CONFIG_HOME");
    snprintf(path, n, "%s%s/infer/config.ini", xdg && *xdg ? xdg : tool_home(),
             xdg && *xdg ? "" : "/.config");
    return access(path, F_OK) == 0;
}
/* What the command line or the environment says; NULL: neither does. */
static const char *model_of(const struct options *flags) {
    const char *said[] = {flags->model, flags->hf_repo, getenv("INFER_MODEL"), getenv("INFER_HF_REPO")};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        if (said[i] && *said[i]) return said[i];
    return NULL;
}
static enum infer_status apply_file(struct options *o, const struct options *flags) {
    char path[4096];
    const char *env = getenv("INFER_CONFIG"), *named = flags->config ? flags->config
                                                       : env && *env ? env
                                                                     : NULL;
    if (named && !strcmp(named, "none")) return INFER_OK;
    if (named) snprintf(path, sizeof path, "%s", named);
    if (!named && !config_path(path, sizeof path)) return INFER_OK;
    return read_file(o, path, model_of(flags), false);
}

/* ---- the environment ---- */

static enum infer_status apply_environment(struct options *o) {
    for (int i = 0; i < n_option; i++) {
        const struct option *opt = &option_table[i];
        char name[96] = "INFER_";
        if (!(opt->groups & o->command->groups) || only_flag(opt)) continue;
        size_t n = strlen(name);
        for (const char *p = opt->name; *p && n + 1 < sizeof name; p++)
            name[n++] = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
        name[n] = 0;
        const char *value = getenv(name);
        if (!value || !*value) continue;
        enum infer_status st = set(o, opt, value, ORIGIN_ENVIRONMENT);
        if (st != INFER_OK) return err_prefix(st, "%s", name);
    }
    return INFER_OK;
}

enum infer_status config_apply(struct options *o, const struct options *flags) {
    struct options named = {
        .command = o->command}; /* what the file and the environment say of presets comes below them */
    if (!(o->command->groups & G_MODEL)) return INFER_OK;
    enum infer_status st = apply_file(&named, flags);
    if (st == INFER_OK) st = apply_environment(&named);
    if (st == INFER_OK) st = apply_preset(o, named.preset);
    options_free(&named);
    TRY(st);
    TRY(apply_file(o, flags));
    TRY(apply_environment(o));
    return apply_preset(o, flags->preset);
}

/* ---- presets of several models ---- */

/* The name in [NAME] or [model NAME] that is a model's; NULL: it is of all, a command's, or a pattern. */
static const char *model_in(char *head) {
    head = trimmed(head);
    if (!strncmp(head, "model", 5) && isspace((unsigned char)head[5]))
        head = trimmed(head + 5);
    else if (command_find(head))
        return NULL;
    return *head && !strpbrk(head, "*?") ? head : NULL;
}
enum infer_status config_presets(const struct options *o, const char *file,
                                 enum infer_status (*each)(void *user, const char *name), void *user) {
    char *text, row[VALUE_MAX + 256];
    (void)o;
    TRY(read_text(&text, file));
    enum infer_status st = INFER_OK;
    struct line l = {file, 0};
    for (const char *p = text; *p && st == INFER_OK;) {
        const size_t len = strcspn(p, "\n");
        snprintf(row, sizeof row, "%.*s", (int)(len < sizeof row ? len : sizeof row - 1), p);
        p += len + (p[len] == '\n');
        l.number++;
        cut_comment(row);
        char *s = trimmed(row);
        const size_t n = strlen(s);
        if (*s != '[') continue;
        if (s[n - 1] != ']') {
            st = at_line(&l, err_set(INFER_E_INPUT, "'%s' is no section: [NAME]", s));
            continue;
        }
        s[n - 1] = 0;
        const char *name = model_in(s + 1);
        if (name) st = at_line(&l, each(user, name));
    }
    mem_free(text);
    return st;
}

/* What the user's environment and command line say of o holds for all models, but for which one it is. */
static enum infer_status take_given(struct options *out, const struct options *o) {
    for (int i = 0; i < n_option; i++) {
        static const size_t bytes[] = {
            [OPT_FLAG] = sizeof(bool),     [OPT_SWITCH] = sizeof(bool),
            [OPT_INT] = sizeof(int),       [OPT_UINT64] = sizeof(uint64_t),
            [OPT_NUMBER] = sizeof(double), [OPT_BYTES] = sizeof(uint64_t),
            [OPT_TEXT] = sizeof(char *),   [OPT_TEXTS] = sizeof(struct option_texts)};
        const struct option *opt = &option_table[i];
        if (!(opt->groups & o->command->groups) || o->origin[i] < ORIGIN_ENVIRONMENT || opt->type == OPT_INTS)
            continue;
        if (!strcmp(opt->name, "model") || !strcmp(opt->name, "hf-repo") || !strcmp(opt->name, "pin"))
            continue; /* --pin names models, a section's pin is its own */
        memcpy((char *)out + opt->offset, (const char *)o + opt->offset, bytes[opt->type]);
        out->origin[i] = o->origin[i];
    }
    return INFER_OK;
}
enum infer_status config_member(struct options *out, const struct options *o, const char *file,
                                const char *name, const char *path) {
    struct options flags = *o;
    TRY(options_defaults(out, o->command));
    flags.model = path ? path : name;
    flags.hf_repo = NULL;
    flags.preset = options_given(o, "preset") ? o->preset : NULL;
    TRY(config_apply(out, &flags));
    out->model = out->hf_repo = NULL; /* what another command, or a server of one, takes */
    if (file) TRY(read_file(out, file, name, true));
    TRY(take_given(out, o));
    if (path) out->model = path, out->hf_repo = NULL;
    return INFER_OK;
}

/* ---- print ---- */

static void print_quoted(FILE *out, const char *text) {
    if (!strpbrk(text, "\n\"\\;") && *text && !isspace((unsigned char)*text) &&
        !isspace((unsigned char)text[strlen(text) - 1])) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '\n')
            fputs("\\n", out);
        else
            fprintf(out, "%s%c", strchr("\"\\", *text) ? "\\" : "", *text);
    }
    fputc('"', out);
}
/* One value; of those that may be given several times the i-th. */
static bool print_field(FILE *out, const struct options *o, const struct option *opt, int i) {
    const void *field = (const char *)o + opt->offset;
    const struct option_texts *texts = field;
    const struct option_ints *ints = field;
    char number[96];
    switch (opt->type) {
    case OPT_FLAG:
    case OPT_SWITCH:
        fputs(*(const bool *)field ? "on" : "off", out);
        return true;
    case OPT_BYTES:
        fprintf(out, "%llu", *(const unsigned long long *)field);
        return true;
    case OPT_TEXTS:
        if (i < texts->n) print_quoted(out, texts->text[i]);
        return i < texts->n;
    case OPT_INTS:
        for (int k = 0; k < ints->n; k++) fprintf(out, "%s%d", k ? "," : "", ints->value[k]);
        return ints->n > 0;
    default:
        option_value(number, sizeof number, o, opt);
        if (opt->type == OPT_TEXT && *(const char *const *)field)
            print_quoted(out, *(const char *const *)field);
        else
            fputs(number, out);
        return opt->type != OPT_TEXT || *(const char *const *)field;
    }
}
void config_print(FILE *out, const struct options *o) {
    static const char *const origins[] = {"default", "preset", "file", "environment", "command line"};
    for (int k = 0; k < n_option; k++) {
        const struct option *opt = &option_table[k];
        if (!(opt->groups & o->command->groups) || only_flag(opt)) continue;
        const struct option_texts *texts = (const void *)((const char *)o + opt->offset);
        const bool empty = opt->type == OPT_TEXT && !*(const char *const *)((const char *)o + opt->offset);
        const int n = opt->type == OPT_TEXTS ? texts->n : empty ? 0 : 1;
        if (!n) fprintf(out, "# %s =\n", opt->name);
        for (int i = 0; i < n; i++) {
            fprintf(out, "%s%s = ", o->origin[k] == ORIGIN_DEFAULT ? "# " : "", opt->name);
            print_field(out, o, opt, i);
            if (o->origin[k] != ORIGIN_DEFAULT) fprintf(out, "    ; %s", origins[o->origin[k]]);
            fputc('\n', out);
        }
    }
}
