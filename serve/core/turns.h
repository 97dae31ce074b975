/* Engines that share a machine's threads, or a card: one computes at a time, a step each, and those that want to compute get the same
 * seconds (start-time fair queueing: Goyal, Vin, Cheng 1996). Two steps at once would have twice as many threads as there are processors,
 * whose barriers wait for each other. One that has nothing to do takes no part, and saves nothing up. */
#pragma once
#include <pthread.h>
#include <stdbool.h>

struct turn { /* an engine's; zeros */
    double start, finish;
    struct turn *next; /* of those that wait */
    bool queued;
};
struct turns {
    pthread_mutex_t lock;
    pthread_cond_t over;
    struct turn *waiting; /* in the order in which they came */
    double clock;         /* start of the one that computes */
    bool busy;
};
void turns_open(struct turns *t);
void turns_close(struct turns *t);
/* Waits until it is this engine's turn. */
void turns_take(struct turns *t, struct turn *me);
/* Its step took so many seconds. again: it comes back for the next one at once, or leaves; the others wait for that when its turn comes, since
 * who came back a moment late would lose a turn each time. */
void turns_give(struct turns *t, struct turn *me, double seconds, bool again);
/* It does not come back for now. */
void turns_leave(struct turns *t, struct turn *me);
