#define _GNU_SOURCE /* SEEK_HOLE */
#include "files/mapfile.h"
#include "base/host.h"
#include "base/mem.h"
#include "base/numa.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- SIGBUS: a mapped file shrank, or its disk failed ----
 *
 * The handler may touch nothing but what is here: a fixed table of address ranges with the names of their
 * files, each entry published by its size (0: free). */

enum { RANGE_MAX = 512, RANGE_NAME = 240, ALT_STACK = 64 << 10 };

struct range {
    _Atomic uintptr_t start;
    _Atomic size_t size;
    char name[RANGE_NAME];
};

static struct range ranges[RANGE_MAX];
static pthread_mutex_t ranges_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction old_sigbus;
static pthread_once_t sigbus_once = PTHREAD_ONCE_INIT;
static char alt_stack[ALT_STACK] __attribute__((aligned(64)));

static void write_text(const char *s) {
    size_t n = strlen(s);
    while (n) {
        ssize_t w = write(STDERR_FILENO, s, n);
        if (w <= 0) return;
        s += w;
        n -= (size_t)w;
    }
}

static void on_sigbus(int sig, siginfo_t *info, void *context) {
    (void)context;
    uintptr_t at = (uintptr_t)info->si_addr;
    for (int i = 0; i < RANGE_MAX; i++) {
        size_t size = atomic_load(&ranges[i].size);
        if (!size || at - atomic_load(&ranges[i].start) >= size) continue;
        write_text("infer: ");
        write_text(ranges[i].name);
        write_text(": the file shrank or could not be read while it was in use\n");
        _exit(1);
    }
    sigaction(sig, &old_sigbus, NULL); /* not ours: the instruction faults again, under the old handler */
}

static void sigbus_install(void) {
    stack_t stack = {.ss_sp = alt_stack, .ss_size = sizeof alt_stack}, old;
    if (sigaltstack(NULL, &old) == 0 && (old.ss_flags & SS_DISABLE)) sigaltstack(&stack, NULL);
    struct sigaction act = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigemptyset(&act.sa_mask);
    sigaction(SIGBUS, &act, &old_sigbus);
}

/* More maps than the table holds stay without a name: their fault is the old handler's. */
static void range_add(const void *p, size_t size, const char *path) {
    pthread_once(&sigbus_once, sigbus_install);
    pthread_mutex_lock(&ranges_lock);
    for (int i = 0; i < RANGE_MAX; i++) {
        struct range *r = &ranges[i];
        if (atomic_load(&r->size)) continue;
        text_escape(r->name, sizeof r->name, path, strlen(path));
        atomic_store(&r->start, (uintptr_t)p);
        atomic_store(&r->size, size);
        break;
    }
    pthread_mutex_unlock(&ranges_lock);
}

static void range_remove(const void *p) {
    pthread_mutex_lock(&ranges_lock);
    for (int i = 0; i < RANGE_MAX; i++)
        if (atomic_load(&ranges[i].size) && atomic_load(&ranges[i].start) == (uintptr_t)p)
            atomic_store(&ranges[i].size, 0);
    pthread_mutex_unlock(&ranges_lock);
}

/* ---- open, close ---- */

static enum infer_status io_error(const char *path) {
    return err_set(INFER_E_IO, "%s: %s", path, strerror(errno));
}

static enum infer_status read_whole(struct mapfile *f, int fd) {
    unsigned char *p;
    size_t left = host_memory_available();
    if (f->size > left) /* the kernel would give the addresses, and end the program when they are filled */
        return err_set(INFER_E_MEMORY, "%s: .no_mmap needs %zu bytes of memory, %zu can be taken", f->path,
                       f->size, left);
    TRY(mem_new(&p, f->size, f->path));
    f->data = p;
    topology_interleave(p, f->size); /* every thread will read all of it */
    for (size_t done = 0; done < f->size;) {
        ssize_t n = read(fd, p + done, f->size - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return io_error(f->path);
        if (n == 0)
            return err_set(INFER_E_IO, "%s: the file shrank while it was read: %zu of %zu bytes", f->path,
                           done, f->size);
        done += (size_t)n;
    }
    return INFER_OK;
}

static enum infer_status map_whole(struct mapfile *f, int fd) {
    void *p = mmap(NULL, f->size, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return err_set(INFER_E_IO, "%s: %zu bytes cannot be mapped: %s (.no_mmap reads them into memory)",
                       f->path, f->size, strerror(errno));
    f->data = p;
    f->mapped = true;
    range_add(p, f->size, f->path);
    return INFER_OK;
}

/* Extents of the file that are reserved and were never written, as the file system has them; flags: FIEMAP_FLAG_SYNC, what is still to be written
 * first. What has been read of such room is in memory, and no hole for SEEK_HOLE any more. */
static void find_unwritten(struct mapfile *f, int fd, uint32_t flags) {
    enum { EXTENTS = 128 }; /* at a time */
    union {
        struct fiemap head;
        char room[sizeof(struct fiemap) + EXTENTS * sizeof(struct fiemap_extent)];
    } map;
    bool last = false;
    f->n_hole = 0;
    for (uint64_t from = 0; !last && from < f->size;) {
        memset(&map.head, 0, sizeof map.head);
        map.head.fm_start = from, map.head.fm_length = f->size - from;
        map.head.fm_flags = flags, map.head.fm_extent_count = EXTENTS;
        if (ioctl(fd, FS_IOC_FIEMAP, &map.head) != 0 || !map.head.fm_mapped_extents) return;
        for (uint32_t i = 0; i < map.head.fm_mapped_extents; i++) {
            const struct fiemap_extent *e = &map.head.fm_extents[i];
            const uint64_t end = e->fe_logical + e->fe_length;
            const bool unwritten = (e->fe_flags & FIEMAP_EXTENT_UNWRITTEN) && e->fe_logical < f->size;
            if (unwritten && f->n_hole < MAPFILE_HOLES)
                f->hole[f->n_hole++] = (struct hole){e->fe_logical, end < f->size ? end : f->size};
            last |= (e->fe_flags & FIEMAP_EXTENT_LAST) != 0;
            from = end > from ? end : f->size;
        }
    }
}

/* The first holes. */
static void find_holes(struct mapfile *f, int fd) {
    size_t from = 0;
    while (f->n_hole < MAPFILE_HOLES) {
        const off_t hole = lseek(fd, (off_t)from, SEEK_HOLE); /* the end of a file is one, too */
        if (hole < 0 || (size_t)hole >= f->size) break;
        const off_t data = lseek(fd, hole, SEEK_DATA);
        from = data < 0 || (size_t)data > f->size ? f->size : (size_t)data;
        f->hole[f->n_hole++] = (struct hole){(size_t)hole, from};
        if (from == f->size) break;
    }
    lseek(fd, 0, SEEK_SET);
    if (f->n_hole) return;
    find_unwritten(f, fd, 0);
    if (f->n_hole) find_unwritten(f, fd, FIEMAP_FLAG_SYNC); /* or just not written yet */
}

static enum infer_status open_fd(struct mapfile *f, int fd, bool no_mmap) {
    struct stat st;
    if (fstat(fd, &st) != 0) return io_error(f->path);
    if (S_ISDIR(st.st_mode)) return err_set(INFER_E_IO, "%s: is a directory", f->path);
    if (!S_ISREG(st.st_mode)) return err_set(INFER_E_IO, "%s: is not a regular file", f->path);
    if ((uintmax_t)st.st_size > PTRDIFF_MAX) return err_set(INFER_E_IO, "%s: is too large", f->path);
    f->size = (size_t)st.st_size;
    if (f->size == 0) return INFER_OK;
    find_holes(f, fd);
    return no_mmap ? read_whole(f, fd) : map_whole(f, fd);
}

enum infer_status mapfile_open(struct mapfile *out, const char *path, bool no_mmap) {
    *out = (struct mapfile){.path = mem_strdup(path)};
    if (!out->path) return err_set(INFER_E_MEMORY, "%s: out of memory", path);
    /* O_NONBLOCK: a FIFO without a writer must not hang the program */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    enum infer_status s = fd < 0 ? io_error(path) : open_fd(out, fd, no_mmap);
    if (fd >= 0) close(fd);
    if (s != INFER_OK) mapfile_close(out);
    return s;
}

bool mapfile_absent(const char *path) {
    struct stat st;
    return lstat(path, &st) != 0 && errno == ENOENT;
}

void mapfile_close(struct mapfile *f) {
    if (f->mapped) {
        range_remove(f->data);
        munmap((void *)f->data, f->size);
    } else {
        mem_free((void *)f->data);
    }
    mem_free(f->path);
    *f = (struct mapfile){0};
}

void mapfile_will_read(const struct mapfile *f) {
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (!f->mapped || pages <= 0 || page <= 0) return;
    /* reading ahead a file that does not fit would push out what it has just read */
    if (f->size / 3 * 4 > (size_t)pages * (size_t)page) return;
    madvise((void *)f->data, f->size, MADV_WILLNEED);
}

enum infer_status mapfile_lock(const struct mapfile *f) {
    if (!f->size || mlock(f->data, f->size) == 0) return INFER_OK;
    int why = errno;
    struct rlimit limit;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < f->size)
        return err_set(INFER_E_MEMORY,
                       "%s: .mlock needs %zu bytes, the limit of locked memory is %llu (ulimit -l)", f->path,
                       f->size, (unsigned long long)limit.rlim_cur);
    return err_set(INFER_E_MEMORY, "%s: .mlock of %zu bytes: %s", f->path, f->size, strerror(why));
}
