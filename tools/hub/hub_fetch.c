/* One file of a repository into the cache: in pieces, several at a time, each at its place; what has come stays when the connection, the
 * program or the machine goes, and the name is taken when size and hash are right.
 *
 * blobs/ID.infer-part has the bytes, blobs/ID.infer-pieces a byte for each piece that is there (huggingface_hub's own .incomplete is one run of bytes,
 * which these are not). .locks/../ID.lock is held meanwhile, as it does. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/mem.h"
#include "tools/hub/hub_impl.h"

enum { CONNECTIONS = 6, HASH_BYTES = 1 << 20 };
#define PIECE ((uint64_t)16 << 20)
enum piece { PIECE_MISSING, PIECE_HERE, PIECE_COMING };

struct fetch {
    const struct hub_file *f;
    const struct hub_calls *c;
    const struct hub_name *name;
    char url[HUB_PATH], blob[HUB_PATH], part[HUB_PATH + 16], pieces[HUB_PATH + 16];
    int fd, list; /* of part and of pieces */
    unsigned char *piece;
    uint64_t n_piece;
    pthread_mutex_t mutex;
    pthread_cond_t news;
    uint64_t got; /* bytes that are here */
    int working;
    bool whole; /* the server gives no parts: one connection has all of it */
    bool stops; /* nothing new is begun */
    enum infer_status status;
    char message[600];
};
/* A piece on its way. */
struct coming {
    struct fetch *t;
    uint64_t first, at, end; /* next byte, and the end of what it is to bring */
    uint64_t from;           /* where the answer that comes begins */
    bool whole;              /* asked for whole */
    bool bad_answer;         /* 200 where a part was asked for */
    int write_error;
};

static uint64_t piece_end(const struct fetch *t, uint64_t i) {
    return (i + 1) * PIECE < t->f->size ? (i + 1) * PIECE : t->f->size;
}
static void fail(struct fetch *t, enum infer_status st) {
    if (t->status == INFER_OK) {
        t->status = st;
        snprintf(t->message, sizeof t->message, "%s", err_message());
    }
    t->stops = true;
}

static bool take(void *user, long status, const char *data, size_t n) {
    struct coming *c = user;
    struct fetch *t = c->t;
    if (status == 200 && !c->whole && (c->from || t->f->size > PIECE)) {
        c->bad_answer = true;
        return false;
    }
    if (c->at + n > c->end) n = (size_t)(c->end - c->at); /* more than was asked for */
    for (size_t done = 0; done < n;) {
        const ssize_t k = pwrite(t->fd, data + done, n - done, (off_t)(c->at + done));
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) {
            c->write_error = k ? errno : ENOSPC;
            return false;
        }
        done += (size_t)k;
    }
    c->at += n;
    pthread_mutex_lock(&t->mutex);
    t->got += n;
    pthread_mutex_unlock(&t->mutex);
    return true;
}
static bool stopped(void *user) {
    struct coming *c = user;
    pthread_mutex_lock(&c->t->mutex);
    const bool yes = c->t->stops;
    pthread_mutex_unlock(&c->t->mutex);
    return yes;
}

/* Asks until the piece is here or there is no hope; INFER_OK with bad_answer set: there are no parts. */
static enum infer_status bring(struct coming *c) {
    struct fetch *t = c->t;
    for (int tries = 0;; tries++) {
        struct http_answer a;
        const uint64_t before = c->from = c->at;
        const struct http_request r = {.url = t->url,
                                       .bearer = hub_token(),
                                       .part = !c->whole,
                                       .first = c->at,
                                       .last = c->end - 1,
                                       .write = take,
                                       .user = c,
                                       .stop = stopped,
                                       .stop_user = c};
        TRY(http_do(&r, &a));
        const double wait = hub_again(&a, tries);
        const bool refused = wait < 0;
        enum infer_status st = INFER_OK;
        if (c->write_error)
            st = err_set(INFER_E_WRITE, "%s: %s; what has come is kept", t->part, strerror(c->write_error));
        else if (refused || (tries + 1 == HUB_TRIES && c->at == before && !c->bad_answer && !stopped(c)))
            st = refused || !a.why[0] ? hub_refusal(&a, t->name->repo, t->f->path)
                                      : err_set(INFER_E_IO, "%s: %s, %d times; what has come is kept",
                                                t->f->path, a.why, HUB_TRIES);
        http_answer_free(&a);
        if (st != INFER_OK || c->at == c->end || c->bad_answer || stopped(c)) return st;
        if (c->whole) { /* from its beginning again */
            pthread_mutex_lock(&t->mutex);
            t->got -= c->at - c->first;
            pthread_mutex_unlock(&t->mutex);
            c->at = c->first;
            if (tries + 1 == HUB_TRIES)
                return err_set(INFER_E_IO, "%s: the connection broke off %d times", t->f->path, HUB_TRIES);
        } else if (c->at > before)
            tries = -1;
        if (tries >= 0) hub_rest(wait);
    }
}

static void note_pieces(struct fetch *t, uint64_t from, uint64_t to, enum piece what) {
    for (uint64_t i = from; i < to; i++) t->piece[i] = (unsigned char)what;
    const unsigned char here = 1;
    for (uint64_t i = from; what == PIECE_HERE && i < to; i++)
        if (pwrite(t->list, &here, 1, (off_t)i) != 1)
            break; /* then it is fetched again, if this run does not end well */
}
/* The next piece that nobody has. */
static bool next_piece(struct fetch *t, uint64_t *at) {
    for (uint64_t i = 0; !t->stops && i < t->n_piece; i++)
        if (t->piece[i] == PIECE_MISSING && !(t->whole && t->working > 1)) {
            *at = i;
            return true;
        }
    return false;
}
static void *work(void *user) {
    struct fetch *t = user;
    uint64_t i;
    pthread_mutex_lock(&t->mutex);
    while (next_piece(t, &i)) {
        const bool whole = t->whole;
        struct coming c = {.t = t,
                           .first = i * PIECE,
                           .at = i * PIECE,
                           .end = whole ? t->f->size : piece_end(t, i),
                           .whole = whole};
        const uint64_t to = whole ? t->n_piece : i + 1;
        note_pieces(t, i, to, PIECE_COMING);
        pthread_mutex_unlock(&t->mutex);
        const enum infer_status st = bring(&c);
        pthread_mutex_lock(&t->mutex);
        if (c.at == c.end && st == INFER_OK)
            note_pieces(t, i, to, PIECE_HERE);
        else {
            t->got -= c.at - c.first;
            note_pieces(t, i, to, PIECE_MISSING);
        }
        if (st != INFER_OK) fail(t, st);
        if (c.bad_answer) { /* whoever comes to an end now is the one that goes on */
            t->whole = true;
            if (t->working > 1) break;
            memset(t->piece, PIECE_MISSING, t->n_piece);
            t->got = 0;
        }
        pthread_cond_broadcast(&t->news);
    }
    t->working--;
    pthread_cond_broadcast(&t->news);
    pthread_mutex_unlock(&t->mutex);
    return NULL;
}

/* ---- meanwhile, on the thread that asked: progress, the hash of what is there from the beginning on ---- */
static enum infer_status hash_piece(struct fetch *t, struct hub_hash *h, uint64_t i, unsigned char *buf) {
    for (uint64_t at = i * PIECE; at < piece_end(t, i);) {
        const uint64_t left = piece_end(t, i) - at;
        const ssize_t n = pread(t->fd, buf, left < HASH_BYTES ? left : HASH_BYTES, (off_t)at);
        if (n <= 0) return err_set(INFER_E_IO, "%s: %s", t->part, n ? strerror(errno) : "it became shorter");
        hub_hash_add(h, buf, (size_t)n);
        at += (uint64_t)n;
    }
    return INFER_OK;
}
static void show(struct fetch *t, double before, double total, double hashed) {
    const bool checks = t->got == t->f->size;
    if (!t->c->progress) return;
    if (checks)
        t->c->progress(t->c->user, "checking", hashed, (double)t->f->size);
    else
        t->c->progress(t->c->user, "fetching", before + (double)t->got, total);
}
static enum infer_status watch(struct fetch *t, struct hub_hash *h, double before, double total) {
    unsigned char *buf;
    uint64_t hashed = 0;
    TRY(mem_new(&buf, HASH_BYTES, "a piece"));
    pthread_mutex_lock(&t->mutex);
    while (t->status == INFER_OK && hashed < t->n_piece) {
        show(t, before, total, (double)hashed * (double)PIECE);
        if (t->status == INFER_OK && t->piece[hashed] == PIECE_HERE) {
            pthread_mutex_unlock(&t->mutex);
            const enum infer_status st = hash_piece(t, h, hashed++, buf);
            pthread_mutex_lock(&t->mutex);
            if (st != INFER_OK) fail(t, st);
        } else if (t->status == INFER_OK) {
            struct timespec until;
            clock_gettime(CLOCK_REALTIME, &until);
            until.tv_nsec += 100000000;
            if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
            pthread_cond_timedwait(&t->news, &t->mutex, &until);
            if (!t->working && t->status == INFER_OK && t->piece[hashed] != PIECE_HERE)
                fail(t, err_set(INFER_E_IO, "%s did not come whole", t->f->path));
        }
    }
    pthread_mutex_unlock(&t->mutex);
    mem_free(buf);
    return INFER_OK;
}
static enum infer_status run(struct fetch *t, double before, double total) {
    pthread_t thread[CONNECTIONS];
    struct hub_hash *h;
    int n = 0;
    TRY(hub_hash_new(&h, t->f));
    pthread_mutex_lock(&t->mutex);
    while (n < CONNECTIONS && (uint64_t)n < t->n_piece) {
        t->working++;
        if (pthread_create(&thread[n], NULL, work, t)) {
            t->working--;
            break;
        }
        n++;
    }
    pthread_mutex_unlock(&t->mutex);
    enum infer_status st =
        n || !t->n_piece ? watch(t, h, before, total) : err_set(INFER_E_MEMORY, "no thread for a connection");
    pthread_mutex_lock(&t->mutex);
    t->stops = true;
    pthread_mutex_unlock(&t->mutex);
    for (int i = 0; i < n; i++) pthread_join(thread[i], NULL);
    if (st == INFER_OK && t->status != INFER_OK) st = err_set(t->status, "%s", t->message);
    const bool right = hub_hash_end(h, t->f);
    if (st != INFER_OK || right) return st;
    unlink(t->part);
    unlink(t->pieces);
    return err_set(
        INFER_E_IO,
        "%s: what came is not what the hub says it is (its %s differs): thrown away, fetch it again",
        t->f->path, t->f->large ? "SHA-256" : "git hash");
}

/* ---- the files ---- */
bool hub_has(const char *folder, const struct hub_file *f, uint64_t *have) {
    char path[HUB_PATH];
    struct stat s;
    *have = 0;
    if (snprintf(path, sizeof path, "%s/blobs/%s", folder, f->id) >= (int)sizeof path) return false;
    if (!stat(path, &s) && (uint64_t)s.st_size == f->size) {
        *have = f->size;
        return true;
    }
    snprintf(path, sizeof path, "%s/blobs/%s.infer-part", folder, f->id);
    if (!stat(path, &s))
        *have = (uint64_t)s.st_blocks * 512 < f->size ? (uint64_t)s.st_blocks * 512 : f->size;
    return false;
}
static enum infer_status open_files(struct fetch *t) {
    t->fd = open(t->part, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    t->list = open(t->pieces, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (t->fd < 0 || t->list < 0 || ftruncate(t->fd, (off_t)t->f->size))
        return err_set(INFER_E_WRITE, "%s: %s", t->part, strerror(errno));
    if (pread(t->list, t->piece, t->n_piece, 0) < 0)
        return err_set(INFER_E_IO, "%s: %s", t->pieces, strerror(errno));
    for (uint64_t i = 0; i < t->n_piece; i++) {
        t->piece[i] = t->piece[i] == PIECE_HERE;
        if (t->piece[i]) t->got += piece_end(t, i) - i * PIECE;
    }
    return INFER_OK;
}
static enum infer_status fetch_locked(struct fetch *t, double before, double total) {
    TRY(mem_new(&t->piece, (size_t)t->n_piece + 1, "pieces"));
    TRY(open_files(t));
    TRY(run(t, before, total));
    if (fsync(t->fd) || rename(t->part, t->blob))
        return err_set(INFER_E_WRITE, "%s: %s", t->blob, strerror(errno));
    unlink(t->pieces);
    return INFER_OK;
}
/* Held by one process at a time. */
static enum infer_status lock(const struct hub_file *f, const struct hub_calls *c, const char *folder,
                              int *fd) {
    for (bool said = false;; said = true) {
        char line[400];
        TRY(hub_lock(folder, f->id, LOCK_EX, fd));
        if (*fd >= 0) return INFER_OK;
        snprintf(line, sizeof line, "%.300s is being fetched by another program: waiting", f->path);
        if (!said && c->say) c->say(c->user, line);
        hub_rest(0.2);
    }
}
enum infer_status hub_fetch(const struct hub_name *name, const char *commit, const struct hub_file *f,
                            const struct hub_calls *c, const char *folder, double before, double total) {
    struct fetch t = {.f = f,
                      .c = c,
                      .name = name,
                      .fd = -1,
                      .list = -1,
                      .n_piece = (f->size + PIECE - 1) / PIECE,
                      .mutex = PTHREAD_MUTEX_INITIALIZER,
                      .news = PTHREAD_COND_INITIALIZER};
    uint64_t have;
    int held = -1;
    if (snprintf(t.blob, sizeof t.blob, "%s/blobs/%s", folder, f->id) >= (int)sizeof t.blob)
        return err_set(INFER_E_INPUT, "a path in the cache is too long");
    snprintf(t.part, sizeof t.part, "%s.infer-part", t.blob);
    snprintf(t.pieces, sizeof t.pieces, "%s.infer-pieces", t.blob);
    TRY(hub_url(name, commit, f->path, t.url, sizeof t.url));
    TRY(hub_make_parents(t.blob));
    enum infer_status st = lock(f, c, folder, &held);
    if (st == INFER_OK && !hub_has(folder, f, &have)) st = fetch_locked(&t, before, total);
    if (t.fd >= 0) close(t.fd);
    if (t.list >= 0) close(t.list);
    if (held >= 0) close(held);
    mem_free(t.piece);
    return st;
}
