/* Adapters that come and go while a server runs: files of one folder (--lora-dir), each in a place of the engine's room (--max-loras). A
 * place is empty again when it was taken out and no request has it any more; what holds it until then goes on. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "serve/core/api_keys.h"
#include "serve/core/lanes.h"
#include "serve/core/server.h"

struct lora_place {
    struct infer_adapter *adapter; /* NULL: nothing stands there */
    char name[257];
    bool here; /* requests may name it; else it goes when nobody has it */
    int users; /* requests with a scale of it */
};
struct loras {
    char dir[PATH_MAX];
    int first, n;            /* of scales: first .. first + n - 1 are places */
    pthread_mutex_t loading; /* one comes or goes at a time */
    pthread_mutex_t lock;    /* of place */
    struct lora_place place[LORAS_MAX];
};

enum infer_status loras_open(struct server *s, const char *dir) {
    struct loras *l;
    if (!dir) return INFER_OK;
    TRY(mem_new(&l, sizeof *l, "adapters"));
    *l = (struct loras){.first = s->adapters->n, .n = s->adapters->n_room};
    pthread_mutex_init(&l->loading, NULL);
    pthread_mutex_init(&l->lock, NULL);
    s->loras = l;
    return realpath(dir, l->dir) ? INFER_OK : err_set(INFER_E_IO, "--lora-dir %s: no such folder", dir);
}

/* The engine computes nothing any more. */
void loras_close(struct server *s) {
    struct loras *l = s->loras;
    if (!l) return;
    for (int i = 0; i < l->n; i++) infer_adapter_close(l->place[i].adapter);
    pthread_mutex_destroy(&l->loading);
    pthread_mutex_destroy(&l->lock);
    mem_free(l);
    s->loras = NULL;
}

/* ---- which there are ---- */

static int find(const struct loras *l, const char *name) {
    for (int i = 0; i < l->n; i++)
        if (l->place[i].here && strcmp(l->place[i].name, name) == 0) return i;
    return -1;
}

bool loras_at(struct server *s, int scale, struct lora_seen *out) {
    struct loras *l = s->loras;
    const int i = l ? scale - l->first : -1;
    if (i < 0 || i >= l->n) return false;
    pthread_mutex_lock(&l->lock);
    const struct lora_place *p = &l->place[i];
    const bool here = p->here;
    if (here) {
        struct infer_adapter_info info;
        infer_adapter_info(p->adapter, &info);
        snprintf(out->name, sizeof out->name, "%s", p->name);
        snprintf(out->path, sizeof out->path, "%s", info.path);
    }
    pthread_mutex_unlock(&l->lock);
    return here;
}

int loras_named(struct server *s, const char *name) {
    struct loras *l = s->loras;
    if (!l) return -1;
    pthread_mutex_lock(&l->lock);
    const int i = find(l, name);
    pthread_mutex_unlock(&l->lock);
    return i < 0 ? -1 : l->first + i;
}

/* ---- who has one ---- */

enum infer_status loras_hold(struct job *j) {
    struct loras *l = j->server->loras;
    bool gone = false;
    if (!l || !j->ask.adapter || j->loras) return INFER_OK;
    pthread_mutex_lock(&l->lock);
    for (int i = 0; i < l->n; i++) {
        float *scale = &j->ask.adapter[l->first + i];
        if (*scale == 0) continue;
        if (l->place[i].here) {
            l->place[i].users++;
            j->loras |= UINT64_C(1) << i;
        } else {
            gone |= j->ask.lora_said;
            *scale = 0;
        }
    }
    pthread_mutex_unlock(&l->lock);
    return gone ? job_refuse(j, 404, "adapter_not_found", "lora", "'lora': this adapter was taken out")
                : INFER_OK;
}

void loras_release(struct job *j) {
    struct loras *l = j->server->loras;
    if (!l || !j->loras) return;
    pthread_mutex_lock(&l->lock);
    for (int i = 0; i < l->n; i++) l->place[i].users -= (int)(j->loras >> i & 1);
    pthread_mutex_unlock(&l->lock);
    j->loras = 0;
}

/* ---- coming and going; under `loading` ---- */

/* Between two steps. */
static enum infer_status put(struct server *s, int place, struct infer_adapter *a) {
    struct lane_order o = {.action = LANE_ADAPTER, .lane = s->loras->first + place, .put = a};
    return scheduler_order(s->scheduler, &o);
}

/* What was taken out, and nobody has any more, goes. */
static void sweep(struct server *s) {
    struct loras *l = s->loras;
    for (int i = 0; i < l->n; i++) {
        struct lora_place *p = &l->place[i];
        pthread_mutex_lock(&l->lock);
        const bool goes = p->adapter && !p->here && !p->users;
        pthread_mutex_unlock(&l->lock);
        if (!goes || put(s, i, NULL)) continue; /* a sequence that is just ending has it: the next time */
        infer_adapter_close(p->adapter);
        p->adapter = NULL;
    }
}

static enum infer_status may(struct job *j) {
    const struct server *s = j->server;
    if (!s->loras)
        return job_refuse(j, 400, "unsupported_parameter", NULL,
                          "this server takes no adapters: it is to be started with --lora-dir DIR");
    if (keys_class(s->keys, j->key) < CLASS_PRIORITY)
        return job_refuse(j, 403, "forbidden", NULL,
                          "adapters are for keys of the class priority (--api-key-file)");
    return INFER_OK;
}

/* Inside of the folder, by its name there or its whole path. */
static enum infer_status inside(struct job *j, const char *at, const char *path, char out[PATH_MAX]) {
    const struct loras *l = j->server->loras;
    const size_t n = strlen(l->dir);
    char joined[PATH_MAX];
    const int len = *path == '/' ? snprintf(joined, sizeof joined, "%s", path)
                                 : snprintf(joined, sizeof joined, "%s/%s", l->dir, path);
    if (!*path || len >= (int)sizeof joined || !realpath(joined, out) || strncmp(out, l->dir, n) != 0 ||
        out[n] != '/')
        return job_invalid(j, at, "'%s': there is no such file in the folder of --lora-dir", at);
    return INFER_OK;
}

static enum infer_status name_of(struct job *j, const char *at, const char *path, char name[257]) {
    struct server *s = j->server;
    if (!*name) {
        const char *slash = strrchr(path, '/'), *dot = strrchr(slash + 1, '.');
        const size_t n = dot && dot != slash + 1 ? (size_t)(dot - slash - 1) : strlen(slash + 1);
        snprintf(name, 257, "%.*s", (int)n, slash + 1);
    }
    if (server_knows_model(s, name)) return job_invalid(j, at, "'%s': '%s' is the model's name", at, name);
    if (loras_named(s, name) >= 0)
        return job_refuse(j, 400, "invalid_value", at, "the adapter '%s' has already been loaded", name);
    return INFER_OK;
}

static enum infer_status load(struct job *j, const struct lora_ask *a, const char *path, const char *name,
                              int *scale) {
    struct server *s = j->server;
    struct loras *l = s->loras;
    struct infer_adapter *adapter;
    int i = 0;
    sweep(s);
    while (i < l->n && l->place[i].adapter) i++;
    if (i == l->n) return job_refuse(j, 409, "no_room", NULL, "all %d places are taken (--max-loras)", l->n);
    enum infer_status st = infer_adapter_open(&adapter, s->model, path, NULL);
    if (!st && (st = put(s, i, adapter))) infer_adapter_close(adapter);
    if (st == INFER_E_MEMORY) return st;
    if (st) return job_refuse(j, 400, "invalid_value", a->path_at, "%s", err_message());
    pthread_mutex_lock(&l->lock);
    l->place[i] = (struct lora_place){.adapter = adapter, .here = true};
    snprintf(l->place[i].name, sizeof l->place[i].name, "%s", name);
    pthread_mutex_unlock(&l->lock);
    pthread_mutex_lock(&s->vocab_lock);
    s->scale[l->first + i] = a->scale;
    pthread_mutex_unlock(&s->vocab_lock);
    *scale = l->first + i;
    return INFER_OK;
}

enum infer_status loras_load(struct job *j, struct lora_ask *a, int *scale) {
    char path[PATH_MAX];
    TRY(may(j));
    TRY(inside(j, a->path_at, a->path, path));
    pthread_mutex_lock(&j->server->loras->loading);
    enum infer_status st = name_of(j, a->name_at, path, a->name);
    if (!st) st = load(j, a, path, a->name, scale);
    pthread_mutex_unlock(&j->server->loras->loading);
    return st;
}

enum infer_status loras_unload(struct job *j, struct lora_ask *a) {
    struct server *s = j->server;
    struct lora_seen seen;
    TRY(may(j));
    struct loras *l = s->loras;
    if (a->id >= 0 && loras_at(s, a->id, &seen)) memcpy(a->name, seen.name, sizeof a->name);
    pthread_mutex_lock(&l->loading);
    pthread_mutex_lock(&l->lock);
    const int i = find(l, a->name);
    if (i >= 0) l->place[i].here = false;
    pthread_mutex_unlock(&l->lock);
    if (i >= 0) {
        pthread_mutex_lock(&s->vocab_lock);
        s->scale[l->first + i] = 0;
        pthread_mutex_unlock(&s->vocab_lock);
        sweep(s);
    }
    pthread_mutex_unlock(&l->loading);
    return i >= 0 ? INFER_OK
                  : job_refuse(j, 404, "adapter_not_found", a->name_at,
                               "there is no adapter '%s' that was loaded", a->name);
}
