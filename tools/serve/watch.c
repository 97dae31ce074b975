/* One thread that wakes connections whose jobs have news, sees clients hang up, and closes what takes too long. */
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/mem.h"
#include "tools/serve/web_impl.h"

enum { TICK_MS = 250 };

struct watch {
    struct web *web;
    int epoll, event;
    pthread_t thread;
    bool started;
    atomic_bool stopping;
    pthread_mutex_t lock;
    struct job *wake; /* that have news */
};

void sock_state(struct web *w, struct sock *s, int state) {
    pthread_mutex_lock(&w->lock);
    s->state = state;
    s->since = serve_seconds();
    s->body = 0;
    pthread_mutex_unlock(&w->lock);
}

void watch_job(struct watch *w, struct sock *s, struct job *j) {
    pthread_mutex_lock(&w->web->lock);
    s->job = j;
    struct epoll_event e = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.fd = s->fd};
    if (j)
        epoll_ctl(w->epoll, EPOLL_CTL_ADD, s->fd, &e);
    else
        epoll_ctl(w->epoll, EPOLL_CTL_DEL, s->fd, &e);
    pthread_mutex_unlock(&w->web->lock);
}

void watch_wake(struct watch *w, struct job *j) {
    const uint64_t one = 1;
    pthread_mutex_lock(&w->lock);
    bool first = !w->wake;
    if (!j->waking) {
        j->waking = true;
        j->wake = w->wake;
        w->wake = job_ref(j);
    }
    pthread_mutex_unlock(&w->lock);
    if (first && write(w->event, &one, sizeof one) < 0) return; /* the counter is full: it wakes anyway */
}

static void resume(struct job *j) {
    pthread_mutex_lock(&j->lock);
    struct MHD_Connection *c = j->parked;
    j->parked = NULL;
    if (c) mhd.resume_connection(c);
    pthread_mutex_unlock(&j->lock);
}

static void wake_all(struct watch *w) {
    uint64_t count;
    if (read(w->event, &count, sizeof count) < 0) return;
    for (;;) {
        pthread_mutex_lock(&w->lock);
        struct job *j = w->wake;
        if (j) w->wake = j->wake, j->waking = false;
        pthread_mutex_unlock(&w->lock);
        if (!j) return;
        resume(j);
        job_unref(j);
    }
}

/* The client of a connection has gone. */
static void hung_up(struct watch *w, int fd) {
    struct job *j = NULL;
    pthread_mutex_lock(&w->web->lock);
    for (struct sock *s = w->web->socks[fd % SOCK_LISTS]; s && !j; s = s->next)
        if (s->fd == fd && s->job) j = job_ref(s->job);
    pthread_mutex_unlock(&w->web->lock);
    if (!j) return;
    job_cancel(j, CANCEL_GONE);
    resume(j);
    job_unref(j);
}

/* Closes a connection that is too slow, and has a stream that is silent say something. */
static void look_at(struct watch *w, struct sock *s, double now) {
    const struct serve_options *o = &w->web->server->o;
    const double age = now - s->since;
    if ((s->state == SOCK_NEW && age > o->head_seconds) ||
        (s->state == SOCK_BODY && age > o->body_seconds + (double)s->body / 1048576.0) ||
        (s->state == SOCK_IDLE && age > IDLE_SECONDS + o->head_seconds))
        shutdown(s->fd, SHUT_RDWR);
    if (!s->job) return;
    pthread_mutex_lock(&s->job->lock);
    bool silent = s->job->streams && s->job->parked && now - s->job->wrote > PING_SECONDS;
    if (silent) s->job->ping = true;
    pthread_mutex_unlock(&s->job->lock);
    if (silent) watch_wake(w, s->job);
}

static void tick(struct watch *w) {
    const double now = serve_seconds();
    pthread_mutex_lock(&w->web->lock);
    for (int i = 0; i < SOCK_LISTS; i++)
        for (struct sock *s = w->web->socks[i]; s; s = s->next) look_at(w, s, now);
    pthread_mutex_unlock(&w->web->lock);
}

static void *run_watch(void *user) {
    struct watch *w = user;
    struct epoll_event events[64];
    double ticked = 0;
    while (!atomic_load(&w->stopping)) {
        int n = epoll_wait(w->epoll, events, 64, TICK_MS);
        for (int i = 0; i < n; i++) {
            if (events[i].data.fd == w->event)
                wake_all(w);
            else
                hung_up(w, events[i].data.fd);
        }
        if (serve_seconds() - ticked < 1e-3 * TICK_MS) continue;
        tick(w);
        ticked = serve_seconds();
    }
    return NULL;
}

enum infer_status watch_open(struct watch **out, struct web *web) {
    struct watch *w;
    TRY(mem_new(&w, sizeof *w, "the watch of connections"));
    *out = w;
    *w = (struct watch){
        .web = web, .epoll = epoll_create1(EPOLL_CLOEXEC), .event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    pthread_mutex_init(&w->lock, NULL);
    struct epoll_event e = {.events = EPOLLIN, .data.fd = w->event};
    if (w->epoll < 0 || w->event < 0 || epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->event, &e) ||
        pthread_create(&w->thread, NULL, run_watch, w))
        return err_set(INFER_E_MEMORY, "no descriptors or no thread to watch connections");
    w->started = true;
    return INFER_OK;
}

void watch_close(struct watch *w) {
    const uint64_t one = 1;
    if (!w) return;
    atomic_store(&w->stopping, true);
    if (w->event >= 0 && write(w->event, &one, sizeof one) < 0) infer_bug("eventfd");
    if (w->started) pthread_join(w->thread, NULL);
    while (w->wake) {
        struct job *j = w->wake;
        w->wake = j->wake;
        job_unref(j);
    }
    if (w->epoll >= 0) close(w->epoll);
    if (w->event >= 0) close(w->event);
    pthread_mutex_destroy(&w->lock);
    mem_free(w);
}

void web_wake(struct web *w, struct job *j) { watch_wake(w->watch, j); }
