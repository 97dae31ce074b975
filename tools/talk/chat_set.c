/* /set of `infer chat`: shows and changes what sampling and answers go by. */
#include <stdlib.h>
#include <string.h>
#include "tools/talk/talk.h"
#include "tools/tool.h"

/* The name as the table has it: "--temp" as on the command line, "n" for its letter. */
static const char *table_name(const char *name) {
    if (name[0] == '-' && name[1] == '-') name += 2;
    return strcmp(name, "n") == 0 ? "n-predict" : name;
}

static bool find_setting(const struct chat *c, const char *name, struct option_view *out) {
    for (int i = 0; options_view(c->o, G_SAMPLE, i, out); i++)
        if (strcmp(out->name, name) == 0) return true;
    return false;
}

static enum infer_status change(struct chat *c, const char *name, const char *text) {
    struct options changed = c->live;
    struct infer_request_params p;
    struct option_view before = {0}, now;
    const char *value = arena_strndup(&c->kept, text, strlen(text));
    if (!value) return err_set(INFER_E_MEMORY, "the setting");
    find_setting(c, name, &before);
    TRY(options_set(&changed, G_SAMPLE, name, value));
    talk_seed(&changed);
    TRY(talk_params(&c->talk, &changed, &p));
    c->live = changed;
    if (find_setting(c, name, &now))
        chat_say(c, "%s is %s (it was %s)", now.name, now.value, *before.value ? before.value : "not set");
    return INFER_OK;
}

/* One setting, what it means and what it may be. */
static enum infer_status show_one(const struct chat *c, const char *name) {
    struct option_view v;
    char line[768], range[64] = "";
    if (!find_setting(c, name, &v)) return options_set(&(struct options){0}, G_SAMPLE, name, "");
    if (v.least != v.most) snprintf(range, sizeof range, "; %.10g to %.10g", v.least, v.most);
    snprintf(line, sizeof line, "%s %s: %s%s%s%s", v.name, *v.value ? v.value : "(not set)", v.help, range,
             v.choices ? (*range ? " or " : "; ") : "", v.choices ? v.choices : "");
    term_line(stderr, line);
    return INFER_OK;
}

/* All of them, in as many columns as fit. */
static void show_all(const struct chat *c) {
    enum { WIDE = 26 };
    int n = 0, columns = term_columns(stderr) / WIDE;
    struct option_view v;
    for (int i = 0; options_view(c->o, G_SAMPLE, i, &v); i++) {
        char text[160];
        if (!*v.value) continue;
        snprintf(text, sizeof text, "%s %s", v.name, v.value);
        if (++n % columns)
            fprintf(stderr, "%-*s", WIDE, text);
        else
            fprintf(stderr, "%s\n", text);
    }
    if (n % columns) fputc('\n', stderr);
    term_line(stderr, "/set NAME says what a setting means, /set NAME VALUE changes it.");
}

enum infer_status chat_set(struct chat *c, const char *arg) {
    char name[64], value[256];
    size_t n = strcspn(arg, " \t\n="), m;
    const char *rest = arg + n + strspn(arg + n, " \t\n=");
    if (n == 0) {
        show_all(c);
        return INFER_OK;
    }
    m = strcspn(rest, " \t\n");
    if (n >= sizeof name || m >= sizeof value || rest[m + strspn(rest + m, " \t\n")])
        return err_set(INFER_E_INPUT, "/set NAME VALUE, like /set temp 0.7");
    snprintf(name, sizeof name, "%.*s", (int)n, arg);
    snprintf(value, sizeof value, "%.*s", (int)m, rest);
    return m ? change(c, table_name(name), value) : show_one(c, table_name(name));
}

/* Adds text[n] and a blank when it begins with word. */
static int offer(const char *word, const char *text, size_t n, char **out, int cap) {
    size_t have = strlen(word);
    return cap > 0 && have <= n && strncmp(text, word, have) == 0 &&
           asprintf(out, "%.*s ", (int)n, text) >= 0;
}

int chat_set_complete(const struct chat *c, const char *before, size_t *from, char **out, int cap) {
    struct option_view v;
    size_t name = strcspn(before, " ");
    const char *value = before + name + strspn(before + name, " ");
    int n = 0;
    if (before[name] == 0) {
        for (int i = 0; options_view(c->o, G_SAMPLE, i, &v); i++)
            n += offer(before, v.name, strlen(v.name), out + n, cap - n);
        return n;
    }
    *from += (size_t)(value - before);
    char text[64];
    snprintf(text, sizeof text, "%.*s", (int)name, before);
    if (!find_setting(c, table_name(text), &v)) return 0;
    for (const char *p = v.choices; p; p = strchr(p, '|') ? strchr(p, '|') + 1 : NULL)
        n += offer(value, p, strcspn(p, "|"), out + n, cap - n);
    if (n == 0 && *v.value && *value == 0)
        n += offer(value, v.value, strlen(v.value), out, cap); /* to be edited */
    return n;
}
