#include "tools/world.h"
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "files/outfile.h"
#include "tools/interrupt.h"
#include "tools/session.h"
#include "tools/tool.h"

static struct {
    struct infer_group *group;
    int rank;
    char name[24];
    atomic_bool told; /* a rank is gone, and that was said */
} launched;

struct infer_group *world_group(void) {
    return launched.group;
}
bool world_follows(void) { return launched.group && launched.rank; }
const char *world_name(void) { return launched.name; }

bool world_lost(void) {
    if (!infer_group_lost(launched.group)) return false;
    for (int i = 0; i < 100 && !atomic_load(&launched.told); i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    return true;
}

/* Whoever computes or answers comes to its end by itself, with what it still has to say, or is ended. */
static void on_lost(void *user, const char *message) {
    (void)user;
    tool_say("%s", message);
    atomic_store(&launched.told, true);
    nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    outfile_remove_unfinished();
    term_echo(true);
    _exit(EXIT_LOST);
}

/* ---- what all ranks are told alike: what engines are asked for, but threads ---- */

static void say_text(char **at, char *end, const char *name, const char *value) {
    const int n = snprintf(*at, (size_t)(end - *at), "--%s %s\n", name, value);
    *at = n < end - *at ? *at + n : end - 1;
}
static void say_number(char **at, char *end, const char *name, double value) {
    char text[32];
    snprintf(text, sizeof text, "%.17g", value);
    say_text(at, end, name, text);
}
static void describe(const struct options *o, char *out, size_t n) {
    char *at = out, *const end = out + n;
    *out = 0;
#define SAY_FLAG(name, x)   say_number(&at, end, name, x)
#define SAY_SWITCH(name, x) say_number(&at, end, name, x)
#define SAY_INT(name, x)    say_number(&at, end, name, x)
#define SAY_NUMBER(name, x) say_number(&at, end, name, x)
#define SAY_BYTES(name, x)  say_number(&at, end, name, (double)x)
#define SAY_TEXT(name, x)   say_text(&at, end, name, x ? x : "(left out)")
#define INFER_OPTION(reader, type, field, letter, name, ...)                                                 \
    if (strcmp(name, "threads")) SAY_##type(name, o->field);
#include "infer_options.def"
    say_text(&at, end, "matmul-precision", o->matmul_precision ? o->matmul_precision : "(left out)");
}

/* ---- the secret ---- */

struct secret {
    char bytes[256];
    size_t n; /* 0: none is given */
};
static enum infer_status read_secret(struct secret *s, const char *path) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return err_set(INFER_E_IO, "--rank-secret-file %s: %s", path, strerror(errno));
    const ssize_t n = read(fd, s->bytes, sizeof s->bytes);
    close(fd);
    s->n = n > 0 ? (size_t)n : 0;
    while (s->n && strchr("\r\n", s->bytes[s->n - 1])) s->n--;
    if (s->n && s->n < sizeof s->bytes) return INFER_OK;
    return err_set(INFER_E_INPUT, "--rank-secret-file %s: a secret has 1 to 255 bytes", path);
}
static enum infer_status find_secret(struct secret *s, const struct options *o) {
    const char *env = getenv("INFER_RANK_SECRET");
    s->n = 0;
    if (o->rank_secret_file) return read_secret(s, o->rank_secret_file);
    if (!env || !*env) return INFER_OK;
    s->n = strlen(env);
    if (s->n >= sizeof s->bytes) return err_set(INFER_E_INPUT, "INFER_RANK_SECRET has over 255 bytes");
    memcpy(s->bytes, env, s->n);
    return INFER_OK;
}

/* ---- the group ---- */

enum infer_status world_open(const struct options *o) {
    static char said[8192];
    struct world_place p;
    struct secret secret;
    TRY(world_place(&p, o));
    if (p.world < 2) return INFER_OK;
    TRY(find_secret(&secret, o));
    launched.rank = p.rank;
    if (p.rank) snprintf(launched.name, sizeof launched.name, "rank %d: ", p.rank);
    describe(o, said, sizeof said);
    char *end = said + strlen(said);
    say_text(&end, said + sizeof said, "comm", o->comm);
    const bool wire = strcmp(o->comm, "tcp") == 0 || strcmp(o->comm, "mpi") == 0,
               picks = strcmp(o->comm, "auto") == 0;
    const struct infer_group_options go = {.rank = p.rank,
                                           .world = p.world,
                                           .rendezvous = p.rendezvous[0] ? p.rendezvous : NULL,
                                           .secret = secret.n ? secret.bytes : NULL,
                                           .n_secret = secret.n,
                                           .comm = wire    ? o->comm
                                                   : p.mpi ? "mpi"
                                                           : "tcp",
                                           .cards = picks  ? NULL
                                                    : wire ? "host"
                                                           : o->comm,
                                           .options = said,
                                           .lost = on_lost};
    const enum infer_status st = infer_group_open(&launched.group, &go);
    const bool wants = st == INFER_E_INPUT && !secret.n && strstr(err_message(), "by a secret");
    return wants ? err_prefix(st, "--rank-secret-file or $INFER_RANK_SECRET") : st;
}

int world_follow(const struct options *o) {
    struct session s = {0};
    interrupt_follows();
    enum infer_status st = session_open_model(&s, o);
    if (!st) st = adapters_open(&s.adapters, o, s.model);
    const bool there = st == INFER_OK;
    if (!there) tool_fail(o, st);
    st = infer_group_follow(
        launched.group, there ? s.model : NULL,
        &(struct infer_follow_options){.threads = o->threads,
                                       .adapter = (const struct infer_adapter *const *)s.adapters.adapter,
                                       .n_adapter = s.adapters.n});
    session_close(&s);
    if (world_lost()) return EXIT_LOST;
    if (st) return tool_fail(o, st);
    return there ? EXIT_DONE : EXIT_INPUT;
}

void world_close(void) {
    if (!world_lost()) infer_group_close(launched.group);
    launched.group = NULL;
}
