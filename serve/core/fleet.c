#include "serve/core/fleet.h"
#include <math.h>
#include <stddef.h>

enum { LOADS_A_TURN = 4 };

/* ---- bytes ---- */

static struct fleet_bytes plus(struct fleet_bytes a, struct fleet_bytes b) {
    return (struct fleet_bytes){a.host + b.host, a.card + b.card};
}
static struct fleet_bytes minus(struct fleet_bytes a, struct fleet_bytes b) {
    return (struct fleet_bytes){a.host > b.host ? a.host - b.host : 0, a.card > b.card ? a.card - b.card : 0};
}
static bool within(struct fleet_bytes a, struct fleet_bytes b) {
    return a.host <= b.host && a.card <= b.card;
}

static bool is_here(const struct fleet_model *m) {
    return m->state == FLEET_LOADING || m->state == FLEET_IN || m->state == FLEET_LEAVING;
}
struct fleet_bytes fleet_taken(const struct fleet *f) {
    struct fleet_bytes all = {0};
    for (int i = 0; i < f->n; i++)
        if (is_here(&f->model[i])) all = plus(all, f->model[i].need);
    return all;
}
/* Of all pinned models, or of those that are not here; but for model `but`. */
static struct fleet_bytes pinned(const struct fleet *f, bool away, int but) {
    struct fleet_bytes all = {0};
    for (int i = 0; i < f->n; i++) {
        const struct fleet_model *m = &f->model[i];
        if (m->pinned && i != but && !(away && is_here(m))) all = plus(all, m->need);
    }
    return all;
}
struct fleet_bytes fleet_pinned(const struct fleet *f) {
    return pinned(f, false, -1);
}

/* ---- requests ---- */

static bool failed_lately(const struct fleet *f, const struct fleet_model *m, double now) {
    return m->state == FLEET_FAILED && now < m->failed + f->retry;
}

enum fleet_answer fleet_came(struct fleet *f, int i, double now) {
    struct fleet_model *m = &f->model[i];
    if (failed_lately(f, m, now)) return FLEET_REFUSED;
    if (m->state == FLEET_IN && !m->closed) {
        m->n_run++;
        m->used = now;
        return FLEET_GOES;
    }
    if (!m->n_wait++ && !m->asked_in) m->since = now;
    return FLEET_WAITS;
}

void fleet_gave_up(struct fleet *f, int i, double since) {
    struct fleet_model *m = &f->model[i];
    if (--m->n_wait && !m->asked_in) m->since = since;
}

bool fleet_takes(struct fleet *f, int i, double now) {
    struct fleet_model *m = &f->model[i];
    if (m->state != FLEET_IN || m->closed || !m->n_wait) return false;
    m->n_run += m->n_wait;
    m->n_wait = 0;
    m->used = now;
    return true;
}

void fleet_left(struct fleet *f, int i, double now) {
    f->model[i].n_run--;
    f->model[i].used = now;
}

bool fleet_ask_in(struct fleet *f, int i, double now) {
    struct fleet_model *m = &f->model[i];
    if (failed_lately(f, m, now)) return false;
    if (m->state == FLEET_IN && m->asked_out) m->asked_out = m->closed = false;
    if (m->state == FLEET_IN || m->state == FLEET_LOADING) return true;
    if (!m->asked_in && !m->n_wait) m->since = now;
    return m->asked_in = true;
}

bool fleet_ask_out(struct fleet *f, int i) {
    struct fleet_model *m = &f->model[i];
    if (m->pinned) return false;
    m->asked_in = false;
    m->asked_out = m->state == FLEET_IN || m->state == FLEET_LOADING;
    m->closed |= m->asked_out;
    return true;
}

/* ---- what came of it ---- */

void fleet_measured(struct fleet *f, int i, struct fleet_bytes need) {
    f->model[i].measured = true;
    f->model[i].need = need;
}

void fleet_loaded(struct fleet *f, int i, double now, double seconds) {
    struct fleet_model *m = &f->model[i];
    m->state = FLEET_IN;
    m->loaded = m->used = now;
    m->load_seconds = seconds;
    m->asked_in = false;
    m->closed = m->asked_out;
    f->n_load++;
}

void fleet_gone(struct fleet *f, int i) {
    struct fleet_model *m = &f->model[i];
    m->state = FLEET_OUT;
    m->closed = m->asked_out = false;
}

void fleet_failed(struct fleet *f, int i, double now) {
    struct fleet_model *m = &f->model[i];
    m->state = FLEET_FAILED;
    m->failed = now;
    m->n_wait = 0;
    m->asked_in = m->asked_out = m->closed = m->measured = false;
    m->need = (struct fleet_bytes){0};
}

/* ---- who goes ---- */

static bool is_idle(const struct fleet_model *m) { return !m->n_run; }

/* When it may be asked to go: one that answers, and one that does not. */
static double may_go(const struct fleet *f, const struct fleet_model *m) {
    const double turn = fmax(f->turn, LOADS_A_TURN * m->load_seconds);
    return m->loaded + (is_idle(m) ? m->load_seconds : turn);
}

/* Whether a goes rather than b: who may go sooner; of those that may now who answers nothing, the least recently used of them; of those
 * that answer who came first, which does not change with every answer. */
static bool goes_before(const struct fleet *f, const struct fleet_model *a, const struct fleet_model *b,
                        double now) {
    const double x = fmax(may_go(f, a), now), y = fmax(may_go(f, b), now);
    if (x != y) return x < y;
    if (is_idle(a) != is_idle(b)) return is_idle(a);
    return is_idle(a) ? a->used < b->used : a->loaded < b->loaded;
}

/* The next of those that could go and are not marked; -1: none. */
static int next_victim(const struct fleet *f, const bool *marked, int but, double now) {
    int best = -1;
    for (int i = 0; i < f->n; i++) {
        const struct fleet_model *m = &f->model[i];
        if (m->state != FLEET_IN || m->pinned || i == but || marked[i]) continue;
        if (best < 0 || goes_before(f, m, &f->model[best], now)) best = i;
    }
    return best;
}

/* Marks those that go for model i, no more than it takes. Callers have FLEET_MODELS marks. */
static void mark_victims(const struct fleet *f, int i, struct fleet_bytes free, double now, bool *marked) {
    int order[FLEET_MODELS], n = 0;
    const struct fleet_bytes need = f->model[i].need;
    for (int v; !within(need, free) && (v = next_victim(f, marked, i, now)) >= 0;) {
        marked[v] = true;
        order[n++] = v;
        free = plus(free, f->model[v].need);
    }
    for (int k = 0; k < n; k++) { /* a large one that came later may do without a small one */
        const struct fleet_bytes less = minus(free, f->model[order[k]].need);
        if (!within(need, less)) continue;
        marked[order[k]] = false;
        free = less;
    }
}

/* Makes room for model i: an act, or when to look again. Those of the marked that answer and have had their turn are closed. */
static struct fleet_act make_room(struct fleet *f, int i, struct fleet_bytes free, double now) {
    bool marked[FLEET_MODELS] = {false}, ready = true;
    struct fleet_act a = {FLEET_NOTHING, i, INFINITY};
    int first = -1;
    mark_victims(f, i, free, now, marked);
    for (int k = 0; k < f->n; k++) {
        struct fleet_model *m = &f->model[k];
        const double at = may_go(f, m);
        m->closed = m->asked_out || (marked[k] && at <= now && (m->closed || !is_idle(m)));
        if (!marked[k]) continue;
        ready &= is_idle(m) && at <= now;
        if (at > now) a.until = fmin(a.until, at);
        if (first < 0) first = k;
    }
    if (!ready || first < 0) return a;
    for (int k = 0; k < f->n; k++) f->model[k].closed |= marked[k]; /* nothing comes between their going */
    f->model[first].state = FLEET_LEAVING;
    return (struct fleet_act){FLEET_UNLOAD, first, now};
}

/* ---- what is next ---- */

/* The model that is wanted longest and is not here; pinned ones first; -1: none. */
static int next_wanted(const struct fleet *f) {
    int best = -1;
    for (int i = 0; i < f->n; i++) {
        const struct fleet_model *m = &f->model[i];
        if (is_here(m) || (!m->n_wait && !m->asked_in)) continue;
        const struct fleet_model *b = best < 0 ? NULL : &f->model[best];
        if (!b || (m->pinned != b->pinned ? m->pinned : m->since < b->since)) best = i;
    }
    return best;
}

/* Nobody has to make room. */
static void open_all(struct fleet *f) {
    for (int i = 0; i < f->n; i++) f->model[i].closed = f->model[i].asked_out;
}

static struct fleet_act want(struct fleet *f, int i, double now) {
    struct fleet_model *m = &f->model[i];
    if (!m->measured) return (struct fleet_act){FLEET_MEASURE, i, now};
    const struct fleet_bytes own = minus(f->room, pinned(f, false, i));
    if (!within(m->need, own)) return (struct fleet_act){FLEET_TOO_LARGE, i, now};
    const struct fleet_bytes free = minus(f->room, plus(fleet_taken(f), pinned(f, true, i)));
    if (!within(m->need, free)) return make_room(f, i, free, now);
    open_all(f);
    m->state = FLEET_LOADING;
    return (struct fleet_act){FLEET_LOAD, i, now};
}

/* Those that nobody has asked for in a while, and those that were asked to go. */
static struct fleet_act rest(struct fleet *f, double now) {
    struct fleet_act a = {FLEET_NOTHING, -1, INFINITY};
    for (int i = 0; i < f->n; i++) {
        struct fleet_model *m = &f->model[i];
        if (m->state != FLEET_IN || m->n_run || m->pinned) continue;
        if (!m->asked_out && (m->keep < 0 || m->n_wait)) continue; /* those that wait begin now */
        const double at = m->asked_out ? now : m->used + m->keep;
        if (at <= now) {
            m->state = FLEET_LEAVING;
            return (struct fleet_act){FLEET_UNLOAD, i, now};
        }
        a.until = fmin(a.until, at);
    }
    return a;
}

struct fleet_act fleet_next(struct fleet *f, double now) {
    for (int i = 0; i < f->n; i++)
        if (f->model[i].state == FLEET_LOADING || f->model[i].state == FLEET_LEAVING)
            return (struct fleet_act){FLEET_NOTHING, i, INFINITY};
    const struct fleet_act leaves = rest(f, now);
    if (leaves.kind != FLEET_NOTHING) return leaves;
    const int i = next_wanted(f);
    if (i < 0) open_all(f);
    struct fleet_act a = i >= 0 ? want(f, i, now) : leaves;
    if (a.kind != FLEET_NOTHING) return a;
    for (int k = 0; k < f->n; k++)
        if (!f->model[k].measured && f->model[k].state == FLEET_OUT)
            return (struct fleet_act){FLEET_MEASURE, k, now};
    a.until = fmin(a.until, leaves.until);
    return a;
}
