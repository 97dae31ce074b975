/* infer tune: measures what options of a machine give for a model, and writes those that are best as a section of a configuration file. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/host.h"
#include "base/mem.h"
#include "files/outfile.h"
#include "files/textfile.h"
#include "tools/config.h"
#include "tools/interrupt.h"
#include "tools/session.h"
#include "tools/tool.h"

int cmd_tune(const struct options *o);

enum { WARM = 16, STEPS = 64, DEPTH = 64, CTX = 2048, LINES = 2048 };
static const double same = 0.03;   /* of a rate: no difference */
static const double guessed = 0.9; /* share of right guesses in text that is copied */
static const double worth = 1.15;  /* times as fast, to be worth an option */
static const double parts[] = {3,
                               10}; /* of the time: the least and the most things that are measured in it */

struct tuner {
    const struct options *o;
    struct options now; /* with what is tried */
    double end;         /* host_seconds */
    bool card, late;    /* late: something was left out */
    FILE *says;         /* what was measured */
    char device[128], name[4096];
    char lines[LINES]; /* of the section */
};

/* ---- what is measured ---- */

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static double median(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, by_size);
    return x[n / 2];
}

/* n rows of sequence seq behind what it holds; which tokens they are does not matter. */
static enum infer_status step(struct session *s, int seq, int n, bool decode, double *seconds) {
    static struct infer_row rows[4096];
    struct infer_output out;
    const int pos = infer_seq_length(s->engine, seq);
    for (int i = 0; i < n; i++)
        rows[i] = (struct infer_row){.id = (pos + i) * 7919 % s->info.n_vocab,
                                     .pos = pos + i,
                                     .seq = seq,
                                     .decode = decode,
                                     .want = decode || i + 1 == n ? INFER_WANT_TOKEN : INFER_WANT_NONE};
    const double begin = host_seconds();
    TRY(infer_step(s->engine, rows, n, &out));
    *seconds = host_seconds() - begin;
    return INFER_OK;
}

/* Seconds of a step with n rows: of an answer's, behind those in which a machine warms up, or of a prompt's. */
static enum infer_status measure(struct session *s, int n, bool decode, double budget, double *seconds) {
    double took[STEPS], once;
    int seq, k = 0;
    TRY(infer_seq_open(s->engine, &seq));
    if (decode) TRY(step(s, seq, DEPTH, false, &once));
    const double begin = host_seconds();
    for (int i = 0; k < 3 || (k < STEPS && host_seconds() - begin < budget); i++) {
        if (infer_seq_length(s->engine, seq) + n > s->place.n_ctx || !decode)
            TRY(infer_seq_rewind(s->engine, seq, 0));
        TRY(step(s, seq, n, decode, &took[k]));
        k += i >= (decode ? WARM : 1) || host_seconds() - begin > budget;
    }
    *seconds = median(took, k);
    infer_seq_close(s->engine, seq);
    return INFER_OK;
}

/* An engine with what is tried, and seconds of steps with rows[n] rows in it. */
static enum infer_status try_now(struct tuner *t, const int *rows, int n, bool decode, double budget,
                                 double *seconds) {
    struct session s;
    const struct session_need need = {
        .slots = 1, .ctx = CTX, .decode_rows = INFER_REQUEST_DRAFT + 1, .quiet = true};
    TRY(session_open(&s, &t->now, &need));
    snprintf(t->device, sizeof t->device, "%s (%s)", s.place.device, s.place.isa ? s.place.isa : "");
    enum infer_status st = INFER_OK;
    for (int i = 0; !st && i < n; i++) {
        const int all = decode || rows[i] < s.place.n_batch ? rows[i] : s.place.n_batch;
        st = measure(&s, all, decode, budget / n, &seconds[i]);
        if (!decode) seconds[i] /= all;
    }
    session_close(&s);
    return st;
}

static double budget(const struct tuner *t, double seconds) {
    const double left = t->end - host_seconds(), most = seconds / parts[1];
    return left / parts[0] < most ? left / parts[0] : most;
}
static bool is_late(struct tuner *t) {
    t->late |= host_seconds() > t->end;
    return host_seconds() > t->end;
}

static void add(struct tuner *t, const char *name, const char *value) {
    const size_t n = strlen(t->lines);
    snprintf(t->lines + n, sizeof t->lines - n, "%s = %s\n", name, value);
}
static void add_number(struct tuner *t, const char *name, int value) {
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    add(t, name, text);
}

/* ---- options ---- */

/* Keys and values as they are, where all fits so, else in 8 bits. errors: INFER_E_MEMORY (that does not fit either) */
static enum infer_status plan_kv(struct tuner *t, struct session *s) {
    struct infer_engine_options eo = session_engine_options(&t->now, &(struct session_need){.slots = 1});
    struct infer_plan_report r;
    TRY(infer_plan(s->model, &eo, NULL, &r));
    t->card = strstr(r.size.device, "cuda") != NULL;
    bool fits = r.fits;
    const char *type = r.size.kv_type;
    const int n_ctx = r.size.n_ctx;
    if (!fits && !options_given(t->o, "kv-type")) {
        infer_plan_free(&r);
        eo.kv_type = type = "q8_0";
        TRY(infer_plan(s->model, &eo, NULL, &r));
        fits = r.fits;
    }
    infer_plan_free(&r);
    if (!fits)
        return err_set(INFER_E_MEMORY, "it does not fit, with keys and values in 8 bits either: infer plan");
    fprintf(t->says, "plan       %d positions, keys and values as %s\n", n_ctx, type);
    if (options_given(t->o, "kv-type")) type = t->o->kv_type;
    add(t, "kv-type", type);
    t->now.kv_type = strcmp(type, "q8_0") == 0 ? "q8_0" : t->now.kv_type;
    return INFER_OK;
}

/* Threads: those by which an answer comes soonest, the most where that is no difference. */
static enum infer_status tune_threads(struct tuner *t, double seconds) {
    const int cores = tool_core_count(), tried[] = {cores, cores - 1, cores / 2}, one = 1;
    double best = 0;
    int threads = t->o->threads;
    if (t->card) return INFER_OK;
    for (int i = 0; i < 3 && !options_given(t->o, "threads"); i++) {
        double took;
        if (tried[i] < 1 || (i && (tried[i] >= tried[i - 1] || is_late(t)))) continue;
        t->now.threads = tried[i];
        TRY(try_now(t, &one, 1, true, budget(t, seconds), &took));
        fprintf(t->says, "threads    %4d: %.1f tok/s of an answer\n", tried[i], 1 / took);
        if (1 / took > best * (1 + same)) best = 1 / took, threads = tried[i];
    }
    t->now.threads = threads;
    if (threads) add_number(t, "threads", threads);
    return INFER_OK;
}

/* Rows of a step with a prompt: the fewest that compute one as fast as any. */
static enum infer_status tune_batch(struct tuner *t, double seconds) {
    const int least = t->card ? 512 : 128;
    double rate[4] = {0}, best = 0;
    int batch = t->o->batch;
    for (int i = 0; i < 4 && !options_given(t->o, "batch"); i++) {
        double took;
        if (i && is_late(t)) break;
        t->now.batch = least << i;
        TRY(try_now(t, &t->now.batch, 1, false, budget(t, seconds), &took));
        rate[i] = 1 / took;
        fprintf(t->says, "batch      %4d: %.0f tok/s of a prompt\n", least << i, rate[i]);
        best = rate[i] > best ? rate[i] : best;
    }
    for (int i = 3; i >= 0 && best > 0; i--)
        if (rate[i] >= best * (1 - same)) batch = least << i;
    t->now.batch = batch;
    if (batch) add_number(t, "batch", batch);
    return INFER_OK;
}

/* Guesses by the text: whether text that is copied comes sooner. How many are made follows from what is measured then. */
static enum infer_status tune_lookup(struct tuner *t, double seconds) {
    static const int rows[] = {1, 4};
    double took[2], times = 0;
    bool on = t->o->lookup;
    if (!options_given(t->o, "lookup")) {
        if (is_late(t)) return INFER_OK;
        TRY(try_now(t, rows, 2, true, 2 * budget(t, seconds), took));
        for (int i = 0; i < rows[1]; i++) times += pow(guessed, i);
        times *= took[0] / took[1];
        on = times >= worth;
        fprintf(t->says,
                "lookup     a step with 1 and 4 rows %.2f and %.2f ms: copied text %.2f times as fast\n",
                1e3 * took[0], 1e3 * took[1], times);
    }
    add(t, "lookup", on ? "on" : "off");
    return INFER_OK;
}

static enum infer_status tune_all(struct tuner *t, double seconds) {
    struct session s = {0};
    TRY(session_open_model(&s, &t->now));
    enum infer_status st = plan_kv(t, &s);
    if (s.info.n_draft)
        printf(
            "draft      the file has a layer that drafts (--draft mtp); how often it is right hangs on the text\n");
    infer_model_close(s.model);
    TRY(st);
    TRY(tune_threads(t, seconds));
    TRY(tune_batch(t, seconds));
    TRY(tune_lookup(t, seconds));
    if (t->late) fprintf(t->says, "some was left out: --seconds %g are over\n", seconds);
    return INFER_OK;
}

/* ---- the file ---- */

/* The model as a section names it: [model NAME], where a file is called by its name. */
static void name_of(struct tuner *t, const char *path) {
    const struct options *o = t->o;
    const char *named = o->hf_repo ? o->hf_repo : o->model ? o->model : path, *from = named;
    size_t n = strlen(named);
    if (!o->hf_repo && strncmp(named, "hf:", 3) != 0) {
        while (n > 1 && named[n - 1] == '/') n--; /* of a folder */
        for (size_t i = 0; i + 1 < n; i++)
            if (named[i] == '/') from = named + i + 1;
    }
    snprintf(t->name, sizeof t->name, "%.*s", (int)(named + n - from), from);
    for (char *p = t->name; *p; p++) {
        const bool edge = p == t->name || !p[1];
        if (strchr("[]*?\\;", *p) || (*p > 0 && *p < ' ') || (edge && *p == ' ')) *p = '?';
    }
}

/* Whether a line begins with [model NAME]. */
static bool is_head(const char *line, const char *name) {
    const size_t n = strlen(name);
    const char *p = line + strspn(line, "[ \t");
    if (strncmp(p, "model", 5) != 0 || !strchr(" \t", p[5])) return false;
    p += 5 + strspn(p + 5, " \t");
    return strncmp(p, name, n) == 0 && p[n + strspn(p + n, " \t")] == ']';
}

/* Where the section of this name begins in text[n] and where it ends; false: there is none. */
static bool find_section(const char *text, size_t n, const char *name, size_t *from, size_t *to) {
    bool found = false;
    *from = *to = n;
    for (size_t at = 0; at < n; at += strcspn(text + at, "\n") + 1) {
        if (text[at] != '[') continue;
        if (found) {
            *to = at;
            return true;
        }
        found = is_head(text + at, name);
        if (found) *from = at;
    }
    return found;
}

static enum infer_status write_section(const struct tuner *t, const char *path) {
    char *old = NULL, head[4400], day[16];
    size_t n = 0, from = 0, to = 0;
    struct outfile *f;
    const time_t now = time(NULL);
    strftime(day, sizeof day, "%Y-%m-%d", localtime(&now));
    snprintf(head, sizeof head, "[model %s]\n# infer tune, %s, %s\n", t->name, day, t->device);
    if (access(path, F_OK) == 0 && strncmp(path, "/dev/", 5) != 0)
        TRY(text_read(&old, &n, path, TEXT_SETTINGS));
    if (old) find_section(old, n, t->name, &from, &to);
    const char *gap = from && old[from - 1] != '\n' ? "\n" : "";
    enum infer_status st = outfile_open(&f, path, OUTFILE_DEFAULT);
    if (!st) {
        st = outfile_write(f, old, from);
        if (!st) st = outfile_write(f, gap, strlen(gap));
        if (!st) st = outfile_write(f, head, strlen(head));
        if (!st) st = outfile_write(f, t->lines, strlen(t->lines));
        if (!st && to < n) st = outfile_write(f, "\n", 1);
        if (!st && to < n) st = outfile_write(f, old + to, n - to);
        if (st)
            outfile_abort(f);
        else
            st = outfile_close(f);
    }
    mem_free(old);
    return st;
}

/* What is there stays, unless --force is given. */
static enum infer_status check_file(const struct tuner *t, const char *path) {
    char *old;
    size_t n, from, to;
    struct outfile *f;
    if (strncmp(path, "/dev/", 5) == 0) return INFER_OK;
    if (access(path, F_OK) != 0) { /* a name that cannot be written shows before the work */
        TRY(outfile_open(&f, path, OUTFILE_DEFAULT));
        outfile_abort(f);
        return INFER_OK;
    }
    TRY(text_read(&old, &n, path, TEXT_SETTINGS));
    const bool found = find_section(old, n, t->name, &from, &to);
    mem_free(old);
    return found && !t->o->replace
               ? err_set(INFER_E_INPUT, "%s has a section [model %s] already: --force replaces it", path,
                         t->name)
               : INFER_OK;
}

static enum infer_status tune(struct tuner *t, const char *path) {
    char model[4096];
    TRY(session_model_path(t->o, model, sizeof model));
    TRY(tool_check_output(t->o, model, path));
    name_of(t, model);
    TRY(check_file(t, path));
    t->now = *t->o;
    t->end = host_seconds() + t->o->tune_seconds;
    TRY(tune_all(t, t->o->tune_seconds));
    interrupt_ends_at_once();
    TRY(tool_flush());
    return write_section(t, path);
}

int cmd_tune(const struct options *o) {
    struct tuner t = {.o = o, .says = o->output && strcmp(o->output, "-") == 0 ? stderr : stdout};
    char own[4096];
    config_path(own, sizeof own);
    const char *path = !o->output ? own : strcmp(o->output, "-") == 0 ? "/dev/stdout" : o->output;
    enum infer_status st = tune(&t, path);
    if (st) return tool_fail(o, st);
    if (strncmp(path, "/dev/", 5) != 0) printf("[model %s] is in %s\n%s", t.name, path, t.lines);
    st = tool_flush();
    return st ? tool_fail(o, st) : EXIT_DONE;
}
