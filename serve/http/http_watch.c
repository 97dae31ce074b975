/* One thread that wakes connections whose jobs have news, sees clients hang up, and closes what takes too long. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/mem.h"
#include "serve/http/web_impl.h"
#include "base/host.h"

static const double TICK_SECONDS = 0.25; /* between two looks at all connections, at least */
enum { LINGER_SECONDS = 5, LINGERS = 64 };

struct watch {
    struct web *web;
    int epoll, event;
    pthread_t thread;
    bool started;
    atomic_bool stopping;
    double due; /* when it looks at all connections, INFINITY: never; under web->lock */
    pthread_mutex_t lock;
    struct job *wake; /* that have news */
    struct {
        int fd;
        double until;
    } linger[LINGERS]; /* sockets that have been answered and are to be closed: linger[n_linger] */
    int n_linger;
    char dropped[16384];
};
/* What an event of epoll is about: a connection's descriptor, or one that lingers. A descriptor's number comes again with the next
 * connection while an event of the one before is still to be read: above the mark stands which of them is meant. */
static const uint64_t LINGER_MARK = 1ull << 32;
enum { SERIAL_SHIFT = 33 };
static uint64_t tag(const struct sock *s) { return (uint64_t)s->serial << SERIAL_SHIFT | (unsigned)s->fd; }

static void ring(struct watch *w) {
    const uint64_t one = 1;
    if (write(w->event, &one, sizeof one) < 0) return; /* the counter is full: it wakes anyway */
}

/* Seconds until something is to be done about a connection, less than 0: now; INFINITY: never. */
static double patience(const struct sock *s, const struct serve_options *o, double now) {
    const double until[] = {[SOCK_NEW] = o->head_seconds,
                            [SOCK_BODY] = o->body_seconds + (double)s->body / 1048576.0,
                            [SOCK_BUSY] = INFINITY,
                            [SOCK_IDLE] = IDLE_SECONDS + o->head_seconds};
    return s->since + until[s->state] - now;
}

/* The next look at all connections comes in so many seconds at most. Under web->lock. */
static void look_within(struct watch *w, double now, double seconds) {
    const bool sooner = now + seconds < w->due;
    if (sooner) w->due = now + seconds;
    if (sooner) ring(w);
}

void sock_state(struct web *w, struct sock *s, int state) {
    pthread_mutex_lock(&w->lock);
    s->state = state;
    s->since = host_seconds();
    s->body = 0;
    look_within(w->watch, s->since, s->half ? 0 : patience(s, &w->server->o, s->since));
    pthread_mutex_unlock(&w->lock);
}

void watch_sock(struct watch *w, struct sock *s, bool open) {
    struct epoll_event e = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.u64 = tag(s)};
    epoll_ctl(w->epoll, open ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, s->fd, &e);
}

void watch_job(struct watch *w, struct sock *s, struct job *j) {
    pthread_mutex_lock(&w->web->lock);
    s->job = j;
    struct epoll_event e = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.u64 = tag(s)};
    if (j) epoll_ctl(w->epoll, EPOLL_CTL_MOD, s->fd, &e);
    if (j) look_within(w, host_seconds(), PING_SECONDS);
    pthread_mutex_unlock(&w->web->lock);
}

void watch_wake(struct watch *w, struct job *j) {
    pthread_mutex_lock(&w->lock);
    bool first = !w->wake;
    if (!j->waking) {
        j->waking = true;
        j->wake = w->wake;
        w->wake = job_ref(j);
    }
    pthread_mutex_unlock(&w->lock);
    if (first) ring(w);
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

void watch_ask(struct job *j, int fd) {
    static const char sign[] = "HTTP/1.1 100 Continue\r\n\r\n";
    if (j->may_ask && send(fd, sign, sizeof sign - 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        job_cancel(j, CANCEL_GONE);
    j->may_ask = false;
}

/* Nothing more comes from the client: it is gone, or has only said that it will send nothing more. Whoever is gone is noticed when something
 * is sent. */
static void half_closed(struct watch *w, struct job *j, int fd) {
    pthread_mutex_lock(&j->lock);
    j->half = true;
    const bool streams = j->streams;
    if (streams)
        j->ping = true;
    else if (j->parked)
        watch_ask(j, fd);
    pthread_mutex_unlock(&j->lock);
    if (streams) watch_wake(w, j);
}

/* The client of a connection has gone, or gone half; over TLS there is no half (RFC 5246, 7.2.1). */
static void hung_up(struct watch *w, uint64_t about, unsigned events) {
    const int fd = (int)(about & (LINGER_MARK - 1));
    struct job *j = NULL;
    const bool half = !(events & (EPOLLHUP | EPOLLERR)) && !w->web->cert;
    pthread_mutex_lock(&w->web->lock);
    for (struct sock *s = w->web->socks[fd % SOCK_LISTS]; s; s = s->next) {
        if (tag(s) != about) continue;
        s->half = true;
        if (s->job) j = job_ref(s->job);
        if (!j) look_within(w, host_seconds(), 0);
    }
    struct epoll_event e = {.events = EPOLLONESHOT, .data.u64 = about}; /* and EPOLLHUP, always */
    if (j && half) epoll_ctl(w->epoll, EPOLL_CTL_MOD, fd, &e);
    pthread_mutex_unlock(&w->web->lock);
    if (!j) return;
    if (half) {
        half_closed(w, j, fd);
    } else {
        job_cancel(j, CANCEL_GONE);
        resume(j);
    }
    job_unref(j);
}

/* ---- connections that linger ---- */

void watch_linger(struct watch *w, int fd) {
    const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    struct epoll_event e = {.events = EPOLLIN | EPOLLRDHUP, .data.u64 = LINGER_MARK | (unsigned)own};
    if (own < 0) return;
    shutdown(own, SHUT_WR);
    pthread_mutex_lock(&w->web->lock);
    const bool room = w->n_linger < LINGERS && epoll_ctl(w->epoll, EPOLL_CTL_ADD, own, &e) == 0;
    if (room) {
        const double now = host_seconds();
        w->linger[w->n_linger].fd = own;
        w->linger[w->n_linger++].until = now + LINGER_SECONDS;
        look_within(w, now, LINGER_SECONDS);
    }
    pthread_mutex_unlock(&w->web->lock);
    if (!room) close(own);
}

/* Closes those that have ended, and those whose time is over; seconds until the next one's is. Under web->lock. */
static double end_lingers(struct watch *w, int ended, double now) {
    double next = INFINITY;
    for (int i = w->n_linger; i-- > 0;) {
        const double left = w->linger[i].until - now;
        if (w->linger[i].fd == ended || left <= 0) {
            close(w->linger[i].fd);
            w->linger[i] = w->linger[--w->n_linger];
        } else {
            next = fmin(next, left);
        }
    }
    return next;
}

static void drop_input(struct watch *w, int fd) {
    ssize_t n = -1;
    bool known = false; /* one of the same events may have closed it */
    pthread_mutex_lock(&w->web->lock);
    for (int i = 0; i < w->n_linger; i++) known |= w->linger[i].fd == fd;
    pthread_mutex_unlock(&w->web->lock);
    if (!known) return;
    for (int i = 0; i < 64; i++) {
        n = recv(fd, w->dropped, sizeof w->dropped, MSG_DONTWAIT);
        if (n <= 0) break;
    }
    if (n > 0 || (n < 0 && errno == EAGAIN)) return;
    pthread_mutex_lock(&w->web->lock);
    end_lingers(w, fd, host_seconds());
    pthread_mutex_unlock(&w->web->lock);
}

/* ---- the thread ---- */

/* Closes a connection that is too slow, and has a stream that is silent say something; returns how soon it is to be looked at again. */
static double look_at(struct watch *w, struct sock *s, double now) {
    double left = patience(s, &w->web->server->o, now);
    if (s->half && s->state != SOCK_BUSY) {
        /* libmicrohttpd 0.9.75 does not look for the end behind bytes that it has read: this lets it look again, and bytes that have come stay */
        shutdown(s->fd, SHUT_RD);
        left = fmin(left, TICK_SECONDS);
    }
    if (left < 0 && !s->cut && (s->state == SOCK_NEW || s->state == SOCK_BODY)) {
        s->cut = true; /* its own thread sees the end of what comes, and can say why */
        s->since = now;
        shutdown(s->fd, SHUT_RD);
        left = patience(s, &w->web->server->o, now);
    } else if (left < 0) {
        shutdown(s->fd, SHUT_RDWR);
    }
    if (!s->job) return left;
    pthread_mutex_lock(&s->job->lock);
    const bool waits = s->job->streams && s->job->parked,
               silent = waits && now - s->job->wrote > PING_SECONDS;
    const double more = waits && !silent ? s->job->wrote + PING_SECONDS - now : PING_SECONDS;
    if (silent) s->job->ping = true;
    pthread_mutex_unlock(&s->job->lock);
    if (silent) watch_wake(w, s->job);
    return fmin(left, more);
}

/* Seconds until the next look at all connections is due, which this does when it is. */
static double tick(struct watch *w) {
    const double now = host_seconds();
    double next = INFINITY;
    pthread_mutex_lock(&w->web->lock);
    if (now >= w->due) {
        for (int i = 0; i < SOCK_LISTS; i++)
            for (struct sock *s = w->web->socks[i]; s; s = s->next) next = fmin(next, look_at(w, s, now));
        next = fmin(next, end_lingers(w, -1, now));
        w->due = now + fmax(next, TICK_SECONDS);
    }
    next = w->due - now;
    pthread_mutex_unlock(&w->web->lock);
    return next;
}

static void *run_watch(void *user) {
    struct watch *w = user;
    struct epoll_event events[64];
    while (!atomic_load(&w->stopping)) {
        const double wait = tick(w);
        int n = epoll_wait(w->epoll, events, 64, wait > 3600 ? -1 : (int)(1e3 * wait) + 1);
        for (int i = 0; i < n; i++) {
            const int fd = (int)(events[i].data.u64 & (LINGER_MARK - 1));
            if (fd == w->event)
                wake_all(w);
            else if (events[i].data.u64 & LINGER_MARK)
                drop_input(w, fd);
            else
                hung_up(w, events[i].data.u64, events[i].events);
        }
    }
    return NULL;
}

enum infer_status watch_open(struct watch **out, struct web *web) {
    struct watch *w;
    TRY(mem_new(&w, sizeof *w, "the watch of connections"));
    *out = w;
    *w = (struct watch){.web = web,
                        .epoll = epoll_create1(EPOLL_CLOEXEC),
                        .event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                        .due = INFINITY};
    pthread_mutex_init(&w->lock, NULL);
    struct epoll_event e = {.events = EPOLLIN, .data.u64 = (unsigned)w->event};
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
    for (int i = 0; i < w->n_linger; i++) close(w->linger[i].fd);
    if (w->epoll >= 0) close(w->epoll);
    if (w->event >= 0) close(w->event);
    pthread_mutex_destroy(&w->lock);
    mem_free(w);
}

void web_wake(struct web *w, struct job *j) { watch_wake(w->watch, j); }
