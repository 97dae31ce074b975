/* The secret of ranks on one machine that were given none: 32 random bytes in a file of this user, named after the port. Rank 0 writes it
 * before its port hears, so that whoever can connect finds the new one. */
#include "wire/group_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void file_of(const char *rendezvous, char *out, size_t n) {
    snprintf(out, n, "/dev/shm/infer-ranks-%u-%.8s", (unsigned)geteuid(), strrchr(rendezvous, ':') + 1);
}

bool group_secret_read(struct infer_group *g, const char *rendezvous) {
    char path[128];
    struct stat st;
    file_of(rendezvous, path, sizeof path);
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return false;
    bool ours = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & 077);
    ours = ours && read(fd, g->secret.bytes, 32) == 32;
    g->secret.n = 32;
    close(fd);
    return ours;
}

static enum infer_status make(struct infer_group *g, const char *rendezvous) {
    char path[sizeof g->secret_file];
    file_of(rendezvous, path, sizeof path);
    g->secret.n = 32;
    wire_random(g->secret.bytes, g->secret.n);
    unlink(path); /* of a rank 0 that did not end well: the port is this one's now */
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return err_set(INFER_E_IO, "%s, with the ranks' secret: %s", path, strerror(errno));
    snprintf(g->secret_file, sizeof g->secret_file, "%s", path);
    const bool well = write(fd, g->secret.bytes, g->secret.n) == (ssize_t)g->secret.n;
    close(fd);
    return well ? INFER_OK : err_set(INFER_E_IO, "%s, with the ranks' secret, cannot be written", path);
}

enum infer_status group_secret_check(const struct infer_group_options *o, const char *rendezvous) {
    TRY(wire_check(rendezvous));
    if (o->secret || wire_is_loopback(rendezvous)) return INFER_OK;
    return err_set(
        INFER_E_INPUT,
        "others can reach %.200s: ranks prove there who they are by a secret that all of them are given",
        rendezvous);
}
enum infer_status group_secret_pick(struct infer_group *g, const struct infer_group_options *o,
                                    const char *rendezvous) {
    if (!o->secret) return g->rank ? INFER_OK : make(g, rendezvous);
    memcpy(g->secret.bytes, o->secret, o->n_secret);
    g->secret.n = o->n_secret;
    return INFER_OK;
}
