/* How ranks find each other: all come to rank 0, say who they are and what they have, and are told where the others are. Then each connects
 * to those below it. */
#define _GNU_SOURCE
#include "wire/group_impl.h"
#include "base/host.h"
#include "base/mem.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "files/mapfile.h"

enum {
    WAIT_SECONDS = 120,
    HANDSHAKE_MS = 1000, /* of whoever knocks */
    INTRO_MS = 5000,     /* of a rank that has shown that it is one, on a machine that may be busy */
    OPTIONS_MAX = 16384,
    PLACES = 8, /* addresses of rank 0 */
    WORDS = GROUP_CPUS / 64
};
enum meet_kind { MEET_INTRO = 100, MEET_TABLE, MEET_REFUSED, MEET_READY, MEET_GO };

/* What a rank says of itself. */
struct intro {
    int32_t pid, port;
    char boot[40], host[64], build[192], comm[8];
    uint64_t cpus[WORDS]; /* that it may use */
    char options[OPTIONS_MAX];
};
/* Where rank 0 is, told by MPI. */
struct place {
    struct wire_secret secret;
    int32_t port, n;
    char boot[40];
    char host[PLACES][64];
};
struct meeting {
    struct infer_group *g;
    const struct infer_group_options *o;
    char at[PLACES + 1][320]; /* at[n_at]: where rank 0 may be */
    int n_at;
    bool tcp; /* sums, too */
    struct intro own, other;
    uint64_t cpus[RANKS_MAX][WORDS];
    char boot[RANKS_MAX][40];
    int64_t until;
};

/* ---- this rank ---- */

/* Version, and the beginning of the program's hash. */
static void build_of(const char *version, char *out, size_t n) {
    struct mapfile f;
    unsigned char h[WIRE_MAC] = {0};
    if (mapfile_open(&f, "/proc/self/exe", false) == INFER_OK) {
        wire_sample(f.data, f.size, NULL, h);
        mapfile_close(&f);
    }
    snprintf(out, n, "%.120s, program %02x%02x%02x%02x%02x%02x", version, h[0], h[1], h[2], h[3], h[4], h[5]);
}
static enum infer_status introduce(struct meeting *m) {
    struct intro *i = &m->own;
    cpu_set_t set;
    *i = (struct intro){.pid = getpid()};
    host_boot_id(i->boot);
    gethostname(i->host, sizeof i->host - 1);
    build_of(m->g->version, i->build, sizeof i->build);
    snprintf(i->comm, sizeof i->comm, "%s", m->tcp ? "tcp" : "mpi");
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        for (int c = 0; c < GROUP_CPUS && c < CPU_SETSIZE; c++)
            if (CPU_ISSET(c, &set)) i->cpus[c / 64] |= UINT64_C(1) << c % 64;
    const char *options = m->o->options ? m->o->options : "";
    if (strlen(options) >= sizeof i->options)
        return err_set(INFER_E_INPUT, ".options has over %d bytes", OPTIONS_MAX - 1);
    snprintf(i->options, sizeof i->options, "%s", options);
    return INFER_OK;
}
static void remember(struct meeting *m, int rank, const struct intro *i) {
    struct group_member *to = &m->g->member[rank];
    to->pid = i->pid, to->port = i->port;
    snprintf(to->host, sizeof to->host, "%s", i->host);
    memcpy(m->cpus[rank], i->cpus, sizeof i->cpus);
    memcpy(m->boot[rank], i->boot, sizeof i->boot);
}

/* ---- what must be alike ---- */

/* The line of a name, or "". */
static const char *line_of(const char *text, const char *name, size_t n, int *length) {
    for (const char *p = text; *p; p += strcspn(p, "\n"), p += *p == '\n') {
        *length = (int)strcspn(p, "\n");
        if (strncmp(p, name, n) == 0) return p;
    }
    *length = 0;
    return "";
}
static enum infer_status differ(const char *who, const char *what, const char *has, int n_has,
                                const char *own, int n_own) {
    return err_set(INFER_E_INPUT, "%s has %s%.*s, rank 0 has %.*s: all ranks need the same", who, what, n_has,
                   has, n_own, own);
}
static enum infer_status alike(const struct meeting *m, int rank) {
    const struct intro *a = &m->own, *b = &m->other;
    char who[128];
    group_name(m->g, rank, who, sizeof who);
    if (strcmp(a->build, b->build)) return differ(who, "the build ", b->build, 190, a->build, 190);
    if (strcmp(a->comm, b->comm)) return differ(who, "sums by ", b->comm, 8, a->comm, 8);
    for (const char *p = a->options; *p; p += strcspn(p, "\n"), p += *p == '\n') {
        int n, own = (int)strcspn(p, "\n");
        const char *line = line_of(b->options, p, strcspn(p, " \n") + 1, &n);
        if (n != own || memcmp(line, p, (size_t)n)) return differ(who, "", line, n, p, own);
    }
    if (strlen(a->options) != strlen(b->options))
        return err_set(INFER_E_INPUT, "%s has more options than rank 0: all ranks need the same", who);
    return INFER_OK;
}

/* ---- rank 0 ---- */

static void refuse_all(struct infer_group *g, enum infer_status st, const char *why) {
    for (int r = 1; r < g->world; r++)
        if (g->control[r] >= 0)
            (void)wire_send(g->control[r], MEET_REFUSED, st, why, strlen(why), wire_now() + 500);
}

/* A rank that has come: its introduction. */
static enum infer_status admit(struct meeting *m, int rank) {
    struct infer_group *g = m->g;
    struct wire_head head;
    if (wire_receive(g->control[rank], &head, &m->other, sizeof m->other, wire_now() + INTRO_MS) ||
        head.kind != MEET_INTRO || head.n != sizeof m->other)
        return err_set(INFER_E_DEVICE, "rank %d of %d is gone: it did not say what it is", rank, g->world);
    struct intro *i = &m->other;
    i->boot[sizeof i->boot - 1] = i->host[sizeof i->host - 1] = i->build[sizeof i->build - 1] = 0;
    i->comm[sizeof i->comm - 1] = i->options[sizeof i->options - 1] = 0;
    wire_peer(g->control[rank], g->member[rank].address, sizeof g->member[rank].address);
    remember(m, rank, i);
    return alike(m, rank);
}
/* Somebody at the door: a rank, or not. */
static enum infer_status welcome(struct meeting *m, int *missing) {
    struct infer_group *g = m->g;
    struct wire_guest who;
    char from[64];
    const int fd = wire_accept(g->listener);
    if (fd < 0) return INFER_OK;
    wire_peer(fd, from, sizeof from);
    if (wire_host(fd, &g->secret, &who, wire_now() + HANDSHAKE_MS)) {
        log_line(LOG_WARN, "somebody at %s is not let in: %s", from, err_message());
        close(fd);
        return INFER_OK;
    }
    int *place = who.purpose == WIRE_CONTROL ? g->control
                 : who.purpose == WIRE_BEAT  ? g->beat
                 : who.purpose == WIRE_DATA  ? g->data
                                             : NULL;
    if ((int)who.world != g->world || who.rank <= (uint32_t)g->rank || (int)who.rank >= g->world || !place ||
        place[who.rank] >= 0) {
        const bool twice = (int)who.world == g->world && place && (int)who.rank < g->world;
        char why[160];
        snprintf(why, sizeof why, "a rank %u of %u comes from %s, and %s %d of %d", who.rank, who.world, from,
                 twice ? "there is one already: this is rank" : "this is rank", g->rank, g->world);
        (void)wire_send(fd, MEET_REFUSED, INFER_E_INPUT, why, strlen(why), wire_now() + 500);
        close(fd);
        return err_set(INFER_E_INPUT, "%s", why);
    }
    place[who.rank] = fd;
    --*missing;
    return who.purpose == WIRE_CONTROL ? admit(m, (int)who.rank) : INFER_OK;
}

static enum infer_status not_there(const struct meeting *m, const int *place, int first) {
    char who[128];
    int r = first;
    while (r < m->g->world - 1 && place[r] >= 0) r++;
    group_name(m->g, r, who, sizeof who);
    return err_set(INFER_E_DEVICE, "%s has not come in time", who);
}
/* Until so many connections have come, or a rank that is there goes. */
static enum infer_status receive_all(struct meeting *m, int missing, const int *place, int64_t until) {
    struct infer_group *g = m->g;
    while (missing) {
        struct pollfd p[RANKS_MAX];
        int rank[RANKS_MAX], n = 1;
        p[0] = (struct pollfd){.fd = g->listener, .events = POLLIN};
        for (int r = 0; r < g->world; r++)
            if (g->control[r] >= 0 && r != g->rank && place == g->control)
                rank[n] = r, p[n++] = (struct pollfd){.fd = g->control[r], .events = POLLIN};
        if (wire_now() > until) return not_there(m, place, g->rank + 1);
        (void)!poll(p, (nfds_t)n, 200);
        for (int i = 1; i < n; i++)
            if (p[i].revents) {
                char who[128];
                group_name(g, rank[i], who, sizeof who);
                return err_set(INFER_E_DEVICE, "%s is gone: its connection is closed", who);
            }
        if (p[0].revents) TRY(welcome(m, &missing));
    }
    return INFER_OK;
}

static void count_sharing(struct meeting *m) {
    struct infer_group *g = m->g;
    for (int r = 0; r < g->world; r++)
        for (int q = 0; q < g->world; q++) {
            bool shares = q == r;
            for (int w = 0; w < WORDS && !strcmp(m->boot[r], m->boot[q]); w++)
                shares |= (m->cpus[r][w] & m->cpus[q][w]) != 0;
            g->member[r].sharing += shares;
            g->member[r].local += q < r && !strcmp(m->boot[r], m->boot[q]);
        }
}

/* All say READY, then hear GO. */
static enum infer_status all_ready(struct meeting *m) {
    struct infer_group *g = m->g;
    struct wire_head head;
    for (int r = 1; r < g->world; r++) {
        if (wire_receive(g->control[r], &head, NULL, 0, wire_now() + GROUP_TURN_MS) ||
            head.kind != MEET_READY) {
            char who[128];
            group_name(g, r, who, sizeof who);
            return err_set(INFER_E_DEVICE, "%s is gone: it does not get ready", who);
        }
    }
    for (int r = 1; r < g->world; r++) (void)wire_send(g->control[r], MEET_GO, 0, NULL, 0, wire_now() + 1000);
    return INFER_OK;
}

static enum infer_status host(struct meeting *m) {
    struct infer_group *g = m->g;
    remember(m, 0, &m->own);
    TRY(wire_hear(g->listener));
    TRY(receive_all(m, g->world - 1, g->control, m->until));
    count_sharing(m);
    for (int r = 1; r < g->world; r++)
        (void)wire_send(g->control[r], MEET_TABLE, 0, g->member, sizeof g->member, wire_now() + 1000);
    const int64_t soon = wire_now() + GROUP_TURN_MS;
    TRY(receive_all(m, (g->world - 1) * (m->tcp ? 2 : 1), m->tcp ? g->data : g->beat, soon));
    return all_ready(m);
}
static enum infer_status host_or_refuse(struct meeting *m) {
    const enum infer_status st = host(m);
    char why[512];
    if (st == INFER_OK) return st;
    snprintf(why, sizeof why, "%s", err_message());
    refuse_all(m->g, st, why);
    return err_set(st, "%s", why);
}

/* ---- the others ---- */

/* A connection to a rank at one of its places; until then again and again. */
static enum infer_status visit(struct meeting *m, int *fd, enum wire_purpose purpose) {
    struct infer_group *g = m->g;
    const struct wire_guest who = {purpose, (uint32_t)g->rank, (uint32_t)g->world};
    const bool file = !m->o->secret && m->o->rendezvous;
    for (int i = 0;; i = (i + 1) % m->n_at) {
        enum infer_status st = INFER_E_IO;
        if (file && !group_secret_read(g, m->at[0]))
            err_set(st, "%s: rank 0 is not there", m->at[0]);
        else
            st = wire_connect(fd, m->at[i], m->until);
        if (st == INFER_OK) {
            st = wire_visit(*fd, &g->secret, &who, wire_now() + 3 * HANDSHAKE_MS);
            if (st == INFER_OK) {
                memmove(m->at[0], m->at[i], sizeof m->at[0]);
                m->n_at = 1;
                return st;
            }
            close(*fd);
            *fd = -1;
            if (st == INFER_E_INPUT && !file && i == m->n_at - 1)
                return err_prefix(st, "rank 0 at %s", m->at[i]);
        }
        if (wire_now() > m->until) return err_prefix(INFER_E_DEVICE, "rank 0 of %d has not come", g->world);
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
}
static enum infer_status told(struct meeting *m, enum meet_kind kind, void *bytes, size_t n, int64_t until) {
    struct wire_head head;
    char text[OPTIONS_MAX];
    const enum infer_status st = wire_receive(m->g->control[0], &head, text, sizeof text - 1, until);
    if (st) return err_set(INFER_E_DEVICE, "rank 0 of %d at %s is gone", m->g->world, m->at[0]);
    text[head.n] = 0;
    if (head.kind == MEET_REFUSED && head.status == INFER_E_DEVICE)
        return err_set(INFER_E_DEVICE, "%s", text);
    if (head.kind == MEET_REFUSED) return err_set(INFER_E_INPUT, "refused: %s", text);
    if (head.kind != kind || head.n != n) return err_set(INFER_E_DEVICE, "rank 0 says what is no turn of it");
    if (n) memcpy(bytes, text, n);
    return INFER_OK;
}

/* Sums by tcp: everybody above comes here. */
static enum infer_status open_door(struct meeting *m) {
    struct infer_group *g = m->g;
    char host[64], at[96];
    int port = 0;
    if (!m->tcp || g->rank == g->world - 1) return INFER_OK;
    wire_own(g->control[0], host, sizeof host);
    wire_join(at, sizeof at, host, 0);
    TRY(wire_listen(&g->listener, at, &port));
    m->own.port = port;
    return wire_hear(g->listener);
}
static enum infer_status connect_below(struct meeting *m) {
    struct infer_group *g = m->g;
    TRY(visit(m, &g->beat[0], WIRE_BEAT));
    if (!m->tcp) return INFER_OK;
    TRY(visit(m, &g->data[0], WIRE_DATA));
    for (int r = 1; r < g->rank; r++) {
        wire_join(m->at[0], sizeof m->at[0], g->member[r].address, g->member[r].port);
        m->n_at = 1;
        const struct wire_guest who = {WIRE_DATA, (uint32_t)g->rank, (uint32_t)g->world};
        TRY(wire_connect(&g->data[r], m->at[0], m->until));
        TRY(wire_visit(g->data[r], &g->secret, &who, wire_now() + GROUP_TURN_MS));
    }
    return g->rank < g->world - 1 ? receive_all(m, g->world - 1 - g->rank, g->data, m->until) : INFER_OK;
}
static enum infer_status come(struct meeting *m) {
    struct infer_group *g = m->g;
    TRY(visit(m, &g->control[0], WIRE_CONTROL));
    TRY(open_door(m));
    TRY(wire_send(g->control[0], MEET_INTRO, 0, &m->own, sizeof m->own, m->until));
    TRY(told(m, MEET_TABLE, g->member, sizeof g->member, m->until + GROUP_TURN_MS));
    for (int r = 0; r < g->world; r++) g->member[r].host[63] = g->member[r].address[63] = 0;
    m->until = wire_now() + GROUP_TURN_MS;
    TRY(connect_below(m));
    TRY(wire_send(g->control[0], MEET_READY, 0, NULL, 0, m->until));
    return told(m, MEET_GO, NULL, 0, wire_now() + 2 * GROUP_TURN_MS);
}

/* ---- where ---- */

static void own_addresses(struct place *p) {
    struct ifaddrs *all;
    if (getifaddrs(&all)) return;
    for (const struct ifaddrs *a = all; a && p->n < PLACES; a = a->ifa_next) {
        if (!a->ifa_addr || a->ifa_flags & IFF_LOOPBACK || !(a->ifa_flags & IFF_UP)) continue;
        const int family = a->ifa_addr->sa_family;
        if (family != AF_INET && family != AF_INET6) continue;
        const socklen_t n = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        if (!getnameinfo(a->ifa_addr, n, p->host[p->n], sizeof p->host[0], NULL, 0, NI_NUMERICHOST)) p->n++;
    }
    freeifaddrs(all);
}
static enum infer_status listen_anywhere(int *fd, const char *port_of, int *port) {
    char at[32];
    snprintf(at, sizeof at, "[::]%s", strrchr(port_of, ':'));
    if (wire_listen(fd, at, port) == INFER_OK) return INFER_OK;
    snprintf(at, sizeof at, "0.0.0.0%s", strrchr(port_of, ':'));
    return wire_listen(fd, at, port);
}
/* Rank 0 says by MPI where it listens, and the secret. */
static enum infer_status place_by_mpi(struct meeting *m) {
    struct infer_group *g = m->g;
    struct place p = {.n = 0};
    int port = 0;
    enum infer_status st = INFER_OK;
    if (!g->rank) {
        p.secret.n = 32;
        wire_random(p.secret.bytes, 32);
        if (m->o->secret) st = group_secret_pick(g, m->o, ":0"), p.secret = g->secret;
        if (!st) st = listen_anywhere(&g->listener, ":0", &port);
        p.port = port;
        host_boot_id(p.boot);
        own_addresses(&p);
    }
    struct deadline d;
    deadline_begin(&d, g, group_wait_ms(m->o));
    const enum infer_status told = mpi_tell(g->mpi, &p, sizeof p);
    deadline_end(&d);
    TRY(told);
    TRY(st);
    if (!p.port) return err_set(INFER_E_DEVICE, "rank 0 cannot listen");
    g->secret = p.secret;
    if (g->secret.n > sizeof g->secret.bytes || p.n > PLACES)
        return err_set(INFER_E_DEVICE, "rank 0 says nonsense");
    if (!strcmp(p.boot, m->own.boot)) wire_join(m->at[m->n_at++], sizeof m->at[0], "127.0.0.1", p.port);
    for (int i = 0; i < p.n; i++) wire_join(m->at[m->n_at++], sizeof m->at[0], p.host[i], p.port);
    return INFER_OK;
}
static enum infer_status place_given(struct meeting *m) {
    struct infer_group *g = m->g;
    int port;
    snprintf(m->at[0], sizeof m->at[0], "%s", m->o->rendezvous);
    m->n_at = 1;
    TRY(group_secret_check(m->o, m->at[0]));
    if (!g->rank && m->o->secret && strrchr(m->at[0], ':'))
        TRY(listen_anywhere(&g->listener, m->at[0], &port));
    else if (!g->rank)
        TRY(wire_listen(&g->listener, m->at[0], &port));
    return group_secret_pick(g, m->o, m->at[0]);
}

int64_t group_wait_ms(const struct infer_group_options *o) {
    return (int64_t)(1000 * (o->wait_seconds > 0 ? o->wait_seconds : WAIT_SECONDS));
}
enum infer_status group_meet(struct infer_group *g, const struct infer_group_options *o) {
    struct meeting *m;
    TRY(mem_new(&m, sizeof *m, "a meeting of ranks"));
    m->g = g, m->o = o;
    m->tcp = !o->comm || strcmp(o->comm, "tcp") == 0;
    m->until = wire_now() + group_wait_ms(o);
    enum infer_status st = introduce(m);
    if (st == INFER_OK) st = o->rendezvous ? place_given(m) : place_by_mpi(m);
    if (st == INFER_OK) st = g->rank ? come(m) : host_or_refuse(m);
    if (st == INFER_E_IO && g->rank && g->control[0] >= 0) /* they had met */
        st = err_prefix(INFER_E_DEVICE, "a rank of %d is gone while they meet", g->world);
    if (g->listener >= 0) close(g->listener);
    g->listener = -1;
    if (g->secret_file[0]) unlink(g->secret_file); /* all have read it */
    g->secret_file[0] = 0;
    mem_free(m);
    return st;
}
