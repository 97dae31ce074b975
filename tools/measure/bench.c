/* infer bench: tokens per second against the limit of the machine, measured in the same run. */
#include "tools/measure/bench.h"
#include "tools/measure/bench_serve.h"
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include "cuda/bench/cuda_bench.h"
#include "engine_options.h"
#include "files/json.h"
#include "base/mem.h"
#include "files/outfile.h"
#include "tools/tool.h"

int cmd_bench(const struct options *o);

void bench_cpu_name(char *buf, size_t n) {
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[512];
    buf[0] = 0;
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        colon[strcspn(colon, "\n")] = 0;
        snprintf(buf, n, "%s", colon + 2);
        break;
    }
    if (f) fclose(f);
}

json_t *bench_real(double x) { return isfinite(x) ? json_real(x) : json_null(); }

json_t *bench_json(const struct bench *b) {
    const struct session *s = &b->session;
    struct utsname system;
    char cpu[256];
    bench_cpu_name(cpu, sizeof cpu);
    json_t *machine =
        json_pack("{s:s, s:s?, s:s, s:s?, s:i, s:o, s:s, s:s, s:i}", "device", s->place.device, "device_name",
                  s->place.device_name, "cpu", cpu, "isa", s->place.isa, "threads", s->place.n_thread,
                  "read_gb_s", bench_real(b->bandwidth), "system", uname(&system) == 0 ? system.release : "",
                  "infer", infer_version(), "reps", b->o->reps);
    json_t *model = json_pack(
        "{s:s, s:s, s:s%, s:s, s:I, s:I, s:I, s:I, s:I, s:s, s:i, s:i}", "file", s->path, "arch",
        s->info.arch, "name", s->info.name_len ? s->info.name : "", s->info.name_len, "type",
        s->info.type_name, "parameters", (json_int_t)s->info.n_param, "active_parameters",
        (json_int_t)s->info.n_param_token, "file_bytes", (json_int_t)s->info.file_bytes, "token_bytes",
        (json_int_t)s->info.token_bytes, "token_flops", (json_int_t)s->info.token_flops, "kv_type",
        s->place.kv_type, "ctx", s->place.n_ctx, "batch", s->place.n_batch);
    json_t *results = json_array();
    for (int i = 0; results && i < b->n; i++)
        json_array_append_new(results, bench_result_json(&b->result[i]));
    return json_pack("{s:o, s:o, s:o}", "machine", machine, "model", model, "results", results);
}

/* A number with the digits that a reader wants, or "-". */
static const char *cell(char *buf, double x, const char *unit) {
    if (!isfinite(x))
        snprintf(buf, 32, "-");
    else
        snprintf(buf, 32, x >= 1000 ? "%.0f%s" : x >= 10 ? "%.1f%s" : "%.3f%s", x, unit);
    return buf;
}

static bool any_is(const struct bench *b, size_t offset) {
    return b->n && isfinite(*(const double *)((const char *)&b->result[0] + offset));
}

/* What steps take by their rows: of the model, or of the one that guesses. */
static void print_steps(const struct bench *b, bool guess) {
    int n = 0;
    for (int rows = 1; b->sched && rows <= 512; rows++) {
        const double seconds = infer_sched_seconds(b->sched, guess, rows);
        if (seconds > 0)
            printf("%s %d: %.2f",
                   n++     ? ","
                   : guess ? "ms of a step that guesses, by its rows:"
                           : "ms of a step, by its rows:",
                   rows, 1e3 * seconds);
    }
    if (n) printf("\n");
}

static void print_table(const struct bench *b) {
    const struct session *s = &b->session;
    char t[8][32];
    printf("%.*s%s%s %s, %.2f GB read per token; %s %s", (int)s->info.name_len, s->info.name,
           s->info.name_len ? ", " : "", s->info.arch, s->info.type_name, (double)s->info.token_bytes * 1e-9,
           s->place.device, s->place.isa ? s->place.isa : "");
    if (s->place.n_thread > 0) printf(", %d threads", s->place.n_thread);
    if (isfinite(b->bandwidth)) printf("; memory read at %.1f GB/s (probed)", b->bandwidth);
    printf("\n%-16s %9s %19s %8s %8s %7s %9s %9s %9s", "test", "tok/s", "min .. max", "95%", "GB/s", "share",
           "ms p50", "p95", "p99");
    if (b->sched) printf("   right tok/step");
    printf("%s%s%s\n", any_is(b, offsetof(struct bench_result, joules)) ? "  J/token" : "",
           any_is(b, offsetof(struct bench_result, mhz)) ? "    MHz" : "",
           any_is(b, offsetof(struct bench_result, celsius)) ? "    C" : "");
    for (int i = 0; i < b->n; i++) {
        const struct bench_result *r = &b->result[i];
        char more[32];
        snprintf(more, sizeof more, isfinite(bench_interval(r)) ? "%.1f%%" : "-", 100 * bench_interval(r));
        printf("%-16s %9s %8s .. %7s %8s %8s %7s %9s %9s %9s", r->test, cell(t[0], r->tok_s, ""),
               cell(t[1], r->tok_s_min, ""), cell(t[2], r->tok_s_max, ""), more, cell(t[3], r->gb_s, ""),
               cell(t[4], 100 * r->share, "%"), cell(t[5], r->ms_p50, ""), cell(t[6], r->ms_p95, ""),
               cell(t[7], r->ms_p99, ""));
        if (b->sched) printf(" %7s %8s", cell(t[6], 100 * r->right, "%"), cell(t[7], r->per_step, ""));
        if (isfinite(r->joules)) printf(" %8.4f", r->joules);
        if (isfinite(r->mhz)) printf(" %6.0f", r->mhz);
        if (isfinite(r->celsius)) printf(" %4.0f", r->celsius);
        printf("%s\n", r->throttled > 0 ? "  HELD BACK" : "");
    }
    print_steps(b, false);
    print_steps(b, true);
}

/* Table or JSON on stdout, JSON into --save. */
static enum infer_status print_results(const struct bench *b) {
    uint64_t failed = mem_failed();
    char *text;
    json_t *j = bench_json(b);
    TRY(json_write(&text, j, failed, JSON_INDENT(1) | JSON_REAL_PRECISION(8), "the results as JSON"));
    if (b->o->json)
        printf("%s\n", text);
    else
        print_table(b);
    enum infer_status st = tool_flush();
    if (!st && b->save) st = outfile_write(b->save, text, strlen(text));
    if (!st && b->save) st = outfile_write(b->save, "\n", 1);
    mem_free(text);
    return st;
}

#ifdef INFER_CUDA
struct card_bench {
    bool json;
    json_t *all;
};
static void card_row(void *user, const struct cuda_bench_row *r) {
    struct card_bench *c = user;
    if (c->json) {
        json_array_append_new(c->all,
                              json_pack("{s:s, s:s, s:f, s:o, s:s, s:o}", "name", r->name, "unit", r->unit,
                                        "ours", r->ours, "peer", bench_real(r->peer), "peer_is",
                                        r->peer_is ? r->peer_is : "", "error", bench_real(r->error)));
        return;
    }
    printf("%-72s %8.1f %s", r->name, r->ours, r->unit);
    if (isfinite(r->peer)) printf(", %s %.1f (%.0f%%)", r->peer_is, r->peer, 100 * r->ours / r->peer);
    if (isfinite(r->error)) printf(", error %.1e", r->error);
    printf("\n");
    fflush(stdout);
}
/* infer bench gemm|mem|attn on a card. */
static enum infer_status bench_card(const struct options *o, enum cuda_bench_kind kind) {
    struct card_bench c = {.json = o->json, .all = json_array()};
    enum infer_status st = cuda_bench(kind, o->reps, card_row, &c);
    char *text = o->json && !st ? json_dumps(c.all, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) : NULL;
    json_decref(c.all);
    if (text) printf("%s\n", text);
    mem_free(text);
    return st ? st : tool_flush();
}
#endif

/* infer bench gemm: the arithmetic ceilings of the processor. */
static enum infer_status bench_gemm(const struct options *o) {
    int n_thread = o->threads ? o->threads : tool_core_count();
    json_t *all = json_object();
    for (int i = 0; i < n_peak; i++) {
        double pass[32];
        size_t n = (size_t)(o->reps < 32 ? o->reps : 32);
        if (!peaks[i].here()) continue;
        for (size_t k = 0; k < n; k++) pass[k] = peak_measure(&peaks[i], n_thread, 0.1) * 1e-9;
        double least = bench_percentile(pass, n, 0), most = bench_percentile(pass, n, 1);
        json_object_set_new(all, peaks[i].name, json_real(pass[n / 2]));
        if (!o->json) printf("%-28s %9.0f Gop/s (%.0f .. %.0f)\n", peaks[i].name, pass[n / 2], least, most);
    }
    json_t *j = json_pack("{s:i, s:o}", "threads", n_thread, "gop_s", all);
    char *text = o->json && j ? json_dumps(j, JSON_COMPACT | JSON_REAL_PRECISION(6)) : NULL;
    json_decref(j);
    if (o->json && !text) return err_set(INFER_E_MEMORY, "the results as JSON");
    if (o->json) printf("%s\n", text);
    mem_free(text);
    return tool_flush();
}

/* infer bench mem: the ceiling alone. */
static enum infer_status bench_mem(const struct options *o) {
    struct memory_probe p;
    int n_thread = o->threads ? o->threads : tool_core_count();
    double pass[32];
    TRY(probe_open(&p, n_thread));
    for (int i = 0; i < o->reps && i < 32; i++) pass[i] = probe_read(&p, 0.2);
    probe_close(&p);
    size_t n = (size_t)(o->reps < 32 ? o->reps : 32);
    double least = bench_percentile(pass, n, 0), most = bench_percentile(pass, n, 1), median = pass[n / 2];
    if (o->json)
        printf("{\"threads\":%d,\"read_gb_s\":%.3f,\"read_gb_s_min\":%.3f,\"read_gb_s_max\":%.3f}\n",
               n_thread, median, least, most);
    else
        printf("memory read, %d threads: %.1f GB/s (%.1f .. %.1f)\n", n_thread, median, least, most);
    return tool_flush();
}

/* Opened before anything is measured: a name that cannot be written shows here. */
static enum infer_status open_save(struct bench *b) {
    char model[4096];
    TRY(session_model_path(b->o, model, sizeof model));
    TRY(tool_check_output(b->o, model, b->o->save));
    return outfile_open(&b->save, b->o->save, OUTFILE_DEFAULT);
}

static enum infer_status open_plot(struct bench *b) {
    char model[4096];
    TRY(session_model_path(b->o, model, sizeof model));
    TRY(tool_check_output(b->o, model, b->o->plot));
    TRY(bench_plot_open(b));
    return outfile_open(&b->drawn, b->o->plot, OUTFILE_DEFAULT);
}

/* What is wrong with a file shows before anything is measured. */
static enum infer_status open_files(struct bench *b) {
    if (b->o->compare) TRY(bench_saved_open(b));
    if (b->o->plot) TRY(open_plot(b));
    if (b->o->save) TRY(open_save(b));
    return b->o->targets ? bench_targets_open(b) : INFER_OK;
}

/* True when the option asks for a test. */
static bool any(const struct option_ints *v) {
    for (int i = 0; i < v->n; i++)
        if (v->value[i]) return true;
    return false;
}

/* A run in which clocks were held back is no evidence: it is neither kept nor compared. */
static bool is_held_back(const struct bench *b, int *code) {
    for (int i = 0; i < b->n; i++) {
        const struct bench_result *r = &b->result[i];
        if (!(r->throttled > 0)) continue;
        tool_say("%s: clocks were held back in %.0f%% of the repetitions%s", r->test, 100 * r->throttled,
                 b->o->save || b->o->compare ? ": nothing is kept or compared" : "");
        if (!b->o->save && !b->o->compare) continue;
        *code = EXIT_CHECK;
        return true;
    }
    return false;
}

static enum infer_status bench_model(struct bench *b, int *code) {
    int slower = 0, below = 0;
    TRY(session_drafter(b->o, &b->draft));
    if (b->o->accept >= 0 && b->draft.by != INFER_DRAFT_MODEL)
        return err_set(INFER_E_INPUT, "--accept is of guesses of a model: it goes with --draft");
    if (!any(&b->o->n_prompt) && !any(&b->o->n_decode) && b->o->turns < 0)
        return err_set(INFER_E_INPUT,
                       "-p and -n are 0: there is nothing to measure; -p 512 times a prompt, -n 128 an "
                       "answer, and left out they do both");
    if (b->o->turns >= 0) {
        signal(SIGINT, SIG_IGN); /* the one that asks says it, and closes the pipe */
        return bench_run(b);
    }
    if (b->o->inject > 0 && !(b->o->compare && bench_is_program(b->o->compare)))
        return err_set(INFER_E_INPUT, "--inject is of turns with a program: it goes with --compare PROGRAM");
    if (b->o->plot_with && !b->o->plot)
        return err_set(INFER_E_INPUT, "--plot-with is drawn by --plot, which is not there");
    if (b->o->ablate && (b->o->save || b->o->compare || b->o->plot))
        return err_set(INFER_E_INPUT,
                       "--ablate prints a table, and goes with neither --save, --compare nor --plot");
    if (b->o->ablate) return bench_ablate(b->o);
    if (b->o->compare && bench_is_program(b->o->compare)) {
        if (b->o->save)
            return err_set(INFER_E_INPUT, "--save: turns with a program have no results that are kept");
        if (b->o->plot)
            return err_set(INFER_E_INPUT, "--plot: turns with a program have no results that are drawn");
        TRY(bench_turns(b->o, &slower));
        *code = slower ? EXIT_CHECK : EXIT_DONE;
        return INFER_OK;
    }
    TRY(open_files(b));
    TRY(bench_run(b));
    TRY(print_results(b));
    if (is_held_back(b, code)) return INFER_OK;
    if (b->plot) TRY(bench_plot(b));
    if (b->saved) TRY(bench_compare_saved(b, &slower));
    if (b->targets) TRY(bench_compare_targets(b, &below));
    *code = slower || below ? EXIT_CHECK : EXIT_DONE;
    struct outfile *save = b->save;
    b->save = NULL;
    return save ? outfile_close(save) : INFER_OK;
}

/* infer bench gemm|mem|attn: of the card where there is a usable one, else of the processor. */
static enum infer_status bench_machine(const struct options *o) {
    static const char *const names[] = {"gemm", "mem", "attn"}; /* enum cuda_bench_kind */
    struct plan_options po;
    int kind = 0;
    while (kind < 3 && strcmp(o->arg[0], names[kind]) != 0) kind++;
    if (kind == 3)
        return err_set(INFER_E_INPUT, "no bench '%s': gemm, mem, attn, serve, or none for a model",
                       o->arg[0]);
    TRY(engine_options_read(&po, &(struct infer_engine_options){.device = o->device, .gpu_layers = -1}));
    TRY(device_pick(&po.wish, &po.place));
#ifdef INFER_CUDA
    if (po.place.device == &backend_cuda) return bench_card(o, (enum cuda_bench_kind)kind);
#endif
    if (kind == 2)
        return err_set(INFER_E_INPUT, "bench attn measures a card; this is the %s", po.place.device->name);
    return kind ? bench_mem(o) : bench_gemm(o);
}

/* What is kept, drawn or told of a model is refused elsewhere, not left out. */
static enum infer_status check_of_models(const struct options *o) {
    static const char *const names[] = {"targets",   "plot",   "save",    "compare",
                                        "plot-with", "ablate", "profile", "trace"};
    enum { OF_SERVE = 2 }; /* the first ones are its own, too */
    const size_t begin = strcmp(o->arg[0], "serve") == 0 ? OF_SERVE : 0;
    for (size_t i = begin; i < sizeof names / sizeof *names; i++)
        if (options_given(o, names[i]))
            return err_set(INFER_E_INPUT,
                           "--%s is of models, not of bench %s; --json prints what that measures", names[i],
                           o->arg[0]);
    return INFER_OK;
}

void bench_close(struct bench *b) {
    probe_close(&b->probe);
#ifdef INFER_CUDA
    cuda_ceiling_close(b->card);
#endif
    infer_sched_close(b->sched);
    session_close(&b->session);
    energy_close(b->energy);
    held_close(b->held);
    outfile_abort(b->drawn);
    bench_plot_close(b->plot);
    json_decref(b->saved);
    json_decref(b->targets);
    mem_free(b->probed);
    mem_free(b->result);
}

int cmd_bench(const struct options *o) {
    struct bench b = {.o = o, .bandwidth = NAN};
    int code = EXIT_DONE;
    const bool serve = o->n_arg && strcmp(o->arg[0], "serve") == 0;
    enum infer_status st = o->n_arg ? check_of_models(o) : INFER_OK;
    if (!st) st = serve ? bench_serve(o, &code) : o->n_arg ? bench_machine(o) : bench_model(&b, &code);
    outfile_abort(b.save);
    if (st) code = tool_fail(o, st);
    bench_close(&b);
    return code;
}
