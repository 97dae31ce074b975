#include "serve/core/house_impl.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "base/host.h"
#include "base/mem.h"
#include "tools/tool.h"

static const double LOOK_SECONDS = 0.05; /* between two looks at what waits */
static const double TURN_SECONDS = 5, RETRY_SECONDS = 10;
enum { END_SECONDS = 2 }; /* that a load may take to end when the program does */

/* ---- open ---- */

static enum infer_status add_name(struct house *h, struct server *s, const char *name, size_t n) {
    char text[257];
    if (!n || n >= sizeof text)
        return err_set(INFER_E_INPUT, "'%.*s': a model's name has 1 to 256 bytes", (int)n, name);
    snprintf(text, sizeof text, "%.*s", (int)n, name);
    for (int i = 0; i <= s->member; i++)
        if (server_knows_model(&h->member[i].server, text))
            return err_set(INFER_E_INPUT, "two models are called '%s'", text);
    if (s->n_name == SERVE_NAMES) return err_set(INFER_E_INPUT, "%s has over %d names", s->name, SERVE_NAMES);
    memcpy(s->names[s->n_name++], text, n + 1);
    return INFER_OK;
}

static enum infer_status open_member(struct house *h, int i, const struct house_model *of) {
    struct member *m = &h->member[i];
    struct server *s = &m->server, *front = h->front;
    m->path = of->path;
    m->last = &m->first;
    *s = (struct server){.o = of->o,
                         .created = front->created,
                         .keys = front->keys,
                         .web = front->web,
                         .prompts = front->prompts,
                         .house = h,
                         .member = i,
                         .turns = &h->turns};
    atomic_init(&s->state, SERVER_READY);
    pthread_mutex_init(&s->vocab_lock, NULL);
    TRY(add_name(h, s, of->name, strlen(of->name)));
    memcpy(s->name, s->names[0], sizeof s->name);
    for (const char *p = of->aliases; p && *p;) {
        const size_t n = strcspn(p, ",");
        const enum infer_status st = add_name(h, s, p, n);
        if (st) return err_prefix(st, "model-name of '%s'", s->name);
        p += n + (p[n] == ',');
    }
    h->models[i] = (struct fleet_model){.pinned = of->pinned, .keep = of->keep};
    return INFER_OK;
}

enum infer_status house_open(struct house **out, struct server *front, const struct house_model *model, int n,
                             const struct house_calls *calls, struct fleet_bytes room) {
    struct house *h;
    *out = NULL;
    if (n < 1 || n > FLEET_MODELS)
        return err_set(INFER_E_INPUT, "there are %d models, and 1 to %d can be served", n, FLEET_MODELS);
    TRY(mem_new(&h, sizeof *h, "the models"));
    *h = (struct house){.front = front, .calls = *calls, .n = n};
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->news, NULL);
    pthread_cond_init(&h->work, NULL);
    turns_open(&h->turns);
    *out = h;
    TRY(mem_new(&h->member, (size_t)n * sizeof *h->member, "the models"));
    TRY(mem_new(&h->models, (size_t)n * sizeof *h->models, "the models"));
    h->fleet = (struct fleet){
        .model = h->models, .n = n, .room = room, .turn = TURN_SECONDS, .retry = RETRY_SECONDS};
    if (!room.card) h->fleet.room.card = UINT64_MAX;
    for (int i = 0; i < n; i++) TRY(open_member(h, i, &model[i]));
    return INFER_OK;
}

/* ---- the one that measures, loads and lets go ---- */

/* Under the lock. */
static void failed(struct house *h, int i, const char *why) {
    struct member *m = &h->member[i];
    char text[700];
    tool_flags(m->why, sizeof m->why, why);
    snprintf(text, sizeof text, "the model '%.100s' cannot be loaded: %.500s", m->server.name, m->why);
    tool_say("%s", text);
    fleet_failed(&h->fleet, i, host_seconds());
    for (struct job *j = m->first; j;) {
        struct job *next = j->next;
        h->n_waiting--;
        house_refuse(h, j, text);
        j = next;
    }
    m->first = NULL;
    m->last = &m->first;
    house_tell(h, i);
}

/* Under the lock. */
static void measured(struct house *h, int i, const struct house_info *info) {
    struct member *m = &h->member[i];
    m->info = *info;
    m->known = true;
    if (info->card_room && h->fleet.room.card == UINT64_MAX) h->fleet.room.card = info->card_room;
    fleet_measured(&h->fleet, i, info->need);
}

static void measure(struct house *h, int i) {
    struct house_info info = {.n_ctx = 0};
    const enum infer_status st = h->calls.measure(h->calls.user, i, &info);
    pthread_mutex_lock(&h->lock);
    if (st)
        failed(h, i, err_message());
    else
        measured(h, i, &info);
    pthread_mutex_unlock(&h->lock);
}

static void load(struct house *h, int i) {
    struct member *m = &h->member[i];
    const double began = host_seconds();
    const enum infer_status st = h->calls.load(h->calls.user, i, &m->server);
    const double now = host_seconds();
    pthread_mutex_lock(&h->lock);
    m->stage[0] = 0;
    if (st) {
        failed(h, i, err_message());
    } else {
        m->n_load++;
        fleet_loaded(&h->fleet, i, now, now - began);
        house_tell(h, i);
        const struct fleet_bytes taken = fleet_taken(&h->fleet);
        tool_say("%s is loaded, in %.1f s: %.0f of %.0f MiB are taken", m->server.name, now - began,
                 (double)taken.host / (1 << 20), (double)h->fleet.room.host / (1 << 20));
    }
    pthread_mutex_unlock(&h->lock);
}

static void unload(struct house *h, int i) {
    struct member *m = &h->member[i];
    h->calls.unload(h->calls.user, i, &m->server);
    pthread_mutex_lock(&h->lock);
    fleet_gone(&h->fleet, i);
    if (m->lost) {
        failed(h, i, "what it computed was no number");
    } else {
        house_tell(h, i);
        tool_say("%s is let go", m->server.name);
    }
    m->lost = false;
    pthread_mutex_unlock(&h->lock);
}

static void *run_worker(void *user) {
    struct house *h = user;
    pthread_mutex_lock(&h->lock);
    for (;;) {
        while (!h->busy && !h->stopping) pthread_cond_wait(&h->work, &h->lock);
        if (!h->busy) break;
        const struct fleet_act a = h->act;
        pthread_mutex_unlock(&h->lock);
        if (a.kind == FLEET_MEASURE) measure(h, a.i);
        if (a.kind == FLEET_LOAD) load(h, a.i);
        if (a.kind == FLEET_UNLOAD) unload(h, a.i);
        pthread_mutex_lock(&h->lock);
        h->busy = false;
        pthread_cond_signal(&h->news);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

void house_lost(struct server *s) {
    struct house *h = s->house;
    pthread_mutex_lock(&h->lock);
    const bool card = h->member[s->member].info.card_room > 0;
    h->member[s->member].lost = true;
    h->models[s->member].pinned &= card;
    fleet_ask_out(&h->fleet, s->member);
    pthread_mutex_unlock(&h->lock);
    if (card) server_lost(h->front);
}

void house_progress(struct server *s, const char *what, double done, double total) {
    struct house *h = s->house;
    struct member *m = &h->member[s->member];
    const double now = host_seconds();
    pthread_mutex_lock(&h->lock);
    const bool other = strncmp(m->stage, what, sizeof m->stage - 1) != 0;
    if (other) snprintf(m->stage, sizeof m->stage, "%s", what);
    m->progress = total > 0 ? fmin(done / total, 1) : 0;
    if (other || now - m->told > 0.2) {
        m->told = now;
        house_tell(h, s->member);
    }
    pthread_mutex_unlock(&h->lock);
}

/* ---- the one that looks after requests ---- */

/* What waits and was cancelled or has come to its end goes. Under the lock, as all that follows. */
static void drop_gone(struct house *h, double now) {
    for (int i = 0; i < h->n; i++) {
        struct member *m = &h->member[i];
        for (struct job **at = &m->first; *at;) {
            struct job *j = *at;
            if (now > j->deadline) job_cancel(j, CANCEL_TIMEOUT);
            if (h->draining) job_cancel(j, CANCEL_DRAIN);
            if (!atomic_load(&j->cancelled)) {
                at = &j->next;
                continue;
            }
            *at = j->next;
            if (!*at) m->last = at;
            h->n_waiting--;
            fleet_gave_up(&h->fleet, i, m->first ? m->first->arrived : now);
            house_refuse(h, j, NULL);
        }
    }
}

/* Gives the worker something to do; else when to look again. */
static double give_work(struct house *h, double now) {
    while (!h->busy && !h->draining) {
        const struct fleet_act a = fleet_next(&h->fleet, now);
        if (a.kind == FLEET_NOTHING) return a.until;
        if (a.kind == FLEET_TOO_LARGE) {
            char why[300];
            const struct fleet_bytes need = h->models[a.i].need, all = h->fleet.room,
                                     own = fleet_pinned(&h->fleet);
            const bool host = need.host > all.host || need.host + own.host > all.host;
            snprintf(why, sizeof why,
                     "it takes %.0f MiB of the %s's, and there are %.0f for all (%s), %.0f of them pinned",
                     (double)(host ? need.host : need.card) / (1 << 20), host ? "machine" : "card",
                     (double)(host ? all.host : all.card) / (1 << 20), host ? "--mem" : "--vram-limit",
                     (double)(host ? own.host : own.card) / (1 << 20));
            failed(h, a.i, why);
            continue;
        }
        h->act = a;
        h->busy = true;
        pthread_cond_signal(&h->work);
        if (a.kind == FLEET_LOAD) house_tell(h, a.i);
    }
    return INFINITY;
}

/* Gives those that waited to a model that is there; false: none can begin. */
static bool begin_waiting(struct house *h, double now) {
    for (int i = 0; i < h->n; i++) {
        struct member *m = &h->member[i];
        if (!fleet_takes(&h->fleet, i, now)) continue;
        struct job *j = m->first;
        m->first = NULL;
        m->last = &m->first;
        for (const struct job *k = j; k; k = k->next) h->n_waiting--;
        pthread_mutex_unlock(&h->lock);
        while (j) {
            struct job *next = j->next;
            house_give(h, i, j);
            job_unref(j);
            j = next;
        }
        pthread_mutex_lock(&h->lock);
        return true;
    }
    return false;
}

static void wait_until(struct house *h, double now, double until) {
    if (h->n_waiting) until = fmin(until, now + LOOK_SECONDS);
    if (until > now + 3600) {
        pthread_cond_wait(&h->news, &h->lock);
        return;
    }
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    const double at = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec + fmax(until - now, 0.001);
    t.tv_sec = (time_t)at;
    t.tv_nsec = (long)(1e9 * (at - floor(at)));
    pthread_cond_timedwait(&h->news, &h->lock, &t);
}

static void *run_keeper(void *user) {
    struct house *h = user;
    pthread_mutex_lock(&h->lock);
    while (!h->stopping) {
        const double now = host_seconds();
        drop_gone(h, now);
        if (h->draining && !h->n_waiting) pthread_cond_broadcast(&h->work);
        const double until = give_work(h, now);
        if (!begin_waiting(h, now)) wait_until(h, now, until);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

/* ---- begin and end ---- */

enum infer_status house_begin(struct house *h) {
    for (int i = 0; i < h->n; i++) {
        struct house_info info = {.n_ctx = 0};
        if (!h->models[i].pinned) continue;
        TRY(h->calls.measure(h->calls.user, i, &info));
        measured(h, i, &info);
        fleet_ask_in(&h->fleet, i, host_seconds());
    }
    const struct fleet_bytes own = fleet_pinned(&h->fleet), all = h->fleet.room;
    if (own.host > all.host || own.card > all.card)
        return err_set(
            INFER_E_INPUT,
            "pinned models take %.0f MiB, and there are %.0f (--mem): fewer pins, or less of --ctx",
            (double)(own.host > all.host ? own.host : own.card) / (1 << 20),
            (double)(own.host > all.host ? all.host : all.card) / (1 << 20));
    if (pthread_create(&h->worker, NULL, run_worker, h))
        return err_set(INFER_E_MEMORY, "no thread for loads");
    if (pthread_create(&h->keeper, NULL, run_keeper, h)) {
        pthread_mutex_lock(&h->lock);
        h->stopping = true;
        pthread_cond_signal(&h->work);
        pthread_mutex_unlock(&h->lock);
        pthread_join(h->worker, NULL);
        return err_set(INFER_E_MEMORY, "no thread for the models' requests");
    }
    h->begun = true;
    return INFER_OK;
}

void house_drain(struct house *h, double seconds) {
    bool held[FLEET_MODELS] = {false};
    const double end = host_seconds() + seconds;
    pthread_mutex_lock(&h->lock);
    h->draining = true;
    for (int i = 0; i < h->n; i++) {
        held[i] = h->models[i].state == FLEET_IN;
        if (held[i]) scheduler_quiet(h->member[i].server.scheduler);
        h->models[i].n_run += held[i];
    }
    for (int k = 0; k < h->n_feed; k++) house_refuse(h, h->feed[k], "the server is stopping");
    h->n_feed = 0;
    pthread_cond_signal(&h->news);
    pthread_mutex_unlock(&h->lock);
    for (int i = 0; i < h->n; i++)
        if (held[i]) scheduler_drain(h->member[i].server.scheduler, fmax(end - host_seconds(), 0));
    pthread_mutex_lock(&h->lock);
    for (int i = 0; i < h->n; i++) h->models[i].n_run -= held[i];
    while (h->n_waiting && h->begun) pthread_cond_wait(&h->work, &h->lock);
    pthread_mutex_unlock(&h->lock);
}

/* Both threads have ended; false: a load goes on, which tells nobody any more. */
static bool end_threads(struct house *h) {
    struct timespec until;
    pthread_mutex_lock(&h->lock);
    h->stopping = true;
    pthread_cond_broadcast(&h->news);
    pthread_cond_broadcast(&h->work);
    pthread_mutex_unlock(&h->lock);
    pthread_join(h->keeper, NULL);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += END_SECONDS;
    return pthread_timedjoin_np(h->worker, NULL, &until) == 0;
}

void house_end(struct house *h) {
    h->stuck = h->begun && !end_threads(h);
    h->begun = false;
    for (int i = 0; i < h->n; i++) {
        struct server *s = &h->member[i].server;
        pthread_mutex_lock(&h->lock);
        const bool in = h->models[i].state == FLEET_IN;
        pthread_mutex_unlock(&h->lock);
        if (!in) continue;
        prepare_close(s->prepare);
        s->prepare = NULL;
        scheduler_end(s->scheduler);
    }
}

bool house_close(struct house *h) {
    if (!h) return true;
    if (h->stuck) return false;
    for (int i = 0; h->models && i < h->n; i++)
        if (h->models[i].state == FLEET_IN) h->calls.unload(h->calls.user, i, &h->member[i].server);
    for (int i = 0; h->member && i < h->n; i++) pthread_mutex_destroy(&h->member[i].server.vocab_lock);
    turns_close(&h->turns);
    pthread_mutex_destroy(&h->lock);
    pthread_cond_destroy(&h->news);
    pthread_cond_destroy(&h->work);
    mem_free(h->member);
    mem_free(h->models);
    mem_free(h);
    return true;
}
