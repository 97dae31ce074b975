/* Requests find their model: at once where it is there, else in a line until it is. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/host.h"
#include "serve/core/frontend.h"
#include "serve/core/house_impl.h"
#include "tools/options.h"

/* ---- names ---- */

static bool is_called(const struct server *s, const char *name, size_t n, bool any_case) {
    for (int i = 0; i < s->n_name; i++)
        if (strlen(s->names[i]) == n && (any_case ? strncasecmp : strncmp)(s->names[i], name, n) == 0)
            return true;
    return false;
}

/* As it is called, with Ollama's ":latest" behind it, or in other letters. */
static int find(const struct house *h, const char *name) {
    static const char latest[] = ":latest";
    const size_t n = strlen(name), tail = sizeof latest - 1,
                 bare = n > tail && strcmp(name + n - tail, latest) == 0 ? n - tail : n;
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < h->n; i++)
            if (is_called(&h->member[i].server, name, round ? bare : n, round == 2)) return i;
    return -1;
}

/* The only model that there is, or that is pinned; -1: they are several. */
static int only_one(const struct house *h) {
    int found = -1, n = 0;
    for (int i = 0; i < h->n; i++)
        if (h->models[i].pinned) found = i, n++;
    return n == 1 ? found : h->n == 1 ? 0 : -1;
}

static bool contains(const char *text, const char *part) {
    const size_t n = strlen(part);
    for (; *text; text++)
        if (strncasecmp(text, part, n) == 0) return true;
    return false;
}

/* Whether a name is like the one that was asked for. */
static bool is_near(const char *is, const char *name) {
    int best = 100;
    return option_nearer(name, is, &best) || (strlen(name) > 2 && (contains(is, name) || contains(name, is)));
}

/* The names that are near, or where none is the first ones. */
static void no_such(struct house *h, const char *name, struct refusal *r) {
    enum { SHOWN = 4 };
    char names[500] = "";
    int n_near = 0, n = 0;
    size_t used = 0;
    for (int i = 0; i < h->n; i++) n_near += is_near(h->member[i].server.name, name);
    for (int i = 0; i < h->n && n < SHOWN; i++) {
        const char *is = h->member[i].server.name;
        if (n_near && !is_near(is, name)) continue;
        used += (size_t)snprintf(names + used, sizeof names - used, "%s'%.100s'", n++ ? ", " : "", is);
    }
    refusal_make(r, 404, "model_not_found", "model",
                 "the model '%.100s' does not exist here; %s %s (GET /v1/models lists all %d)", name,
                 n_near ? "near it:" : "there are", names, h->n);
}

int house_find(struct house *h, const char *name, struct refusal *r) {
    const int i = *name ? find(h, name) : only_one(h);
    if (i >= 0) return i;
    if (*name)
        no_such(h, name, r);
    else
        refusal_make(r, 400, "invalid_value", "model",
                     "'model' is missing, and there are %d models here (GET /v1/models lists them)", h->n);
    return -1;
}

static enum infer_status find_for(struct house *h, struct job *j, const char *name, int *out) {
    struct refusal r;
    *out = house_find(h, name, &r);
    return *out >= 0 ? INFER_OK : job_refuse(j, r.status, r.code, r.param, "%s", r.message);
}

/* ---- to a model, or out ---- */

void house_give(struct house *h, int i, struct job *j) {
    struct server *s = &h->member[i].server;
    job_move(j, s);
    if (j->loads_only) {
        j->front->loaded(j, "load", &j->reply);
        job_set_stage(j, JOB_REPLIED);
    } else if (!prepare_push(s->prepare, j)) {
        job_refuse(j, 503, "unavailable", NULL, "too many requests wait to be read");
        job_set_stage(j, JOB_REFUSED);
    }
    web_wake(h->front->web, j);
}

void house_refuse(struct house *h, struct job *j, const char *why) {
    const int how = atomic_load(&j->cancelled);
    if (why || how == CANCEL_DRAIN)
        job_refuse(j, 503, "unavailable", NULL, "%s", why ? why : "the server is stopping");
    else if (how == CANCEL_TIMEOUT)
        job_refuse(j, 504, "timeout", NULL,
                   "the request waited for its model longer than the %g s that it may",
                   j->deadline - j->arrived);
    else
        job_refuse(j, 499, "cancelled", NULL, "the client has gone");
    job_set_stage(j, j->feeds ? JOB_FAILED : JOB_REFUSED);
    web_wake(h->front->web, j);
    job_unref(j);
}

void house_left(struct server *s) {
    struct house *h = s->house;
    if (s->member < 0) return;
    pthread_mutex_lock(&h->lock);
    fleet_left(&h->fleet, s->member, host_seconds());
    pthread_cond_signal(&h->news);
    pthread_mutex_unlock(&h->lock);
}

/* ---- keep_alive ---- */

/* Seconds of a number, or of a text like "5m", "1h30m", "-1"; less than 0: for ever. false: it is neither. source: Go's time.ParseDuration */
static bool read_keep(const json_t *v, double *out) {
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"ms", 1e-3}, {"h", 3600}, {"m", 60}, {"s", 1}};
    if (json_is_number(v)) {
        *out = json_number_value(v);
        return isfinite(*out);
    }
    const char *p = json_string_value(v);
    char *end;
    double all = 0;
    if (!p || !*p) return false;
    const bool minus = *p == '-';
    for (p += minus; *p; p = end) {
        const double x = strtod(p, &end);
        if (end == p || !isdigit((unsigned char)*p)) return false;
        size_t k = 0;
        while (k < 4 && strncmp(end, units[k].unit, strlen(units[k].unit)) != 0) k++;
        if (k == 4 && *end) return false;
        all += x * (k < 4 ? units[k].seconds : 1);
        end += k < 4 ? strlen(units[k].unit) : 0;
    }
    *out = minus ? -1 : all;
    return true;
}

/* What a request says of how long its model stays, which holds from now on. */
static enum infer_status take_keep(struct house *h, struct job *j, int i, const json_t *body, double *keep) {
    const json_t *v = json_object_get(body, "keep_alive");
    *keep = -1;
    if (!j->front->keeps || !v || json_is_null(v)) return INFER_OK;
    if (!read_keep(v, keep))
        return job_invalid(j, "keep_alive", "'keep_alive' must be seconds, or a text like \"5m\"");
    pthread_mutex_lock(&h->lock);
    h->models[i].keep = *keep;
    pthread_cond_signal(&h->news);
    pthread_mutex_unlock(&h->lock);
    return INFER_OK;
}

/* ---- a request ---- */

static void wait_for(struct house *h, int i, struct job *j) {
    struct member *m = &h->member[i];
    atomic_store(&j->reached, STATE_QUEUE);
    j->next = NULL;
    *m->last = job_ref(j);
    m->last = &j->next;
    h->n_waiting++;
    pthread_cond_signal(&h->news);
}

/* It begins, waits or is refused. */
static enum infer_status enter(struct house *h, int i, struct job *j) {
    struct member *m = &h->member[i];
    enum infer_status st = INFER_OK;
    enum fleet_answer a = FLEET_REFUSED;
    pthread_mutex_lock(&h->lock);
    const bool there = h->models[i].state == FLEET_IN && !h->models[i].closed;
    if (h->draining) {
        st = job_refuse(j, 503, "unavailable", NULL, "the server is stopping");
    } else if (!there && h->n_waiting >= h->front->o.queue) {
        st = job_refuse(j, 429, "rate_limit_exceeded", NULL,
                        "%d requests wait already (--queue %d). Please try again in 3s", h->n_waiting,
                        h->front->o.queue);
        j->refusal.retry_ms = 3000;
        atomic_fetch_add(&m->server.metrics.queue_full, 1);
    } else if ((a = fleet_came(&h->fleet, i, host_seconds())) == FLEET_WAITS) {
        wait_for(h, i, j);
    } else if (a == FLEET_REFUSED) {
        st = job_refuse(j, 503, "unavailable", NULL, "the model '%.100s' cannot be loaded: %.500s",
                        m->server.name, m->why);
        j->refusal.retry_ms = (int)(1e3 * h->fleet.retry);
    }
    pthread_mutex_unlock(&h->lock);
    if (a == FLEET_GOES) house_give(h, i, j);
    return st;
}

/* It asks for nothing but that its model goes. */
static enum infer_status let_go(struct house *h, int i, struct job *j) {
    struct server *s = &h->member[i].server;
    pthread_mutex_lock(&h->lock);
    fleet_ask_out(&h->fleet, i);
    pthread_cond_signal(&h->news);
    pthread_mutex_unlock(&h->lock);
    snprintf(j->ask.model, sizeof j->ask.model, "%s", s->name);
    j->front->loaded(j, "unload", &j->reply);
    job_set_stage(j, JOB_REPLIED);
    return INFER_OK;
}

enum infer_status house_route(struct house *h, struct job *j, json_t *body) {
    const char *name = json_string_value(json_object_get(body, "model"));
    double keep;
    int i = -1;
    if (!name && j->front->keeps) name = json_string_value(json_object_get(body, "name"));
    enum infer_status st = find_for(h, j, name ? name : "", &i);
    if (!st) st = take_keep(h, j, i, body, &keep);
    if (st) {
        json_decref(body);
        return st;
    }
    j->loads_only = j->front->loads_only && j->front->loads_only(body);
    j->again = body;
    return j->loads_only && keep == 0 ? let_go(h, i, j) : enter(h, i, j);
}

enum infer_status house_ask(struct house *h, struct job *j, const char *name, bool in) {
    int i = -1;
    enum infer_status st = find_for(h, j, name, &i);
    if (st) return st;
    pthread_mutex_lock(&h->lock);
    const bool ok = in ? fleet_ask_in(&h->fleet, i, host_seconds()) : fleet_ask_out(&h->fleet, i);
    if (!ok && in)
        st = job_refuse(j, 503, "unavailable", "model", "the model '%.100s' cannot be loaded: %.500s",
                        h->member[i].server.name, h->member[i].why);
    else if (!ok)
        st = job_refuse(j, 400, "invalid_value", "model", "the model '%.100s' is pinned, and stays",
                        h->member[i].server.name);
    pthread_cond_signal(&h->news);
    pthread_mutex_unlock(&h->lock);
    return st;
}

/* ---- what needs no place in a line ---- */

struct server *house_hold(struct house *h, const char *name, struct refusal *r) {
    const int i = house_find(h, name, r);
    if (i < 0) return NULL;
    pthread_mutex_lock(&h->lock);
    const bool there = h->models[i].state == FLEET_IN;
    h->models[i].n_run += there;
    pthread_mutex_unlock(&h->lock);
    if (there) return &h->member[i].server;
    refusal_make(r, 503, "unavailable", "model",
                 "the model '%.100s' is not loaded (POST /models/load loads it)", h->member[i].server.name);
    return NULL;
}

void house_release(struct house *h, struct server *s) {
    pthread_mutex_lock(&h->lock);
    h->models[s->member].n_run--;
    pthread_cond_signal(&h->news);
    pthread_mutex_unlock(&h->lock);
}
