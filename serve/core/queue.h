/* Who is next: classes, and fair shares between keys. All under the lock of the scheduler. */
#pragma once
#include "serve/core/job.h"

struct queue_share {
    double served; /* tokens, from where the others were when it came */
    int n;         /* jobs that wait or run */
};
struct queue {
    struct queue_share *of; /* of[n_key + 1]: nobody's first */
    int n_key;
    int n_odd; /* jobs here of another class than the default one */
};
/* errors: INFER_E_MEMORY */
enum infer_status queue_open(struct queue *q, int n_key);
void queue_close(struct queue *q);
/* A job comes, begins an answer, goes (with how many tokens it had). */
void queue_came(struct queue *q, const struct job *j);
void queue_began(struct queue *q, const struct job *j, int n_token);
void queue_left(struct queue *q, const struct job *j, int n_token);
/* True when a is to begin before b, which came before it. */
bool queue_before(const struct queue *q, const struct job *a, const struct job *b, double now);
/* True when who came first is first: there are no keys, and one class. */
bool queue_plain(const struct queue *q);
