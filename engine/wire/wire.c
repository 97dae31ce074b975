#define _GNU_SOURCE /* accept4 */
#include "wire/wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { USER_TIMEOUT_MS = 8000 };

int64_t wire_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- addresses ---- */

static enum infer_status split(const char *at, char *host, size_t n, char *port, size_t n_port) {
    const char *colon = strrchr(at, ':');
    const bool bracket = *at == '[' && colon && colon[-1] == ']';
    const char *begin = at + bracket, *end = colon ? colon - bracket : at;
    if (!colon || end <= begin || (size_t)(end - begin) >= n || !colon[1] || strlen(colon + 1) >= n_port ||
        strspn(colon + 1, "0123456789") != strlen(colon + 1) || atol(colon + 1) > 65535)
        return err_set(INFER_E_INPUT, "'%.200s' is not HOST:PORT", at);
    snprintf(host, n, "%.*s", (int)(end - begin), begin);
    snprintf(port, n_port, "%s", colon + 1);
    return INFER_OK;
}
enum infer_status wire_check(const char *at) {
    char host[256], port[8];
    return split(at, host, sizeof host, port, sizeof port);
}
static enum infer_status find(const char *at, struct addrinfo **out, bool passive) {
    char host[256], port[8];
    const struct addrinfo want = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = passive ? AI_PASSIVE : 0};
    TRY(split(at, host, sizeof host, port, sizeof port));
    const int e = getaddrinfo(host, port, &want, out);
    return e ? err_set(INFER_E_IO, "%.200s: %s", at, gai_strerror(e)) : INFER_OK;
}
static bool loopback(const struct sockaddr *a) {
    if (a->sa_family == AF_INET) return ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24 == 127;
    return a->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)a)->sin6_addr);
}
bool wire_is_loopback(const char *at) {
    struct addrinfo *all;
    bool is = true;
    if (find(at, &all, false)) return false;
    for (const struct addrinfo *a = all; a; a = a->ai_next) is &= loopback(a->ai_addr);
    freeaddrinfo(all);
    return is;
}
void wire_join(char *out, size_t n, const char *host, int port) {
    snprintf(out, n, strchr(host, ':') ? "[%s]:%d" : "%s:%d", host, port);
}
static void name_of(const struct sockaddr_storage *a, socklen_t n, char *out, size_t n_out) {
    char host[INET6_ADDRSTRLEN + 32];
    if (getnameinfo((const struct sockaddr *)a, n, host, sizeof host, NULL, 0, NI_NUMERICHOST))
        snprintf(host, sizeof host, "somewhere");
    snprintf(out, n_out, "%s", strncmp(host, "::ffff:", 7) ? host : host + 7);
}
void wire_peer(int fd, char *out, size_t n) {
    struct sockaddr_storage a = {0};
    socklen_t len = sizeof a;
    getpeername(fd, (struct sockaddr *)&a, &len);
    name_of(&a, len, out, n);
}
void wire_own(int fd, char *out, size_t n) {
    struct sockaddr_storage a = {0};
    socklen_t len = sizeof a;
    getsockname(fd, (struct sockaddr *)&a, &len);
    name_of(&a, len, out, n);
}

/* ---- connections ---- */

static void at_once(int fd) {
    const int on = 1, ms = USER_TIMEOUT_MS;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
}

static int listen_at(const struct addrinfo *a) {
    const int on = 1, fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0) return fd;
    const int e = errno;
    close(fd);
    errno = e;
    return -1;
}
enum infer_status wire_listen(int *fd, const char *at, int *port) {
    struct addrinfo *all;
    struct sockaddr_storage own;
    socklen_t n = sizeof own;
    *fd = -1;
    TRY(find(at, &all, true));
    for (const struct addrinfo *a = all; a && *fd < 0; a = a->ai_next) *fd = listen_at(a);
    const int e = errno;
    freeaddrinfo(all);
    if (*fd < 0) return err_set(INFER_E_IO, "nobody can listen at %.200s: %s", at, strerror(e));
    getsockname(*fd, (struct sockaddr *)&own, &n);
    *port = ntohs(own.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&own)->sin6_port
                                            : ((struct sockaddr_in *)&own)->sin_port);
    return INFER_OK;
}
enum infer_status wire_hear(int fd) {
    return listen(fd, 128) ? err_set(INFER_E_IO, "listen: %s", strerror(errno)) : INFER_OK;
}

static bool wait_for(int fd, short what, int64_t until) {
    for (;;) {
        const int64_t left = until == INT64_MAX ? 1000 : until - wire_now();
        struct pollfd p = {.fd = fd, .events = what};
        if (left <= 0) return false;
        const int n = poll(&p, 1, left > 1000 ? 1000 : (int)left);
        if (n > 0) return true;
        if (n < 0 && errno != EINTR) return false;
    }
}

static int connect_to(const struct addrinfo *a, int64_t until) {
    const int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int e = 0;
    socklen_t n = sizeof e;
    if (fd < 0) return -1;
    if (connect(fd, a->ai_addr, a->ai_addrlen)) {
        e = errno;
        if (e == EINPROGRESS) {
            e = ETIMEDOUT;
            if (wait_for(fd, POLLOUT, until)) getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &n);
        }
    }
    if (!e) return fd;
    close(fd);
    errno = e;
    return -1;
}
enum infer_status wire_connect(int *fd, const char *at, int64_t until) {
    struct addrinfo *all;
    *fd = -1;
    TRY(find(at, &all, false));
    for (const struct addrinfo *a = all; a && *fd < 0; a = a->ai_next) *fd = connect_to(a, until);
    const int e = errno;
    freeaddrinfo(all);
    if (*fd < 0) return err_set(INFER_E_IO, "%.200s: %s", at, strerror(e));
    at_once(*fd);
    return INFER_OK;
}
int wire_accept(int listener) {
    const int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) at_once(fd);
    return fd;
}

static enum infer_status broken(ssize_t n) {
    return err_set(INFER_E_IO, "the connection %s%s", n ? "broke: " : "was closed", n ? strerror(errno) : "");
}
static bool again(void) { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

enum infer_status wire_put(int fd, const void *bytes, size_t n, int64_t until) {
    for (const char *p = bytes; n;) {
        const ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
        if (k > 0) p += k, n -= (size_t)k;
        if (k > 0) continue;
        if (k == 0 || !again()) return broken(k);
        if (!wait_for(fd, POLLOUT, until)) return err_set(INFER_E_IO, "nothing could be sent in time");
    }
    return INFER_OK;
}
/* Looks for a while before it sleeps: the next call of a step comes about then. */
enum infer_status wire_get(int fd, void *bytes, size_t n, int64_t until) {
    enum { LOOKS = 400, PAUSES = 30 };
    int looks = 0;
    for (char *p = bytes; n;) {
        const ssize_t k = recv(fd, p, n, 0);
        if (k > 0) p += k, n -= (size_t)k;
        if (k > 0) continue;
        if (k == 0 || !again()) return broken(k);
        for (int i = 0; i < PAUSES && looks < LOOKS; i++) __builtin_ia32_pause();
        if (looks++ < LOOKS) continue;
        if (!wait_for(fd, POLLIN, until)) return err_set(INFER_E_IO, "nothing came in time");
    }
    return INFER_OK;
}

/* ---- messages ---- */

enum infer_status wire_send(int fd, uint32_t kind, uint32_t status, const void *bytes, size_t n,
                            int64_t until) {
    struct wire_head head = {kind, status, n};
    struct iovec part[2] = {{&head, sizeof head}, {(void *)bytes, n}};
    const struct msghdr m = {.msg_iov = part, .msg_iovlen = n ? 2 : 1};
    ssize_t k = sendmsg(fd, &m, MSG_NOSIGNAL);
    if (k < 0 && !again()) return broken(k);
    size_t done = k < 0 ? 0 : (size_t)k;
    if (done < sizeof head) {
        TRY(wire_put(fd, (const char *)&head + done, sizeof head - done, until));
        done = sizeof head;
    }
    done -= sizeof head;
    return done < n ? wire_put(fd, (const char *)bytes + done, n - done, until) : INFER_OK;
}
enum infer_status wire_receive(int fd, struct wire_head *head, void *bytes, size_t cap, int64_t until) {
    TRY(wire_get(fd, head, sizeof *head, until));
    if (head->n > cap)
        return err_set(INFER_E_IO, "a message of %llu bytes, where %zu are the most",
                       (unsigned long long)head->n, cap);
    return wire_get(fd, bytes, (size_t)head->n, until);
}
