/* What a sum over cards costs inside of the graph of a decode step: steps of one row with many sums beside steps with one.
 * usage: ranks [CARDS [WIDTH ..]]    cards of the ranks (default 0,1), numbers of a row (default 1024 2048 4096 8192): us of one sum,
 * the medians of 200 steps; and of one row of logits gathered
 * A thread is a rank; every one has the same list of a table's row and sums of it. */
#include "base/mem.h"
#include "join/comm_local.h"
#include "plan/plan.h"
#include "seam/op_list.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#ifdef INFER_CUDA
enum { RANKS = 8, STEPS = 200, SUMS = 64, MOST = SUMS + 2 };

struct rank {
    struct comm *comm;
    int card, width, sums;
    bool gathers;
    double us;
    enum infer_status status;
    char message[256];
};

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}
static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Two steps are in flight, so that the host is out of it. */
static enum infer_status time_steps(struct rank *r, struct backend *b) {
    const int32_t id = 1, pos = 0, slot = 0, page = 0;
    const int32_t *pages[1] = {&page};
    const struct step s = {
        .n_row = 1, .id = &id, .pos = &pos, .slot = &slot, .pages = pages, .pages_version = 1};
    double at[STEPS + 1];
    struct step_result result;
    TRY(b->type->run(b, ROW_DECODE, &s));
    for (int i = 0; i <= STEPS; i++) {
        TRY(b->type->run(b, ROW_DECODE, &s));
        TRY(b->type->wait(b, &result));
        at[i] = now_us();
    }
    TRY(b->type->wait(b, &result));
    for (int i = 0; i < STEPS; i++) at[i] = at[i + 1] - at[i];
    qsort(at, STEPS, sizeof *at, by_size);
    r->us = at[STEPS / 2];
    return INFER_OK;
}

static enum infer_status run_rank(struct rank *r, struct op_list *list, const struct weight *table) {
    const struct kv_group group = {0, 1, 1};
    struct backend_config c = {.embedding = table,
                               .n_vocab = table->n,
                               .n_embd = r->width,
                               .kv_group = &group,
                               .n_kv_group = 1,
                               .kv_type = KV_F32,
                               .n_slot = 1,
                               .n_ctx = 4,
                               .n_logits = 1,
                               .card = r->card + 1,
                               .rank = r->comm->rank,
                               .n_rank = r->comm->n_rank,
                               .comm = r->comm,
                               .list = {&list[0], &list[1]}};
    struct backend_sizes sizes;
    struct backend *b;
    TRY(backend_cuda.sizes(&c, &sizes));
    for (int k = 0; k < ROW_CLASS_COUNT; k++) TRY(plan_place_buffers(&list[k], true, &c.activation_bytes));
    TRY(backend_cuda.open(&b, &c));
    enum infer_status st = b->type->upload(b);
    for (int k = 0; k < ROW_CLASS_COUNT && st == INFER_OK; k++) st = b->type->compile(b, (enum row_class)k);
    if (st == INFER_OK) st = time_steps(r, b);
    b->type->close(b);
    return st;
}

static void *work(void *user) {
    struct rank *r = user;
    const int n = r->comm->n_rank, own = r->comm->rank;
    int col[RANKS + 1];
    float *rows = calloc((size_t)r->width * 4, sizeof *rows);
    const struct weight table = {
        .name = "table", .type = QUANT_F32, .n = 4, .k = r->width, .data = rows, .factor = 1, .n_stack = 1};
    const struct view x = {0, 0, r->width}, all = {1, 0, r->width};
    static const enum row_class classes[] = {ROW_PROMPT, ROW_DECODE};
    struct op op[ROW_CLASS_COUNT][MOST];
    struct buf buf[ROW_CLASS_COUNT][2];
    struct op_list list[ROW_CLASS_COUNT];
    for (int i = 0; i <= n; i++) col[i] = r->width / n * i;
    for (int k = 0; k < ROW_CLASS_COUNT; k++) {
        op[k][0] =
            (struct op){.kind = OP_EMBED, .name = "embed", .embed = {.out = x, .w = &table, .scale = 1}};
        for (int i = 0; i < r->sums; i++)
            op[k][1 + i] = (struct op){.kind = OP_REDUCE, .name = "reduce", .reduce = {x}};
        op[k][1 + r->sums] =
            (struct op){.kind = OP_GATHER,
                        .name = "gather",
                        .gather = {view_columns(x, col[own], col[own + 1] - col[own]), all, col}};
        for (int i = 0; i < 2; i++)
            buf[k][i] = (struct buf){.name = "b", .width = r->width, .rows = BUF_ROWS_ALL, .float32 = true};
        list[k] = (struct op_list){classes[k], op[k], 1 + r->sums + r->gathers, buf[k], 1 + r->gathers, 1, 1};
        list_lives(&list[k]);
    }
    r->status = run_rank(r, list, &table);
    if (r->status != INFER_OK) {
        snprintf(r->message, sizeof r->message, "%s", err_message());
        r->comm->type->abort(r->comm);
    }
    free(rows);
    return NULL;
}

/* us of a step; below 0: it failed, and why is said. */
static double step_us(int n, const int *card, int width, int sums, bool gathers) {
    struct rank r[RANKS];
    pthread_t thread[RANKS];
    struct comm_local *l;
    double us = 0;
    if (comm_local_new(&l, n) != INFER_OK) return -1;
    for (int i = 0; i < n; i++) {
        r[i] = (struct rank){.comm = comm_local_rank(l, i), .card = card[i], .width = width, .sums = sums};
        r[i].gathers = gathers;
        if (pthread_create(&thread[i], NULL, work, &r[i])) abort();
    }
    for (int i = 0; i < n; i++) {
        pthread_join(thread[i], NULL);
        if (r[i].status != INFER_OK) printf("rank %d: %s\n", i, r[i].message);
        if (r[i].us > us) us = r[i].us;
        if (r[i].status != INFER_OK) us = -1;
    }
    comm_local_free(l);
    return us;
}
#endif

int main(int argc, char **argv) {
#ifdef INFER_CUDA
    static const char *const widths[] = {"1024", "2048", "4096", "8192"};
    const char *at = argc > 1 ? argv[1] : "0,1";
    int card[RANKS], n = 0;
    for (; *at && n < RANKS; at += *at == ',') card[n++] = (int)strtol(at, (char **)&at, 10);
    const int n_width = argc > 2 ? argc - 2 : 4;
    for (int i = 0; i < n_width; i++) {
        const int width = atoi(argc > 2 ? argv[2 + i] : widths[i]);
        const double one = step_us(n, card, width, 1, false), all = step_us(n, card, width, SUMS, false),
                     more = step_us(n, card, width, 1, true);
        if (one < 0 || all < 0 || more < 0) return 1;
        printf("%d ranks, %d numbers: %.2f us a sum, %.2f us the gather of one row\n", n, width,
               (all - one) / (SUMS - 1), more - one);
        fflush(stdout);
    }
    return 0;
#else
    (void)argc, (void)argv;
    printf("built without cards\n");
    return 77;
#endif
}
