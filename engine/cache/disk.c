#define _GNU_SOURCE
#include "cache/disk.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#include "base/host.h"
#include "base/mem.h"

enum { NAME = 96, MOST_IDS = 256, WAITING = 64 << 20, MS = 1000000, OLD_SECONDS = 60 };
static const double LOCK_SECONDS = 2,
                    QUIET_SECONDS = 5; /* for the lock; after a file that could not be written */

struct head {
    char magic[8];
    struct disk_identity identity;
    struct prefix_key key, before;
    uint32_t part, n_ids;
    uint64_t n, checksum;
};
static_assert(sizeof(struct head) == DISK_HEAD, "what is written has no padding");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are written as they lie in memory");

/* What the thread does next: an item that it writes, or (n_key) names that are in use. */
struct disk_write {
    struct disk_write *next;
    struct head head;
    size_t n_ids_bytes, n_key;
    int n_part;
    unsigned char bytes[]; /* ids, then the item; keys */
};

struct disk {
    int folder, total; /* open: the folder, its file `total`, which has the bytes of all items and the lock */
    char *path;
    uint64_t most;
    struct disk_identity identity;
    struct prefix_secret secret;
    pthread_t thread;
    bool started;
    unsigned n_part; /* of the next file's name while it grows */

    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t news;
    struct disk_write *first, **last;
    size_t waiting; /* bytes */
    bool stopping, warned, found_damage;
    double until, quiet; /* host_seconds: what waits is written until then; nothing is taken before */
    struct disk_figures figures;
};

/* ---- files ---------------------------------------------------------------------------------------------------- */

/* Every bit counts: a word goes in by steps that can be undone. Four lanes, so that they overlap. source: FNV-1a (Fowler, Noll, Vo) */
static const uint64_t PRIME = UINT64_C(0x100000001b3);
struct sum {
    uint64_t lane[4];
};
/* Of n bytes behind what gave h. */
static struct sum sum_begin(uint64_t h, size_t n) { return (struct sum){{h, h + 1, h + 2, h ^ n}}; }
static uint64_t mix(uint64_t lane, uint64_t word) {
    lane = (lane ^ word) * PRIME;
    return lane ^ lane >> 32;
}
/* n: a multiple of 32 but for the last bytes. */
static void sum_add(struct sum *s, const void *data, size_t n) {
    const unsigned char *p = data;
    uint64_t a = s->lane[0], b = s->lane[1], c = s->lane[2], d = s->lane[3], w[4];
    for (; n >= 32; p += 32, n -= 32) {
        memcpy(w, p, 32);
        a = mix(a, w[0]), b = mix(b, w[1]), c = mix(c, w[2]), d = mix(d, w[3]);
    }
    if (n) {
        memset(w, 0, sizeof w);
        memcpy(w, p, n);
        a = mix(a, w[0]), b = mix(b, w[1]), c = mix(c, w[2]), d = mix(d, w[3]);
    }
    *s = (struct sum){{a, b, c, d}};
}
static uint64_t sum_end(const struct sum *s) {
    return mix(mix(mix(s->lane[0], s->lane[1]), s->lane[2]), s->lane[3]);
}

static struct head head_of(const struct disk *d, const struct disk_item *item, size_t n) {
    struct head h = {.identity = d->identity,
                     .key = item->key,
                     .before = item->before,
                     .part = (uint32_t)item->part,
                     .n_ids = (uint32_t)item->n_ids,
                     .n = n};
    memcpy(h.magic, "INFERPG1", sizeof h.magic);
    return h;
}
/* What the item's own bytes go on from; h.checksum is 0. */
static struct sum sum_of_head(const struct head *h, const int32_t *ids) {
    const size_t n_ids = h->n_ids * sizeof *ids;
    struct sum s = sum_begin(0, sizeof *h);
    sum_add(&s, h, sizeof *h);
    s = sum_begin(sum_end(&s), n_ids);
    sum_add(&s, ids, n_ids);
    return sum_begin(sum_end(&s), h->n);
}

static const char *name_of(const struct disk *d, struct prefix_key key, int part, char name[NAME]) {
    snprintf(name, NAME, "%016llx%016llx-%016llx%016llx-%02x", (unsigned long long)d->identity.a,
             (unsigned long long)d->identity.b, (unsigned long long)key.a, (unsigned long long)key.b,
             (unsigned)part);
    return name;
}

bool disk_has(const struct disk *d, struct prefix_key key, int part) {
    char name[NAME];
    return faccessat(d->folder, name_of(d, key, part, name), R_OK, 0) == 0;
}

void disk_remove(struct disk *d, struct prefix_key key, int part) {
    char name[NAME];
    unlinkat(d->folder, name_of(d, key, part, name), 0); /* counted when the bytes are counted next */
}

enum { READ_MISS, READ_DAMAGED, READ_OK };
/* n bytes from at on, a piece at a time that stays in the processor's cache until it is summed. */
static bool read_bytes(int fd, unsigned char *to, size_t n, off_t at, struct sum *sum) {
    enum { PIECE = 256 << 10 };
    for (size_t i = 0; i < n;) {
        const size_t most = n - i < PIECE ? n - i : PIECE;
        size_t have = 0;
        while (have < most) {
            const ssize_t m = pread(fd, to + i + have, most - have, at + (off_t)(i + have));
            if (m < 0 && errno == EINTR) continue;
            if (m <= 0) return false;
            have += (size_t)m;
        }
        sum_add(sum, to + i, most);
        i += most;
    }
    return true;
}

static int read_open(const struct disk *d, int fd, const struct disk_item *item, void *bytes, size_t n) {
    struct stat st;
    const struct head want = head_of(d, item, n);
    struct head got;
    int32_t ids[MOST_IDS];
    const size_t n_ids = (size_t)item->n_ids * sizeof *ids, front = sizeof got + n_ids;
    if (fstat(fd, &st) != 0 || (uint64_t)st.st_size != front + n) return READ_DAMAGED;
    const struct iovec parts[] = {{&got, sizeof got}, {ids, n_ids}};
    if (preadv(fd, parts, 2, 0) != (ssize_t)front) return READ_DAMAGED;
    const uint64_t said = got.checksum;
    got.checksum = 0;
    if (memcmp(&got, &want, sizeof got) != 0 || (n_ids && memcmp(ids, item->ids, n_ids) != 0))
        return READ_DAMAGED;
    struct sum sum = sum_of_head(&got, ids);
    return read_bytes(fd, bytes, n, (off_t)front, &sum) && sum_end(&sum) == said ? READ_OK : READ_DAMAGED;
}

static int read_item(const struct disk *d, const struct disk_item *item, void *bytes, size_t n) {
    char name[NAME];
    if (item->n_ids > MOST_IDS) return READ_MISS;
    const int fd = openat(d->folder, name_of(d, item->key, item->part, name),
                          O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return READ_MISS;
    const int result = read_open(d, fd, item, bytes, n);
    close(fd);
    return result;
}

bool disk_get(struct disk *d, const struct disk_item *item, void *bytes, size_t n) {
    const int result = read_item(d, item, bytes, n);
    if (result == READ_DAMAGED) disk_remove(d, item->key, item->part);
    pthread_mutex_lock(&d->lock);
    d->figures.n_read += result == READ_OK;
    d->figures.n_damaged += result == READ_DAMAGED;
    const bool first = result == READ_DAMAGED && !d->found_damage;
    d->found_damage |= first;
    pthread_mutex_unlock(&d->lock);
    if (first) log_line(LOG_WARN, "%s: a damaged file was removed; what it held is computed", d->path);
    return result == READ_OK;
}

/* ---- how many bytes there are ------------------------------------------------------------------------------------ */

/* false: another process has had the lock for long. */
static bool lock(const struct disk *d) {
    const double until = host_seconds() + LOCK_SECONDS;
    while (flock(d->total, LOCK_EX | LOCK_NB) != 0) {
        if (host_seconds() > until) return false;
        nanosleep(&(struct timespec){0, 2 * MS}, NULL);
    }
    return true;
}
static void unlock(const struct disk *d) { flock(d->total, LOCK_UN); }

/* Under the lock; UINT64_MAX: not known. What is gone, and what takes another's name, still counts until count() is called: never too
 * little. */
static uint64_t total(const struct disk *d) {
    uint64_t n;
    return pread(d->total, &n, sizeof n, 0) == sizeof n ? n : UINT64_MAX;
}
static void set_total(struct disk *d, uint64_t n) {
    if (pwrite(d->total, &n, sizeof n, 0) != sizeof n) (void)!ftruncate(d->total, 0);
    pthread_mutex_lock(&d->lock);
    d->figures.bytes = n;
    pthread_mutex_unlock(&d->lock);
}

struct found {
    char name[NAME];
    uint64_t bytes;
    struct timespec used;
};
static int by_age(const void *a, const void *b) {
    const struct found *x = a, *y = b;
    if (x->used.tv_sec != y->used.tv_sec) return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    if (x->used.tv_nsec != y->used.tv_nsec) return x->used.tv_nsec < y->used.tv_nsec ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* An item, or one that is being written, which counts as what it will be: NAME.part-PID-NUMBER-BYTES. */
static bool is_item(const char *name, unsigned long long *will_be) {
    const size_t n = strspn(name, "0123456789abcdef-");
    *will_be = 0;
    if (n != 68 || name[32] != '-' || name[65] != '-' || strlen(name) >= NAME + 48) return false;
    return !name[n] || sscanf(name + n, ".part-%*u-%*u-%llu", will_be) == 1;
}

/* Under the lock: all items, the oldest use first, into *list[n]; *all: their bytes. Files that a dead process began go. */
static enum infer_status count(struct disk *d, struct found **list, size_t *n, uint64_t *all) {
    size_t cap = 0;
    DIR *dir;
    *list = NULL;
    *n = *all = 0;
    const int fd = openat(d->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || !(dir = fdopendir(fd))) {
        if (fd >= 0) close(fd);
        return err_set(INFER_E_IO, "%s: %s", d->path, strerror(errno));
    }
    for (struct dirent *e; (e = readdir(dir));) {
        struct stat st;
        unsigned long long will_be;
        if (!is_item(e->d_name, &will_be) || fstatat(d->folder, e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        const bool begun = e->d_name[68] != 0;
        if (begun && time(NULL) - st.st_mtime > OLD_SECONDS && unlinkat(d->folder, e->d_name, 0) == 0)
            continue;
        const uint64_t bytes = will_be > (uint64_t)st.st_size ? will_be : (uint64_t)st.st_size;
        *all += bytes;
        if (begun) continue;
        if (*n == cap) {
            struct found *more = mem_realloc(*list, (cap = cap ? 2 * cap : 256) * sizeof *more);
            if (!more) break;
            *list = more;
        }
        snprintf((*list)[*n].name, NAME, "%.*s", NAME - 1, e->d_name);
        (*list)[*n].used = st.st_mtim;
        (*list)[(*n)++].bytes = bytes;
    }
    closedir(dir);
    if (*n) qsort(*list, *n, sizeof **list, by_age);
    set_total(d, *all);
    return INFER_OK;
}

/* Under the lock: bytes more, which count from now on; where they would pass the bound, and a sixteenth of it, the oldest go. */
static enum infer_status make_room(struct disk *d, uint64_t bytes) {
    struct found *list = NULL;
    size_t n;
    uint64_t all = total(d), gone = 0;
    if (all > d->most || bytes > d->most - all) {
        TRY(count(d, &list, &n, &all));
        if (all > d->most || bytes > d->most - all)
            for (size_t i = 0; i < n && all + bytes + d->most / 16 > d->most; i++)
                if (unlinkat(d->folder, list[i].name, 0) == 0) all -= list[i].bytes, gone++;
    }
    mem_free(list);
    pthread_mutex_lock(&d->lock);
    d->figures.n_gone += gone;
    pthread_mutex_unlock(&d->lock);
    const bool fits = all <= d->most && bytes <= d->most - all;
    set_total(d, fits ? all + bytes : all);
    return fits ? INFER_OK
                : err_set(INFER_E_WRITE, "%s: %llu bytes more do not fit into the bound of %llu", d->path,
                          (unsigned long long)bytes, (unsigned long long)d->most);
}

/* ---- the thread ---------------------------------------------------------------------------------------------------- */

static int write_all(int fd, const struct disk_write *w) {
    const size_t head = sizeof w->head, all = head + w->n_ids_bytes + w->head.n;
    for (size_t at = 0; at < all;) {
        const void *from =
            at < head ? (const void *)((const char *)&w->head + at) : (const void *)(w->bytes + (at - head));
        const ssize_t n = write(fd, from, (at < head ? head : all) - at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n ? errno : EIO;
        at += (size_t)n;
    }
    return 0;
}

/* Under the lock: an empty file that will have so many bytes, which are counted. */
static enum infer_status begin_file(struct disk *d, const char *name, uint64_t bytes, char *part, int *fd) {
    TRY(make_room(d, bytes));
    snprintf(part, NAME + 48, "%s.part-%ld-%u-%llu", name, (long)getpid(), d->n_part++,
             (unsigned long long)bytes);
    *fd = openat(d->folder, part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    return *fd < 0 ? err_set(INFER_E_WRITE, "%s: %s", d->path, strerror(errno)) : INFER_OK;
}

static enum infer_status write_item(struct disk *d, struct disk_write *w) {
    char name[NAME], part[NAME + 48];
    const uint64_t bytes = sizeof w->head + w->n_ids_bytes + w->head.n;
    int fd;
    name_of(d, w->head.key, (int)w->head.part, name);
    if (faccessat(d->folder, name, F_OK, 0) == 0) return INFER_OK; /* another one has written it */
    struct sum sum = sum_of_head(&w->head, (const int32_t *)(const void *)w->bytes);
    sum_add(&sum, w->bytes + w->n_ids_bytes, w->head.n);
    w->head.checksum = sum_end(&sum);
    if (!lock(d)) return INFER_OK; /* it is computed again */
    enum infer_status st = begin_file(d, name, bytes, part, &fd);
    unlock(d);
    TRY(st);
    int e = write_all(fd, w);
    if (close(fd) != 0 && !e) e = errno;
    if (!e && renameat(d->folder, part, d->folder, name) != 0) e = errno;
    if (!e) return INFER_OK;
    unlinkat(d->folder, part, 0);
    if (lock(d)) {
        const uint64_t all = total(d);
        if (all != UINT64_MAX && all >= bytes) set_total(d, all - bytes);
        unlock(d);
    }
    return err_set(INFER_E_WRITE, "%s: %s", d->path, strerror(e));
}

/* The beginning of a prefix is used later than what follows it, so that it goes later. */
static void use_items(const struct disk *d, const struct disk_write *w) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    for (size_t i = 0; i < w->n_key; i++) {
        struct prefix_key key;
        char name[NAME];
        const int64_t ns = (int64_t)now.tv_nsec - 1000 * (int64_t)(i % MS);
        const struct timespec at = {now.tv_sec - (ns < 0), ns < 0 ? ns + 1000000000 : ns}, both[2] = {at, at};
        memcpy(&key, w->bytes + i * sizeof key, sizeof key);
        for (int g = 0; g < w->n_part; g++) utimensat(d->folder, name_of(d, key, g, name), both, 0);
        utimensat(d->folder, name_of(d, key, DISK_ALL_STATES, name), both, 0);
    }
}

static void saw(struct disk *d, enum infer_status st) {
    pthread_mutex_lock(&d->lock);
    d->figures.n_written += !st;
    d->figures.n_failed += st != INFER_OK;
    if (st) d->quiet = host_seconds() + QUIET_SECONDS;
    const bool first = st && !d->warned;
    d->warned |= first;
    pthread_mutex_unlock(&d->lock);
    if (first) log_line(LOG_WARN, "%s; pages are not kept until that is better", err_message());
}

static size_t held(const struct disk_write *w) {
    return w->n_key ? w->n_key * 16 : w->n_ids_bytes + w->head.n;
}

static void *write_items(void *user) {
    struct disk *d = user;
    pthread_mutex_lock(&d->lock);
    for (;;) {
        while (!d->first && !d->stopping) pthread_cond_wait(&d->news, &d->lock);
        struct disk_write *w = d->first;
        if (!w) break;
        if (!(d->first = w->next)) d->last = &d->first;
        const bool late = d->stopping && host_seconds() > d->until;
        pthread_mutex_unlock(&d->lock);
        if (w->n_key)
            use_items(d, w);
        else if (!late)
            saw(d, write_item(d, w));
        const size_t bytes = held(w);
        mem_free(w);
        pthread_mutex_lock(&d->lock);
        d->waiting -= bytes;
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

/* Under the lock. */
static bool is_full(const struct disk *d, size_t n) { return d->waiting && d->waiting + n > WAITING; }

static struct disk_write *new_write(struct disk *d, size_t n) {
    struct disk_write *w = NULL;
    pthread_mutex_lock(&d->lock);
    const bool full = is_full(d, n), quiet = host_seconds() < d->quiet;
    if (!full && !quiet) d->waiting += n;
    pthread_mutex_unlock(&d->lock);
    if (full || quiet) return NULL;
    if (mem_new(&w, sizeof *w + n, "a page to write") == INFER_OK) return w;
    pthread_mutex_lock(&d->lock);
    d->waiting -= n;
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

struct disk_write *disk_begin(struct disk *d, const struct disk_item *item, size_t n) {
    const size_t n_ids = (size_t)item->n_ids * sizeof *item->ids;
    struct disk_write *w = new_write(d, n_ids + n);
    if (!w) return NULL;
    w->head = head_of(d, item, n);
    w->n_ids_bytes = n_ids;
    if (n_ids) memcpy(w->bytes, item->ids, n_ids);
    return w;
}

void *disk_bytes(struct disk_write *w) { return w->bytes + w->n_ids_bytes; }

void disk_put(struct disk *d, struct disk_write *w) {
    pthread_mutex_lock(&d->lock);
    w->next = NULL;
    *d->last = w;
    d->last = &w->next;
    pthread_cond_signal(&d->news);
    pthread_mutex_unlock(&d->lock);
}

void disk_drop(struct disk *d, struct disk_write *w) {
    pthread_mutex_lock(&d->lock);
    d->waiting -= held(w);
    pthread_mutex_unlock(&d->lock);
    mem_free(w);
}

void disk_use(struct disk *d, const struct prefix_key *key, int n, int n_part) {
    struct disk_write *w = n > 0 ? new_write(d, (size_t)n * sizeof *key) : NULL;
    if (!w) return;
    w->n_key = (size_t)n;
    w->n_part = n_part;
    memcpy(w->bytes, key, (size_t)n * sizeof *key);
    disk_put(d, w);
}

enum disk_state disk_state(struct disk *d, size_t n) {
    pthread_mutex_lock(&d->lock);
    const enum disk_state state = host_seconds() < d->quiet ? DISK_FAILED
                                  : is_full(d, n)           ? DISK_BUSY
                                                            : DISK_READY;
    pthread_mutex_unlock(&d->lock);
    return state;
}

void disk_figures(struct disk *d, struct disk_figures *out) {
    pthread_mutex_lock(&d->lock);
    *out = d->figures;
    pthread_mutex_unlock(&d->lock);
}

/* ---- opening --------------------------------------------------------------------------------------------------------- */

static enum infer_status cannot(const struct disk *d, const char *what) {
    return err_set(errno == ENOSPC || errno == EDQUOT || errno == EFBIG ? INFER_E_WRITE : INFER_E_IO,
                   "%s%s: %s", d->path, what, strerror(errno));
}

/* One for all processes: whoever comes first links his own. */
static enum infer_status take_secret(struct disk *d) {
    char part[64];
    const struct prefix_secret mine = prefix_secret();
    int fd = openat(d->folder, "secret", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) {
        snprintf(part, sizeof part, "secret.part-%ld", (long)getpid());
        fd = openat(d->folder, part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0) return cannot(d, "");
        bool ok = write(fd, &mine, sizeof mine) == sizeof mine;
        ok = fsync(fd) == 0 && ok;
        ok = close(fd) == 0 && ok;
        ok = ok && (linkat(d->folder, part, d->folder, "secret", 0) == 0 || errno == EEXIST);
        enum infer_status st = ok ? INFER_OK : cannot(d, "");
        unlinkat(d->folder, part, 0);
        TRY(st);
        fd = openat(d->folder, "secret", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    }
    if (fd < 0) return cannot(d, "/secret");
    char one;
    const bool whole = read(fd, &d->secret, sizeof d->secret) == sizeof d->secret && read(fd, &one, 1) == 0;
    close(fd);
    return whole ? INFER_OK
                 : err_set(INFER_E_INPUT, "%s/secret is broken: remove the folder, it is made anew", d->path);
}

static enum infer_status open_folder(struct disk *d) {
    struct found *list;
    struct stat st;
    size_t n;
    uint64_t all;
    if (mkdir(d->path, 0700) != 0 && errno != EEXIST) return cannot(d, "");
    d->folder = open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->folder < 0 || fstat(d->folder, &st) != 0) return cannot(d, "");
    if (st.st_mode & 022)
        return err_set(INFER_E_INPUT, "%s can be written by others, who could change answers: chmod go-w %s",
                       d->path, d->path);
    TRY(take_secret(d));
    d->total = openat(d->folder, "total", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (d->total < 0) return cannot(d, "/total");
    if (!lock(d)) return INFER_OK; /* it is counted when room is made */
    enum infer_status s = count(d, &list, &n, &all);
    if (!s) s = make_room(d, 0);
    unlock(d);
    mem_free(list);
    return s;
}

enum infer_status disk_open(struct disk **out, const char *folder, uint64_t most,
                            struct disk_identity identity) {
    struct disk *d;
    sigset_t all, before;
    *out = NULL;
    TRY(mem_new(&d, sizeof *d, "files of pages"));
    *d = (struct disk){
        .folder = -1, .total = -1, .most = most, .identity = identity, .figures = {.most = most}};
    d->last = &d->first;
    d->n_part = (unsigned)prefix_secret().k0; /* not those of a dead process of this number */
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->news, NULL);
    d->path = mem_strdup(folder);
    enum infer_status st = d->path ? open_folder(d) : err_set(INFER_E_MEMORY, "out of memory: a name");
    if (!st) {
        sigfillset(&all); /* signals go to the others */
        pthread_sigmask(SIG_SETMASK, &all, &before);
        d->started = pthread_create(&d->thread, NULL, write_items, d) == 0;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (!d->started) st = err_set(INFER_E_MEMORY, "no thread to write pages");
    }
    if (st)
        disk_close(d, 0);
    else
        *out = d;
    return st;
}

void disk_close(struct disk *d, double seconds) {
    if (!d) return;
    pthread_mutex_lock(&d->lock);
    d->stopping = true;
    d->until = host_seconds() + seconds;
    pthread_cond_signal(&d->news);
    pthread_mutex_unlock(&d->lock);
    if (d->started) pthread_join(d->thread, NULL);
    if (d->folder >= 0) close(d->folder);
    if (d->total >= 0) close(d->total);
    pthread_mutex_destroy(&d->lock);
    pthread_cond_destroy(&d->news);
    mem_free(d->path);
    mem_free(d);
}

struct prefix_secret disk_secret(const struct disk *d) {
    return d->secret;
}
