/* Sockets between ranks: whole messages or an error, never a wait without end. Times are milliseconds of the monotonic clock. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/status.h"

int64_t wire_now(void);
/* "host:port", "[address]:port": an address of this machine at which others can connect; port 0: any. *port: the one it is.
 * errors: INFER_E_INPUT (no such form), INFER_E_IO (no such host, taken) */
enum infer_status wire_listen(int *fd, const char *at, int *port);
/* The address begins to hear; until then who connects is refused. */
enum infer_status wire_hear(int fd);
/* errors: INFER_E_INPUT, INFER_E_IO */
enum infer_status wire_connect(int *fd, const char *at, int64_t until);
/* A connection that waits, or -1. */
int wire_accept(int listener);
/* All n bytes until then (INT64_MAX: whenever). errors: INFER_E_IO (closed, broken, too late) */
enum infer_status wire_put(int fd, const void *bytes, size_t n, int64_t until);
enum infer_status wire_get(int fd, void *bytes, size_t n, int64_t until);
/* Whether everything that the name of "host:port" stands for is this machine's loopback. */
bool wire_is_loopback(const char *at);
/* errors: INFER_E_INPUT: it is not "host:port" */
enum infer_status wire_check(const char *at);
/* The address of the other end, or of this one. */
void wire_peer(int fd, char *out, size_t n);
void wire_own(int fd, char *out, size_t n);
/* "host", port as wire_connect takes them. */
void wire_join(char *out, size_t n, const char *host, int port);

/* ---- who is there ---- */

/* What ranks prove to each other that they know; n 1 to 256 bytes. */
struct wire_secret {
    unsigned char bytes[256];
    size_t n;
};
enum wire_purpose { WIRE_CONTROL = 1, WIRE_BEAT, WIRE_DATA };
struct wire_guest {
    uint32_t purpose, rank, world;
};
enum { WIRE_MAC = 32 };
void wire_random(void *bytes, size_t n);
/* SHA-256. source: FIPS 180-4 */
void wire_hash(const void *bytes, size_t n, unsigned char out[WIRE_MAC]);
/* Of what `before` is the hash of (NULL: nothing), the size of a file and its bytes: all of 16 MiB at most, of more the first MiB, 4 KiB at
 * 256 places and the last 4 KiB. */
void wire_sample(const unsigned char *file, size_t n, const unsigned char before[WIRE_MAC],
                 unsigned char out[WIRE_MAC]);
/* HMAC-SHA256. source: RFC 2104 */
void wire_mac(const struct wire_secret *s, const void *bytes, size_t n, unsigned char out[WIRE_MAC]);
/* Both ends of a new connection show that they have the secret, without telling it; guest: who comes, as it says.
 * errors: INFER_E_IO (no rank, gone, too slow), INFER_E_INPUT (another secret, another version) */
enum infer_status wire_host(int fd, const struct wire_secret *s, struct wire_guest *guest, int64_t until);
enum infer_status wire_visit(int fd, const struct wire_secret *s, const struct wire_guest *guest,
                             int64_t until);

/* ---- messages ---- */

struct wire_head {
    uint32_t kind, status;
    uint64_t n; /* bytes behind it */
};
enum infer_status wire_send(int fd, uint32_t kind, uint32_t status, const void *bytes, size_t n,
                            int64_t until);
/* A head, and its bytes; more than cap are refused. */
enum infer_status wire_receive(int fd, struct wire_head *head, void *bytes, size_t cap, int64_t until);
