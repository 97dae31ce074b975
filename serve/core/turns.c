#include "serve/core/turns.h"
#include <stddef.h>

void turns_open(struct turns *t) {
    *t = (struct turns){.busy = false};
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->over, NULL);
}

void turns_close(struct turns *t) {
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->over);
}

/* The one that starts first; of equal ones who came first. */
static const struct turn *next_turn(const struct turns *t) {
    const struct turn *best = t->waiting;
    for (const struct turn *w = best; w; w = w->next)
        if (w->start < best->start) best = w;
    return best;
}

static void queue(struct turns *t, struct turn *me) {
    struct turn **at = &t->waiting;
    me->start = me->finish > t->clock ? me->finish : t->clock;
    me->next = NULL;
    while (*at) at = &(*at)->next;
    *at = me;
    me->queued = true;
}

static void unqueue(struct turns *t, struct turn *me) {
    struct turn **at = &t->waiting;
    while (*at != me) at = &(*at)->next;
    *at = me->next;
    me->queued = false;
}

void turns_take(struct turns *t, struct turn *me) {
    pthread_mutex_lock(&t->lock);
    if (!me->queued) queue(t, me);
    while (t->busy || next_turn(t) != me) pthread_cond_wait(&t->over, &t->lock);
    unqueue(t, me);
    t->busy = true;
    t->clock = me->start;
    pthread_mutex_unlock(&t->lock);
}

void turns_give(struct turns *t, struct turn *me, double seconds, bool again) {
    pthread_mutex_lock(&t->lock);
    me->finish = me->start + seconds;
    t->busy = false;
    if (again) queue(t, me);
    pthread_cond_broadcast(&t->over);
    pthread_mutex_unlock(&t->lock);
}

void turns_leave(struct turns *t, struct turn *me) {
    pthread_mutex_lock(&t->lock);
    if (me->queued) unqueue(t, me);
    pthread_cond_broadcast(&t->over);
    pthread_mutex_unlock(&t->lock);
}
