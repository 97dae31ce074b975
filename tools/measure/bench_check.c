/* infer bench --compare and --targets. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "tools/measure/bench.h"
#include "files/json.h"
#include "base/mem.h"
#include "files/textfile.h"
#include "tools/tool.h"

enum infer_status bench_load_json(const char *path, json_t **out) {
    char *text;
    size_t n;
    TRY(text_read(&text, &n, path, TEXT_RESULTS));
    enum infer_status st = json_read(out, path, text, n, JSON_REJECT_DUPLICATES);
    mem_free(text);
    return st;
}

static const struct bench_result *find(const struct bench *b, const char *test) {
    for (int i = 0; i < b->n; i++)
        if (strcmp(b->result[i].test, test) == 0) return &b->result[i];
    return NULL;
}

/* Verdicts go to stdout beside the table; under --json that holds the JSON, so they go to stderr. */
static FILE *verdicts(const struct bench *b) { return b->o->json ? stderr : stdout; }

static enum infer_status compare_all(const struct bench *b, json_t *root, int *slower) {
    json_t *results = json_object_get(root, "results"), *j;
    int reps = (int)json_integer_value(json_object_get(json_object_get(root, "machine"), "reps")),
        compared = 0;
    const char *type = json_string_value(json_object_get(json_object_get(root, "model"), "type"));
    if (!json_is_array(results) || !type) return err_set(INFER_E_INPUT, "no results of infer bench");
    if (strcmp(type, b->session.info.type_name) != 0)
        tool_say("the saved results are of a model in %s, this one is in %s", type,
                 b->session.info.type_name);
    size_t i;
    json_array_foreach(results, i, j) {
        struct bench_result old;
        TRY(bench_result_read(&old, j));
        const struct bench_result *r = find(b, old.test);
        if (!r) continue;
        struct bench_change c = bench_compare(r, &old, b->o->reps, reps);
        char interval[64] = "";
        if (isfinite(c.half))
            snprintf(interval, sizeof interval, "95%%: %+.1f .. %+.1f%%, ",
                     100 * (c.speed * exp(-c.half) - 1), 100 * (c.speed * exp(c.half) - 1));
        if (old.throttled > 0)
            return err_set(INFER_E_INPUT,
                           "%s was held back in %.0f%% of its repetitions: no base to compare with", old.test,
                           100 * old.throttled);
        fprintf(verdicts(b), "%-16s %9.1f -> %9.1f tok/s, %s %+.1f%% (%snoise %.1f%%): %s\n", r->test,
                old.tok_s, r->tok_s, c.by_share ? "share" : "speed", 100 * (c.ratio - 1), interval,
                100 * c.threshold, bench_verdict_name(c.verdict));
        *slower += c.verdict == BENCH_SLOWER;
        compared++;
    }
    return compared ? INFER_OK : err_set(INFER_E_INPUT, "none of its tests was run now");
}

enum infer_status bench_compare_file(const struct bench *b, const char *path, int *slower) {
    json_t *root;
    TRY(bench_load_json(path, &root));
    enum infer_status st = compare_all(b, root, slower);
    json_decref(root);
    return st ? err_prefix(st, "%s", path) : tool_flush();
}

enum infer_status bench_targets_file(const struct bench *b, const char *path, int *below) {
    json_t *root, *j;
    const char *test;
    int checked = 0;
    TRY(bench_load_json(path, &root));
    json_object_foreach(root, test, j) {
        const struct bench_result *r = find(b, test);
        if (!r || !json_is_number(j)) continue;
        double target = json_number_value(j);
        fprintf(verdicts(b), "%-16s %9.1f tok/s, target %9.1f: %s\n", test, r->tok_s, target,
                r->tok_s >= target ? "reached" : "BELOW");
        *below += r->tok_s < target;
        checked++;
    }
    json_decref(root);
    if (!checked) return err_set(INFER_E_INPUT, "%s: none of its tests was run now", path);
    return tool_flush();
}
