/* infer embed: texts to vectors, or with --query to scores of a cross-encoder; a text a line, as JSON lines or a NumPy file. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "files/json.h"
#include "files/textfile.h"
#include "tools/interrupt.h"
#include "tools/npy.h"
#include "tools/session.h"
#include "tools/tool.h"

int cmd_embed(const struct options *o);

enum {
    SLOTS = 64,   /* texts of a step, at most */
    WINDOW = 4096 /* texts that are sorted by their lengths, and written when all of them are there */
};

struct line {
    const char *text; /* text[n] */
    size_t n;
    int tokens;
};
struct work {
    const struct options *o;
    struct session s;
    struct infer_sched *sched;
    char *text;        /* of -f */
    struct line *line; /* line[n_line] */
    json_t *kept;      /* with --jsonl: what the lines' texts are in */
    size_t n_line;
    int width;
    float *made; /* of a window, made[WINDOW][width] */
    struct outfile *out;
    int n_cut;
};

/* ---- texts ---- */

/* A line of JSON: a text, or an object with one. */
static enum infer_status read_json_line(struct work *w, struct line *l, size_t number) {
    char where[32];
    json_t *v;
    snprintf(where, sizeof where, "line %zu", number);
    TRY(json_read(&v, where, l->text, l->n, JSON_DECODE_ANY | JSON_ALLOW_NUL));
    const json_t *text = json_is_object(v) ? json_object_get(v, "text") : v;
    if (!json_is_string(text)) {
        json_decref(v);
        return err_set(INFER_E_INPUT, "%s: a JSON string is expected, or an object with a \"text\"", where);
    }
    l->text = json_string_value(text), l->n = json_string_length(text);
    return json_array_append_new(w->kept, v) ? err_set(INFER_E_MEMORY, "out of memory for texts") : INFER_OK;
}

static size_t count_lines(const char *s, size_t n) {
    size_t lines = 0;
    for (size_t i = 0; i < n; i++) lines += s[i] == '\n';
    return lines + (n && s[n - 1] != '\n');
}

/* Every line is a text, an empty one too. */
static enum infer_status read_lines(struct work *w, const char *s, size_t n) {
    const char *end = s + n;
    w->n_line = count_lines(s, n);
    if (!w->n_line || w->n_line > INT32_MAX)
        return err_set(INFER_E_INPUT, "%zu texts: one line is one text", w->n_line);
    TRY(mem_new(&w->line, w->n_line * sizeof *w->line, "texts"));
    if (w->o->jsonl && !(w->kept = json_array())) return err_set(INFER_E_MEMORY, "out of memory for texts");
    for (size_t i = 0; i < w->n_line; i++) {
        const char *stop = memchr(s, '\n', (size_t)(end - s)), *last = stop ? stop : end;
        struct line *l = &w->line[i];
        *l = (struct line){.text = s, .n = (size_t)(last - s)};
        if (l->n && l->text[l->n - 1] == '\r') l->n--;
        if (w->o->jsonl) TRY(read_json_line(w, l, i + 1));
        s = stop ? stop + 1 : end;
    }
    return INFER_OK;
}

static enum infer_status read_texts(struct work *w) {
    size_t n;
    if (w->o->n_arg && !w->o->file) {
        TRY(mem_new(&w->line, sizeof *w->line, "texts"));
        w->n_line = 1;
        w->line[0] = (struct line){.text = w->o->arg[0], .n = strlen(w->o->arg[0])};
        return INFER_OK;
    }
    if (w->o->n_arg) return err_set(INFER_E_INPUT, "a text and --file are both given");
    TRY(text_read(&w->text, &n, w->o->file ? w->o->file : "-", TEXT_CORPUS));
    return read_lines(w, w->text, n);
}

/* ---- a window of texts ---- */

struct turn {
    int at; /* line of the window */
    struct infer_text text;
    struct infer_request *r;
};
static int longer(const void *a, const void *b) {
    const struct turn *x = a, *y = b;
    return x->text.n != y->text.n ? y->text.n - x->text.n : x->at - y->at;
}

static enum infer_status ids_of(struct work *w, struct turn *t, struct line *l) {
    const struct infer_model_info *m = &w->s.info;
    const char *query = w->o->query;
    struct infer_text_options o = {.a = l->text, .n_a = l->n};
    if (query) o = (struct infer_text_options){query, l->text, strlen(query), l->n, 0};
    o.most = m->n_text < w->s.place.n_ctx ? m->n_text : w->s.place.n_ctx;
    TRY(infer_text_ids(w->s.model, &o, &t->text));
    w->n_cut += t->text.n_whole > t->text.n;
    l->tokens = t->text.n;
    return t->text.n ? INFER_OK : err_set(INFER_E_INPUT, "a text of no tokens has no vector");
}

static enum infer_status begin(struct work *w, struct turn *t) {
    struct infer_request_params p = infer_request_defaults();
    p.ids = t->text.ids, p.n_id = t->text.n, p.n_first = t->text.n_first;
    p.make = infer_model_makes(&w->s.info);
    p.n_predict = 0;
    return infer_request_new(&t->r, w->sched, &p);
}

/* Takes what a request has made, and gives it back. */
static enum infer_status take(struct work *w, struct turn *t) {
    int n;
    double sum = 0;
    enum infer_status st = infer_request_status(t->r);
    const float *made = infer_request_made(t->r, &n);
    float *to = w->made + (size_t)t->at * (size_t)w->width;
    for (int i = 0; !st && i < n; i++) sum += (double)made[i] * (double)made[i];
    const double scale = w->o->normalize && !w->s.info.n_label && sum > 0 ? 1 / sqrt(sum) : 1;
    for (int i = 0; !st && i < n; i++) to[i] = (float)((double)made[i] * scale);
    infer_request_free(t->r);
    t->r = NULL;
    return st;
}

/* The longest first, so that the texts of a step are alike; as many at once as there are slots. */
static enum infer_status run_turns(struct work *w, struct turn *t, int n, size_t done) {
    enum infer_status st = INFER_OK;
    int ends = 0, begun = 0;
    qsort(t, (size_t)n, sizeof *t, longer);
    while (!st && ends < n) {
        while (!st && begun < n && begun - ends < w->s.place.n_slot) st = begin(w, &t[begun++]);
        if (!st) infer_sched_step(w->sched);
        for (int i = ends; !st && i < begun; i++)
            if (t[i].r && infer_request_done(t[i].r)) st = take(w, &t[i]);
        while (ends < begun && !t[ends].r) ends++;
        progress_show(&w->s.progress, "texts", (double)done + ends, (double)w->n_line, "texts");
    }
    for (int i = 0; i < n; i++) infer_request_free(t[i].r);
    return st;
}

static enum infer_status run_window(struct work *w, size_t first, int n) {
    struct turn *t;
    TRY(mem_new(&t, (size_t)n * sizeof *t, "texts"));
    enum infer_status st = INFER_OK;
    for (int i = 0; !st && i < n; i++) {
        t[i].at = i;
        st = ids_of(w, &t[i], &w->line[first + (size_t)i]);
        if (st) err_prefix(st, "text %zu", first + (size_t)i + 1);
    }
    if (!st) st = run_turns(w, t, n, first);
    for (int i = 0; i < n; i++) infer_text_free(&t[i].text);
    mem_free(t);
    return st;
}

/* ---- output ---- */

static enum infer_status write_line(struct work *w, size_t index, const float *x) {
    char s[96];
    int n =
        snprintf(s, sizeof s, "{\"index\": %zu, \"tokens\": %d, \"%s\": %s", index, w->line[index].tokens,
                 w->s.info.n_label ? "score" : "embedding", w->width > 1 || !w->s.info.n_label ? "[" : "");
    TRY(tool_write(s, (size_t)n));
    for (int i = 0; i < w->width; i++) {
        n = snprintf(s, sizeof s, "%s%.9g", i ? ", " : "", (double)x[i]);
        TRY(tool_write(s, (size_t)n));
    }
    const char *end = w->width > 1 || !w->s.info.n_label ? "]}\n" : "}\n";
    return tool_write(end, strlen(end));
}

static enum infer_status write_window(struct work *w, size_t first, int n) {
    const size_t width = (size_t)w->width;
    if (w->out) return outfile_write(w->out, w->made, (size_t)n * width * sizeof *w->made);
    for (int i = 0; i < n; i++) TRY(write_line(w, first + (size_t)i, w->made + (size_t)i * width));
    return INFER_OK;
}

/* ---- the command ---- */

/* A score is of a pair, and a vector of a text. */
static enum infer_status check_model(const struct work *w) {
    const bool scores = w->s.info.n_label > 0;
    if (scores && !w->o->query)
        return err_set(INFER_E_INPUT, "%s scores pairs of texts: --query TEXT is the first of them",
                       w->s.path);
    if (!scores && w->o->query)
        return err_set(INFER_E_INPUT, "--query goes with models that score pairs of texts; %s makes vectors",
                       w->s.path);
    return INFER_OK;
}

static enum infer_status run(struct work *w) {
    const struct options *o = w->o;
    struct session *s = &w->s;
    const struct session_need need = {.slots = SLOTS, .text = true, .hidden = true};
    TRY(session_model_path(o, s->path, sizeof s->path));
    if (o->output) TRY(tool_check_output(o, s->path, o->output));
    if (o->output) TRY(outfile_open(&w->out, o->output, OUTFILE_DEFAULT));
    TRY(read_texts(w));
    TRY(session_open(s, o, &need));
    TRY(check_model(w));
    TRY(infer_sched_open(&w->sched, s->engine, s->model));
    w->width = s->info.n_vector;
    const size_t most = w->n_line < WINDOW ? w->n_line : WINDOW;
    TRY(mem_new(&w->made, most * (size_t)w->width * sizeof *w->made, "vectors"));
    if (w->out) TRY(npy_header(w->out, (int)w->n_line, w->width));
    for (size_t first = 0; first < w->n_line; first += WINDOW) {
        const int n = (int)(w->n_line - first < WINDOW ? w->n_line - first : WINDOW);
        TRY(run_window(w, first, n));
        TRY(write_window(w, first, n));
    }
    return w->out ? INFER_OK : tool_flush();
}

int cmd_embed(const struct options *o) {
    struct work w = {.o = o};
    enum infer_status st = run(&w);
    if (st)
        outfile_abort(w.out);
    else if (w.out)
        st = outfile_close(w.out);
    progress_clear(&w.s.progress);
    if (w.n_cut && !o->quiet)
        tool_say("%d of %zu texts were longer than %d tokens, and their ends were left out", w.n_cut,
                 w.n_line, w.s.info.n_text < w.s.place.n_ctx ? w.s.info.n_text : w.s.place.n_ctx);
    int code = st ? tool_fail(o, st) : EXIT_DONE;
    infer_sched_close(w.sched);
    mem_free(w.made);
    mem_free(w.line);
    json_decref(w.kept);
    mem_free(w.text);
    session_close(&w.s);
    return code;
}
