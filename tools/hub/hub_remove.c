/* Takes a model out of the hub's cache: its links, then the blobs that nothing links to any more. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/mem.h"
#include "tools/hub/hub_impl.h"

struct removal {
    const char *folder;
    bool parts;           /* what fetches that broke off left goes, too */
    char (*kept)[HUB_ID]; /* kept[n_kept]: blobs that links need */
    int n_kept;
};
/* Blobs that the links below a folder name. */
static enum infer_status find_kept(struct removal *r, const char *under, int depth) {
    char path[HUB_PATH], to[HUB_PATH];
    struct dirent *e;
    enum infer_status st = INFER_OK;
    DIR *d = opendir(under);
    while (d && st == INFER_OK && (e = readdir(d))) {
        struct stat s;
        if (e->d_name[0] == '.' || hub_join(path, sizeof path, under, e->d_name) != INFER_OK ||
            lstat(path, &s))
            continue;
        if (S_ISDIR(s.st_mode) && depth < 10) st = find_kept(r, path, depth + 1);
        const ssize_t n = S_ISLNK(s.st_mode) ? readlink(path, to, sizeof to - 1) : -1;
        if (n <= 0) continue;
        to[n] = 0;
        const char *id = strrchr(to, '/') ? strrchr(to, '/') + 1 : to;
        if (strlen(id) >= HUB_ID) continue;
        char(*more)[HUB_ID] = mem_realloc(r->kept, sizeof *more * (size_t)(r->n_kept + 1));
        if (!more) st = err_set(INFER_E_MEMORY, "out of memory for a list of files");
        if (more) r->kept = more, memcpy(more[r->n_kept++], id, strlen(id) + 1);
    }
    if (d) closedir(d);
    return st;
}
static bool is_kept(const struct removal *r, const char *name) {
    if (!r->parts && strchr(name, '.')) return true;
    for (int i = 0; i < r->n_kept; i++)
        if (!strcmp(r->kept[i], name)) return true;
    return false;
}
static enum infer_status sweep(const struct removal *r, uint64_t *freed, int *n) {
    char blobs[HUB_PATH], path[HUB_PATH];
    struct dirent *e;
    TRY(hub_join(blobs, sizeof blobs, r->folder, "blobs"));
    DIR *d = opendir(blobs);
    while (d && (e = readdir(d))) {
        struct stat s;
        if (e->d_name[0] == '.' || is_kept(r, e->d_name) ||
            hub_join(path, sizeof path, blobs, e->d_name) != INFER_OK || lstat(path, &s))
            continue;
        if (unlink(path)) {
            const int error = errno;
            closedir(d);
            return err_set(INFER_E_WRITE, "%s: %s", path, strerror(error));
        }
        *freed += (uint64_t)s.st_blocks * 512;
        (*n)++;
    }
    if (d) closedir(d);
    return INFER_OK;
}
/* Folders that are empty, from the inside. */
static void tidy(const char *path, int depth) {
    char inner[HUB_PATH];
    struct dirent *e;
    DIR *d = depth < 10 ? opendir(path) : NULL;
    while (d && (e = readdir(d))) {
        struct stat s;
        if (e->d_name[0] != '.' && hub_join(inner, sizeof inner, path, e->d_name) == INFER_OK &&
            !lstat(inner, &s) && S_ISDIR(s.st_mode))
            tidy(inner, depth + 1);
    }
    if (d) closedir(d);
    rmdir(path);
}
/* Links of a snapshot to the model, all of them where no part is named; what only supports a model goes with the last of them. */
static enum infer_status unlink_model(const struct hub_name *name, const char *folder, const char *commit,
                                      int *n) {
    char path[HUB_PATH];
    struct hub_repo r;
    struct hub_choice k = {.main = -1};
    int left = 0;
    TRY(hub_snapshot(folder, commit, &r));
    enum infer_status st = INFER_OK;
    if (name->part[0]) st = hub_choose(name, &r, &(struct hub_calls){0}, NULL, NULL, &k);
    for (int i = 0; st == INFER_OK && k.main >= 0 && i < r.n; i++)
        left += !k.wanted[i] && strstr(r.file[i].path, ".gguf") != NULL;
    for (int i = 0; st == INFER_OK && i < r.n; i++) {
        const bool tower = strstr(r.file[i].path, "mmproj") != NULL;
        if (k.main >= 0 && left && (!k.wanted[i] || tower)) continue;
        if (snprintf(path, sizeof path, "%s/snapshots/%s/%s", folder, commit, r.file[i].path) >=
            (int)sizeof path)
            continue;
        if (unlink(path)) st = err_set(INFER_E_WRITE, "%s: %s", path, strerror(errno));
        (*n)++;
    }
    mem_free(k.wanted);
    hub_repo_free(&r);
    return st == INFER_E_INPUT ? INFER_OK : st; /* another snapshot has it */
}
static enum infer_status remove_held(const struct hub_name *name, const char *folder, uint64_t *freed) {
    char snapshots[HUB_PATH], refs[HUB_PATH], commit[HUB_ID];
    struct dirent *e;
    struct removal r = {.folder = folder, .parts = !name->part[0] && !strcmp(name->revision, "main")};
    int n = 0;
    TRY(hub_join(snapshots, sizeof snapshots, folder, "snapshots"));
    TRY(hub_join(refs, sizeof refs, folder, "refs"));
    hub_ref_read(folder, name->revision, commit);
    enum infer_status st = INFER_OK;
    DIR *d = opendir(snapshots);
    while (d && st == INFER_OK && (e = readdir(d)))
        if (e->d_name[0] != '.' && strlen(e->d_name) < HUB_ID &&
            (!strcmp(name->revision, "main") || !strcmp(commit, e->d_name)))
            st = unlink_model(name, folder, e->d_name, &n);
    if (d) closedir(d);
    if (st == INFER_OK && (n || r.parts)) st = find_kept(&r, snapshots, 0);
    if (st == INFER_OK && (n || r.parts)) st = sweep(&r, freed, &n);
    if (st == INFER_OK && !n)
        st = err_set(INFER_E_INPUT, "hf:%s%s%s is not in the cache", name->repo, name->part[0] ? ":" : "",
                     name->part);
    if (st == INFER_OK && !r.n_kept) { /* nothing is left of the repository */
        char path[HUB_PATH];
        DIR *of = opendir(refs);
        while (of && (e = readdir(of)))
            if (e->d_name[0] != '.' && hub_join(path, sizeof path, refs, e->d_name) == INFER_OK) unlink(path);
        if (of) closedir(of);
    }
    tidy(folder, 0);
    mem_free(r.kept);
    return st;
}
enum infer_status hub_remove(const struct hub_name *name, uint64_t *freed) {
    char folder[HUB_PATH];
    int held = -1;
    *freed = 0;
    TRY(hub_folder(name->repo, folder, sizeof folder));
    if (access(folder, F_OK)) return err_set(INFER_E_INPUT, "hf:%s is not in the cache", name->repo);
    TRY(hub_lock(folder, HUB_WHOLE, LOCK_EX, &held));
    if (held < 0)
        return err_set(INFER_E_WRITE, "hf:%s is being fetched by another program: nothing is removed",
                       name->repo);
    const enum infer_status st = remove_held(name, folder, freed);
    close(held);
    return st;
}
