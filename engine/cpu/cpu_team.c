/* The team: its barrier, and how many of its threads take part in the next step.
 *
 * Every op ends at a barrier, so a thread that has no processor holds up all: beside one busy process two threads on two
 * processors computed at half the speed of one. However the others wait, it comes back no sooner, and they cannot take over
 * the unit that it is within. So what steps lose in this way is measured, and where one thread fewer computes more there
 * is one fewer, for a while. */
#define _GNU_SOURCE /* RUSAGE_THREAD */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include "cpu/cpu_list.h"

static int64_t clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
int64_t cpu_now(void) { return clock_ns(CLOCK_MONOTONIC); }

/* Spins for some 20 us, which is longer than a healthy wait, then gives the processor away between looks: where
 * others want it too, the thread that is waited for may be the one that has none. */
void cpu_barrier(struct cpu_step *s) {
    enum { SPINS = 1000 };
    unsigned turn = atomic_load_explicit(&s->turn, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&s->arrived, 1, memory_order_acq_rel) + 1 ==
        atomic_load_explicit(&s->n_team, memory_order_relaxed)) {
        atomic_store_explicit(&s->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&s->turn, turn + 1, memory_order_release);
        return;
    }
    for (int i = 0; atomic_load_explicit(&s->turn, memory_order_acquire) == turn; i++) {
        if (i < SPINS)
            __builtin_ia32_pause();
        else
            sched_yield();
    }
}

/* Most waits are none, some are long enough for the others to get two operations ahead. */
uint32_t cpu_delays;
void cpu_delays_pretend(uint32_t seed) { cpu_delays = seed; }
void cpu_delay(void) {
    static atomic_uint threads;
    static _Thread_local uint32_t x;
    if (!x) x = cpu_delays + 2654435769u * (1 + atomic_fetch_add(&threads, 1));
    x ^= x << 13, x ^= x >> 17, x ^= x << 5;
    if (x % 4) return;
    const int64_t end = cpu_now() + (x >> 8) % 30000;
    while (cpu_now() < end) sched_yield();
}

static long sleeps(void) { /* a yield is none */
    struct rusage u;
    return getrusage(RUSAGE_THREAD, &u) == 0 ? u.ru_nvcsw : 0;
}

struct cpu_watch cpu_watch_begin(void) {
    return (struct cpu_watch){cpu_now(), clock_ns(CLOCK_THREAD_CPUTIME_ID), sleeps()};
}

/* A thread that slept waited for the file's pages: a smaller team would read them later still. */
int64_t cpu_watch_end(const struct cpu_watch *begin) {
    int64_t own = clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin->own, wall = cpu_now() - begin->wall;
    return sleeps() == begin->sleeps && wall > own ? wall - own : 0;
}

bool cpu_room(void) {
    char text[128];
    int running = 0, f = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
    ssize_t n = f < 0 ? 0 : read(f, text, sizeof text - 1);
    if (f >= 0) close(f);
    text[n > 0 ? n : 0] = 0;
    return sscanf(text, "%*s %*s %*s %d/", &running) != 1 || running < sysconf(_SC_NPROCESSORS_ONLN);
}

static enum cpu_teams pretended;
void cpu_teams_pretend(enum cpu_teams teams) { pretended = teams; }

void cpu_team_next(struct cpu_team *t, int n_thread, int64_t now, int64_t wall, int64_t lost) {
    enum { MOST_FAILED = 3 };
    static const int64_t window = 16000000, longest = 1000000000, patience = 8000000000; /* ns */
    if (pretended) {
        t->n = pretended == CPU_TEAMS_CHANGE && t->n > 1 ? t->n - 1 : n_thread;
        return;
    }
    t->wall += wall;
    t->lost += lost;
    int64_t span = t->wall > window ? t->wall : window;
    /* a thread is worth 1 / n at most, less where memory is what limits */
    bool fewer = t->n > 1 && t->lost > span / t->n * 2 / 3;
    if (!fewer && t->wall < window) return;
    if (fewer) {
        int64_t rest = span << 2 * t->n_failed, least = 4 * span;
        if (rest > longest) rest = longest > least ? longest : least;
        if (t->n_failed < MOST_FAILED) t->n_failed++;
        t->until = now + rest;
        t->n--;
    } else if (t->n_failed && (t->trial || t->n == n_thread)) {
        t->n_failed--; /* by one, for a single window may be good by luck */
    }
    t->trial = !fewer && t->n < n_thread && now >= t->until && (t->room() || now >= t->until + patience);
    t->n += t->trial;
    t->wall = t->lost = 0;
}
