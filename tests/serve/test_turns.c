/* Engines that take turns: the same seconds for each, whatever a step of it takes. The seconds are numbers; whoever computes waits until all
 * others want to, so that the order is the same in every run. */
#include "tests/lib/test.h"
#include <sched.h>
#include <time.h>
#include "serve/core/turns.h"

enum { ENGINES = 4 };
static struct turns turns;
static struct engine {
    struct turn turn;
    pthread_t thread;
    double step, got, until; /* seconds: of a step; it had; of all when it ends */
    int n;
} engine[ENGINES];
static double all; /* seconds of all, under the turn */
static int alive;  /* that take part, under turns.lock */

static int n_waiting(void) {
    int n = 0;
    pthread_mutex_lock(&turns.lock);
    for (const struct turn *w = turns.waiting; w; w = w->next) n++;
    n -= alive - 1;
    pthread_mutex_unlock(&turns.lock);
    return n;
}

static void count(int change) {
    pthread_mutex_lock(&turns.lock);
    alive += change;
    pthread_mutex_unlock(&turns.lock);
}

static void *run(void *user) {
    struct engine *e = user;
    bool goes = true;
    while (goes) {
        turns_take(&turns, &e->turn);
        while (n_waiting() < 0) sched_yield();
        e->got += e->step;
        all += e->step;
        e->n++;
        goes = all < e->until;
        if (!goes) count(-1);
        turns_give(&turns, &e->turn, e->step, goes);
        if (goes) nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL); /* it comes back a moment late */
    }
    return NULL;
}

static void start(int i, double step, double until) {
    engine[i].step = step, engine[i].until = until, engine[i].got = 0, engine[i].n = 0;
    assert_int_equal(pthread_create(&engine[i].thread, NULL, run, &engine[i]), 0);
}

static void test_shares(void **state) {
    static const double step[] = {1, 3, 10};
    (void)state;
    turns_open(&turns);
    alive = 3;
    for (int i = 0; i < 3; i++) start(i, step[i], 600);
    for (int i = 0; i < 3; i++) pthread_join(engine[i].thread, NULL);
    for (int i = 0; i < 3; i++) assert_true(engine[i].got >= 190 && engine[i].got <= 212);
    assert_true(engine[0].n > 9 * engine[2].n); /* not a step each */

    /* two were away for 600 s of the others, and get no more than their share now */
    all = 0, alive = 2;
    start(3, 2, 100);
    start(0, 2, 100);
    for (int i = 0; i < 4; i += 3) pthread_join(engine[i].thread, NULL);
    assert_true(engine[3].got >= 46 && engine[3].got <= 54);
    turns_close(&turns);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shares)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
