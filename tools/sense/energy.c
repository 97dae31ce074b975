#include "tools/sense/energy.h"
#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/host.h"
#include "base/mem.h"
#include "tools/sense/nvml.h"

enum { ZONES = 16, CARDS = 64 };

/* A counter that begins again at 0 behind its range. */
struct counter {
    char path[512];
    double last, range, sum;
};

struct energy {
    pthread_mutex_t lock;
    struct nvml *nvml; /* NULL: no driver */
    int n_card, n_zone;
    double card[CARDS]; /* at energy_open; NAN: it does not count */
    struct counter zone[ZONES];
};

const char *sense_sysfs(void) {
    const char *root = getenv("INFER_SYSFS");
    return root && *root ? root : "/sys";
}

static double number_in(const char *path) {
    double x = NAN;
    FILE *f = fopen(path, "re");
    if (f && fscanf(f, "%lf", &x) != 1) x = NAN;
    if (f) fclose(f);
    return x;
}

/* Whole packages alone: cores and memory channels are parts of them, psys has the packages in it. source: Documentation/power/powercap of
 * Linux; AMD's have the same names. */
static bool is_package(const char *dir, const char *zone) {
    char path[512], name[64] = "";
    int a, end = 0;
    if (sscanf(zone, "intel-rapl:%d%n", &a, &end) != 1 || zone[end]) return false;
    snprintf(path, sizeof path, "%.300s/%.100s/name", dir, zone);
    FILE *f = fopen(path, "re");
    const bool is = f && fscanf(f, "%63s", name) == 1 && strncmp(name, "package", 7) == 0;
    if (f) fclose(f);
    return is;
}

static void find_zones(struct energy *e) {
    char dir[256];
    snprintf(dir, sizeof dir, "%.200s/class/powercap", sense_sysfs());
    DIR *d = opendir(dir);
    for (struct dirent *f; d && (f = readdir(d)) && e->n_zone < ZONES;) {
        struct counter *c = &e->zone[e->n_zone];
        if (!is_package(dir, f->d_name)) continue;
        snprintf(c->path, sizeof c->path, "%.300s/%.100s/max_energy_range_uj", dir, f->d_name);
        c->range = number_in(c->path);
        snprintf(c->path, sizeof c->path, "%.300s/%.100s/energy_uj", dir, f->d_name);
        c->last = number_in(c->path);
        e->n_zone += isfinite(c->last); /* of most systems root alone may read it */
    }
    if (d) closedir(d);
}

enum infer_status energy_open(struct energy **out) {
    struct energy *e;
    TRY(mem_new(&e, sizeof *e, "energy"));
    pthread_mutex_init(&e->lock, NULL);
    if (nvml_open(&e->nvml)) e->nvml = NULL;
    e->n_card = e->nvml ? nvml_count(e->nvml) : 0;
    if (e->n_card > CARDS) e->n_card = CARDS;
    for (int i = 0; i < e->n_card; i++) e->card[i] = nvml_joules(e->nvml, i);
    find_zones(e);
    *out = e;
    return INFER_OK;
}

void energy_close(struct energy *e) {
    if (!e) return;
    nvml_close(e->nvml);
    pthread_mutex_destroy(&e->lock);
    mem_free(e);
}

struct energy_joules energy_now(struct energy *e) {
    struct energy_joules j = {NAN, NAN};
    pthread_mutex_lock(&e->lock);
    for (int i = 0; i < e->n_card; i++) {
        const double now = nvml_joules(e->nvml, i);
        if (isfinite(now) && isfinite(e->card[i]))
            j.cards = (isfinite(j.cards) ? j.cards : 0) + now - e->card[i];
    }
    for (int i = 0; i < e->n_zone; i++) {
        struct counter *c = &e->zone[i];
        const double now = number_in(c->path);
        if (!isfinite(now)) continue;
        c->sum += now >= c->last ? now - c->last : isfinite(c->range) ? now + c->range - c->last : 0;
        c->last = now;
        j.processors = (isfinite(j.processors) ? j.processors : 0) + 1e-6 * c->sum;
    }
    pthread_mutex_unlock(&e->lock);
    return j;
}

double energy_of(struct energy *e, bool cards) {
    const struct energy_joules j = energy_now(e);
    return cards ? j.cards + (isfinite(j.processors) ? j.processors : 0) : j.processors;
}

/* ---- pace ---- */

struct energy_pace {
    struct energy *energy;
    double watts, begin, joules; /* of the budget: when it began, what had been taken then */
    double from;                 /* before which nobody waits */
    bool cards;
};

enum infer_status energy_pace_open(struct energy_pace **out, double watts, bool cards) {
    struct energy_pace *p;
    TRY(mem_new(&p, sizeof *p, "a pace"));
    enum infer_status st = energy_open(&p->energy);
    p->watts = watts, p->cards = cards, p->begin = host_seconds();
    if (!st) p->joules = energy_of(p->energy, cards);
    if (!st && !isfinite(p->joules))
        st = err_set(INFER_E_UNSUPPORTED, "energy is not counted here: %s",
                     cards ? "the card's driver has no counter of it"
                           : "/sys/class/powercap has no intel-rapl zone that may be read");
    *out = p;
    if (st) energy_pace_close(p), *out = NULL;
    return st;
}

void energy_pace_close(struct energy_pace *p) {
    if (!p) return;
    energy_close(p->energy);
    mem_free(p);
}

bool energy_pace_wait(struct energy_pace *p) {
    const double most = 2, piece = 0.01, kept = 1, off = 10; /* seconds */
    const double from = host_seconds();
    for (double now = from; now >= p->from; now = host_seconds()) {
        const double joules = energy_of(p->energy, p->cards),
                     left = p->watts * (now - p->begin) - (joules - p->joules);
        const bool beyond = left < 0 && now - from > most;
        if (left > p->watts * kept || beyond) p->begin = now - (beyond ? 0 : kept), p->joules = joules;
        if (beyond) p->from = now + off;
        if (!(left < 0) || beyond) return !beyond;
        nanosleep(&(struct timespec){.tv_nsec = (long)(1e9 * piece)}, NULL);
    }
    return true;
}
