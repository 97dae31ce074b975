#include "serve/http/systemd.h"
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

bool systemd_notify(const char *state) {
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (!path || (path[0] != '/' && path[0] != '@') || strlen(path) >= sizeof to.sun_path) return false;
    const size_t n = strlen(path);
    memcpy(to.sun_path, path, n);
    if (path[0] == '@') to.sun_path[0] = 0; /* abstract */
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    ssize_t sent = sendto(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT, (struct sockaddr *)&to,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
    close(fd);
    return sent == (ssize_t)strlen(state);
}

/* A variable that names this process and holds for it alone. */
static bool is_ours(const char *variable) {
    const char *pid = getenv(variable);
    return pid && strtol(pid, NULL, 10) == (long)getpid();
}

int systemd_sockets(int *fd) {
    enum { FIRST = 3, MOST = 16 }; /* SD_LISTEN_FDS_START */
    const char *count = getenv("LISTEN_FDS");
    if (!count || !is_ours("LISTEN_PID")) return 0;
    long n = strtol(count, NULL, 10);
    if (n < 1 || n > MOST) return 0;
    for (int i = FIRST; i < FIRST + n; i++)
        if (fcntl(i, F_SETFD, FD_CLOEXEC) != 0) return 0;
    *fd = FIRST;
    return (int)n;
}

uint64_t systemd_watchdog(void) {
    const char *us = getenv("WATCHDOG_USEC");
    if (!us || (getenv("WATCHDOG_PID") && !is_ours("WATCHDOG_PID"))) return 0;
    return strtoull(us, NULL, 10);
}
