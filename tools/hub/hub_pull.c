/* A name to a path: what is missing is fetched. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "base/mem.h"
#include "tools/hub/hub_impl.h"

#define HEAD_BYTES                                                                                           \
    ((uint64_t)32 << 20) /* of a file: keys, vocabulary and the list of tensors of those that are known */

/* ---- the first bytes of a file, in a file of its size ---- */
struct heads {
    const struct hub_name *name;
    const struct hub_calls *c;
    const char *folder, *commit;
    char last[HUB_PATH];
    int fd;
};
static bool put(void *user, long status, const char *data, size_t n) {
    const struct heads *h = user;
    (void)status;
    const off_t at = lseek(h->fd, 0, SEEK_CUR);
    if (at < 0 || (uint64_t)at + n > HEAD_BYTES)
        n = at < 0 ? 0 : (size_t)(HEAD_BYTES - (uint64_t)at); /* the server gives no parts */
    return n && write(h->fd, data, n) == (ssize_t)n;
}
static enum infer_status remote_head(void *user, const struct hub_file *f, char *path, size_t n) {
    struct heads *h = user;
    char url[HUB_PATH];
    struct http_answer a;
    if (h->last[0]) unlink(h->last);
    if (snprintf(path, n, "%s/blobs/%s.infer-head", h->folder, f->id) >= (int)n)
        return err_set(INFER_E_INPUT, "a path in the cache is too long");
    snprintf(h->last, sizeof h->last, "%s", path);
    TRY(hub_make_parents(path));
    TRY(hub_url(h->name, h->commit, f->path, url, sizeof url));
    h->fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (h->fd < 0) return err_set(INFER_E_WRITE, "%s: %s", path, strerror(errno));
    const struct http_request r = {.url = url,
                                   .bearer = hub_token(),
                                   .part = true,
                                   .last = (f->size < HEAD_BYTES ? f->size : HEAD_BYTES) - 1,
                                   .write = put,
                                   .user = h};
    enum infer_status st = http_do(&r, &a);
    const bool have = lseek(h->fd, 0, SEEK_CUR) > 0;
    if (st == INFER_OK && !have) st = hub_refusal(&a, h->name->repo, f->path);
    http_answer_free(&a);
    if (ftruncate(h->fd, (off_t)f->size) && st == INFER_OK)
        st = err_set(INFER_E_WRITE, "%s: %s", path, strerror(errno));
    close(h->fd);
    return st;
}
static enum infer_status local_head(void *user, const struct hub_file *f, char *path, size_t n) {
    const struct heads *h = user;
    return snprintf(path, n, "%s/snapshots/%s/%s", h->folder, h->commit, f->path) >= (int)n
               ? err_set(INFER_E_INPUT, "a path in the cache is too long")
               : INFER_OK;
}

/* ---- pull ---- */
static enum infer_status room_for(const char *folder, uint64_t bytes) {
    struct statvfs v;
    char at[HUB_PATH];
    snprintf(at, sizeof at, "%s", folder);
    while (statvfs(at, &v)) { /* the nearest folder above that is there */
        char *slash = strrchr(at, '/');
        if (!strcmp(at, "/") || !strcmp(at, "."))
            return err_set(INFER_E_WRITE, "%s: %s", folder, strerror(errno));
        if (slash && slash > at)
            *slash = 0;
        else
            snprintf(at, sizeof at, "%s", slash ? "/" : ".");
    }
    const uint64_t left = (uint64_t)v.f_bavail * v.f_frsize;
    if (left > bytes + (bytes >> 7)) return INFER_OK;
    return err_set(INFER_E_WRITE,
                   "%s has %.1f GB left, %.1f GB are to come ($HF_HUB_CACHE names another folder)", at,
                   (double)left / 1e9, (double)bytes / 1e9);
}
static enum infer_status fetch_all(const struct hub_name *name, const struct hub_repo *r,
                                   const struct hub_choice *k, const struct hub_calls *c,
                                   const char *folder) {
    uint64_t total = 0, here = 0, have;
    double before = 0;
    for (int i = 0; i < r->n; i++) {
        if (!k->wanted[i]) continue;
        total += r->file[i].size;
        hub_has(folder, &r->file[i], &have);
        here += have;
    }
    if (here < total) TRY(room_for(folder, total - here));
    for (int i = 0; i < r->n; i++) {
        if (!k->wanted[i]) continue;
        TRY(hub_fetch(name, r->commit, &r->file[i], c, folder, before, (double)total));
        before += (double)r->file[i].size;
    }
    for (int i = 0; i < r->n; i++)
        if (k->wanted[i]) TRY(hub_link(folder, r->commit, &r->file[i]));
    return hub_ref_write(folder, name->revision, r->commit);
}
static enum infer_status path_of(const struct hub_repo *r, const struct hub_choice *k, const char *folder,
                                 char *path, size_t n) {
    const char *file = k->main >= 0 ? r->file[k->main].path : "";
    if (snprintf(path, n, "%s/snapshots/%s%s%s", folder, r->commit, *file ? "/" : "", file) >= (int)n)
        return err_set(INFER_E_INPUT, "a path in the cache is too long");
    return INFER_OK;
}
/* Until what comes is linked nobody sweeps it away. */
static enum infer_status hold(const char *folder, int *fd) {
    for (;;) {
        TRY(hub_lock(folder, HUB_WHOLE, LOCK_SH, fd));
        if (*fd >= 0) return INFER_OK;
        hub_rest(0.1);
    }
}
enum infer_status hub_pull(const struct hub_name *name, const struct hub_calls *c, char *path, size_t n) {
    char folder[HUB_PATH];
    struct hub_repo r;
    struct hub_choice k = {0};
    int held = -1;
    if (hub_offline()) return err_set(INFER_E_IO, "hf:%s: $HF_HUB_OFFLINE is set", name->repo);
    TRY(hub_folder(name->repo, folder, sizeof folder));
    TRY(hub_repo_ask(name, c, &r));
    struct heads h = {.name = name, .c = c, .folder = folder, .commit = r.commit};
    enum infer_status st = hold(folder, &held);
    if (st == INFER_OK) st = hub_choose(name, &r, c, remote_head, &h, &k);
    if (h.last[0]) unlink(h.last);
    if (st == INFER_OK) st = fetch_all(name, &r, &k, c, folder);
    if (st == INFER_OK) st = path_of(&r, &k, folder, path, n);
    if (held >= 0) close(held);
    mem_free(k.wanted);
    hub_repo_free(&r);
    return st;
}

/* ---- find ---- */
/* All parts of a model in parts: their number stands in each name. */
static enum infer_status all_parts(const struct hub_repo *r, const struct hub_choice *k) {
    int part, of, n = 0;
    if (k->main < 0) return INFER_OK;
    const char *path = r->file[k->main].path;
    const size_t len = strlen(path);
    if (len < 21 || sscanf(path + len - 20, "-%5d-of-%5d.gguf", &part, &of) != 2) return INFER_OK;
    for (int i = 0; i < r->n; i++) n += k->wanted[i] && strncmp(r->file[i].path, path, len - 20) == 0;
    return n >= of ? INFER_OK : err_set(INFER_E_IO, "%s: %d of %d parts are in the cache", path, n, of);
}
enum infer_status hub_find(const struct hub_name *name, const struct hub_calls *c, char *path, size_t n) {
    char folder[HUB_PATH], commit[HUB_ID];
    struct hub_repo r;
    struct hub_choice k = {0};
    TRY(hub_folder(name->repo, folder, sizeof folder));
    hub_ref_read(folder, name->revision, commit);
    if (!commit[0]) return err_set(INFER_E_IO, "hf:%s is not in the cache", name->repo);
    TRY(hub_snapshot(folder, commit, &r));
    struct heads h = {.name = name, .c = c, .folder = folder, .commit = r.commit};
    enum infer_status st = hub_choose(name, &r, c, local_head, &h, &k);
    if (st == INFER_OK) st = all_parts(&r, &k);
    if (st == INFER_OK) st = path_of(&r, &k, folder, path, n);
    mem_free(k.wanted);
    hub_repo_free(&r);
    return st == INFER_E_INPUT ? err_set(INFER_E_IO, "not in the cache: %s", err_message()) : st;
}
