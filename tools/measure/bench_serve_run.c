/* A run of load: requests go out when one has ended (closed loop) or at their times (open loop), over connections that are kept. */
#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "base/mem.h"
#include "tools/measure/bench_serve.h"
#include "base/host.h"

enum {
    READ_BYTES = 65536,
    ID_BYTES = 8,
    BODY_BYTES = 1024,
    TRIES = 3 /* of a kept connection that has gone */
};

/* ---- the server's address ---- */

enum infer_status load_target_read(struct load_target *out, const char *url) {
    const char *at = url, *colon, *slash;
    *out = (struct load_target){0};
    if (strncmp(url, "https://", 8) == 0)
        return err_set(INFER_E_INPUT, "%s: the load goes over plain HTTP; ask the server behind the TLS",
                       url);
    if (strncmp(url, "http://", 7) == 0) at += 7;
    slash = at + strcspn(at, "/");
    colon = *at == '[' ? strchr(at, ']') : at;
    colon = colon ? memchr(colon, ':', (size_t)(slash > colon ? slash - colon : 0)) : NULL;
    const char *end = colon ? colon : slash;
    const bool six = *at == '[';
    const int n_host = (int)(end - at) - 2 * six, n_port = colon ? (int)(slash - colon) - 1 : 0;
    if (n_host < 1 || n_host >= (int)sizeof out->host || n_port >= (int)sizeof out->port ||
        strlen(slash) >= sizeof out->path)
        return err_set(INFER_E_INPUT, "--url is '%s', must be http://HOST:PORT", url);
    snprintf(out->host, sizeof out->host, "%.*s", n_host, at + six);
    snprintf(out->port, sizeof out->port, "%.*s", n_port ? n_port : 2, n_port ? colon + 1 : "80");
    snprintf(out->path, sizeof out->path, "%s", slash);
    size_t n = strlen(out->path);
    while (n && out->path[n - 1] == '/') out->path[--n] = 0;
    if (n >= 3 && !strcmp(out->path + n - 3, "/v1")) out->path[n - 3] = 0; /* as clients are told it */
    return INFER_OK;
}

static enum infer_status find(const struct load_target *t, struct addrinfo **out) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    const int e = getaddrinfo(t->host, t->port, &hints, out);
    return e ? err_set(INFER_E_IO, "%s: %s", t->host, gai_strerror(e)) : INFER_OK;
}

/* A connection under way, -1: errno. */
static int dial(const struct addrinfo *to, bool wait) {
    const int one = 1, fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | (wait ? 0 : SOCK_NONBLOCK), 0);
    if (fd < 0) return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(fd, to->ai_addr, to->ai_addrlen) == 0 || errno == EINPROGRESS) return fd;
    const int e = errno;
    close(fd);
    errno = e;
    return -1;
}

/* ---- what is asked ---- */

static int head(char *out, size_t cap, const struct load_target *t, const char *route, size_t n_body,
                bool keep) {
    return snprintf(out, cap,
                    "POST %s%s HTTP/1.1\r\nHost: %s:%s\r\nContent-Type: application/json\r\n%s%s%s"
                    "Content-Length: %zu\r\nConnection: %s\r\n\r\n",
                    t->path, route, t->host, t->port, t->key ? "Authorization: Bearer " : "",
                    t->key ? t->key : "", t->key ? "\r\n" : "", n_body, keep ? "keep-alive" : "close");
}

static uint64_t mix64(uint64_t z) {
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}
/* Number k of a stream, in [0, 1). */
static double uniform(uint64_t seed, uint64_t stream, uint64_t k) {
    return (double)(mix64(mix64(seed + stream * 0xd1342543de82ef95u) + (k + 1) * 0x9e3779b97f4a7c15u) >> 11) *
           0x1p-53;
}

/* Request k with its head into out[*n], which is taken anew. */
static enum infer_status write_request(const struct load_plan *p, int k, char **out, size_t *n) {
    static const char *const words[] = {"time",   "water", "house", "light",
                                        "people", "river", "stone", "green"};
    const struct load_mix *m = &p->mix[k % p->n_mix];
    const size_t cap = BODY_BYTES + (size_t)m->n_in * ID_BYTES;
    char *body, first[1024 + sizeof p->target];
    TRY(mem_new(&body, cap, "a request"));
    size_t at = (size_t)snprintf(body, cap, "{\"prompt\": %s", p->ids ? "[" : "\"");
    for (int i = 0; i < m->n_in; i++) {
        const double u = uniform(p->seed, i < p->n_shared ? 0 : (uint64_t)k + 2, (uint64_t)i);
        if (p->ids)
            at += (size_t)snprintf(body + at, cap - at, "%s%d", i ? "," : "", p->ids[(int)(u * p->n_id)]);
        else
            at += (size_t)snprintf(body + at, cap - at, "%s%s", i ? " " : "", words[(int)(u * 8)]);
    }
    at += (size_t)snprintf(
        body + at, cap - at,
        "%s, \"max_tokens\": %d, \"temperature\": %g, \"top_p\": %g, \"ignore_eos\": true, \"stream\": true, "
        "\"stream_options\": {\"include_usage\": true}}",
        p->ids ? "]" : "\"", m->n_out, p->temp, p->top_p);
    const size_t n_head = (size_t)head(first, sizeof first, &p->target, "/v1/completions", at, true);
    enum infer_status st = mem_new(out, n_head + at, "a request");
    if (!st) {
        memcpy(*out, first, n_head);
        memcpy(*out + n_head, body, at);
        *n = n_head + at;
    }
    mem_free(body);
    return st;
}

/* ---- a run ---- */

struct stream {
    int fd, request; /* -1: none */
    int tries;
    char *out; /* out[n_out], out[sent] is next */
    size_t n_out, sent;
    double latest; /* event */
    struct load_answer answer;
};
struct run {
    const struct load_plan *plan;
    struct load_result *r;
    struct addrinfo *to;
    int poll, next, busy;
    double begin, due;     /* when the next one goes out, of an open loop */
    struct stream *stream; /* stream[n_stream] */
    char data[READ_BYTES];
};

static void hang_up(struct stream *s) {
    if (s->fd >= 0) close(s->fd);
    s->fd = -1;
}

static enum infer_status add_gap(struct load_result *r, double seconds) {
    if (r->n_gap == r->cap_gap) {
        const size_t cap = r->cap_gap ? 2 * r->cap_gap : 4096;
        double *more = mem_realloc(r->gap, cap * sizeof *more);
        if (!more) return err_set(INFER_E_MEMORY, "out of memory for %zu gaps", cap);
        r->gap = more;
        r->cap_gap = cap;
    }
    r->gap[r->n_gap++] = seconds;
    return INFER_OK;
}

static void ended(struct run *u, struct stream *s, const char *failure) {
    struct load_sample *x = &u->r->sample[s->request];
    x->status = s->answer.status;
    x->n_token = s->answer.n_token < 0 ? s->answer.n_event : s->answer.n_token;
    if (failure || s->answer.failed || !s->answer.whole) {
        x->end = 0;
        if (!u->r->n_failed++)
            snprintf(u->r->failure, sizeof u->r->failure, "%d %.200s", s->answer.status,
                     failure ? failure : s->answer.line);
    } else {
        x->end = host_seconds() - u->begin - x->begin;
        u->r->n_done++;
    }
    if (failure || s->answer.close) hang_up(s);
    mem_free(s->out);
    s->out = NULL;
    s->request = -1;
    u->busy--;
}

static enum infer_status go_out(struct run *u, struct stream *s) {
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = s};
    s->sent = 0;
    load_answer_start(&s->answer);
    if (s->fd < 0) {
        s->fd = dial(u->to, false);
        if (s->fd < 0 || epoll_ctl(u->poll, EPOLL_CTL_ADD, s->fd, &e)) {
            const int code = errno;
            hang_up(s);
            return err_set(INFER_E_IO, "%s:%s: %s", u->plan->target.host, u->plan->target.port,
                           strerror(code));
        }
    }
    return INFER_OK;
}

/* As much of the request as the connection takes. False: it is gone. */
static bool push(struct stream *s) {
    while (s->fd >= 0 && s->request >= 0 && s->sent < s->n_out) {
        const ssize_t n = send(s->fd, s->out + s->sent, s->n_out - s->sent, MSG_NOSIGNAL);
        if (n < 0) return errno == EAGAIN || errno == EINTR || errno == ENOTCONN || errno == EINPROGRESS;
        s->sent += (size_t)n;
    }
    return true;
}

static enum infer_status pull(struct run *u, struct stream *s, bool *gone) {
    ssize_t n = 1;
    while (n > 0 && s->fd >= 0) {
        n = recv(s->fd, u->data, sizeof u->data, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOTCONN)) return INFER_OK;
        if (s->request < 0 || n < 0 || (n == 0 && !s->answer.status)) {
            *gone = true;
            return INFER_OK;
        }
        const double t = host_seconds();
        struct load_sample *x = &u->r->sample[s->request];
        for (int k = load_answer_take(&s->answer, u->data, (size_t)n); k > 0; k--) {
            if (x->first <= 0)
                x->first = t - u->begin - x->begin;
            else
                TRY(add_gap(u->r, t - s->latest));
            s->latest = t;
        }
        if (s->answer.whole) ended(u, s, NULL);
        if (n == 0) hang_up(s);
    }
    return INFER_OK;
}

/* A connection has something to say. */
static enum infer_status serve_stream(struct run *u, struct stream *s) {
    bool gone = s->request >= 0 && !push(s);
    if (!gone) TRY(pull(u, s, &gone));
    if (!gone) return INFER_OK;
    int code = 0;
    socklen_t n = sizeof code;
    if (s->fd >= 0) getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &code, &n);
    hang_up(s);
    if (s->request < 0) return INFER_OK;
    if (!s->answer.status && code != ECONNREFUSED && s->tries++ < TRIES) return go_out(u, s);
    ended(u, s, code ? strerror(code) : "the connection ended before the answer");
    return INFER_OK;
}

static enum infer_status start(struct run *u, struct stream *s, double at) {
    s->request = u->next++;
    s->tries = 0;
    u->busy++;
    u->r->sample[s->request] = (struct load_sample){.begin = at};
    TRY(write_request(u->plan, s->request, &s->out, &s->n_out));
    TRY(go_out(u, s));
    bool gone = !push(s);
    return gone ? serve_stream(u, s) : INFER_OK;
}

/* Sends what is due; *wait: milliseconds until there is more to do. */
static enum infer_status send_due(struct run *u, int *wait) {
    const struct load_plan *p = u->plan;
    *wait = 200;
    for (int i = 0; i < p->n_stream && u->next < p->n_request; i++) {
        struct stream *s = &u->stream[i];
        if (s->request >= 0) continue;
        const double t = host_seconds() - u->begin;
        if (p->rate > 0 && u->due > t) {
            *wait = (int)((u->due - t) * 1000);
            if (*wait > 200) *wait = 200;
            return INFER_OK;
        }
        const double at = p->rate > 0 ? u->due : t;
        if (p->rate > 0) u->due -= log(1 - uniform(p->seed, 1, (uint64_t)u->next)) / p->rate;
        TRY(start(u, s, at));
    }
    return INFER_OK;
}

static enum infer_status loop(struct run *u) {
    const struct load_plan *p = u->plan;
    struct epoll_event event[256];
    while (u->next < p->n_request || u->busy) {
        int wait;
        TRY(send_due(u, &wait));
        const int n = epoll_wait(u->poll, event, 256, wait);
        for (int i = 0; i < n; i++) TRY(serve_stream(u, event[i].data.ptr));
        if (p->seconds > 0 && host_seconds() - u->begin > p->seconds)
            return err_set(INFER_E_IO, "%d of %d requests have no answer after %.0f s",
                           p->n_request - u->r->n_done - u->r->n_failed, p->n_request, p->seconds);
        if (u->r->n_failed && !u->r->n_done && u->r->n_failed >= p->n_stream)
            return err_set(INFER_E_IO, "all requests fail: %s", u->r->failure);
    }
    u->r->seconds = host_seconds() - u->begin;
    return INFER_OK;
}

/* Each stream is a descriptor. */
static void raise_limit(void) {
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r)) return;
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
}

enum infer_status load_run(const struct load_plan *p, struct load_result *out) {
    struct run *u;
    raise_limit();
    *out = (struct load_result){0};
    TRY(mem_new(&u, sizeof *u, "a run"));
    *u = (struct run){.plan = p, .r = out, .poll = -1};
    enum infer_status st = mem_new(&out->sample, (size_t)p->n_request * sizeof *out->sample, "samples");
    if (!st) st = mem_new(&u->stream, (size_t)p->n_stream * sizeof *u->stream, "connections");
    for (int i = 0; u->stream && i < p->n_stream; i++) u->stream[i].fd = u->stream[i].request = -1;
    if (!st) st = find(&p->target, &u->to);
    if (!st && (u->poll = epoll_create1(EPOLL_CLOEXEC)) < 0)
        st = err_set(INFER_E_IO, "epoll: %s", strerror(errno));
    u->begin = host_seconds();
    if (!st) st = loop(u);
    for (int i = 0; u->stream && i < p->n_stream; i++) {
        hang_up(&u->stream[i]);
        mem_free(u->stream[i].out);
    }
    if (u->to) freeaddrinfo(u->to);
    if (u->poll >= 0) close(u->poll);
    mem_free(u->stream);
    mem_free(u);
    return st;
}

void load_free(struct load_result *r) {
    mem_free(r->sample);
    mem_free(r->gap);
    *r = (struct load_result){0};
}

/* ---- ids ---- */

/* The whole response to a POST, ended by 0. */
static enum infer_status ask(const struct load_target *t, const char *route, const char *body, char *out,
                             size_t cap) {
    struct addrinfo *to;
    char first[2048];
    size_t n = 0;
    ssize_t got = 1;
    TRY(find(t, &to));
    const int fd = dial(to, true);
    freeaddrinfo(to);
    if (fd < 0) return err_set(INFER_E_IO, "%s:%s: %s", t->host, t->port, strerror(errno));
    const struct timeval patience = {.tv_sec = 10};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    head(first, sizeof first, t, route, strlen(body), false);
    if (send(fd, first, strlen(first), MSG_NOSIGNAL) < 0 || send(fd, body, strlen(body), MSG_NOSIGNAL) < 0)
        got = -1;
    while (got > 0 && n + 1 < cap) {
        got = recv(fd, out + n, cap - 1 - n, 0);
        if (got > 0) n += (size_t)got;
    }
    out[n] = 0;
    close(fd);
    return INFER_OK;
}

/* The numbers of "tokens": [..] */
static void read_tokens(const char *text, int32_t *ids, int cap, int *n) {
    const char *at =
        strncmp(text, "HTTP/1.", 7) == 0 && atoi(text + 9) == 200 ? strstr(text, "\"tokens\"") : NULL;
    if (at) at += 8 + strspn(at + 8, ": ");
    if (!at || *at != '[') return;
    for (at++; *n < cap && *at >= '0' && *at <= '9';) {
        char *end;
        ids[(*n)++] = (int32_t)strtol(at, &end, 10);
        at = end + strspn(end, ", ");
    }
}

enum infer_status load_tokens(const struct load_target *t, const char *text, int32_t *ids, int cap, int *n) {
    static const char *const fields[] = {"content", "prompt"}; /* of llama-server and this one; of vLLM */
    char body[2048], *out;
    *n = 0;
    TRY(mem_new(&out, READ_BYTES, "an answer"));
    enum infer_status st = INFER_OK;
    for (int i = 0; !st && !*n && i < 2; i++) {
        snprintf(body, sizeof body, "{\"%s\": \"%s\"}", fields[i], text);
        st = ask(t, "/tokenize", body, out, READ_BYTES);
        if (!st) read_tokens(out, ids, cap, n);
    }
    mem_free(out);
    return st;
}
