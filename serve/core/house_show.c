/* What the house tells of its models: events, their state, numbers. The names are those of llama.cpp's router (the README of its server, "Using
 * multiple models"), whose clients read them. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/host.h"
#include "base/mem.h"
#include "serve/core/house_impl.h"
#include "serve/json_put.h"

int house_count(const struct house *h) { return h->n; }

/* ---- a model ---- */

/* Under the lock. */
static void view(struct house *h, int i, struct house_view *out) {
    const struct member *m = &h->member[i];
    const struct fleet_model *f = &h->models[i];
    *out = (struct house_view){.name = m->server.name,
                               .path = m->path,
                               .server = &m->server,
                               .state = f->state,
                               .known = m->known,
                               .pinned = f->pinned,
                               .info = m->info,
                               .n_run = f->n_run,
                               .n_wait = f->n_wait,
                               .n_load = m->n_load,
                               .stays = -1};
    memcpy(out->why, m->why, sizeof out->why);
    if (f->state == FLEET_IN && !f->pinned && f->keep >= 0)
        out->stays = fmax(0, f->n_run ? f->keep : f->used + f->keep - host_seconds());
}

void house_see(struct house *h, int i, struct house_view *out) {
    pthread_mutex_lock(&h->lock);
    view(h, i, out);
    pthread_mutex_unlock(&h->lock);
}

/* One that goes takes no more requests: it is no longer loaded for whoever asks. */
void house_status(const struct house_view *v, struct buf *out) {
    json_put(out, "{value:%s",
             v->state == FLEET_IN        ? "loaded"
             : v->state == FLEET_LOADING ? "loading"
                                         : "unloaded");
    if (v->state == FLEET_FAILED) json_put(out, "failed:true exit_code:1 error:%s", v->why);
    json_put(out, "args:['infer' 'serve' '-m' %s]}", v->path);
}

void house_totals(struct house *h, int *running, int *waiting, unsigned long long *steps) {
    *running = 0, *steps = 0;
    pthread_mutex_lock(&h->lock);
    *waiting = h->n_waiting;
    for (int i = 0; i < h->n; i++) {
        int of_model = 0, queued = 0;
        if (h->models[i].state == FLEET_IN)
            scheduler_count(h->member[i].server.scheduler, &of_model, &queued);
        *running += of_model;
        *waiting += queued;
        *steps += atomic_load(&h->member[i].server.metrics.steps);
    }
    pthread_mutex_unlock(&h->lock);
}

/* ---- events ---- */

static void event(struct house *h, int i, struct buf *b) {
    struct house_view v;
    const struct member *m = &h->member[i];
    view(h, i, &v);
    buf_text(b, "data: ");
    json_put(b, "{model:%s event:'model_status' data:{status:%s", v.name,
             v.state == FLEET_IN        ? "loaded"
             : v.state == FLEET_LOADING ? "loading"
                                        : "unloaded");
    if (v.state == FLEET_LOADING && *m->stage)
        json_put(b, "progress:{stages:[%s] current:%s value:%.3f}", m->stage, m->stage, m->progress);
    if (v.state == FLEET_FAILED) json_put(b, "exit_code:1 error:%s", v.why);
    json_put(b, "}}\n\n");
}

static void add(struct house *h, struct job *j, const struct buf *b) {
    pthread_mutex_lock(&j->lock);
    if (j->feed.n + b->n > HOUSE_FEED_BYTES)
        job_cancel(j, CANCEL_STALLED);
    else
        buf_add(&j->feed, b->p, b->n);
    pthread_mutex_unlock(&j->lock);
    web_wake(h->front->web, j);
}

void house_sweep_feeds(struct house *h) {
    int n = 0;
    for (int k = 0; k < h->n_feed; k++) {
        if (atomic_load(&h->feed[k]->cancelled))
            house_refuse(h, h->feed[k], NULL);
        else
            h->feed[n++] = h->feed[k];
    }
    h->n_feed = n;
}

void house_tell(struct house *h, int i) {
    struct buf b = {0};
    house_sweep_feeds(h);
    if (!h->n_feed) return;
    event(h, i, &b);
    for (int k = 0; k < h->n_feed && !b.failed; k++) add(h, h->feed[k], &b);
    buf_free(&b);
}

bool house_feed(struct house *h, struct job *j) {
    struct buf b = {0};
    pthread_mutex_lock(&h->lock);
    house_sweep_feeds(h);
    const bool room = h->n_feed < HOUSE_FEEDS && !h->draining;
    if (room) {
        for (int i = 0; i < h->n; i++) event(h, i, &b);
        j->feeds = j->ask.stream = true;
        h->feed[h->n_feed++] = job_ref(j);
        job_set_stage(j, JOB_QUEUED);
        add(h, j, &b);
    } else {
        job_refuse(j, h->draining ? 503 : 429, "unavailable", NULL,
                   h->draining ? "the server is stopping" : "%d clients listen already", HOUSE_FEEDS);
    }
    pthread_mutex_unlock(&h->lock);
    buf_free(&b);
    return room;
}

/* ---- metrics ---- */

/* Of the house itself. */
static void of_house(struct house *h, struct buf *out) {
    static const char *const rows[][2] = {{"infer_model_loaded", "gauge"},
                                          {"infer_model_bytes", "gauge"},
                                          {"infer_model_waiting", "gauge"},
                                          {"infer_model_loads_total", "counter"}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        buf_printf(out, "# TYPE %s %s\n", rows[r][0], rows[r][1]);
        for (int i = 0; i < h->n; i++) {
            struct house_view v;
            house_see(h, i, &v);
            const bool in = v.state == FLEET_IN;
            const double x[] = {in, in ? (double)(v.info.need.host + v.info.need.card) : 0, v.n_wait,
                                v.n_load};
            buf_printf(out, "%s{model=", rows[r][0]);
            buf_json_text(out, v.name);
            buf_printf(out, "} %.17g\n", x[r]);
        }
    }
    buf_printf(out, "# TYPE infer_models_room_bytes gauge\ninfer_models_room_bytes %.17g\n",
               (double)h->fleet.room.host);
}

/* The part of a page that is of one metric: from its "# TYPE" line to the next one's; NULL: it has none. */
static const char *part_of(const char *page, const char *head, size_t n_head, size_t *n) {
    static const char mark[] = "# TYPE ";
    for (const char *p = page; p && *p;) {
        const char *next = strstr(p + 1, mark);
        if (strncmp(p, head, n_head) == 0) {
            *n = next ? (size_t)(next - p) : strlen(p);
            return p;
        }
        p = next;
    }
    return NULL;
}

/* A metric's lines of all pages from this one on stand together, under one head. */
static void add_metric(const struct buf *page, int n, const char *head, size_t n_head, struct buf *out) {
    buf_add(out, head, n_head);
    for (int i = 0; i < n; i++) {
        size_t len;
        const char *part = part_of(page[i].p, head, n_head, &len);
        if (part) buf_add(out, part + n_head, len - n_head);
    }
}

/* Every page has the lines of its model, of some metrics only those that are loaded. */
static void merge(const struct buf *page, int n, struct buf *out) {
    enum { HEADS = 128 };
    const char *seen[HEADS];
    int n_seen = 0;
    for (int i = 0; i < n; i++) {
        for (const char *p = page[i].p, *next; p && *p; p = next) {
            const size_t n_head = strcspn(p, "\n") + 1;
            bool known = n_seen == HEADS;
            next = strstr(p + 1, "# TYPE ");
            for (int k = 0; k < n_seen && !known; k++) known = strncmp(seen[k], p, n_head) == 0;
            if (known) continue;
            seen[n_seen++] = p;
            add_metric(page + i, n - i, p, n_head, out);
        }
    }
}

void house_metrics(struct house *h, struct buf *out) {
    struct buf *page;
    bool held[FLEET_MODELS];
    if (mem_new(&page, (size_t)(h->n + 1) * sizeof *page, "metrics")) {
        out->failed = true;
        return;
    }
    for (int i = 0; i < h->n; i++) { /* the scheduler of one that is there is not taken away meanwhile */
        pthread_mutex_lock(&h->lock);
        held[i] = h->models[i].state == FLEET_IN;
        h->models[i].n_run += held[i];
        pthread_mutex_unlock(&h->lock);
        metrics_of_model(&h->member[i].server, held[i], &page[i]);
        if (held[i]) house_release(h, &h->member[i].server);
    }
    metrics_of_front(h->front, &page[h->n]);
    merge(page, h->n + 1, out);
    of_house(h, out);
    metrics_of_process(h->front, out);
    for (int i = 0; i <= h->n; i++) buf_free(&page[i]);
    mem_free(page);
}
