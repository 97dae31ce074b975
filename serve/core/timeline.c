#include "serve/core/timeline.h"
#include <pthread.h>
#include <stdio.h>
#include "base/host.h"
#include "base/mem.h"
#include "tools/trace.h"

enum { KEPT = 4096, RUN = 1024, FIRST_ROW = 10, ROWS = 256 };
struct timed {
    char id[40];
    const struct job *job; /* that runs, NULL: it has ended */
    int prompt, cached, answer;
    double arrived, waits, began, first, end; /* 0: never */
};
struct timeline {
    pthread_mutex_t lock;
    struct timed of[KEPT]; /* the newest at [n % KEPT - 1] */
    size_t n;
    struct timed run[RUN]; /* more than these at once are told when they have ended */
    int n_run;
};

enum infer_status timeline_open(struct timeline **out) {
    TRY(mem_new(out, sizeof **out, "a timeline"));
    pthread_mutex_init(&(*out)->lock, NULL);
    return INFER_OK;
}

void timeline_close(struct timeline *t) {
    if (!t) return;
    pthread_mutex_destroy(&t->lock);
    mem_free(t);
}

/* The place of one that runs; NULL: it has none. */
static struct timed *find(struct timeline *t, const struct job *j) {
    for (int i = 0; i < t->n_run; i++)
        if (t->run[i].job == j) return &t->run[i];
    return NULL;
}

void timeline_waits(struct timeline *t, const struct job *j) {
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    if (t->n_run < RUN) {
        struct timed *x = &t->run[t->n_run++];
        *x = (struct timed){.job = j, .arrived = j->arrived, .waits = host_seconds()};
        snprintf(x->id, sizeof x->id, "%s", j->id);
    }
    pthread_mutex_unlock(&t->lock);
}

void timeline_began(struct timeline *t, const struct job *j) {
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    struct timed *x = find(t, j);
    if (x && x->began == 0) x->began = host_seconds();
    pthread_mutex_unlock(&t->lock);
}

void timeline_first(struct timeline *t, const struct job *j) {
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    struct timed *x = find(t, j);
    if (x && x->first == 0) x->first = host_seconds();
    pthread_mutex_unlock(&t->lock);
}

void timeline_add(struct timeline *t, const struct job *j, double began, double first, double now) {
    if (!t) return;
    struct timed x = {.prompt = j->counts.prompt,
                      .cached = j->counts.cached,
                      .answer = j->counts.answer,
                      .arrived = j->arrived,
                      .began = began,
                      .first = first,
                      .end = now};
    snprintf(x.id, sizeof x.id, "%s", j->id);
    pthread_mutex_lock(&t->lock);
    struct timed *run = find(t, j);
    x.waits = run ? run->waits : 0;
    if (run) *run = t->run[--t->n_run];
    t->of[t->n++ % KEPT] = x;
    pthread_mutex_unlock(&t->lock);
}

static int64_t ns(double seconds) { return (int64_t)(1e9 * seconds); }

/* A request, and in it how it was read, what it waited for, its prompt and its answer. */
static void write_one(FILE *f, const struct timed *x, int row) {
    char args[160] = "\"running\":true";
    const double waits = x->waits > 0 ? x->waits : x->arrived;
    const double began = x->began > 0 ? x->began : x->end, first = x->first > 0 ? x->first : x->end;
    if (!x->job)
        snprintf(args, sizeof args, "\"prompt_tokens\":%d,\"cached_tokens\":%d,\"completion_tokens\":%d",
                 x->prompt, x->cached, x->answer);
    trace_event(f, x->id, row, ns(x->arrived), ns(x->end), args);
    trace_event(f, "read", row, ns(x->arrived), ns(waits), "");
    trace_event(f, "queue", row, ns(waits), ns(began), "");
    if (x->began > 0) trace_event(f, "prompt", row, ns(began), ns(first), "");
    if (x->first > 0) trace_event(f, "answer", row, ns(first), ns(x->end), "");
}

void timeline_write(void *timeline, FILE *f, int64_t since) {
    struct timeline *t = timeline;
    double until[ROWS] = {0}; /* of each row, when its last request ended */
    pthread_mutex_lock(&t->lock);
    const size_t kept = t->n < KEPT ? t->n : KEPT;
    const double now = host_seconds();
    for (size_t i = 0; i < kept + (size_t)t->n_run; i++) { /* in the order in which they ended */
        struct timed x = i < kept ? t->of[(t->n - kept + i) % KEPT] : t->run[i - kept];
        int row = 0;
        if (x.job) x.end = now;
        if (ns(x.end) < since) continue;
        while (row + 1 < ROWS && until[row] > x.arrived) row++;
        if (until[row] == 0) trace_row(f, FIRST_ROW + row, "requests");
        until[row] = x.end;
        write_one(f, &x, FIRST_ROW + row);
    }
    pthread_mutex_unlock(&t->lock);
}
