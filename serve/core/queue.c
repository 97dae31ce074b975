#include "serve/core/queue.h"
#include "base/mem.h"

enum { AGING_SECONDS = 30 }; /* of waiting lift a job by a class */

enum infer_status queue_open(struct queue *q, int n_key) {
    q->n_key = n_key;
    return mem_new(&q->of, (size_t)(n_key + 1) * sizeof *q->of, "shares of keys");
}

void queue_close(struct queue *q) { mem_free(q->of); }

static struct queue_share *share(const struct queue *q, const struct job *j) { return &q->of[j->key + 1]; }

/* Who was away begins where the least served of the others is: what it did not use is not saved up. */
void queue_came(struct queue *q, const struct job *j) {
    struct queue_share *own = share(q, j);
    double least = -1;
    for (int i = 0; own->n == 0 && i <= q->n_key; i++)
        if (q->of[i].n && (least < 0 || q->of[i].served < least)) least = q->of[i].served;
    if (least > own->served) own->served = least;
    own->n++;
    q->n_odd += j->class != CLASS_DEFAULT;
}

void queue_began(struct queue *q, const struct job *j, int n_token) { share(q, j)->served += n_token; }

void queue_left(struct queue *q, const struct job *j, int n_token) {
    share(q, j)->served += n_token;
    share(q, j)->n--;
    q->n_odd -= j->class != CLASS_DEFAULT;
}

bool queue_plain(const struct queue *q) { return !q->n_key && !q->n_odd; }

static int class_of(const struct job *j, double now) {
    return j->class + (int)((now - j->arrived) / AGING_SECONDS);
}

bool queue_before(const struct queue *q, const struct job *a, const struct job *b, double now) {
    const int x = class_of(a, now), y = class_of(b, now);
    return x != y ? x > y : share(q, a)->served < share(q, b)->served;
}
