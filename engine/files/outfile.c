#define _GNU_SOURCE
#include "files/outfile.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/mem.h"

/* What a handler removes. More than these at once are written all the same, and a signal leaves them. */
static struct unfinished {
    atomic_int state;
    int folder;
    char name[NAME_MAX + 1];
} unfinished[8];
enum { FREE, TAKEN, MADE };

struct outfile {
    char *path; /* as the caller wrote it */
    int fd;
    int folder; /* the folder of name, open; -1: fd is written as it is */
    bool replaces;
    char name[NAME_MAX + 1], temporary[NAME_MAX + 1];
    struct unfinished *entry; /* NULL: none was free */
};

/* ---- what signals remove ---- */

static struct unfinished *entry_take(void) {
    for (size_t i = 0; i < sizeof unfinished / sizeof *unfinished; i++) {
        int expected = FREE;
        if (atomic_compare_exchange_strong(&unfinished[i].state, &expected, TAKEN)) return &unfinished[i];
    }
    return NULL;
}

static void entry_set(struct unfinished *e, int state) {
    if (e) atomic_store(&e->state, state);
}

void outfile_remove_unfinished(void) {
    for (size_t i = 0; i < sizeof unfinished / sizeof *unfinished; i++)
        if (atomic_load(&unfinished[i].state) == MADE) unlinkat(unfinished[i].folder, unfinished[i].name, 0);
}

/* ---- errors ---- */

/* A name that cannot be opened is the user's to correct, a disk without room is not. */
static enum infer_status open_failed(const char *path, int e) {
    bool room = e == ENOSPC || e == EDQUOT || e == EIO || e == EMFILE || e == ENFILE || e == ENOMEM;
    return err_set(room ? INFER_E_WRITE : INFER_E_IO, "%s: cannot be written: %s", path, strerror(e));
}

static enum infer_status write_failed(const struct outfile *f, int e) {
    return err_set(INFER_E_WRITE, "%s: %s%s", f->path, strerror(e),
                   f->replaces ? "; the file that was there is as it was" : "");
}

/* ---- names ---- */

/* The descriptor that /dev/stdout and its kind name; -1: none. */
static int named_descriptor(const char *path) {
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    if (strcmp(path, "/dev/stdout") == 0) return STDOUT_FILENO;
    if (strcmp(path, "/dev/stderr") == 0) return STDERR_FILENO;
    for (size_t i = 0; i < 2; i++) {
        size_t n = strlen(folders[i]);
        char *end;
        if (strncmp(path, folders[i], n) != 0) continue;
        long fd = strtol(path + n, &end, 10);
        if (end > path + n && !*end && fd >= 0 && fd <= INT_MAX) return (int)fd;
    }
    return -1;
}

/* target[PATH_MAX]: the path with the links at its end followed, or *fd, the open descriptor that they lead to. */
static enum infer_status follow(char *target, const char *path, bool links, int *fd) {
    char link[PATH_MAX];
    *fd = -1;
    if (strlen(path) >= PATH_MAX) return open_failed(path, ENAMETOOLONG);
    strcpy(target, path);
    for (int i = 0; i < 40; i++) {
        if ((*fd = named_descriptor(target)) >= 0) return INFER_OK;
        ssize_t n = links ? readlink(target, link, sizeof link - 1) : -1;
        if (n < 0) return INFER_OK; /* no link; what else is wrong shows when it is opened */
        link[n] = 0;
        char *slash = strrchr(target, '/');
        size_t at = link[0] == '/' || !slash ? 0 : (size_t)(slash + 1 - target);
        if (at + (size_t)n >= PATH_MAX) return open_failed(path, ENAMETOOLONG);
        memcpy(target + at, link, (size_t)n + 1);
    }
    return open_failed(path, ELOOP);
}

/* ---- opening ---- */

static enum infer_status open_folder(struct outfile *f, char *target) {
    char *slash = strrchr(target, '/'), *name = slash ? slash + 1 : target;
    if (!*name) return open_failed(f->path, EISDIR);
    if (strlen(name) > NAME_MAX) return open_failed(f->path, ENAMETOOLONG);
    strcpy(f->name, name);
    *name = 0;
    const char *folder = slash ? target : ".";
    f->folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->folder < 0 && errno == EACCES) f->folder = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (f->folder >= 0) return INFER_OK;
    if (errno == ENOENT || errno == ENOTDIR)
        return err_set(INFER_E_IO, "%s: there is no folder %s", f->path, folder);
    return open_failed(f->path, errno);
}

/* A device or a pipe; opening a pipe waits for its reader. */
static enum infer_status open_direct(struct outfile *f, const char *target, const struct stat *st,
                                     enum outfile_kind kind) {
    if (kind == OUTFILE_PRIVATE && !S_ISCHR(st->st_mode) && st->st_uid != geteuid())
        return err_set(INFER_E_IO, "%s: a pipe of somebody else; what is private is not written there",
                       f->path);
    f->fd = open(target, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    return f->fd < 0 ? open_failed(f->path, errno) : INFER_OK;
}

/* The new file has the permissions, and where that can be done the owner, of the one that it replaces. */
static void keep_mode(const struct outfile *f, const struct stat *old) {
    mode_t mode = old->st_mode & 0777;
    if (fchown(f->fd, old->st_uid, old->st_gid) != 0) /* of another group: that gets what the others get */
        mode = (mode & ~(mode_t)070) | (mode & 07) << 3;
    (void)fchmod(f->fd, mode);
}

/* old: the file that is there, NULL: none. */
static enum infer_status open_temporary(struct outfile *f, const struct stat *old, enum outfile_kind kind) {
    const mode_t mode = old || kind == OUTFILE_PRIVATE ? 0600 : 0666;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before); /* no signal between the file and its entry */
    for (int i = 0; i < 100; i++) {
        char more[16] = "";
        if (i) snprintf(more, sizeof more, "-%d", i); /* a name that is taken is somebody else's */
        snprintf(f->temporary, sizeof f->temporary, "%.220s.part-%ld%s", f->name, (long)getpid(), more);
        f->fd = openat(f->folder, f->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
        if (f->fd >= 0 || errno != EEXIST) break;
    }
    int e = errno;
    f->entry = f->fd >= 0 ? entry_take() : NULL;
    if (f->entry) {
        f->entry->folder = f->folder;
        strcpy(f->entry->name, f->temporary);
        entry_set(f->entry, MADE);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (f->fd < 0) return open_failed(f->path, e);
    if (old && kind != OUTFILE_PRIVATE) keep_mode(f, old);
    return INFER_OK;
}

static enum infer_status open_path(struct outfile *f, enum outfile_kind kind) {
    const bool links = kind != OUTFILE_PRIVATE;
    char target[PATH_MAX];
    struct stat st;
    int fd;
    if (!*f->path) return err_set(INFER_E_IO, "the file to write has no name");
    TRY(follow(target, f->path, links, &fd));
    if (fd >= 0) {
        f->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
        return f->fd < 0 ? open_failed(f->path, errno) : INFER_OK;
    }
    bool there = (links ? stat(target, &st) : lstat(target, &st)) == 0;
    if (there && S_ISDIR(st.st_mode)) return open_failed(f->path, EISDIR);
    if (there && S_ISLNK(st.st_mode)) there = false; /* replaced */
    if (there && !S_ISREG(st.st_mode)) return open_direct(f, target, &st, kind);
    if (there && access(target, W_OK) != 0) return open_failed(f->path, errno);
    TRY(open_folder(f, target));
    f->replaces = there;
    return open_temporary(f, there ? &st : NULL, kind);
}

static void free_outfile(struct outfile *f) {
    entry_set(f->entry, FREE);
    if (f->fd >= 0) close(f->fd);
    if (f->folder >= 0) close(f->folder);
    mem_free(f->path);
    mem_free(f);
}

enum infer_status outfile_open(struct outfile **out, const char *path, enum outfile_kind kind) {
    struct outfile *f;
    *out = NULL;
    TRY(mem_new(&f, sizeof *f, "a file to write"));
    f->fd = f->folder = -1;
    f->path = mem_strdup(path);
    enum infer_status s =
        f->path ? open_path(f, kind) : err_set(INFER_E_MEMORY, "no memory for the name of %s", path);
    if (s) {
        free_outfile(f);
        return s;
    }
    *out = f;
    return INFER_OK;
}

/* ---- writing ---- */

enum infer_status outfile_reserve(struct outfile *f, uint64_t bytes) {
    if (f->folder < 0 || bytes == 0 || bytes > INT64_MAX) return INFER_OK;
    if (fallocate(f->fd, 0, 0, (off_t)bytes) == 0) return INFER_OK;
    if (errno != ENOSPC && errno != EDQUOT && errno != EFBIG) return INFER_OK; /* then it shows later */
    int e = errno;
    return err_set(INFER_E_WRITE, "%s: no room for %.1f MB: %s", f->path, (double)bytes * 1e-6, strerror(e));
}

enum infer_status outfile_write(struct outfile *f, const void *data, size_t n) {
    const unsigned char *p = data;
    while (n > 0) {
        ssize_t done = write(f->fd, p, n < 1 << 30 ? n : 1 << 30);
        if (done < 0 && errno == EINTR && f->folder >= 0) continue;
        if (done < 0 && errno == EINTR) return err_set(INFER_E_CANCEL, "%s: interrupted", f->path);
        if (done <= 0) return write_failed(f, done ? errno : EIO);
        p += done, n -= (size_t)done;
    }
    return INFER_OK;
}

static ssize_t stream_write(void *outfile, const char *data, size_t n) {
    return outfile_write(outfile, data, n) ? 0 : (ssize_t)n;
}

FILE *outfile_stream(struct outfile *f) {
    FILE *stream = fopencookie(f, "w", (cookie_io_functions_t){.write = stream_write});
    if (!stream) err_set(INFER_E_MEMORY, "no memory to write %s", f->path);
    return stream;
}

/* 0, or the errno; a file system that cannot do this, and a folder that may not be read, are none. */
static int sync_error(int fd) {
    while (fsync(fd) != 0)
        if (errno != EINTR)
            return errno == EINVAL || errno == ENOSYS || errno == EROFS || errno == EBADF ? 0 : errno;
    return 0;
}

enum infer_status outfile_close(struct outfile *f) {
    /* on the disk before it takes its name, so that a crash leaves the old file or the new one */
    int e = f->folder >= 0 ? sync_error(f->fd) : 0;
    if (close(f->fd) != 0 && !e && errno != EINTR) e = errno;
    f->fd = -1;
    if (f->folder >= 0 && !e && renameat(f->folder, f->temporary, f->folder, f->name) != 0) e = errno;
    enum infer_status s = e ? write_failed(f, e) : INFER_OK;
    if (f->folder >= 0 && e)
        unlinkat(f->folder, f->temporary, 0);
    else if (f->folder >= 0 && (e = sync_error(f->folder)) != 0)
        s = err_set(INFER_E_WRITE, "%s: is written, but its folder may not be: %s", f->path, strerror(e));
    free_outfile(f);
    return s;
}

void outfile_abort(struct outfile *f) {
    if (!f) return;
    if (f->folder >= 0) unlinkat(f->folder, f->temporary, 0);
    free_outfile(f);
}

enum infer_status outfile_put(const char *path, enum outfile_kind kind, const void *data, size_t n) {
    struct outfile *f;
    TRY(outfile_open(&f, path, kind));
    enum infer_status s = outfile_write(f, data, n);
    if (!s) return outfile_close(f);
    outfile_abort(f);
    return s;
}

/* ---- output and input ---- */

enum infer_status outfile_differs(const char *path, const char *input) {
    struct stat out, in;
    if (stat(path, &out) != 0 || stat(input, &in) != 0 || !S_ISREG(out.st_mode)) return INFER_OK;
    if (out.st_dev != in.st_dev || out.st_ino != in.st_ino) return INFER_OK;
    return err_set(INFER_E_INPUT, "%s is the input %s; it is not overwritten", path, input);
}
