/* The queue and the engine thread: which choices run, step after step, in the order of queue.h; a choice whose prompt another one of its
 * job computes just now waits for that one, and takes its pages over. */
#include <math.h>
#include <time.h>
#include "base/mem.h"
#include "serve/core/api_keys.h"
#include "serve/core/engine_port.h"
#include "serve/core/lanes.h"
#include "serve/core/machine.h"
#include "serve/core/queue.h"
#include "serve/core/server.h"
#include "serve/core/timeline.h"
#include "serve/core/tool_job.h"
#include "base/host.h"

enum { REST_NS = 2000000 };
static const double LOOK_SECONDS = 0.02; /* between two looks at all that waits */

struct scheduler {
    struct server *server;
    struct engine_port *port;
    pthread_t thread;
    bool started;
    struct choice **running; /* running[n_running], the engine thread's */
    int n_running;
    double looked;

    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t news, idle, ordered;
    struct queue queue;
    struct job *first, **last; /* that wait, or have choices that do */
    struct lane_order *orders, **last_order;
    int n_waiting, n_jobs; /* jobs none of whose choices has begun; all that are here */
    int shown_running;
    bool picture; /* waits for its rows */
    bool stopping, draining;
    atomic_bool cancel_all;
};

/* ---- what the port tells ---- */

void port_token(struct choice *c, int32_t id, const struct infer_logprob *top) {
    struct server *s = c->job->server;
    const double now = host_seconds();
    if (c->stopped) return;
    if (!c->n_token) {
        c->first = now;
        timeline_first(s->timeline, c->job);
        histogram_add(&s->metrics.first, &metric_first, now - c->job->arrived);
        atomic_store(&c->job->reached, STATE_ANSWER);
    } else {
        histogram_add(&s->metrics.gap, &metric_gaps, now - c->latest);
    }
    c->latest = now;
    c->n_token++;
    s->metrics.step_tokens++;
    atomic_fetch_add(&s->metrics.rows_all, 1);
    atomic_fetch_add(&c->job->rows, 1);
    if (c->job->ask.params.n_logprob >= 0 || c->job->ask.return_ids) log_token(c, id, top);
    if (c->parser) tool_job_token(c, id);
    c->told = true;
}

enum infer_status port_text(struct choice *c, const char *text, size_t n, bool thinking) {
    if (c->parser) return INFER_OK; /* it had the token */
    if (thinking && !c->job->ask.thinking_as_content) c->n_reasoned = c->n_token;
    if (thinking && c->job->ask.thinking_hidden) return INFER_OK;
    log_text(c, thinking ? EVENT_REASONING : EVENT_TEXT, 0, text, n);
    c->told = true;
    return INFER_OK;
}

void port_prompt(struct choice *c, int done, int total) {
    struct metrics *m = &c->job->server->metrics;
    m->step_prompt |= done > c->n_prompt_done;
    const int more = done > c->n_prompt_done ? done - c->n_prompt_done : 0;
    m->step_tokens += more;
    atomic_fetch_add(&m->rows_all, (unsigned long long)more);
    atomic_fetch_add(&c->job->rows, (unsigned long long)more);
    c->n_prompt_done = done;
    if (!c->job->ask.progress || c->n_token) return;
    log_progress(c, done + c->n_cached, total + c->n_cached);
    c->told = true;
}

/* ---- the ends of things ---- */

static void wake(struct scheduler *l, struct job *j) { web_wake(l->server->web, j); }

/* The job is over here, answered or not. */
static void leave(struct scheduler *l, struct job *j) {
    pthread_mutex_lock(&l->lock);
    queue_left(&l->queue, j, j->counts.answer);
    if (--l->n_jobs == 0) pthread_cond_broadcast(&l->idle);
    pthread_mutex_unlock(&l->lock);
    wake(l, j);
    job_unref(j);
}

static void fail_job(struct job *j, enum job_cancel why) {
    if (why == CANCEL_TIMEOUT)
        job_refuse(j, 504, "timeout", NULL, "the request took longer than the %g s that it may",
                   j->deadline - j->arrived);
    else if (why == CANCEL_DRAIN)
        job_refuse(j, 503, "unavailable", NULL, "the server is stopping");
    else
        job_refuse(j, 499, "cancelled", NULL, "the client has gone");
    job_set_stage(j, JOB_FAILED);
}

/* Of the energy that was taken since the job began, as much as its share of the rows that were computed meanwhile; NAN: not counted. */
static double joules_of(const struct job *j) {
    const double rows = (double)(atomic_load(&j->server->metrics.rows_all) - j->rows_before);
    return (machine_joules() - j->joules_before) * (rows > 0 ? (double)atomic_load(&j->rows) / rows : NAN);
}

static void count_job(struct job *j) {
    struct job_counts counts = {0}, *n = &counts;
    struct metrics *m = &j->server->metrics;
    double began = 0, first = 0;
    for (int i = 0; i < j->n_prompt; i++) n->prompt += j->prompt[i].n;
    for (int i = 0; i < j->n_choice; i++) {
        const struct choice *c = &j->choice[i];
        if (!c->before) n->cached += c->n_cached;
        n->answer += c->n_token;
        n->reasoning += c->n_reasoned;
        n->prompt_ms += 1e3 * c->prompt_seconds;
        n->answer_ms += 1e3 * c->answer_seconds;
        n->n_decoded += c->n_decoded;
        n->guessed += c->n_guessed;
        n->right += c->n_right;
        if (c->began > 0 && (began == 0 || c->began < began)) began = c->began;
        if (c->first > 0 && (first == 0 || c->first < first)) first = c->first;
        if (c->n_token > 1) histogram_add(&m->each, &metric_gaps, (c->latest - c->first) / (c->n_token - 1));
    }
    n->joules = j->ask.energy ? joules_of(j) : NAN;
    if (began > 0) n->queue_ms = 1e3 * (began - j->arrived);
    if (first > 0) n->first_ms = 1e3 * (first - j->arrived);
    pthread_mutex_lock(&j->lock);
    j->counts = counts;
    pthread_mutex_unlock(&j->lock);
    atomic_fetch_add(&m->prompt_tokens, (unsigned long long)n->prompt);
    atomic_fetch_add(&m->cached_tokens, (unsigned long long)n->cached);
    atomic_fetch_add(&m->answer_tokens, (unsigned long long)n->answer);
    atomic_fetch_add(&m->guessed_tokens, (unsigned long long)n->guessed);
    atomic_fetch_add(&m->right_tokens, (unsigned long long)n->right);
    atomic_fetch_add(&m->prompt_us, (unsigned long long)(1e3 * n->prompt_ms));
    atomic_fetch_add(&m->answer_us, (unsigned long long)(1e3 * n->answer_ms));
    const double now = host_seconds();
    histogram_add(&m->whole, &metric_long, now - j->arrived);
    histogram_add(&m->queue, &metric_long, n->queue_ms / 1e3);
    histogram_add(&m->prompts, &metric_tokens, n->prompt);
    histogram_add(&m->answers, &metric_tokens, n->answer);
    histogram_add(&m->choices, &metric_choices, j->ask.n);
    if (j->ask.params.n_predict > 0) histogram_add(&m->asked, &metric_tokens, j->ask.params.n_predict);
    if (began > 0) histogram_add(&m->inference, &metric_long, now - began);
    if (first > 0) histogram_add(&m->prefill, &metric_long, first - began);
    if (first > 0) histogram_add(&m->decode, &metric_long, now - first);
    timeline_add(j->server->timeline, j, began, first, now);
    if (n->prompt + n->answer > atomic_load(&m->longest)) atomic_store(&m->longest, n->prompt + n->answer);
}

static bool is_over(const struct job *j) {
    for (int i = 0; i < j->n_choice; i++)
        if (j->choice[i].state != CHOICE_ENDED) return false;
    return true;
}

/* The choice has ended; so has its job, when it was the last one. */
static void end_choice(struct scheduler *l, struct choice *c, enum job_finish finish, const char *stop,
                       int32_t stop_id) {
    struct job *j = c->job;
    c->state = CHOICE_ENDED;
    c->ended = host_seconds();
    if (finish) atomic_fetch_add(&l->server->metrics.finished[finish - FINISH_STOP], 1);
    bool over = is_over(j);
    if (over) count_job(j); /* before a reader can see that all have ended */
    if (finish) log_end(c, finish, stop, stop_id);
    if (over) leave(l, j);
}

/* ---- a step ---- */

static enum job_finish finish_of(const struct choice *c, const struct port_end *end) {
    if (c->job->ask.params.make) return FINISH_STOP;
    const bool held = c->constraint && !c->job->wakes; /* by a grammar, which has not come to its end */
    return end->why == INFER_REQUEST_LIMIT || end->why == INFER_REQUEST_FULL ||
                   (end->why == INFER_REQUEST_LOOP && held)
               ? FINISH_LENGTH
               : FINISH_STOP;
}

static bool asked_id(const struct job *j, int32_t id) {
    for (int i = 0; i < j->ask.params.n_end_id; i++)
        if (j->ask.stop_id[i] == id) return true;
    return false;
}

/* Takes what has ended out of the running ones. */
static void collect_ends(struct scheduler *l) {
    int n = 0;
    for (int i = 0; i < l->n_running; i++) {
        struct choice *c = l->running[i];
        struct job *j = c->job;
        struct port_end end;
        enum infer_status st;
        if (!l->port->ended(l->port, c, &end, &st)) {
            l->running[n++] = c;
            continue;
        }
        c->prompt_seconds = end.prompt_seconds;
        c->answer_seconds = end.answer_seconds;
        c->n_decoded = end.n_decoded;
        c->n_guessed = end.n_guessed, c->n_right = end.n_right;
        c->n_cached = end.n_reused;
        c->lane = end.lane;
        atomic_fetch_add(&l->server->metrics.put_aside, (unsigned long long)end.n_aside);
        const int why = atomic_load(&j->cancelled);
        enum job_finish finish = FINISH_NONE;
        if (end.lost) server_lost(l->server);
        if (st) {
            if (end.lost)
                job_refuse(j, 500, "device_lost", NULL, "the device is lost: %s", err_message());
            else
                job_refuse(j, 500, "internal", NULL, "%s", err_message());
            job_set_stage(j, JOB_FAILED);
            atomic_fetch_add(&l->server->metrics.failed, 1);
            job_cancel(j, CANCEL_DRAIN); /* the refusal is there: what is left of it goes */
        } else if (end.why == INFER_REQUEST_CANCELLED && why == CANCEL_TIMEOUT && !j->ask.stream) {
            finish = FINISH_LENGTH; /* what there is */
        } else if (end.why != INFER_REQUEST_CANCELLED || c->stopped) {
            finish = finish_of(c, &end);
            c->looped = end.why == INFER_REQUEST_LOOP;
        } else {
            fail_job(j, why);
        }
        if (c->parser && finish) finish = tool_job_end(c, finish, &end.stop);
        l->port->close(l->port, c);
        end_choice(l, c, finish, end.stop >= 0 && end.stop < j->ask.n_stop ? j->stop[end.stop] : NULL,
                   finish == FINISH_STOP && asked_id(j, end.stop_id) ? end.stop_id : -1);
    }
    l->n_running = n;
}

/* Looks for cancellations and deadlines among what runs. */
static void check_running(struct scheduler *l) {
    const double now = host_seconds();
    for (int i = 0; i < l->n_running; i++) {
        struct choice *c = l->running[i];
        if (now > c->job->deadline) job_cancel(c->job, CANCEL_TIMEOUT);
        if (atomic_load(&l->cancel_all)) job_cancel(c->job, CANCEL_DRAIN);
        if (c->stopped || atomic_load(&c->job->cancelled)) l->port->cancel(l->port, c);
    }
}

/* ---- what waits ---- */

static struct choice *next_choice(struct job *j) {
    for (int i = 0; i < j->n_choice; i++) {
        struct choice *c = &j->choice[i];
        if (c->state == CHOICE_WAITS &&
            (!c->before || c->before->n_token || c->before->state == CHOICE_ENDED))
            return c;
    }
    return NULL;
}

static bool has_waiting(const struct job *j) {
    for (int i = 0; i < j->n_choice; i++)
        if (j->choice[i].state == CHOICE_WAITS) return true;
    return false;
}

static bool has_begun(const struct job *j) {
    for (int i = 0; i < j->n_choice; i++)
        if (j->choice[i].state != CHOICE_WAITS) return true;
    return false;
}

/* Ends what waits of a job; the job with it, when nothing of it runs. */
static void drop_waiting(struct scheduler *l, struct job *j) {
    job_ref(j); /* the last choice's end gives the queue's back */
    fail_job(j, atomic_load(&j->cancelled));
    for (int i = 0; i < j->n_choice; i++)
        if (j->choice[i].state == CHOICE_WAITS) end_choice(l, &j->choice[i], FINISH_NONE, NULL, -1);
    job_unref(j);
}

static void begin_choice(struct scheduler *l, struct choice *c) {
    struct job *j = c->job;
    c->began = host_seconds();
    timeline_began(j->server->timeline, j);
    if (j->ask.energy && !j->counts_energy) {
        j->counts_energy = true;
        j->joules_before = machine_joules();
        j->rows_before = atomic_load(&j->server->metrics.rows_all);
    }
    c->state = CHOICE_RUNS;
    if (atomic_load(&j->reached) < STATE_PROMPT) atomic_store(&j->reached, STATE_PROMPT);
    enum infer_status st = l->port->start(l->port, c);
    if (!st) {
        l->running[l->n_running++] = c;
        return;
    }
    job_fail_status(j, st);
    job_set_stage(j, JOB_FAILED);
    atomic_fetch_add(&l->server->metrics.failed, 1);
    job_cancel(j, CANCEL_DRAIN); /* the refusal is there already: what is left of it goes */
    end_choice(l, c, FINISH_NONE, NULL, -1);
}

/* *at goes out of the queue. */
static void unlink_job(struct scheduler *l, struct job **at) {
    *at = (*at)->next;
    if (!*at) l->last = at;
}

/* Drops what waits and was cancelled or has come to its end, now and then: a queue is long. */
static void look_through(struct scheduler *l) {
    const double now = host_seconds();
    struct job *gone = NULL;
    if (now - l->looked < LOOK_SECONDS) return;
    l->looked = now;
    pthread_mutex_lock(&l->lock);
    for (struct job **at = &l->first; *at;) {
        struct job *j = *at;
        if (now > j->deadline) job_cancel(j, CANCEL_TIMEOUT);
        if (l->draining && !has_begun(j)) job_cancel(j, CANCEL_DRAIN);
        if (!atomic_load(&j->cancelled)) {
            at = &j->next;
            continue;
        }
        if (!has_begun(j)) l->n_waiting--;
        unlink_job(l, at);
        j->next = gone;
        gone = j;
    }
    pthread_mutex_unlock(&l->lock);
    while (gone) {
        struct job *j = gone;
        gone = j->next;
        drop_waiting(l, j);
    }
}

/* The next choice to begin; its job is taken out of the queue once nothing of it waits. */
static struct choice *take_waiting(struct scheduler *l) {
    const double now = host_seconds();
    struct job **best = NULL;
    struct choice *chosen = NULL;
    pthread_mutex_lock(&l->lock);
    if (l->n_running + (l->orders != NULL) >= l->port->n_slot) {
        pthread_mutex_unlock(&l->lock); /* one is left to what is asked of lanes */
        return NULL;
    }
    for (struct job **at = &l->first; *at; at = &(*at)->next) {
        struct job *j = *at;
        const bool goes = now > j->deadline || (l->draining && !has_begun(j)); /* look_through drops it */
        struct choice *c = NULL;
        if (goes || atomic_load(&j->cancelled) || !(c = next_choice(j))) continue;
        if (best && !queue_before(&l->queue, j, *best, now)) continue;
        best = at;
        chosen = c;
        if (queue_plain(&l->queue)) break;
    }
    if (chosen) {
        struct job *j = *best;
        if (!has_begun(j)) l->n_waiting--;
        queue_began(&l->queue, j, chosen->prompt->n);
        chosen->state = CHOICE_RUNS;
        if (!has_waiting(j)) unlink_job(l, best);
    }
    pthread_mutex_unlock(&l->lock);
    return chosen;
}

static void admit(struct scheduler *l) {
    struct choice *c;
    look_through(l);
    while ((c = take_waiting(l))) begin_choice(l, c);
}

/* ---- the thread ---- */

/* What runs has nothing to compute: it waits for something else, which is looked for again soon. */
static void rest(struct scheduler *l) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += REST_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&l->lock);
    pthread_cond_timedwait(&l->news, &l->lock, &until);
    pthread_mutex_unlock(&l->lock);
}

static bool has_news(const struct scheduler *l) {
    return l->n_running || l->first || l->picture || l->orders || l->stopping;
}

/* Others that share the machine need not wait for it. */
static void leave_turns(struct scheduler *l) {
    if (l->server->turns) turns_leave(l->server->turns, &l->server->turn);
}

/* Waits until there is something to do; false: nothing ever will be. */
static bool wait_for_news(struct scheduler *l) {
    if (!l->n_running) leave_turns(l);
    pthread_mutex_lock(&l->lock);
    l->shown_running = l->n_running;
    while (!has_news(l) && l->port->idle) {
        pthread_mutex_unlock(&l->lock);
        const bool more = l->port->idle(l->port);
        if (more) rest(l);
        pthread_mutex_lock(&l->lock);
        if (!more) break;
    }
    while (!has_news(l)) pthread_cond_wait(&l->news, &l->lock);
    bool go_on = l->n_running || l->first || l->orders || !l->stopping;
    pthread_mutex_unlock(&l->lock);
    return go_on;
}

static void picture_waits(void *user) {
    struct scheduler *l = user;
    pthread_mutex_lock(&l->lock);
    l->picture = true;
    pthread_cond_signal(&l->news);
    pthread_mutex_unlock(&l->lock);
}

/* Computing begins, where others share the machine when it is this engine's turn; and ends, after so many seconds. */
static double take_turn(struct scheduler *l) {
    if (l->server->turns) turns_take(l->server->turns, &l->server->turn);
    return host_seconds();
}
static double give_turn(struct scheduler *l, double began) {
    const double seconds = host_seconds() - began;
    if (l->server->turns) turns_give(l->server->turns, &l->server->turn, seconds, l->n_running > 0);
    return seconds;
}

/* A part of the picture that waits, if one does. */
static void see(struct scheduler *l) {
    pthread_mutex_lock(&l->lock);
    const bool waits = l->picture;
    l->picture = false;
    pthread_mutex_unlock(&l->lock);
    if (!waits) return;
    const double began = take_turn(l);
    const bool more = l->port->see(l->port, l->n_running > 0);
    give_turn(l, began);
    if (more) picture_waits(l);
}

/* What is asked of lanes, between two steps. */
static void do_orders(struct scheduler *l) {
    for (;;) {
        pthread_mutex_lock(&l->lock);
        struct lane_order *o = l->orders;
        pthread_mutex_unlock(&l->lock);
        if (o) leave_turns(l);
        if (!o || !l->port->order(l->port, o)) return;
        pthread_mutex_lock(&l->lock);
        if (!(l->orders = o->next)) l->last_order = &l->orders;
        o->done = true;
        pthread_cond_broadcast(&l->ordered);
        pthread_mutex_unlock(&l->lock);
    }
}

enum infer_status scheduler_order(struct scheduler *l, struct lane_order *o) {
    o->next = NULL;
    o->done = false;
    pthread_mutex_lock(&l->lock);
    const bool takes = l->port->order && !l->draining && !l->stopping;
    if (takes) {
        *l->last_order = o;
        l->last_order = &o->next;
        pthread_cond_signal(&l->news);
        while (!o->done) pthread_cond_wait(&l->ordered, &l->lock);
    }
    pthread_mutex_unlock(&l->lock);
    return takes && !o->status ? INFER_OK
                               : err_set(takes ? o->status : INFER_E_UNSUPPORTED, "%s",
                                         takes ? o->message : "the server is stopping");
}

static void wake_told(struct scheduler *l) {
    for (int i = 0; i < l->n_running; i++) {
        struct choice *c = l->running[i];
        if (c->told && c->job->ask.stream) wake(l, c->job);
        c->told = false;
    }
}

/* false: there was nothing to compute. */
static bool step(struct scheduler *l) {
    struct metrics *m = &l->server->metrics;
    m->step_tokens = 0;
    m->step_prompt = false;
    const double began = take_turn(l);
    const bool did = l->port->step(l->port);
    const double seconds = give_turn(l, began);
    histogram_add(&m->step[m->step_prompt], &metric_steps, seconds);
    if (m->step_tokens) histogram_add(&m->rows, &metric_rows, m->step_tokens);
    return did;
}

static void *run_lanes(void *user) {
    struct scheduler *l = user;
    while (wait_for_news(l)) {
        admit(l);
        check_running(l);
        see(l);
        do_orders(l);
        if (!l->n_running) continue;
        atomic_fetch_add(&l->server->metrics.steps, 1);
        atomic_fetch_add(&l->server->metrics.busy, (unsigned long long)l->n_running);
        const bool idle = !step(l);
        wake_told(l);
        collect_ends(l);
        if (l->port->kv_free) atomic_store(&l->server->metrics.kv_free, l->port->kv_free(l->port));
        if (idle) leave_turns(l), rest(l);
    }
    return NULL;
}

enum infer_status scheduler_open(struct scheduler **out, struct server *s) {
    struct scheduler *l;
    TRY(mem_new(&l, sizeof *l, "the queue"));
    *l = (struct scheduler){.server = s, .port = s->port};
    atomic_store(&s->metrics.kv_tokens, s->port->kv_tokens);
    atomic_store(&s->metrics.kv_free, s->port->kv_tokens);
    l->last = &l->first;
    l->last_order = &l->orders;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->news, NULL);
    pthread_cond_init(&l->idle, NULL);
    pthread_cond_init(&l->ordered, NULL);
    enum infer_status st = queue_open(&l->queue, keys_count(s->keys));
    if (!st) st = mem_new(&l->running, (size_t)s->port->n_slot * sizeof(void *), "the queue");
    if (!st && pthread_create(&l->thread, NULL, run_lanes, l))
        st = err_set(INFER_E_MEMORY, "no thread for the engine");
    l->started = !st;
    if (!st && s->port->see) infer_vision_share(s->vision, picture_waits, l);
    *out = l;
    if (st) scheduler_close(l), *out = NULL;
    return st;
}

bool scheduler_push(struct scheduler *l, struct job *j) {
    pthread_mutex_lock(&l->lock);
    bool full = l->n_waiting >= l->server->o.queue && l->n_running + l->n_waiting >= l->port->n_slot,
         refused = full || l->draining;
    if (l->draining) {
        job_refuse(j, 503, "unavailable", NULL, "the server is stopping");
    } else if (full) {
        job_refuse(j, 429, "rate_limit_exceeded", NULL,
                   "%d requests wait already (--queue %d). Please try again in 3s", l->n_waiting,
                   l->server->o.queue);
        j->refusal.retry_ms = 3000;
        atomic_fetch_add(&l->server->metrics.queue_full, 1);
    } else {
        job_ref(j);
        queue_came(&l->queue, j);
        atomic_store(&j->reached, STATE_QUEUE);
        job_set_stage(j, JOB_QUEUED);
        timeline_waits(j->server->timeline, j);
        j->next = NULL;
        *l->last = j;
        l->last = &j->next;
        l->n_waiting++;
        l->n_jobs++;
        pthread_cond_signal(&l->news);
    }
    pthread_mutex_unlock(&l->lock);
    return !refused;
}

void scheduler_quiet(struct scheduler *l) {
    pthread_mutex_lock(&l->lock);
    l->draining = true;
    pthread_cond_signal(&l->news);
    pthread_mutex_unlock(&l->lock);
}

void scheduler_drain(struct scheduler *l, double seconds) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)seconds;
    scheduler_quiet(l);
    pthread_mutex_lock(&l->lock);
    while (l->n_jobs && pthread_cond_timedwait(&l->idle, &l->lock, &until) == 0) continue;
    atomic_store(&l->cancel_all, true);
    while (l->n_jobs) pthread_cond_wait(&l->idle, &l->lock);
    pthread_mutex_unlock(&l->lock);
}

void scheduler_end(struct scheduler *l) {
    pthread_mutex_lock(&l->lock);
    l->stopping = true;
    pthread_cond_signal(&l->news);
    pthread_mutex_unlock(&l->lock);
    if (!l->started) return;
    pthread_join(l->thread, NULL);
    if (l->port->see) infer_vision_share(l->server->vision, NULL, NULL);
    l->started = false;
}

void scheduler_close(struct scheduler *l) {
    if (!l) return;
    scheduler_end(l);
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->news);
    pthread_cond_destroy(&l->idle);
    pthread_cond_destroy(&l->ordered);
    mem_free(l->running);
    queue_close(&l->queue);
    mem_free(l);
}

void scheduler_count(struct scheduler *l, int *running, int *waiting) {
    pthread_mutex_lock(&l->lock);
    *running = l->shown_running;
    *waiting = l->n_waiting;
    pthread_mutex_unlock(&l->lock);
}

void scheduler_show(struct scheduler *l, struct buf *out) {
    int running, waiting;
    scheduler_count(l, &running, &waiting);
    json_put(out, "[");
    for (int i = 0; i < l->port->n_slot; i++)
        json_put(out, "{id:%d n_ctx:%d is_processing:%hhd state:%s}", i, l->port->n_ctx, (bool)(i < running),
                 i < running ? "answering" : "idle");
    json_put(out, "]\n");
}
