/* What systemd gives a service and wants to hear of it (sd_notify(3), sd_listen_fds(3)), without its library. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* Says state ("READY=1", "STATUS=..", "STOPPING=1", "WATCHDOG=1"; several with a newline between) to the socket of NOTIFY_SOCKET. False:
 * there is none, or it does not listen; nothing depends on it. Any thread. */
bool systemd_notify(const char *state);

/* The first of the sockets that listen already, *fd .. *fd + n - 1, and how many there are: n; 0 without socket activation. They are
 * closed in children. */
int systemd_sockets(int *fd);

/* Microseconds within which "WATCHDOG=1" has to come each time; 0: never. */
uint64_t systemd_watchdog(void);
