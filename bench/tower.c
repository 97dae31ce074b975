/* How long a tower needs for a picture, by its parts: a file, or a shape of synth with random weights. behind: the first word of a text
 * model behind the picture (its pixels are there) and 16 tokens, and its words with the tower open and closed.
 *
 * usage: tower FILE|SHAPE TYPE DEVICE TOKENS ... [behind MODEL]    TYPE: of a shape (- for a file); DEVICE: cpu, ref, cuda */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "bench/bench_lib.h"
#include "infer.h"
#include "plan/device.h"
#include "tools/file/synth.h"
#include "vision/tower_impl.h"
#ifdef INFER_CUDA
#include "cuda/run/prompt_profile.h"
#endif

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Operations of products and attention, two a multiply-add. */
static double operations(const struct tower *t, int n_row, int n_out) {
    const struct op_list *l = &t->list[ROW_PROMPT];
    double sum = 0;
    for (int i = 0; i < l->n_op; i++) {
        const struct op *o = &l->op[i];
        const double rows = op_rows_count(l, o, n_row, n_out);
        if (o->kind == OP_MATMUL) sum += 2 * rows * o->matmul.w->n * o->matmul.w->k;
        if (o->kind == OP_ATTEND) sum += 4 * rows * rows * o->attend.q.width;
    }
    return sum;
}

/* ---- links of one kind and name, added up ---- */

enum { PARTS = 128 };
struct parts {
    struct {
        const char *kind, *name;
        double us;
        int n;
    } part[PARTS];
    int n;
};
#ifdef INFER_CUDA
static void add(void *user, const char *kind, const char *name, float us) {
    struct parts *p = user;
    int i = 0;
    while (i < p->n && (strcmp(p->part[i].kind, kind) != 0 || strcmp(p->part[i].name, name) != 0)) i++;
    if (i == PARTS) return;
    if (i == p->n) p->n++;
    p->part[i].kind = kind, p->part[i].name = name;
    p->part[i].us += us, p->part[i].n++;
}
static void show_links(struct tower *t, int n_row, int n_out) {
    struct parts p = {0};
    double sum = 0;
    if (strcmp(t->backend->type->name, "cuda") != 0) return;
    MUST(prompt_profile(t->backend, n_row, n_out, add, &(struct parts){0})); /* warm */
    MUST(prompt_profile(t->backend, n_row, n_out, add, &p));
    for (int i = 0; i < p.n; i++) {
        printf("    %-10s %-14s %8.1f us x %3d = %8.3f ms\n", p.part[i].kind, p.part[i].name,
               p.part[i].us / p.part[i].n, p.part[i].n, p.part[i].us / 1000);
        sum += p.part[i].us / 1000;
    }
    printf("    all links one by one %33.3f ms\n", sum);
}
#else
static void show_links(struct tower *t, int n_row, int n_out) { (void)t, (void)n_row, (void)n_out; }
#endif

/* ---- a size ---- */

/* A picture of about so many tokens, side by side as a square. */
static struct image square(const struct tower *t, int tokens) {
    int side = 1;
    while ((side + 1) * (side + 1) <= tokens) side++;
    struct image image = {side * tower_side(t), side * tower_side(t), NULL};
    const size_t n = (size_t)image.width * (size_t)image.height * 3;
    image.rgb = malloc(n);
    for (size_t i = 0; i < n; i++) image.rgb[i] = (unsigned char)(i * 2654435761u >> 13);
    return image;
}

static void measure(const char *path, const struct tower_options *o, int tokens) {
    enum { REPS = 9 };
    double all[REPS], rows_of[REPS];
    struct tower_options own = *o;
    struct tower_fit fit;
    struct tower_piece piece;
    struct tower *t;
    int n_row = 0;
    own.max_tokens = tokens;
    MUST(tower_open(&t, path, &own));
    struct image image = square(t, tokens);
    MUST(tower_fit(t, image.width, image.height, &fit));
    float *rows =
        malloc((size_t)fit.n_token * (size_t)t->n_out * (1 + (size_t)t->n_deepstack) * sizeof *rows);
    for (int i = -1; i < REPS; i++) { /* the first one warms */
        MUST(tower_begin(t, &image, &fit));
        double begin = now();
        tower_piece(t, &fit, 0, &piece);
        n_row = tower_put_rows(t, &piece);
        const double put = now() - begin;
        begin = now();
        bool done = false;
        while (!done) MUST(tower_step(t, 3600, rows, &done));
        if (i >= 0) all[i] = now() - begin, rows_of[i] = put;
    }
    qsort(all, REPS, sizeof *all, by_size);
    qsort(rows_of, REPS, sizeof *rows_of, by_size);
    const double work = operations(t, n_row, piece.n_row) * fit.n_piece, ms = all[REPS / 2] * 1e3,
                 put = rows_of[REPS / 2] * fit.n_piece * 1e3;
    printf("%d tokens, %d patches: %.2f ms a picture, of them %.2f on the host for pixels; %.2f TFLOP, %.0f "
           "TFLOP/s of the rest\n",
           fit.n_token, n_row * fit.n_piece, ms, put, work * 1e-12, work * 1e-9 / (ms - put));
    show_links(t, n_row, piece.n_row);
    free(rows), free(image.rgb);
    tower_close(t);
}

/* ---- the text model ---- */

enum { TEXT = 16, WORDS = 64, TURNS = 7 };
struct behind {
    struct infer_engine *e;
    struct infer_row *rows;
    int n;
};
/* Seconds of a step of the rows. */
static double a_step(const struct behind *b) {
    struct infer_output out;
    int seq;
    MUST(infer_seq_open(b->e, &seq));
    const double begin = now();
    for (int i = 0; i < b->n; i++) b->rows[i].seq = seq;
    MUST(infer_step(b->e, b->rows, b->n, &out));
    const double s = now() - begin;
    infer_seq_close(b->e, seq);
    return s;
}
/* Seconds of a picture in the tower. */
static double a_look(struct tower *t, const struct image *image, const struct tower_fit *fit, float *embed) {
    bool done = false;
    const double begin = now();
    MUST(tower_begin(t, image, fit));
    while (!done) MUST(tower_step(t, 3600, embed, &done));
    return now() - begin;
}
/* Milliseconds of a word. */
static double a_word(const struct behind *b) {
    struct infer_output out;
    int seq;
    MUST(infer_seq_open(b->e, &seq));
    struct infer_row row = {.id = 1, .seq = seq, .decode = true, .want = INFER_WANT_TOKEN};
    MUST(infer_step(b->e, &row, 1, &out));
    row.id = INFER_LAST;
    const double begin = now();
    for (row.pos = 1; row.pos <= WORDS; row.pos++) MUST(infer_step(b->e, &row, 1, &out));
    const double s = now() - begin;
    infer_seq_close(b->e, seq);
    return s / WORDS * 1e3;
}
static double middle(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, by_size);
    return x[n / 2];
}
static void behind(const char *path, const struct tower_options *o, const char *device, int tokens,
                   const char *model) {
    struct tower_options own = *o;
    struct behind b = {.n = 0};
    struct infer_model_info info;
    struct infer_model *m;
    struct tower_fit fit;
    struct tower *t;
    double look[TURNS], step[TURNS], text[TURNS], with[TURNS], without[TURNS];
    MUST(infer_model_open(&m, model, NULL));
    MUST(infer_engine_create(&b.e, m,
                             &(struct infer_engine_options){.device = device,
                                                            .ctx = tokens + 256,
                                                            .slots = 1,
                                                            .batch = tokens + TEXT,
                                                            .inputs = true,
                                                            .gpu_layers = -1,
                                                            .cpu_experts = -1}));
    infer_model_info(m, &info);
    own.max_tokens = tokens, own.n_embd = info.n_embd, own.n_deepstack = info.n_deepstack;
    MUST(tower_open(&t, path, &own));
    struct image image = square(t, tokens);
    MUST(tower_fit(t, image.width, image.height, &fit));
    const size_t width = (size_t)t->n_out * (1 + (size_t)t->n_deepstack);
    float *embed = malloc((size_t)fit.n_token * width * sizeof *embed);
    b.n = fit.n_token + TEXT;
    b.rows = calloc((size_t)b.n, sizeof *b.rows);
    for (int i = 0; i < b.n; i++) {
        b.rows[i] = (struct infer_row){.id = 1 + i % 100, .pos = i};
        if (i < fit.n_token) b.rows[i].embed = embed + (size_t)i * width, b.rows[i].id = -2 - i;
    }
    b.rows[b.n - 1].want = INFER_WANT_TOKEN;
    for (int i = -1; i < TURNS; i++) {
        const double seen = a_look(t, &image, &fit, embed), s = a_step(&b);
        for (int k = 0; k < b.n; k++) b.rows[k].embed = NULL, b.rows[k].id = 1 + k % 100;
        const double words = a_step(&b);
        for (int k = 0; k < fit.n_token; k++)
            b.rows[k].embed = embed + (size_t)k * width, b.rows[k].id = -2 - k;
        if (i >= 0) look[i] = seen * 1e3, step[i] = s * 1e3, text[i] = words * 1e3;
    }
    for (int i = -1; i < TURNS; i++) { /* in turns */
        if (!t) MUST(tower_open(&t, path, &own));
        const double s = a_word(&b);
        tower_close(t), t = NULL;
        const double alone = a_word(&b);
        if (i >= 0) with[i] = s, without[i] = alone;
    }
    const double seen = middle(look, TURNS), first = seen + middle(step, TURNS);
    printf(
        "%d tokens, %s: first word %.2f ms behind the picture (%.2f of the tower) and %d tokens (as text all "
        "%.2f); a word %.3f ms with the tower open, %.3f without\n",
        fit.n_token, model, first, seen, TEXT, middle(text, TURNS), middle(with, TURNS),
        middle(without, TURNS));
    free(b.rows), free(embed), free(image.rgb);
    infer_engine_free(b.e);
    infer_model_close(m);
}

int main(int argc, char **argv) {
    char path[] = "/tmp/infer-tower-XXXXXX";
    const char *file = argc > 1 ? argv[1] : "";
    struct synth_report report;
    struct placement place;
    struct device_wish wish = {.host = DEVICE_NONE, .n_layer = -1};
    if (argc < 5) {
        printf("usage: tower FILE|SHAPE TYPE|- cpu|ref|cuda TOKENS ... [behind MODEL]\n");
        return 2;
    }
    const bool made = strcmp(argv[2], "-") != 0;
    if (made) {
        const int fd = mkstemp(path);
        if (fd < 0) return 1;
        close(fd);
        MUST(synth_write(&(struct synth_options){.shape = argv[1], .type = argv[2], .path = path}, &report));
        file = path;
    }
    wish.device = strcmp(argv[3], "cuda") == 0  ? DEVICE_CUDA
                  : strcmp(argv[3], "ref") == 0 ? DEVICE_REF
                                                : DEVICE_CPU;
    MUST(device_pick(&wish, &place));
    const struct tower_options o = {.backend = place.device, .card = place.card};
    printf("%s %s on %s\n", argv[1], argv[2], argv[3]);
    const char *model = argc > 6 && strcmp(argv[argc - 2], "behind") == 0 ? argv[argc - 1] : NULL;
    for (int i = 4; i < argc - (model ? 2 : 0); i++) {
        measure(file, &o, atoi(argv[i]));
        if (model) behind(file, &o, argv[3], atoi(argv[i]), model);
    }
    if (made) unlink(path);
    return 0;
}
