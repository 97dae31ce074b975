/* What models this disk has: the hub's cache, this program's own folder, Ollama's and LM Studio's. */
#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/mem.h"
#include "tools/hub/hub_impl.h"

enum { MOST = 200 };

static char *copy(const char *s) {
    char *to;
    if (mem_new(&to, strlen(s) + 1, "a name") != INFER_OK) return NULL;
    return strcpy(to, s);
}
static enum infer_status add(struct hub_models *m, const char *name, const char *path, const char *of,
                             uint64_t bytes) {
    struct stat s;
    if (m->n % 64 == 0) {
        struct hub_model *more = mem_realloc(m->model, sizeof *more * (size_t)(m->n + 64));
        if (!more) return err_set(INFER_E_MEMORY, "out of memory for a list of models");
        m->model = more;
    }
    struct hub_model *k = &m->model[m->n];
    *k = (struct hub_model){copy(name), copy(path), of, bytes, 0};
    m->n++;
    if (!k->name || !k->path) return INFER_E_MEMORY;
    if (!stat(path, &s)) k->used = s.st_atime > s.st_mtime ? s.st_atime : s.st_mtime;
    return INFER_OK;
}
void hub_list_free(struct hub_models *m) {
    for (int i = 0; i < m->n; i++) mem_free(m->model[i].name), mem_free(m->model[i].path);
    mem_free(m->model);
    *m = (struct hub_models){0};
}
static bool ends(const char *s, const char *with) {
    const size_t n = strlen(s), k = strlen(with);
    return n >= k && !strcasecmp(s + n - k, with);
}
/* Calls f for each name in a folder, until it fails. */
static enum infer_status
each(const char *folder, enum infer_status (*f)(void *user, const char *path, const char *name), void *user) {
    char path[HUB_PATH];
    struct dirent *e;
    enum infer_status st = INFER_OK;
    DIR *d = opendir(folder);
    while (d && st == INFER_OK && (e = readdir(d)))
        if (e->d_name[0] != '.' && hub_join(path, sizeof path, folder, e->d_name) == INFER_OK)
            st = f(user, path, e->d_name);
    if (d) closedir(d);
    return st;
}

/* ---- the hub's cache ---- */
struct snapshots {
    struct hub_models *to;
    const char *folder, *repo;
};
static enum infer_status add_variants(struct hub_models *to, const char *repo, const char *root,
                                      const struct hub_repo *r, const char *revision) {
    char name[512], path[HUB_PATH];
    struct hub_variant *v;
    int n;
    TRY(mem_new(&v, MOST * sizeof *v, "variants"));
    hub_variants(r, v, MOST, &n);
    enum infer_status st = INFER_OK;
    for (int i = 0; i < n && st == INFER_OK; i++) {
        bool twice = !v[i].type[0];
        for (int k = 0; k < n; k++) twice |= k != i && !strcasecmp(v[i].type, v[k].type);
        snprintf(name, sizeof name, "hf:%s:%s%s", repo, twice ? v[i].first : v[i].type, revision);
        if (hub_join(path, sizeof path, root, v[i].first) == INFER_OK)
            st = add(to, name, path, "hf", v[i].bytes);
    }
    uint64_t weights = 0, all = 0;
    bool config = false;
    for (int i = 0; i < r->n; i++) {
        all += r->file[i].size;
        if (ends(r->file[i].path, ".safetensors")) weights += r->file[i].size;
        config |= !strcmp(r->file[i].path, "config.json");
    }
    snprintf(name, sizeof name, "hf:%s%s", repo, revision);
    if (st == INFER_OK && !n && config && weights) st = add(to, name, root, "hf", all);
    mem_free(v);
    return st;
}
static enum infer_status one_snapshot(void *user, const char *path, const char *commit) {
    const struct snapshots *s = user;
    char main[HUB_ID], revision[HUB_ID + 2] = "";
    struct hub_repo r;
    if (strlen(commit) >= HUB_ID) return INFER_OK;
    hub_ref_read(s->folder, "main", main);
    if (strcmp(main, commit) != 0) snprintf(revision, sizeof revision, "@%s", commit);
    enum infer_status st = hub_snapshot(s->folder, commit, &r);
    if (st == INFER_OK) st = add_variants(s->to, s->repo, path, &r, revision);
    hub_repo_free(&r);
    return st;
}
static enum infer_status one_repo(void *user, const char *path, const char *name) {
    char repo[256], snapshots[HUB_PATH];
    if (strncmp(name, "models--", 8) != 0 || strlen(name) >= sizeof repo) return INFER_OK;
    snprintf(repo, sizeof repo, "%s", name + 8);
    char *mark = strstr(repo, "--");
    if (!mark) return INFER_OK;
    *mark = '/';
    memmove(mark + 1, mark + 2, strlen(mark + 2) + 1);
    TRY(hub_join(snapshots, sizeof snapshots, path, "snapshots"));
    return each(snapshots, one_snapshot, &(struct snapshots){user, path, repo});
}

/* ---- files of other programs ---- */
struct found {
    struct hub_models *to;
    const char *of, *blobs;
    int depth;
};
static enum infer_status one_file(void *user, const char *path, const char *name) {
    struct found *f = user;
    struct stat s;
    if (stat(path, &s)) return INFER_OK;
    if (S_ISDIR(s.st_mode) && f->depth < 4) {
        struct found under = {f->to, f->of, NULL, f->depth + 1};
        return each(path, one_file, &under);
    }
    if (!S_ISREG(s.st_mode) || !ends(name, ".gguf") || strcasestr(name, "mmproj")) return INFER_OK;
    return add(f->to, path, path, f->of, (uint64_t)s.st_size);
}
/* A manifest: the layer with the model is a file of blobs/. */
static enum infer_status manifest(struct found *f, const char *path) {
    char blob[HUB_PATH];
    json_t *root = json_load_file(path, 0, NULL), *layer;
    size_t i;
    enum infer_status st = INFER_OK;
    json_array_foreach(json_object_get(root, "layers"), i, layer) {
        const char *type = json_string_value(json_object_get(layer, "mediaType")),
                   *digest = json_string_value(json_object_get(layer, "digest"));
        const json_int_t size = json_integer_value(json_object_get(layer, "size"));
        if (!type || !digest || strcmp(type, "application/vnd.ollama.image.model") != 0 ||
            strlen(digest) != 71)
            continue;
        if (snprintf(blob, sizeof blob, "%s/sha256-%s", f->blobs, digest + 7) < (int)sizeof blob &&
            !access(blob, R_OK))
            st = add(f->to, blob, blob, "ollama", size > 0 ? (uint64_t)size : 0);
    }
    json_decref(root);
    return st;
}
static enum infer_status one_manifest(void *user, const char *path, const char *name) {
    struct found *f = user;
    struct stat s;
    (void)name;
    if (stat(path, &s)) return INFER_OK;
    if (!S_ISDIR(s.st_mode))
        return S_ISREG(s.st_mode) && s.st_size < (1 << 20) ? manifest(f, path) : INFER_OK;
    if (f->depth > 4) return INFER_OK;
    struct found under = {f->to, f->of, f->blobs, f->depth + 1};
    return each(path, one_manifest, &under);
}

static int newest_first(const void *a, const void *b) {
    const struct hub_model *x = a, *y = b;
    return x->used < y->used ? 1 : x->used > y->used ? -1 : strcmp(x->name, y->name);
}
static void under_home(char *to, size_t n, const char *env, const char *name) {
    const char *set = getenv(env), *home = getenv("HOME");
    snprintf(to, n, "%s%s%s",
             set && *set ? set
             : home      ? home
                         : "",
             set && *set ? "" : "/", set && *set ? "" : name);
}
enum infer_status hub_list(struct hub_models *out) {
    char path[HUB_PATH], blobs[HUB_PATH], manifests[HUB_PATH];
    const char *xdg = getenv("XDG_CACHE_HOME");
    *out = (struct hub_models){0};
    TRY(hub_cache(path, sizeof path));
    TRY(each(path, one_repo, out));
    under_home(path, sizeof path, "OLLAMA_MODELS", ".ollama/models");
    TRY(hub_join(blobs, sizeof blobs, path, "blobs"));
    TRY(hub_join(manifests, sizeof manifests, path, "manifests"));
    TRY(each(manifests, one_manifest, &(struct found){out, "ollama", blobs, 0}));
    under_home(path, sizeof path, "", ".lmstudio/models");
    TRY(each(path, one_file, &(struct found){out, "lm-studio", NULL, 0}));
    under_home(path, sizeof path, "", ".cache/lm-studio/models");
    TRY(each(path, one_file, &(struct found){out, "lm-studio", NULL, 0}));
    if (xdg && *xdg)
        snprintf(path, sizeof path, "%s/infer/models", xdg);
    else
        under_home(path, sizeof path, "", ".cache/infer/models");
    TRY(each(path, one_file, &(struct found){out, "infer", NULL, 0}));
    if (out->n) qsort(out->model, (size_t)out->n, sizeof *out->model, newest_first);
    return INFER_OK;
}

bool hub_means(const struct hub_name *name, const struct hub_model *m, bool exact) {
    struct hub_name own;
    char folder[HUB_PATH], commit[HUB_ID], snapshot[HUB_ID + 16];
    if (strcmp(m->of, "hf") != 0 || hub_parse(m->name, &own) != INFER_OK || strcmp(own.repo, name->repo) != 0)
        return false;
    if (strcmp(name->revision, "main") != 0) {
        if (hub_folder(name->repo, folder, sizeof folder) != INFER_OK) return false;
        hub_ref_read(folder, name->revision, commit);
        snprintf(snapshot, sizeof snapshot, "/snapshots/%s", commit);
        if (!commit[0] || !strstr(m->path, snapshot)) return false;
    }
    const size_t path = strlen(m->path), part = strlen(name->part);
    if (!part ||
        (part < path && m->path[path - part - 1] == '/' && !strcmp(m->path + path - part, name->part)))
        return true;
    if (exact) return !strcasecmp(own.part, name->part);
    return !strncasecmp(own.part, "ud-", 3) && !strcasecmp(own.part + 3, name->part);
}
