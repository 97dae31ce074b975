#include "serve/core/timeline.h"
#include <pthread.h>
#include <stdio.h>
#include "base/mem.h"
#include "tools/trace.h"

enum { KEPT = 4096, FIRST_ROW = 10, ROWS = 256 };
struct timed {
    char id[40];
    int prompt, cached, answer;
    double arrived, began, first, end;
};
struct timeline {
    pthread_mutex_t lock;
    struct timed of[KEPT]; /* the newest at [n % KEPT - 1] */
    size_t n;
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
    t->of[t->n++ % KEPT] = x;
    pthread_mutex_unlock(&t->lock);
}

static int64_t ns(double seconds) { return (int64_t)(1e9 * seconds); }

/* A request, and in it what it waited for, its prompt and its answer. */
static void write_one(FILE *f, const struct timed *x, int row) {
    char args[160];
    const double began = x->began > 0 ? x->began : x->end, first = x->first > 0 ? x->first : x->end;
    snprintf(args, sizeof args, "\"prompt_tokens\":%d,\"cached_tokens\":%d,\"completion_tokens\":%d",
             x->prompt, x->cached, x->answer);
    trace_event(f, x->id, row, ns(x->arrived), ns(x->end), args);
    trace_event(f, "queue", row, ns(x->arrived), ns(began), "");
    if (x->began > 0) trace_event(f, "prompt", row, ns(began), ns(first), "");
    if (x->first > 0) trace_event(f, "answer", row, ns(first), ns(x->end), "");
}

void timeline_write(void *timeline, FILE *f, int64_t since) {
    struct timeline *t = timeline;
    double until[ROWS] = {0}; /* of each row, when its last request ended */
    pthread_mutex_lock(&t->lock);
    const size_t kept = t->n < KEPT ? t->n : KEPT;
    for (size_t i = 0; i < kept; i++) { /* in the order in which they ended */
        const struct timed *x = &t->of[(t->n - kept + i) % KEPT];
        int row = 0;
        if (ns(x->end) < since) continue;
        while (row + 1 < ROWS && until[row] > x->arrived) row++;
        until[row] = x->end;
        write_one(f, x, FIRST_ROW + row);
    }
    pthread_mutex_unlock(&t->lock);
}
