/* Which models are loaded and which go: with a clock and loads that are numbers. */
#include "tests/lib/test.h"
#include <math.h>
#include "serve/core/fleet.h"
#include "tests/lib/random.h"

#define GB(x) ((uint64_t)((x)*1e9))

/* n models of `each` bytes in a room for `fit` of them. */
static struct fleet fleet_of(struct fleet_model *m, int n, double each, double fit) {
    for (int i = 0; i < n; i++)
        m[i] = (struct fleet_model){.keep = -1, .measured = true, .need = {GB(each), 0}};
    return (struct fleet){.model = m, .n = n, .room = {GB(each * fit), 0}, .turn = 5, .retry = 10};
}
static void expect(struct fleet *f, double now, int kind, int i) {
    const struct fleet_act a = fleet_next(f, now);
    assert_int_equal(a.kind, kind);
    if (kind) assert_int_equal(a.i, i);
}
static void load(struct fleet *f, int i, double now, double seconds) {
    expect(f, now, FLEET_LOAD, i);
    assert_int_equal(fleet_next(f, now).kind, FLEET_NOTHING); /* one thing at a time */
    fleet_loaded(f, i, now + seconds, seconds);
}

static void test_on_demand(void **state) {
    struct fleet_model m[3];
    struct fleet f = fleet_of(m, 3, 4, 2);
    (void)state;
    expect(&f, 0, FLEET_NOTHING, 0);
    assert_int_equal(fleet_came(&f, 1, 0), FLEET_WAITS);
    assert_int_equal(fleet_came(&f, 1, 0.5), FLEET_WAITS);
    load(&f, 1, 1, 2);
    assert_true(fleet_takes(&f, 1, 3)); /* both at once */
    assert_int_equal(m[1].n_run, 2);
    assert_int_equal(fleet_came(&f, 1, 3), FLEET_GOES);
    /* what has not been measured is, before it is loaded */
    m[2].measured = false;
    fleet_came(&f, 2, 4);
    expect(&f, 4, FLEET_MEASURE, 2);
    fleet_measured(&f, 2, (struct fleet_bytes){GB(4), 0});
    load(&f, 2, 4, 1);
    assert_int_equal(fleet_taken(&f).host, GB(8));
}

static void test_who_goes(void **state) {
    struct fleet_model m[4];
    struct fleet f = fleet_of(m, 4, 4, 2);
    (void)state;
    for (int i = 0; i < 2; i++) { /* 1 was used last, 0 answers */
        fleet_came(&f, i, i);
        load(&f, i, i, 0.5);
        fleet_takes(&f, i, i + 0.5);
    }
    fleet_left(&f, 1, 2);
    fleet_came(&f, 2, 3);
    expect(&f, 3, FLEET_UNLOAD, 1); /* not the one that answers, though it was used before */
    fleet_gone(&f, 1);
    load(&f, 2, 3, 4);
    fleet_takes(&f, 2, 7);
    fleet_left(&f, 2, 7.5);
    fleet_left(&f, 0, 8);
    fleet_came(&f, 3, 8);
    expect(&f, 8, FLEET_UNLOAD, 0); /* 2 was used before 0, and has to stay for as long as its load took */
    fleet_gone(&f, 0);
    load(&f, 3, 8, 1);
    fleet_takes(&f, 3, 9);
    fleet_came(&f, 1, 9);
    const struct fleet_act a = fleet_next(&f, 9);
    assert_int_equal(a.kind, FLEET_NOTHING);
    assert_true(a.until == 11); /* 7 and 4 */
    expect(&f, 11, FLEET_UNLOAD, 2);
}

/* A model that always answers gives way after its turn, takes nothing meanwhile, and comes back after the other's. */
static void test_turns(void **state) {
    struct fleet_model m[2];
    struct fleet f = fleet_of(m, 2, 4, 1);
    (void)state;
    fleet_came(&f, 0, 0);
    load(&f, 0, 0, 2);
    fleet_takes(&f, 0, 2);
    fleet_came(&f, 1, 3);
    const struct fleet_act a = fleet_next(&f, 3);
    assert_int_equal(a.kind, FLEET_NOTHING);
    assert_true(a.until == 2 + 4 * 2);
    assert_int_equal(fleet_came(&f, 0, 9), FLEET_GOES);
    expect(&f, 10, FLEET_NOTHING, 0);
    assert_int_equal(fleet_came(&f, 0, 10), FLEET_WAITS);
    fleet_left(&f, 0, 11);
    expect(&f, 11, FLEET_NOTHING, 0); /* one is still answered */
    fleet_left(&f, 0, 12);
    expect(&f, 12, FLEET_UNLOAD, 0);
    fleet_gone(&f, 0);
    load(&f, 1, 12, 2);
    fleet_takes(&f, 1, 14);
    assert_false(fleet_takes(&f, 0, 14));
    expect(&f, 14, FLEET_NOTHING, 0);
    fleet_left(&f, 1, 15);
    expect(&f, 15, FLEET_NOTHING, 0);
    expect(&f, 16, FLEET_UNLOAD, 1);
    /* nobody waits for it any more: whoever was closed takes requests again */
    struct fleet g = fleet_of(m, 2, 4, 1);
    fleet_came(&g, 0, 0);
    load(&g, 0, 0, 1);
    fleet_takes(&g, 0, 1);
    fleet_came(&g, 1, 2);
    expect(&g, 7, FLEET_NOTHING, 0);
    assert_int_equal(fleet_came(&g, 0, 7), FLEET_WAITS);
    fleet_gave_up(&g, 1, 0);
    expect(&g, 8, FLEET_NOTHING, 0);
    assert_true(fleet_takes(&g, 0, 8));
}

static void test_sizes(void **state) {
    struct fleet_model m[4];
    struct fleet f = fleet_of(m, 4, 1, 8);
    (void)state;
    m[1].need.host = m[3].need.host = GB(6);
    for (int i = 0; i < 3; i++) {
        fleet_came(&f, i, i);
        load(&f, i, i, 0);
        fleet_takes(&f, i, i);
        fleet_left(&f, i, i);
    }
    fleet_came(&f, 3, 5);
    expect(&f, 5, FLEET_UNLOAD, 1); /* the small one that was used before can stay */
    fleet_gone(&f, 1);
    load(&f, 3, 5, 0);
    m[1].need.host = GB(9);
    fleet_came(&f, 1, 6);
    expect(&f, 6, FLEET_TOO_LARGE, 1);
    fleet_failed(&f, 1, 6);
    assert_int_equal(fleet_came(&f, 1, 7), FLEET_REFUSED);
    assert_int_equal(fleet_came(&f, 1, 17), FLEET_WAITS);
    expect(&f, 17, FLEET_MEASURE, 1); /* its file may be another one */
    /* bytes of the card count for themselves */
    struct fleet g = fleet_of(m, 2, 1, 8);
    g.room.card = GB(3);
    m[0].need.card = m[1].need.card = GB(2);
    fleet_came(&g, 0, 0);
    load(&g, 0, 0, 0);
    fleet_came(&g, 1, 1);
    expect(&g, 1, FLEET_UNLOAD, 0);
}

static void test_pins(void **state) {
    struct fleet_model m[4];
    struct fleet f = fleet_of(m, 4, 2, 3);
    (void)state;
    m[0].pinned = true;
    m[0].keep = 1;
    assert_true(fleet_ask_in(&f, 0, 0));
    fleet_came(&f, 1, 0);
    load(&f, 0, 0, 1); /* before others that wait */
    load(&f, 1, 1, 1);
    fleet_takes(&f, 1, 2);
    fleet_came(&f, 2, 2);
    load(&f, 2, 2, 1);
    fleet_came(&f, 3, 5);
    fleet_takes(&f, 2, 5);
    fleet_left(&f, 2, 6);
    expect(&f, 9, FLEET_UNLOAD, 2); /* never 0, which was used least recently */
    assert_false(fleet_ask_out(&f, 0));
    /* its bytes are its own where it is not loaded, too */
    struct fleet g = fleet_of(m, 2, 2, 1.5);
    m[0].pinned = true;
    fleet_came(&g, 1, 0);
    expect(&g, 0, FLEET_TOO_LARGE, 1);
}

static void test_asked(void **state) {
    struct fleet_model m[2];
    struct fleet f = fleet_of(m, 2, 1, 2);
    (void)state;
    m[0].keep = 3;
    fleet_ask_in(&f, 0, 0);
    load(&f, 0, 0, 1);
    const struct fleet_act a = fleet_next(&f, 2);
    assert_true(a.kind == FLEET_NOTHING && a.until == 4);
    assert_int_equal(fleet_came(&f, 0, 3.5), FLEET_GOES);
    expect(&f, 10, FLEET_NOTHING, 0); /* it answers */
    fleet_left(&f, 0, 10);
    expect(&f, 13, FLEET_UNLOAD, 0);
    fleet_gone(&f, 0);
    assert_int_equal(fleet_came(&f, 0, 20), FLEET_WAITS); /* it wakes */
    load(&f, 0, 20, 1);
    fleet_takes(&f, 0, 21);
    assert_true(fleet_ask_out(&f, 0));
    assert_int_equal(fleet_came(&f, 0, 22), FLEET_WAITS); /* behind its next load */
    expect(&f, 22, FLEET_NOTHING, 0);
    fleet_left(&f, 0, 23);
    expect(&f, 23, FLEET_UNLOAD, 0);
    fleet_gone(&f, 0);
    load(&f, 0, 23, 1);
    assert_true(fleet_takes(&f, 0, 24));
    /* to go behind an answer, not before it */
    struct fleet g = fleet_of(m, 1, 1, 2);
    m[0].keep = 0;
    fleet_came(&g, 0, 0);
    load(&g, 0, 0, 1);
    expect(&g, 1, FLEET_NOTHING, 0);
    assert_true(fleet_takes(&g, 0, 1));
    expect(&g, 1, FLEET_NOTHING, 0);
    fleet_left(&g, 0, 2);
    expect(&g, 2, FLEET_UNLOAD, 0);
    fleet_gone(&g, 0);
    f = fleet_of(m, 2, 1, 2);
    /* asked to go while it loads */
    fleet_ask_in(&f, 1, 30);
    expect(&f, 30, FLEET_LOAD, 1);
    assert_true(fleet_ask_out(&f, 1));
    fleet_loaded(&f, 1, 31, 1);
    expect(&f, 31, FLEET_UNLOAD, 1);
}

/* ---- a day of requests ---- */

enum { MODELS = 5, REQUESTS = 4000 };
struct day {
    struct fleet_model m[MODELS];
    struct fleet f;
    double load_seconds[MODELS], now, ends_act, stay[MODELS]; /* stay: when it may go at the earliest */
    struct fleet_act act;                                     /* that is being done */
    struct {
        int model;
        double ends, came; /* ends INFINITY: it waits */
        bool there;
    } run[REQUESTS];
    int n;
    double longest; /* wait */
};

static void look(struct day *d) {
    for (bool more = true; more;) {
        more = false;
        if (d->act.kind == FLEET_NOTHING) {
            const struct fleet_act a = fleet_next(&d->f, d->now);
            if (a.kind != FLEET_NOTHING) {
                assert_true(a.kind == FLEET_LOAD || a.kind == FLEET_UNLOAD);
                if (a.kind == FLEET_UNLOAD) assert_int_equal(d->m[a.i].n_run, 0);
                if (a.kind == FLEET_UNLOAD) assert_true(d->now >= d->stay[a.i]);
                d->act = a;
                d->ends_act = d->now + (a.kind == FLEET_LOAD ? d->load_seconds[a.i] : 0.05);
                more = true;
            }
            const struct fleet_bytes taken = fleet_taken(&d->f);
            assert_true(taken.host <= d->f.room.host);
        }
        for (int i = 0; i < MODELS; i++) {
            if (!fleet_takes(&d->f, i, d->now)) continue;
            for (int k = 0; k < d->n; k++) {
                if (!d->run[k].there || d->run[k].model != i || isfinite(d->run[k].ends)) continue;
                d->longest = fmax(d->longest, d->now - d->run[k].came);
                d->run[k].ends = d->now + 0.2 + 0.1 * (k % 7);
            }
        }
    }
}

/* When something ends next. */
static double next_end(struct day *d, int *which) {
    double at = d->act.kind != FLEET_NOTHING ? d->ends_act : INFINITY;
    *which = -1;
    for (int k = 0; k < d->n; k++)
        if (d->run[k].there && d->run[k].ends < at) at = d->run[k].ends, *which = k;
    const struct fleet_act a = d->act.kind == FLEET_NOTHING ? fleet_next(&d->f, d->now) : d->act;
    if (a.kind == FLEET_NOTHING && a.until < at) at = fmax(a.until, d->now), *which = -2;
    return at;
}

static void pass(struct day *d, double until) {
    for (;;) {
        int k;
        const double at = next_end(d, &k);
        if (at > until) break;
        d->now = at;
        if (k >= 0) {
            fleet_left(&d->f, d->run[k].model, at);
            d->run[k].there = false;
        } else if (k == -1) {
            const struct fleet_act a = d->act;
            d->act.kind = FLEET_NOTHING;
            if (a.kind == FLEET_UNLOAD) fleet_gone(&d->f, a.i);
            if (a.kind == FLEET_LOAD) {
                fleet_loaded(&d->f, a.i, at, d->load_seconds[a.i]);
                d->stay[a.i] = at + d->load_seconds[a.i];
            }
        }
        look(d);
    }
    d->now = until;
}

static double draw(void) { return 0.5 + 0.499999 * (double)uniform(); } /* 0 .. 1 */

static void test_day(void **state) {
    static struct day d;
    static const double gaps[] = {0.02, 0.3,
                                  2}; /* mean seconds between two requests: crowded, busy, seldom */
    static const int most_loads[] = {40, 400, 600};
    (void)state;
    for (int g = 0; g < 3; g++) {
        seed = 88172645463325252ull + (uint64_t)g;
        d = (struct day){.f = {.n = MODELS, .room = {GB(8), 0}, .turn = 5, .retry = 10}};
        d.f.model = d.m;
        for (int i = 0; i < MODELS; i++) {
            d.load_seconds[i] = 0.5 + i;
            d.m[i] = (struct fleet_model){.keep = -1, .measured = true, .need = {GB(2 + (i == 4) * 3), 0}};
        }
        for (d.n = 0; d.n < REQUESTS;) {
            pass(&d, d.now - gaps[g] * log(1 - draw()));
            const int i = (int)(draw() * draw() * MODELS); /* the first ones more often */
            const int k = d.n++;
            d.run[k].model = i, d.run[k].there = true, d.run[k].came = d.now;
            const enum fleet_answer a = fleet_came(&d.f, i, d.now);
            assert_int_not_equal(a, FLEET_REFUSED);
            d.run[k].ends = a == FLEET_GOES ? d.now + 0.2 + 0.1 * (k % 7) : INFINITY;
            look(&d);
        }
        pass(&d, d.now + 1000);
        for (int k = 0; k < d.n; k++) assert_false(d.run[k].there); /* all were answered */
        /* before a model come the four others: a turn of 5 s or four loads, an answer and a load of each */
        double bound = 0;
        for (int i = 0; i < MODELS; i++) bound += fmax(5, 4 * d.load_seconds[i]) + 1 + d.load_seconds[i];
        assert_true(d.longest <= bound);
        assert_true(d.f.n_load <= most_loads[g]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_on_demand), cmocka_unit_test(test_who_goes), cmocka_unit_test(test_turns),
        cmocka_unit_test(test_sizes),     cmocka_unit_test(test_pins),     cmocka_unit_test(test_asked),
        cmocka_unit_test(test_day),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
