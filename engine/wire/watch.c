/* Who is still there: every rank sends rank 0 a byte a second, and rank 0 to all, from threads that compute nothing, so that a long step is
 * no silence. Rank 0 tells the others who is gone. */
#define _GNU_SOURCE /* pipe2 */
#include "wire/group_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BEAT = 'b', BYE = 'x', GONE = 'g', MESSAGE = 200 };

static void say(struct infer_group *g, unsigned char what, const char *message) {
    unsigned char bytes[1 + MESSAGE] = {what};
    const size_t n = what == GONE ? sizeof bytes : 1;
    if (message) snprintf((char *)bytes + 1, MESSAGE, "%s", message);
    for (int r = 0; r < g->world; r++)
        if (g->beat[r] >= 0) (void)!send(g->beat[r], bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void group_lose(struct infer_group *g, const char *message) {
    pthread_mutex_lock(&g->lock);
    const bool first = !atomic_load(&g->lost);
    if (first) snprintf(g->message, sizeof g->message, "%s", message);
    atomic_store(&g->lost, true);
    pthread_mutex_unlock(&g->lock);
    if (!first) return;
    if (g->comm && g->comm->left) comm_wire_lost(g->comm);
    if (!g->rank) say(g, GONE, message);
    for (int r = 0; r < g->world; r++) {
        if (g->control[r] >= 0) shutdown(g->control[r], SHUT_RDWR);
        if (g->data[r] >= 0) shutdown(g->data[r], SHUT_RDWR);
    }
    if (g->tell) g->tell(g->user, message);
}

static void lose(struct infer_group *g, int rank, const char *why) {
    char name[128], message[MESSAGE];
    group_name(g, rank, name, sizeof name);
    snprintf(message, sizeof message, "%s is gone: %s", name, why);
    group_lose(g, message);
}

/* What came of a rank. */
static void hear(struct infer_group *g, int rank) {
    struct watch *w = &g->watch;
    unsigned char bytes[256], text[MESSAGE + 1] = {0};
    const ssize_t n = recv(g->beat[rank], bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    w->heard[rank] = wire_now();
    for (ssize_t i = 0; i < n; i++) {
        if (bytes[i] == BYE) w->bye[rank] = true;
        if (bytes[i] == BYE && !rank) atomic_store(&g->closing, true);
        if (bytes[i] == BYE && rank) lose(g, rank, "it has ended");
        if (bytes[i] != GONE) continue; /* rank 0 says who; another one, that it is itself */
        const size_t here = (size_t)(n - i - 1);
        memcpy(text, bytes + i + 1, here < MESSAGE ? here : MESSAGE);
        (void)wire_get(g->beat[rank], text + (here < MESSAGE ? here : MESSAGE),
                       here < MESSAGE ? MESSAGE - here : 0, wire_now() + 500);
        group_lose(g, (const char *)text);
        return;
    }
    if (n > 0) return;
    if (!w->bye[rank]) lose(g, rank, "its connection is closed");
    w->bye[rank] = true;
}

/* This rank, whose other threads may stand still. */
static void look_at_own(struct infer_group *g, int64_t slept) {
    struct watch *w = &g->watch;
    const unsigned n = atomic_load(&g->exchanges);
    char name[128], message[MESSAGE];
    if (slept > 2 * WATCH_BEAT_MS) w->since += slept;
    if (n != w->seen || !atomic_load(&g->in_step) || atomic_load(&g->waits))
        w->seen = n, w->since = wire_now();
    if (wire_now() - w->since <= g->step_ms) return;
    group_name(g, g->rank, name, sizeof name);
    snprintf(message, sizeof message, "%s is gone: it computes, and has not come to the others for %.0f s",
             name, (double)g->step_ms * 1e-3);
    if (g->rank) say(g, GONE, message);
    group_lose(g, message);
}

static void look(struct infer_group *g, int64_t slept) {
    struct watch *w = &g->watch;
    const int64_t now = wire_now();
    for (int r = 0; r < g->world; r++) {
        if (g->beat[r] < 0 || w->bye[r]) continue;
        if (slept > 2 * WATCH_BEAT_MS) w->heard[r] += slept; /* this process did not run */
        if (now - w->heard[r] > WATCH_SILENCE_MS) lose(g, r, "it has been silent for 5 s");
    }
}

static void *work(void *user) {
    struct infer_group *g = user;
    struct pollfd p[RANKS_MAX + 1];
    int rank[RANKS_MAX];
    int64_t said = 0, last = wire_now();
    for (;;) {
        int n = 0;
        for (int r = 0; r < g->world; r++)
            if (g->beat[r] >= 0 && !g->watch.bye[r]) {
                p[n] = (struct pollfd){.fd = g->beat[r], .events = POLLIN};
                rank[n++] = r;
            }
        p[n] = (struct pollfd){.fd = g->watch.wake[0], .events = POLLIN};
        (void)!poll(p, (nfds_t)n + 1, WATCH_BEAT_MS / 2);
        if (p[n].revents || atomic_load(&g->lost)) return NULL;
        for (int i = 0; i < n; i++)
            if (p[i].revents) hear(g, rank[i]);
        const int64_t now = wire_now();
        look(g, now - last);
        look_at_own(g, now - last);
        last = now;
        if (now - said < WATCH_BEAT_MS) continue;
        said = now;
        say(g, BEAT, NULL);
    }
}

/* A thread that takes no signals: they are the others'. */
static bool begin_thread(pthread_t *t, void *(*run)(void *), void *user) {
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const bool well = pthread_create(t, NULL, run, user) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return well;
}
enum infer_status group_watch_begin(struct infer_group *g) {
    if (pipe2(g->watch.wake, O_CLOEXEC)) return err_set(INFER_E_MEMORY, "no descriptors for a pipe");
    for (int r = 0; r < g->world; r++) g->watch.heard[r] = wire_now();
    g->watch.since = wire_now();
    g->watch.runs = begin_thread(&g->watch.thread, work, g);
    return g->watch.runs ? INFER_OK : err_set(INFER_E_MEMORY, "no thread that watches the ranks");
}

void group_watch_end(struct infer_group *g) {
    if (g->watch.runs) {
        (void)!write(g->watch.wake[1], "", 1);
        pthread_join(g->watch.thread, NULL);
        say(g, BYE, NULL);
    }
    if (g->watch.wake[1]) close(g->watch.wake[0]), close(g->watch.wake[1]);
}

/* ---- what nobody watches ---- */

static void *wait_for_end(void *user) {
    struct deadline *d = user;
    pthread_mutex_lock(&d->lock);
    while (!d->over && wire_now() < d->until) {
        struct timespec soon;
        clock_gettime(CLOCK_REALTIME, &soon);
        soon.tv_sec++;
        pthread_cond_timedwait(&d->ended, &d->lock, &soon);
    }
    const bool late = !d->over;
    pthread_mutex_unlock(&d->lock);
    if (late)
        group_lose(d->group, "MPI does not bring the ranks together: one has not come, or stands still");
    return NULL;
}
void deadline_begin(struct deadline *d, struct infer_group *g, int64_t ms) {
    *d = (struct deadline){.group = g, .until = wire_now() + ms};
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->ended, NULL);
    d->runs = begin_thread(&d->thread, wait_for_end, d);
}
void deadline_end(struct deadline *d) {
    pthread_mutex_lock(&d->lock);
    d->over = true;
    pthread_cond_signal(&d->ended);
    pthread_mutex_unlock(&d->lock);
    if (d->runs) pthread_join(d->thread, NULL);
    pthread_cond_destroy(&d->ended);
    pthread_mutex_destroy(&d->lock);
}
