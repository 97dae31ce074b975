/* The hub's cache: models--org--name/{blobs,refs,snapshots}. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/mem.h"
#include "tools/hub/hub_impl.h"

enum infer_status hub_join(char *to, size_t n, const char *folder, const char *name) {
    const int len = snprintf(to, n, "%s/%s", folder, name);
    return len < 0 || (size_t)len >= n ? err_set(INFER_E_INPUT, "a path in the cache has over %zu bytes", n)
                                       : INFER_OK;
}
static const char *set_one(const char *name) {
    const char *v = getenv(name);
    return v && *v ? v : NULL;
}
bool hub_path_in(const char *variable, const char *under, char *to, size_t n) {
    const char *v = set_one(variable), *home = set_one("HOME");
    const bool short_home = v && home && v[0] == '~' && (v[1] == '/' || !v[1]); /* no shell has seen it */
    to[0] = 0;
    if (v) snprintf(to, n, "%s%s%s", short_home ? home : "", v + short_home, under);
    return v != NULL;
}
enum infer_status hub_cache(char *to, size_t n) {
    if (!hub_path_in("HF_HUB_CACHE", "", to, n) && !hub_path_in("HUGGINGFACE_HUB_CACHE", "", to, n) &&
        !hub_path_in("HF_HOME", "/hub", to, n) && !hub_path_in("XDG_CACHE_HOME", "/huggingface/hub", to, n) &&
        !hub_path_in("HOME", "/.cache/huggingface/hub", to, n))
        return err_set(INFER_E_INPUT, "no folder for models: $HF_HOME and $HOME are not set");
    return strlen(to) + 1 == n ? err_set(INFER_E_INPUT, "the cache's path has over %zu bytes", n) : INFER_OK;
}
enum infer_status hub_folder(const char *repo, char *to, size_t n) {
    char cache[HUB_PATH];
    TRY(hub_cache(cache, sizeof cache));
    const char *slash = strchr(repo, '/');
    const int len = slash
                        ? snprintf(to, n, "%s/models--%.*s--%s", cache, (int)(slash - repo), repo, slash + 1)
                        : snprintf(to, n, "%s/models--%s", cache, repo);
    return len < 0 || (size_t)len >= n ? err_set(INFER_E_INPUT, "the cache's path has over %zu bytes", n)
                                       : INFER_OK;
}
bool hub_offline(void) {
    static const char *const no[] = {"0", "off", "no", "false"};
    const char *v = set_one("HF_HUB_OFFLINE");
    for (size_t i = 0; v && i < sizeof no / sizeof *no; i++)
        if (!strcasecmp(v, no[i])) return false;
    return v != NULL;
}
enum infer_status hub_make_parents(const char *path) {
    char part[HUB_PATH];
    for (const char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
        snprintf(part, sizeof part, "%.*s", (int)(p - path), path);
        if (mkdir(part, 0777) && errno != EEXIST)
            return err_set(INFER_E_WRITE, "%s: %s", part, strerror(errno));
    }
    return INFER_OK;
}

enum infer_status hub_lock(const char *folder, const char *what, int how, int *fd) {
    char path[HUB_PATH];
    const char *name = strrchr(folder, '/') + 1;
    if (snprintf(path, sizeof path, "%.*s/.locks/%s/%s.lock", (int)(name - 1 - folder), folder, name, what) >=
        (int)sizeof path)
        return err_set(INFER_E_INPUT, "a path in the cache is too long");
    TRY(hub_make_parents(path));
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (*fd < 0) return err_set(INFER_E_WRITE, "%s: %s", path, strerror(errno));
    if (!flock(*fd, how | LOCK_NB)) return INFER_OK;
    const int e = errno;
    close(*fd);
    *fd = -1;
    return e == EWOULDBLOCK || e == EINTR ? INFER_OK : err_set(INFER_E_IO, "%s: %s", path, strerror(e));
}

/* ---- refs ---- */
static bool is_commit(const char *s) { return strlen(s) == 40 && strspn(s, "0123456789abcdef") == 40; }
void hub_ref_read(const char *folder, const char *revision, char commit[HUB_ID]) {
    char path[HUB_PATH], line[HUB_ID] = "";
    commit[0] = 0;
    if (is_commit(revision)) {
        snprintf(commit, HUB_ID, "%s", revision);
        return;
    }
    if (snprintf(path, sizeof path, "%s/refs/%s", folder, revision) >= (int)sizeof path) return;
    FILE *f = fopen(path, "r");
    if (!f) return;
    if (fgets(line, sizeof line, f)) {
        line[strcspn(line, " \r\n")] = 0;
        if (is_commit(line)) snprintf(commit, HUB_ID, "%s", line);
    }
    fclose(f);
}
/* A new file in place of an old one, at once. */
static enum infer_status put_file(const char *path, const char *text) {
    char fresh[HUB_PATH];
    if (snprintf(fresh, sizeof fresh, "%s.%d", path, (int)getpid()) >= (int)sizeof fresh)
        return err_set(INFER_E_INPUT, "a path in the cache is too long");
    TRY(hub_make_parents(path));
    FILE *f = fopen(fresh, "w");
    bool good = f && fputs(text, f) >= 0;
    if (f && fclose(f)) good = false;
    if (good && !rename(fresh, path)) return INFER_OK;
    const int e = errno;
    unlink(fresh);
    return err_set(INFER_E_WRITE, "%s: %s", path, strerror(e));
}
enum infer_status hub_ref_write(const char *folder, const char *revision, const char *commit) {
    char path[HUB_PATH];
    if (is_commit(revision)) return INFER_OK;
    if (snprintf(path, sizeof path, "%s/refs/%s", folder, revision) >= (int)sizeof path)
        return err_set(INFER_E_INPUT, "a path in the cache is too long");
    return put_file(path, commit);
}

/* ---- snapshots ---- */
enum infer_status hub_link(const char *folder, const char *commit, const struct hub_file *f) {
    char at[HUB_PATH], fresh[HUB_PATH + 16], to[HUB_PATH];
    size_t n = 0;
    if (snprintf(at, sizeof at, "%s/snapshots/%s/%s", folder, commit, f->path) >= (int)sizeof at)
        return err_set(INFER_E_INPUT, "%s: the path is too long", f->path);
    for (const char *p = f->path; (p = strchr(p, '/')); p++)
        n += (size_t)snprintf(to + n, sizeof to - n, "../");
    snprintf(to + n, sizeof to - n, "../../blobs/%s", f->id);
    TRY(hub_make_parents(at));
    snprintf(fresh, sizeof fresh, "%s.%d", at, (int)getpid());
    unlink(fresh);
    if (!symlink(to, fresh) && !rename(fresh, at)) return INFER_OK;
    const int e = errno;
    unlink(fresh);
    return err_set(INFER_E_WRITE, "%s: %s", at, strerror(e));
}
static enum infer_status walk(const char *root, const char *under, int depth, struct hub_repo *out) {
    char path[HUB_PATH], name[HUB_PATH];
    struct dirent *e;
    enum infer_status st = INFER_OK;
    if (depth > 8 || hub_join(path, sizeof path, root, under) != INFER_OK) return INFER_OK;
    DIR *d = opendir(path);
    while (d && st == INFER_OK && (e = readdir(d))) {
        struct stat s;
        if (e->d_name[0] == '.' ||
            snprintf(name, sizeof name, "%s%s%s", under, *under ? "/" : "", e->d_name) >= (int)sizeof name ||
            hub_join(path, sizeof path, root, name) != INFER_OK || stat(path, &s))
            continue; /* also a link whose blob is gone */
        if (S_ISDIR(s.st_mode)) st = walk(root, name, depth + 1, out);
        if (S_ISREG(s.st_mode)) st = hub_repo_add(out, name, (uint64_t)s.st_size, "", false);
    }
    if (d) closedir(d);
    return st;
}
enum infer_status hub_snapshot(const char *folder, const char *commit, struct hub_repo *out) {
    char root[HUB_PATH];
    *out = (struct hub_repo){0};
    snprintf(out->commit, sizeof out->commit, "%s", commit);
    if (snprintf(root, sizeof root, "%s/snapshots/%s", folder, commit) >= (int)sizeof root)
        return err_set(INFER_E_INPUT, "a path in the cache is too long");
    return walk(root, "", 0, out);
}
