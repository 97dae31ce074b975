/* infer bench serve: options to runs, runs to figures. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "files/json.h"
#include "tools/measure/bench.h"
#include "tools/measure/bench_serve.h"
#include "tools/tool.h"

enum { MOST_MIX = 65536, MOST_IDS = 1024, MOST_STREAMS = 16384 };

/* Made of words that most vocabularies have as tokens. */
static const char some_text[] =
    "the quick brown fox jumps over a lazy dog while many people walk along the river under a green tree and "
    "talk about time, water, light, music, numbers, stones, houses and what the next day will bring to them";

/* ---- what it prints ---- */

static json_t *three(const double *x) {
    return json_pack("{s:o, s:o, s:o}", "p50", bench_real(x[0]), "p95", bench_real(x[1]), "p99",
                     bench_real(x[2]));
}

static json_t *figures_json(const struct load_figures *f) {
    return json_pack("{s:i, s:i, s:i, s:f, s:f, s:o, s:o, s:o, s:f, s:f, s:b}", "streams", f->n_stream,
                     "requests", f->n_done, "failed", f->n_failed, "req_s", f->req_s, "tok_s", f->tok_s,
                     "first_ms", three(f->first_ms), "gap_ms", three(f->gap_ms), "whole_ms",
                     three(f->whole_ms), "good_req_s", f->good_req_s, "good", f->good, "keeps_goal",
                     f->keeps);
}

static void print_head(void) {
    printf("%7s %8s %8s %9s | %8s %8s %8s | %7s %7s %7s | %9s %6s\n", "streams", "requests", "req/s", "tok/s",
           "first ms", "p95", "p99", "gap ms", "p95", "p99", "good r/s", "share");
}
static void print_line(const struct load_figures *f) {
    printf("%7d %8d %8.2f %9.1f | %8.1f %8.1f %8.1f | %7.1f %7.1f %7.1f | %9.2f %5.1f%%%s\n", f->n_stream,
           f->n_done, f->req_s, f->tok_s, f->first_ms[0], f->first_ms[1], f->first_ms[2], f->gap_ms[0],
           f->gap_ms[1], f->gap_ms[2], f->good_req_s, 100 * f->good, f->keeps ? "" : "  misses the goal");
    fflush(stdout);
}

/* ---- options ---- */

/* Lines "tokens_in tokens_out". */
static enum infer_status read_mix(const char *path, struct load_mix **out, int *n) {
    FILE *f = fopen(path, "r");
    char line[256];
    enum infer_status st = f ? mem_new(out, MOST_MIX * sizeof **out, "lengths")
                             : err_set(INFER_E_IO, "%s: cannot be opened", path);
    for (int at = 1; !st && fgets(line, sizeof line, f); at++) {
        char *end, *from = line + strspn(line, " \t");
        if (*from == '#' || *from == '\n') continue;
        const long in = strtol(from, &end, 10), to = strtol(end, &end, 10);
        if (in < 1 || to < 1 || in > 1 << 20 || to > 1 << 20 || *n == MOST_MIX)
            st =
                err_set(INFER_E_INPUT,
                        "%s: line %d: two numbers from 1 to 1048576 are wanted, tokens in and out", path, at);
        else
            (*out)[(*n)++] = (struct load_mix){(int)in, (int)to};
    }
    if (f) fclose(f);
    return !st && *n == 0 ? err_set(INFER_E_INPUT, "%s has no lengths", path) : st;
}

struct bench_load {
    struct load_plan plan;
    struct load_goal goal;
    struct load_mix *mix;
    int32_t ids[MOST_IDS];
    json_t *results, *targets; /* targets: of --targets, NULL: none */
    struct outfile *plot;      /* of --plot */
    struct load_figures *f;    /* f[n]: of each run */
    int n;
    bool json;
};

static enum infer_status prepare(struct bench_load *b, const struct options *o) {
    static struct load_mix one;
    struct load_plan *p = &b->plan;
    *b = (struct bench_load){.goal = {o->goal_first, o->goal_gap}, .json = o->json};
    if (o->targets) TRY(load_targets_open(&b->targets, o->targets));
    if (o->plot) TRY(tool_check_output(o, o->lengths, o->plot));
    if (o->plot) TRY(outfile_open(&b->plot, o->plot, OUTFILE_DEFAULT));
    TRY(load_target_read(&p->target, o->url));
    const char *key = getenv("INFER_API_KEY");
    p->target.key = key && *key ? key : NULL;
    p->n_stream = o->streams;
    p->n_request = o->requests;
    p->rate = o->rate;
    p->n_shared = o->shared;
    p->seed = o->fixed_seed;
    p->temp = o->temp;
    p->top_p = o->top_p;
    p->seconds = o->give_up;
    one = (struct load_mix){o->tokens_in, o->tokens_out};
    p->mix = &one, p->n_mix = 1;
    if (o->lengths) {
        p->n_mix = 0;
        TRY(read_mix(o->lengths, &b->mix, &p->n_mix));
        p->mix = b->mix;
    }
    if (o->find_batch && o->rate > 0)
        return err_set(INFER_E_INPUT, "--find-batch counts streams; --rate has as many as come");
    if (o->find_batch && o->goal_first <= 0 && o->goal_gap <= 0)
        return err_set(INFER_E_INPUT, "--find-batch needs a goal: --goal-first MS, --goal-gap MS or both");
    TRY(load_tokens(&p->target, some_text, b->ids, MOST_IDS, &p->n_id));
    p->ids = p->n_id ? b->ids : NULL;
    if (!p->ids && !o->quiet)
        fprintf(stderr,
                "infer bench serve: the server has no /tokenize: prompts are words, a token each or so\n");
    return INFER_OK;
}

static enum infer_status keep(struct bench_load *b, const struct load_figures *f) {
    struct load_figures *more = mem_realloc(b->f, (size_t)(b->n + 1) * sizeof *more);
    if (!more) return err_set(INFER_E_MEMORY, "out of memory for figures");
    b->f = more;
    b->f[b->n++] = *f;
    return INFER_OK;
}

/* One run with so many streams. */
static enum infer_status run(struct bench_load *b, int streams, int requests, struct load_figures *f) {
    struct load_plan p = b->plan;
    struct load_result r;
    p.n_stream = streams;
    p.n_request = requests;
    p.seed += (uint64_t)json_array_size(b->results) * 1000003; /* other prompts, which no cache knows */
    enum infer_status st = load_run(&p, &r);
    if (!st) {
        load_figures(&r, &b->goal, streams, f);
        json_array_append_new(b->results, figures_json(f));
        st = keep(b, f);
        if (!b->json) print_line(f);
        if (r.n_failed)
            fprintf(stderr, "infer bench serve: %d of %d requests failed, the first: %s\n", r.n_failed,
                    p.n_request, r.failure);
    }
    load_free(&r);
    return st;
}

/* The most streams that keep the goal: doubled until they do not, then halved in. */
static enum infer_status find_batch(struct bench_load *b, int *best) {
    struct load_figures f;
    int low = 0, high = 0;
    for (int n = 1; !high && n <= MOST_STREAMS; n *= 2) {
        TRY(run(b, n, b->plan.n_request > 3 * n ? b->plan.n_request : 3 * n, &f));
        if (f.keeps)
            low = n;
        else
            high = n;
    }
    while (high - low > 1 && high - low > low / 16) {
        const int n = low + (high - low) / 2;
        TRY(run(b, n, b->plan.n_request > 3 * n ? b->plan.n_request : 3 * n, &f));
        *(f.keeps ? &low : &high) = n;
    }
    *best = low;
    return INFER_OK;
}

static enum infer_status print_json(const struct bench_load *b, const struct options *o, int best) {
    const uint64_t failed = mem_failed();
    char *text;
    json_t *all = json_pack("{s:s, s:f, s:i, s:i, s:f, s:f, s:O}", "url", o->url, "rate", b->plan.rate,
                            "shared", b->plan.n_shared, "prompts", b->plan.n_mix, "goal_first_ms",
                            b->goal.first_ms, "goal_gap_ms", b->goal.gap_ms, "results", b->results);
    if (all && o->find_batch) json_object_set_new(all, "most_streams", json_integer(best));
    TRY(json_write(&text, all, failed, JSON_INDENT(1) | JSON_REAL_PRECISION(6), "the figures"));
    printf("%s\n", text);
    mem_free(text);
    return tool_flush();
}

enum infer_status bench_serve(const struct options *o, int *code) {
    struct bench_load b;
    struct load_figures f;
    int best = 0, missed = 0;
    enum infer_status st = prepare(&b, o);
    b.results = json_array();
    if (!st && !b.json) print_head();
    if (!st) st = o->find_batch ? find_batch(&b, &best) : run(&b, b.plan.n_stream, b.plan.n_request, &f);
    if (!st && b.json) st = print_json(&b, o, best);
    if (!st && !b.json && o->find_batch) printf("%d streams keep the goal\n", best);
    if (!st && b.plot) st = load_plot(b.plot, o->plot, b.f, b.n);
    if (!st && b.plot) st = outfile_close(b.plot), b.plot = NULL;
    if (!st && b.targets) st = load_targets(b.targets, &b.f[b.n - 1], b.json ? stderr : stdout, &missed);
    if (missed) *code = EXIT_CHECK;
    outfile_abort(b.plot);
    json_decref(b.targets);
    json_decref(b.results);
    mem_free(b.f);
    mem_free(b.mix);
    return st;
}
