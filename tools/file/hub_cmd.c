/* infer pull, list, show, rm: models by name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <jansson.h>
#include "tools/hub/hub.h"
#include "tools/named.h"
#include "base/status.h"
#include "tools/tool.h"

int cmd_pull(const struct options *o) {
    char path[4096], name[600];
    snprintf(name, sizeof name, "%s%.500s",
             hub_is_name(o->arg[0]) ? "" : "hf:", o->arg[0]); /* org/repo, as other programs take it */
    enum infer_status st = model_pull(o, name, path, sizeof path);
    if (st == INFER_OK) puts(path);
    if (st == INFER_OK) st = tool_flush();
    return st ? tool_fail(o, st) : EXIT_DONE;
}

/* A name as one line, also where it has newlines or is no UTF-8. */
static const char *one_line(const char *name, char *to, size_t n) {
    text_escape(to, n, name, strlen(name));
    return to;
}
static json_t *json_name(const char *name) {
    char line[4 * 4096];
    json_t *as_it_is = json_string(name);
    return as_it_is ? as_it_is : json_string(one_line(name, line, sizeof line));
}
static void list_json(const struct hub_models *m) {
    json_t *all = json_array();
    for (int i = 0; i < m->n; i++) {
        const struct hub_model *k = &m->model[i];
        json_array_append_new(all, json_pack("{s:o, s:o, s:s, s:I, s:I}", "name", json_name(k->name), "path",
                                             json_name(k->path), "of", k->of, "bytes", (json_int_t)k->bytes,
                                             "used", (json_int_t)k->used));
    }
    json_dumpf(all, stdout, JSON_INDENT(1));
    putchar('\n');
    json_decref(all);
}
static void list_lines(const struct hub_models *m) {
    for (int i = 0; i < m->n; i++) {
        const struct hub_model *k = &m->model[i];
        char day[32] = "", name[4 * 4096];
        const time_t used = (time_t)k->used;
        struct tm t;
        if (localtime_r(&used, &t)) strftime(day, sizeof day, "%Y-%m-%d", &t);
        printf("%9.2f GB  %s  %-9s  %s\n", (double)k->bytes / 1e9, day, k->of,
               one_line(k->name, name, sizeof name));
    }
}
int cmd_list(const struct options *o) {
    struct hub_models m;
    enum infer_status st = hub_list(&m);
    if (st == INFER_OK && o->json) list_json(&m);
    if (st == INFER_OK && !o->json) list_lines(&m);
    if (st == INFER_OK && !o->json && !m.n)
        tool_say("no models are on this disk: infer pull hf:ORG/REPO fetches one");
    hub_list_free(&m);
    if (st == INFER_OK) st = tool_flush();
    return st ? tool_fail(o, st) : EXIT_DONE;
}

int cmd_show(const struct options *o) {
    struct hub_name name;
    struct hub_models m = {0};
    enum infer_status st = hub_parse(o->arg[0], &name);
    if (st == INFER_OK) st = hub_list(&m);
    int n = 0;
    for (int round = 0; st == INFER_OK && round < 2 && !n; round++)
        for (int i = 0; i < m.n; i++) {
            const struct hub_model *k = &m.model[i];
            if (!hub_means(&name, k, round == 0)) continue;
            printf("%s\n  %.2f GB at %s\n", k->name, (double)k->bytes / 1e9, k->path);
            n++;
        }
    hub_list_free(&m);
    if (st == INFER_OK && !n)
        st = err_set(INFER_E_INPUT, "%s is not on this disk ('infer list' says what is)", o->arg[0]);
    if (st == INFER_OK) st = tool_flush();
    return st ? tool_fail(o, st) : EXIT_DONE;
}

int cmd_rm(const struct options *o) {
    struct hub_name name;
    uint64_t freed = 0;
    enum infer_status st = hub_parse(o->arg[0], &name);
    if (st == INFER_OK) st = hub_remove(&name, &freed);
    if (st != INFER_OK) return tool_fail(o, st);
    if (!o->quiet) tool_say("%s: %.2f GB are free again", o->arg[0], (double)freed / 1e9);
    return EXIT_DONE;
}
