#include "serve/http/web.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/mem.h"
#include "files/textfile.h"
#include "serve/http/systemd.h"
#include "serve/http/web_impl.h"
#include "base/host.h"

/* What Linux 6.12 takes for how long a thread wants to run at once: one that wants little comes before those that compute. */
static const uint64_t SLICE_NS = 100000;
enum {
    CONNECTIONS = 4096,
    BESIDE = 2048,
    LEAST = 64, /* connections, or it does not serve */
    RESERVED =
        64, /* descriptors beside those of connections: files of the model, sockets that are listened on, pipes */
    PER_ADDRESS = 256,
    HTTP_THREADS = 2,
    BACKLOG = 1024
};

/* ---- addresses ---- */

static enum infer_status listen_failed(const char *where, int fd) {
    const int e = errno;
    if (fd >= 0) close(fd);
    return err_set(INFER_E_IO, "--listen %s: %s", where, strerror(e));
}

/* Names of unix sockets, which a handler removes. */
static struct {
    atomic_int n;
    char path[SERVE_LISTEN][108];
} names;

void web_remove_sockets(void) {
    for (int i = 0; i < atomic_load(&names.n); i++) unlink(names.path[i]);
}

static void keep_name(const char *path) {
    const int n = atomic_load(&names.n);
    snprintf(names.path[n], sizeof names.path[n], "%s", path);
    atomic_store(&names.n, n + 1); /* a handler sees it whole */
}

static enum infer_status listen_unix(struct web *w, const char *path) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct stat st;
    if (strlen(path) >= sizeof a.sun_path)
        return err_set(INFER_E_INPUT, "--listen unix:%s: the path is too long", path);
    memcpy(a.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
        probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || probe < 0) return listen_failed(path, fd);
    /* a socket that nobody listens on was left by a server that is gone */
    if (stat(path, &st) == 0 && S_ISSOCK(st.st_mode) && connect(probe, (struct sockaddr *)&a, sizeof a) &&
        errno == ECONNREFUSED)
        unlink(path);
    close(probe);
    mode_t old = umask(0177);
    int failed = bind(fd, (struct sockaddr *)&a, sizeof a);
    umask(old);
    if (failed || listen(fd, BACKLOG)) return listen_failed(path, fd);
    w->of[w->n].fd = fd;
    w->of[w->n].local = true;
    keep_name(path);
    snprintf(w->of[w->n].said, sizeof w->of[w->n].said, "unix:%s", path);
    w->n++;
    return INFER_OK;
}

static bool is_loopback(const struct sockaddr *a) {
    if (a->sa_family == AF_INET6) return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)a)->sin6_addr);
    return (ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24) == 127;
}

static enum infer_status listen_address(struct web *w, const char *where, const struct addrinfo *a) {
    const struct serve_options *o = &w->server->o;
    struct sockaddr_storage name;
    socklen_t len = sizeof name;
    char host[64], port[8];
    const int one = 1;
    const bool local = is_loopback(a->ai_addr);
    if (!local && !w->server->keys && !o->insecure)
        return err_set(INFER_E_INPUT,
                       "--listen %s: others can reach this address: give --api-key-file FILE, or --insecure",
                       where);
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return listen_failed(where, fd);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (a->ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    if (bind(fd, a->ai_addr, a->ai_addrlen) || listen(fd, BACKLOG) ||
        getsockname(fd, (struct sockaddr *)&name, &len))
        return listen_failed(where, fd);
    getnameinfo((struct sockaddr *)&name, len, host, sizeof host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
    w->of[w->n].fd = fd;
    w->of[w->n].local = local;
    snprintf(w->of[w->n].said, sizeof w->of[w->n].said,
             a->ai_family == AF_INET6 ? "%s://[%s]:%s" : "%s://%s:%s", o->tls_cert ? "https" : "http", host,
             port);
    w->n++;
    return INFER_OK;
}

/* A socket that the service manager has opened. */
static enum infer_status listen_given(struct web *w, int fd) {
    struct sockaddr_storage name = {0};
    socklen_t len = sizeof name;
    if (getsockname(fd, (struct sockaddr *)&name, &len)) return listen_failed("(given socket)", -1);
    const bool local = name.ss_family == AF_UNIX || is_loopback((struct sockaddr *)&name);
    if (!local && !w->server->keys && !w->server->o.insecure)
        return err_set(INFER_E_INPUT,
                       "others can reach the socket that was given: --api-key-file FILE, or --insecure");
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK)) return listen_failed("(given socket)", -1);
    w->of[w->n].fd = fd;
    w->of[w->n].local = local;
    snprintf(w->of[w->n].said, sizeof w->of[w->n].said, "a socket of systemd");
    w->n++;
    return INFER_OK;
}

static enum infer_status listen_at(struct web *w, const char *where) {
    char host[256];
    const char *colon = strrchr(where, ':');
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV}, *found;
    if (strncmp(where, "unix:", 5) == 0) return listen_unix(w, where + 5);
    size_t n = colon ? (size_t)(colon - where) : 0;
    bool bracket = n > 2 && where[0] == '[' && where[n - 1] == ']';
    if (!n || n >= sizeof host || !colon[1] || strspn(colon + 1, "0123456789") != strlen(colon + 1) ||
        atol(colon + 1) > 65535)
        return err_set(INFER_E_INPUT,
                       "--listen %s is not like 127.0.0.1:8080, [::1]:8080 or unix:/run/infer.sock", where);
    snprintf(host, sizeof host, "%.*s", (int)(bracket ? n - 2 : n), where + bracket);
    if (getaddrinfo(host, colon + 1, &hints, &found))
        return err_set(INFER_E_INPUT, "--listen %s: no such address", where);
    enum infer_status st = listen_address(w, where, found);
    freeaddrinfo(found);
    return st;
}

/* ---- connections ---- */

static void note_connection(void *user, struct MHD_Connection *connection, void **context,
                            enum MHD_ConnectionNotificationCode code) {
    struct web *w = user;
    struct sock *s = *context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *fd =
            mhd.get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        const union MHD_ConnectionInfo *daemon =
            mhd.get_connection_info(connection, MHD_CONNECTION_INFO_DAEMON);
        const int one = 1;
        s = fd && daemon ? mem_alloc(sizeof *s) : NULL;
        *context = s;
        if (!s) return;
        *s = (struct sock){.fd = fd->connect_fd, .web = w, .since = host_seconds()};
        struct sockaddr_storage name;
        socklen_t len = sizeof name;
        if (getsockname(s->fd, (struct sockaddr *)&name, &len)) name.ss_family = AF_UNSPEC;
        s->is_unix = name.ss_family == AF_UNIX;
        s->local = s->is_unix || (name.ss_family != AF_UNSPEC && is_loopback((struct sockaddr *)&name));
        if (!s->is_unix) setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        pthread_mutex_lock(&w->lock); /* from here on the watch may look at it */
        s->serial = w->serial++ & 0x7fffffff;
        s->at = &w->socks[s->fd % SOCK_LISTS];
        s->next = *s->at;
        if (s->next) s->next->at = &s->next;
        *s->at = s;
        pthread_mutex_unlock(&w->lock);
        sock_state(w, s, SOCK_NEW);
        watch_sock(w->watch, s, true);
    } else if (s) {
        watch_sock(w->watch, s, false);
        closing_unheard(connection, s);
        pthread_mutex_lock(&w->lock);
        *s->at = s->next;
        if (s->next) s->next->at = s->at;
        pthread_mutex_unlock(&w->lock);
        mem_free(s);
        *context = NULL;
    }
}

/* Paths are compared as they come: nothing is unescaped. */
static size_t no_unescape(void *user, struct MHD_Connection *connection, char *text) {
    (void)user, (void)connection;
    return strlen(text);
}

/* Connections at once on each address: all that may wait, and others beside them; fewer where the process may not open so many files. */
static enum infer_status limit_connections(struct web *w) {
    const int n = w->server->o.queue + BESIDE;
    struct rlimit r;
    w->most = n > CONNECTIONS ? n : CONNECTIONS;
    if (getrlimit(RLIMIT_NOFILE, &r) || !w->n) return INFER_OK;
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
    const rlim_t each = r.rlim_max > RESERVED ? (r.rlim_max - RESERVED) / (rlim_t)w->n : 0;
    if (each >= (rlim_t)w->most) return INFER_OK;
    if (each < LEAST)
        return err_set(
            INFER_E_INPUT,
            "this process may open %llu files, and serving needs %d: ulimit -Hn, or LimitNOFILE in "
            "the unit",
            (unsigned long long)r.rlim_max, w->n * LEAST + RESERVED);
    snprintf(
        w->note, sizeof w->note,
        "%d connections at once instead of %d: this process may open %llu files (ulimit -Hn, LimitNOFILE "
        "in the unit)",
        w->n * (int)each, w->n * w->most, (unsigned long long)r.rlim_max);
    w->most = (int)each;
    return INFER_OK;
}

/* As GnuTLS reads it. TLS 1.0 and 1.1 are historic (RFC 8996). */
static char tls_versions[] = "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2";

static enum infer_status start(struct web *w, int i) {
    struct MHD_OptionItem tls[] = {{MHD_OPTION_HTTPS_MEM_CERT, 0, w->cert},
                                   {MHD_OPTION_HTTPS_MEM_KEY, 0, w->key},
                                   {MHD_OPTION_HTTPS_PRIORITIES, 0, tls_versions},
                                   {MHD_OPTION_END, 0, NULL}};
    const unsigned flags =
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_SUSPEND_RESUME | MHD_USE_TURBO | (w->cert ? MHD_USE_TLS : 0);
    w->of[i].daemon = mhd.start_daemon(
        flags, 0, NULL, NULL, http_request_handle, w, MHD_OPTION_LISTEN_SOCKET, w->of[i].fd,
        MHD_OPTION_THREAD_POOL_SIZE, (unsigned)HTTP_THREADS, MHD_OPTION_CONNECTION_LIMIT, (unsigned)w->most,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)IDLE_SECONDS, MHD_OPTION_STRICT_FOR_CLIENT, 0, MHD_OPTION_NOTIFY_COMPLETED,
        http_request_completed, w, MHD_OPTION_NOTIFY_CONNECTION, note_connection, w,
        MHD_OPTION_UNESCAPE_CALLBACK, no_unescape, NULL, MHD_OPTION_PER_IP_CONNECTION_LIMIT,
        (unsigned)(w->of[i].local ? 0 : PER_ADDRESS), w->cert ? MHD_OPTION_ARRAY : MHD_OPTION_END, tls,
        MHD_OPTION_END);
    if (w->of[i].daemon) return INFER_OK;
    return err_set(w->cert ? INFER_E_INPUT : INFER_E_MEMORY,
                   w->cert ? "TLS does not begin with %s and %s: is each a PEM file, of one another?"
                           : "the HTTP server does not start",
                   w->server->o.tls_cert, w->server->o.tls_key);
}

/* ---- open and close ---- */

/* Threads that this one starts are let onto a core soon, though all cores compute; 0: as others. Where it cannot be had they wait. */
static void want_slice(uint64_t ns) {
#ifdef SYS_sched_setattr
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } a = {.size = sizeof a, .nice = getpriority(PRIO_PROCESS, 0), .runtime = ns};
    if (sched_getscheduler(0) == SCHED_OTHER && syscall(SYS_sched_setattr, 0, &a, 0)) return;
#else
    (void)ns;
#endif
}

static enum infer_status open_all(struct web *w) {
    const struct serve_options *o = &w->server->o;
    size_t n;
    int first;
    TRY(mem_new(&w->of_key, (size_t)(keys_count(w->server->keys) + 1) * sizeof *w->of_key, "counts of keys"));
    if (!o->tls_cert != !o->tls_key)
        return err_set(INFER_E_INPUT, "--tls-cert and --tls-key belong together");
    if (o->tls_cert) {
        TRY(text_read(&w->cert, &n, o->tls_cert, TEXT_PROMPT));
        TRY(text_read(&w->key, &n, o->tls_key, TEXT_PROMPT));
    }
    TRY(watch_open(&w->watch, w));
    for (int i = 0; i < o->n_listen; i++) TRY(listen_at(w, o->listen[i]));
    const int given = o->n_listen ? 0 : systemd_sockets(&first);
    if (given > SERVE_LISTEN)
        return err_set(INFER_E_INPUT, "%d sockets were given, at most %d", given, SERVE_LISTEN);
    for (int i = 0; i < given; i++) TRY(listen_given(w, first + i));
    TRY(limit_connections(w));
    for (int i = 0; i < w->n; i++) TRY(start(w, i));
    return INFER_OK;
}

enum infer_status web_open(struct web **out, struct server *s) {
    struct web *w;
    *out = NULL;
    TRY(mhd_open());
    TRY(mem_new(&w, sizeof *w, "the HTTP side"));
    w->server = s;
    pthread_mutex_init(&w->lock, NULL);
    want_slice(SLICE_NS);
    enum infer_status st = open_all(w);
    want_slice(0);
    if (st)
        web_close(w);
    else
        *out = w;
    return st;
}

/* A socket that nobody can find, so that nothing ever comes; -1: there is none. */
static int silent_socket(void) {
    const struct sockaddr_un any = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    /* without a path the kernel chooses an abstract name: unix(7), autobind */
    if (bind(fd, (const struct sockaddr *)&any, sizeof any.sun_family) == 0 && listen(fd, 1) == 0) return fd;
    close(fd);
    return -1;
}

/* The addresses go, and the library keeps a silent one under the same number. (MHD_quiesce_daemon of 0.9.75 takes the socket out of
 * a worker's epoll set while the worker may do the same, and ends the program where both did.) Without a silent one the
 * addresses stay, and who comes hears that the server is leaving. */
void web_quiet(struct web *w) {
    const int silent = silent_socket();
    if (silent < 0) return;
    for (int i = 0; i < w->n; i++)
        if (w->of[i].daemon && w->of[i].fd >= 0) dup3(silent, w->of[i].fd, O_CLOEXEC);
    close(silent);
}

void web_finish(struct web *w, double seconds) {
    const double until = host_seconds() + seconds;
    for (bool busy = true; busy && host_seconds() < until;) {
        pthread_mutex_lock(&w->lock);
        busy = w->n_busy > 0;
        pthread_mutex_unlock(&w->lock);
        if (busy) usleep(5000);
    }
}

void web_close(struct web *w) {
    if (!w) return;
    for (int i = 0; i < w->n; i++) {
        if (w->of[i].daemon)
            mhd.stop_daemon(w->of[i].daemon);
        else if (w->of[i].fd >= 0)
            close(w->of[i].fd);
    }
    web_remove_sockets();
    atomic_store(&names.n, 0);
    watch_close(w->watch);
    pthread_mutex_destroy(&w->lock);
    mem_free(w->of_key);
    mem_free(w->cert);
    mem_free(w->key);
    mem_free(w);
}

const char *web_note(const struct web *w) { return w->note; }

void web_where(const struct web *w, char *text, size_t n) {
    size_t used = 0;
    *text = 0;
    for (int i = 0; i < w->n && used < n; i++)
        used += (size_t)snprintf(text + used, n - used, "%s%s", i ? " " : "", w->of[i].said);
}
