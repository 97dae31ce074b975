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

/* root's results are whole, and one of them at least is of a test that is run now. */
static enum infer_status check_saved(const struct options *o, const json_t *root) {
    json_t *results = json_object_get(root, "results"), *j;
    char had[256] = "";
    int asked = 0;
    size_t i, n = 0;
    if (!json_is_array(results) || !json_is_string(json_object_get(json_object_get(root, "model"), "type")))
        return err_set(INFER_E_INPUT, "no results of infer bench");
    json_array_foreach(results, i, j) {
        struct bench_result old;
        TRY(bench_result_read(&old, j));
        if (n < sizeof had) n += (size_t)snprintf(had + n, sizeof had - n, "%s%s", i ? ", " : "", old.test);
        if (!bench_asks(o, old.test)) continue;
        if (old.throttled > 0)
            return err_set(INFER_E_INPUT,
                           "%s was held back in %.0f%% of its repetitions: no base to compare with", old.test,
                           100 * old.throttled);
        asked++;
    }
    if (asked) return INFER_OK;
    return err_set(INFER_E_INPUT, "none of its tests is asked for: it has %s", *had ? had : "none");
}

enum infer_status bench_saved_open(struct bench *b) {
    TRY(bench_load_json(b->o->compare, &b->saved));
    const enum infer_status st = check_saved(b->o, b->saved);
    return st ? err_prefix(st, "%s", b->o->compare) : INFER_OK;
}

/* What the saved run was of otherwise than this one, in one line. */
static enum infer_status tell_other(const struct bench *b) {
    static const char *const keys[][2] = {
        {"machine", "cpu"},      {"machine", "device"},  {"machine", "device_name"},
        {"machine", "isa"},      {"machine", "threads"}, {"model", "name"},
        {"model", "parameters"}, {"model", "type"},      {"model", "kv_type"}};
    char line[1024] = "";
    size_t n = 0;
    json_t *now = bench_json(b);
    if (!now) return err_set(INFER_E_MEMORY, "no memory to compare with %s", b->o->compare);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *x = json_object_get(json_object_get(b->saved, keys[i][0]), keys[i][1]),
                     *y = json_object_get(json_object_get(now, keys[i][0]), keys[i][1]);
        if (!x || !y || json_equal(x, y)) continue;
        char *old = json_dumps(x, JSON_ENCODE_ANY), *new = json_dumps(y, JSON_ENCODE_ANY);
        if (old && new &&n < sizeof line)
            n += (size_t)snprintf(line + n, sizeof line - n, "%s %s %.80s, now %.80s", n ? ";" : "",
                                  keys[i][1], old, new);
        mem_free(old);
        mem_free(new);
    }
    json_decref(now);
    if (n) tool_say("%s is of another run:%s", b->o->compare, line);
    return INFER_OK;
}

enum infer_status bench_compare_saved(const struct bench *b, int *slower) {
    const int reps = (int)json_integer_value(json_object_get(json_object_get(b->saved, "machine"), "reps"));
    json_t *j;
    size_t i;
    TRY(tell_other(b));
    json_array_foreach(json_object_get(b->saved, "results"), i, j) {
        struct bench_result old;
        TRY(bench_result_read(&old, j));
        const struct bench_result *r = find(b, old.test);
        if (!r) continue;
        struct bench_change c = bench_compare(r, &old, b->o->reps, reps);
        char interval[64] = "", moved[64];
        if (isfinite(c.half))
            snprintf(interval, sizeof interval, "95%%: %+.1f .. %+.1f%%, ",
                     100 * (c.speed * exp(-c.half) - 1), 100 * (c.speed * exp(c.half) - 1));
        fprintf(verdicts(b), "%-16s %9.1f -> %9.1f tok/s, %s (%snoise %.1f%%): %s\n", r->test, old.tok_s,
                r->tok_s, bench_moved(&c, moved), interval, 100 * c.threshold, bench_verdict_name(c.verdict));
        *slower += c.verdict == BENCH_SLOWER;
    }
    return tool_flush();
}

enum infer_status bench_targets_open(struct bench *b) {
    json_t *j;
    const char *test;
    TRY(bench_load_json(b->o->targets, &b->targets));
    json_object_foreach(b->targets, test, j) if (json_is_number(j) && bench_asks(b->o, test)) return INFER_OK;
    return err_set(INFER_E_INPUT, "%s: none of its tests is asked for", b->o->targets);
}

enum infer_status bench_compare_targets(const struct bench *b, int *below) {
    json_t *j;
    const char *test;
    json_object_foreach(b->targets, test, j) {
        const struct bench_result *r = find(b, test);
        if (!r || !json_is_number(j)) continue;
        double target = json_number_value(j);
        fprintf(verdicts(b), "%-16s %9.1f tok/s, target %9.1f: %s\n", test, r->tok_s, target,
                r->tok_s >= target ? "reached" : "BELOW");
        *below += r->tok_s < target;
    }
    return tool_flush();
}
