/* Names, and what the hub says of a repository. */
#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/mem.h"
#include "tools/hub/hub_impl.h"

#define ENDPOINT "https://huggingface.co"

/* ---- names ---- */
bool hub_is_name(const char *text) { return !strncmp(text, "hf:", 3); }

static bool word(const char *s, size_t n) {
    if (!n || n > 96 || *s == '.' || *s == '-') return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)s[i]) && !strchr("-_.", s[i])) return false;
    return true;
}
/* No way out of the folder that a file is to lie in. */
static bool inner_path(const char *s) {
    if (!*s || *s == '/' || strstr(s, "//")) return false;
    for (const char *p = s; p; p = strchr(p, '/') ? strchr(p, '/') + 1 : NULL)
        if (!strncmp(p, "..", 2) && (p[2] == '/' || !p[2])) return false;
    for (; *s; s++)
        if ((unsigned char)*s < 32 || *s == 127) return false;
    return true;
}
enum infer_status hub_parse(const char *text, struct hub_name *out) {
    const char *s = hub_is_name(text) ? text + 3 : text, *slash = strchr(s, '/'), *at = strrchr(s, '@');
    const size_t all = at ? (size_t)(at - s) : strlen(s);
    const char *colon = memchr(s, ':', all);
    const size_t repo = colon ? (size_t)(colon - s) : all, part = colon ? all - repo - 1 : 0;
    const bool good = slash && slash < s + repo && word(s, (size_t)(slash - s)) &&
                      word(slash + 1, (size_t)(s + repo - slash - 1)) && repo < sizeof out->repo &&
                      part < sizeof out->part && (!at || strlen(at + 1) < sizeof out->revision);
    *out = (struct hub_name){0};
    if (good) {
        snprintf(out->repo, sizeof out->repo, "%.*s", (int)repo, s);
        snprintf(out->part, sizeof out->part, "%.*s", (int)part, colon ? colon + 1 : "");
        snprintf(out->revision, sizeof out->revision, "%s", at ? at + 1 : "main");
    }
    if (!good || (out->part[0] && !inner_path(out->part)) || !inner_path(out->revision))
        return err_set(
            INFER_E_INPUT,
            "%s: a name is hf:ORG/REPO, hf:ORG/REPO:Q4_K_M or hf:ORG/REPO:FILE.gguf, with @REVISION behind it",
            text);
    return INFER_OK;
}

/* ---- where and who ---- */
static const char *endpoint(void) {
    static char own[1024]; /* without slashes behind it */
    const char *e = getenv("HF_ENDPOINT");
    size_t n = e ? strlen(e) : 0;
    while (n && e[n - 1] == '/') n--;
    if (!n || n >= sizeof own) return n ? e : ENDPOINT;
    if (strncmp(own, e, n) != 0 || own[n]) snprintf(own, sizeof own, "%.*s", (int)n, e);
    return own;
}
/* text without white space around it into to[n]; false: nothing is left. */
static bool trimmed(const char *text, char *to, size_t n) {
    static const char white[] = " \t\r\n";
    text += strspn(text, white);
    snprintf(to, n, "%.*s", (int)strcspn(text, white), text);
    return to[0] != 0;
}
static bool token_file(char *line, size_t n) {
    char path[HUB_PATH];
    if (!hub_path_in("HF_TOKEN_PATH", "", path, sizeof path) &&
        !hub_path_in("HF_HOME", "/token", path, sizeof path) &&
        !hub_path_in("XDG_CACHE_HOME", "/huggingface/token", path, sizeof path))
        hub_path_in("HOME", "/.cache/huggingface/token", path, sizeof path);
    FILE *f = fopen(path, "r");
    const bool good = f && fgets(line, (int)n, f);
    if (f) fclose(f);
    return good;
}
const char *hub_token(void) {
    static char token[2048];
    char line[sizeof token];
    const char *env = getenv("HF_TOKEN");
    if (token[0] || (env && trimmed(env, token, sizeof token))) return token;
    return token_file(line, sizeof line) && trimmed(line, token, sizeof token) ? token : NULL;
}
/* text as a part of an address; slashes stay */
static void escaped(char *to, size_t n, const char *text) {
    size_t at = 0;
    for (; *text && at + 4 < n; text++) {
        const unsigned char c = (unsigned char)*text;
        if (isalnum(c) || strchr("-_.~/", c))
            to[at++] = (char)c;
        else
            at += (size_t)snprintf(to + at, n - at, "%%%02X", c);
    }
    to[at] = 0;
}
enum infer_status hub_url(const struct hub_name *name, const char *commit, const char *path, char *to,
                          size_t n) {
    char file[HUB_PATH];
    escaped(file, sizeof file, path);
    const int len = snprintf(to, n, "%s/%s/resolve/%s/%s", endpoint(), name->repo, commit, file);
    return len < 0 || (size_t)len >= n ? err_set(INFER_E_INPUT, "%s: the address is too long", path)
                                       : INFER_OK;
}

/* ---- answers that are none ---- */
enum infer_status hub_refusal(const struct http_answer *a, const char *repo, const char *what) {
    const bool key = hub_token() != NULL;
    if (!a->status) return err_set(INFER_E_IO, "%s: no answer from %s: %s", what, endpoint(), a->why);
    if (!strcmp(a->error_code, "GatedRepo"))
        return err_set(INFER_E_INPUT, "%s: its authors let in whom they know: ask at %s/%s%s", repo,
                       endpoint(), repo, key ? "" : ", then set $HF_TOKEN");
    if (a->status == 401 || a->status == 403)
        return err_set(INFER_E_INPUT, "%s: there is no such repository, or %s", repo,
                       key ? "the token of $HF_TOKEN may not read it"
                           : "it is not public and $HF_TOKEN is not set");
    if (a->status == 404 && !strcmp(a->error_code, "RevisionNotFound"))
        return err_set(INFER_E_INPUT, "%s has no such revision", repo);
    if (a->status == 404) return err_set(INFER_E_INPUT, "%s: not found", what);
    if (a->status == 429) {
        char when[40] = "later";
        if (a->retry_after > 0) snprintf(when, sizeof when, "in %.0f s", a->retry_after);
        return err_set(INFER_E_IO, "%s: the hub is asked too often; try again %s%s", what, when,
                       key ? "" : ", or set $HF_TOKEN");
    }
    return err_set(INFER_E_IO, "%s: the hub says %ld%s%.200s%s", what, a->status,
                   a->error_text[0] ? " (" : "", a->error_text, a->error_text[0] ? ")" : "");
}

double hub_again(const struct http_answer *a, int tries) {
    const bool hope = !a->status || a->status / 100 == 2 || a->status == 429 || a->status >= 500;
    if (!hope || (a->status >= 300 && a->retry_after >= 60)) return -1;
    return a->retry_after > 0 ? a->retry_after : 0.5 * (1 << (tries < 5 ? tries : 5));
}
void hub_rest(double seconds) {
    const struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&t, NULL);
}

/* Repositories with such a name, for a message. */
static void near_names(const struct hub_name *name, char *to, size_t n) {
    char url[HUB_PATH], query[512], *text;
    const char *slash = strchr(name->repo, '/');
    struct http_answer a;
    size_t len, at = 0;
    escaped(query, sizeof query, slash ? slash + 1 : name->repo);
    snprintf(url, sizeof url, "%s/api/models?search=%s&limit=5", endpoint(), query);
    to[0] = 0;
    if (http_text(&(struct http_request){.url = url, .seconds = 10, .most = 1 << 20}, "a search", &a, &text,
                  &len) != INFER_OK) {
        http_answer_free(&a);
        return;
    }
    http_answer_free(&a);
    json_t *list = json_loadb(text, len, 0, NULL), *row;
    size_t i;
    json_array_foreach(list, i, row) {
        const char *id = json_string_value(json_object_get(row, "id"));
        if (id && at + strlen(id) + 8 < n)
            at += (size_t)snprintf(to + at, n - at, "%s%s", at ? ", " : "; near it are ", id);
    }
    json_decref(list);
    mem_free(text);
}

/* ---- files of a repository ---- */
void hub_repo_free(struct hub_repo *r) {
    for (int i = 0; i < r->n; i++) mem_free(r->file[i].path);
    mem_free(r->file);
    *r = (struct hub_repo){0};
}
enum infer_status hub_repo_add(struct hub_repo *r, const char *path, uint64_t size, const char *id,
                               bool large) {
    if (r->n == HUB_FILES) return err_set(INFER_E_INPUT, "a repository of over %d files", HUB_FILES);
    if (!(r->n & (r->n - 1)) || !r->file) {
        struct hub_file *more = mem_realloc(r->file, sizeof *more * (size_t)(r->n ? 2 * r->n : 1));
        if (!more) return err_set(INFER_E_MEMORY, "out of memory for a list of files");
        r->file = more;
    }
    struct hub_file *f = &r->file[r->n];
    *f = (struct hub_file){.size = size, .large = large};
    snprintf(f->id, sizeof f->id, "%s", id);
    TRY(mem_new(&f->path, strlen(path) + 1, "a path"));
    memcpy(f->path, path, strlen(path) + 1);
    r->n++;
    return INFER_OK;
}
static bool hex_id(const char *s, size_t n) {
    return s && strlen(s) == n && strspn(s, "0123456789abcdef") == n;
}

static enum infer_status read_files(const struct hub_name *name, json_t *root, struct hub_repo *out) {
    json_t *list = json_object_get(root, "siblings"), *row;
    const char *commit = json_string_value(json_object_get(root, "sha"));
    size_t i;
    if (!hex_id(commit, 40) || !json_is_array(list))
        return err_set(INFER_E_IO, "%s: the hub's answer has no commit or no files", name->repo);
    snprintf(out->commit, sizeof out->commit, "%s", commit);
    json_array_foreach(list, i, row) {
        const json_t *lfs = json_object_get(row, "lfs");
        const char *path = json_string_value(json_object_get(row, "rfilename")),
                   *id = json_string_value(json_object_get(lfs ? lfs : row, lfs ? "sha256" : "blobId"));
        const json_int_t size = json_integer_value(json_object_get(lfs ? lfs : row, "size"));
        if (!path || !inner_path(path) || size < 0 || !hex_id(id, lfs ? 64 : 40))
            continue; /* nothing of that can be checked */
        TRY(hub_repo_add(out, path, (uint64_t)size, id, lfs != NULL));
    }
    return INFER_OK;
}
enum infer_status hub_repo_ask(const struct hub_name *name, const struct hub_calls *c, struct hub_repo *out) {
    char url[HUB_PATH], revision[1024], near[1024] = "", *text;
    struct http_answer a;
    size_t n;
    *out = (struct hub_repo){0};
    TRY(http_open());
    escaped(revision, sizeof revision - 2 * sizeof name->revision, name->revision);
    for (char *p = revision; (p = strchr(p, '/'));) { /* of a branch "refs/pr/1": one part of the address */
        memmove(p + 3, p + 1, strlen(p + 1) + 1);
        memcpy(p, "%2F", 3);
    }
    snprintf(url, sizeof url, "%s/api/models/%s/revision/%s?blobs=true", endpoint(), name->repo, revision);
    const struct http_request ask = {.url = url,
                                     .bearer = hub_token(),
                                     .seconds = 60,
                                     .most = 64 << 20,
                                     .user = c->user,
                                     .accept = "application/json"};
    enum infer_status st;
    for (int tries = 0;; tries++) {
        st = http_text(&ask, name->repo, &a, &text, &n);
        const double wait = st == INFER_E_IO && a.status >= 300 ? hub_again(&a, tries) : -1;
        if (wait < 0 || tries + 1 == HUB_TRIES) break;
        char line[200];
        snprintf(line, sizeof line, "the hub says %ld: asked again in %.1f s", a.status, wait);
        if (c->say) c->say(c->user, line);
        http_answer_free(&a);
        hub_rest(wait);
    }
    if (st != INFER_OK) {
        if (st != INFER_E_IO) return st;
        st = hub_refusal(&a, name->repo, name->repo);
        if ((a.status == 404 && strcmp(a.error_code, "RevisionNotFound") != 0) ||
            (a.status == 401 && strcmp(a.error_code, "GatedRepo") != 0)) {
            char message[512];
            snprintf(message, sizeof message, "%s", err_message());
            near_names(name, near, sizeof near);
            st = err_set(INFER_E_INPUT, "%s%s", message, near);
        }
        http_answer_free(&a);
        return st;
    }
    http_answer_free(&a);
    json_t *root = json_loadb(text, n, 0, NULL);
    st = root ? read_files(name, root, out)
              : err_set(INFER_E_IO, "%s: the hub's answer is no JSON", name->repo);
    json_decref(root);
    mem_free(text);
    if (st != INFER_OK) hub_repo_free(out);
    return st;
}
