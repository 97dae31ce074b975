#include "tools/trace_levels.h"
#include <math.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>
#include "base/host.h"
#include "base/mem.h"
#include "tools/sense/energy.h"
#include "tools/sense/nvml.h"
#include "tools/trace.h"

enum { KEPT = 36000, CARDS = 8, PERIOD_NS = 100000000 };
static const double MIB = 1 << 20;

struct level { /* NAN: not told */
    int64_t at;
    float host_mib, processors_watts, card_mib[CARDS], card_watts[CARDS];
};
struct levels {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool ends;
    struct nvml *nvml; /* NULL: no card */
    struct energy *energy;
    double joules, joules_at;
    int n_card;
    size_t n; /* taken; the newest is level[(n - 1) % KEPT] */
    struct level level[KEPT];
};

static double resident(void) {
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    const bool known = f && fscanf(f, "%*d %ld", &pages) == 1;
    if (f) fclose(f);
    return known ? (double)pages * (double)sysconf(_SC_PAGESIZE) : NAN;
}

/* Of the processors, since the sample before. */
static double watts(struct levels *l) {
    const double joules = energy_now(l->energy).processors, now = host_seconds();
    const double w = (joules - l->joules) / (now - l->joules_at);
    l->joules = joules, l->joules_at = now;
    return w;
}

static void sample(struct levels *l) {
    struct level s = {.at = (int64_t)(1e9 * host_seconds())};
    s.host_mib = (float)(resident() / MIB), s.processors_watts = (float)watts(l);
    for (int i = 0; i < l->n_card; i++) {
        double used, power;
        nvml_level(l->nvml, i, &used, &power);
        s.card_mib[i] = (float)(used / MIB), s.card_watts[i] = (float)power;
    }
    pthread_mutex_lock(&l->lock);
    l->level[l->n++ % KEPT] = s;
    pthread_mutex_unlock(&l->lock);
}

/* Until the next sample is due, or false: it is over. */
static bool pause_until(struct levels *l, struct timespec *due) {
    due->tv_nsec += PERIOD_NS;
    if (due->tv_nsec >= 1000000000) due->tv_sec++, due->tv_nsec -= 1000000000;
    pthread_mutex_lock(&l->lock);
    while (!l->ends && pthread_cond_timedwait(&l->wake, &l->lock, due) == 0) continue;
    const bool goes_on = !l->ends;
    pthread_mutex_unlock(&l->lock);
    return goes_on;
}

static void *run(void *levels) {
    struct timespec due;
    clock_gettime(CLOCK_REALTIME, &due);
    do sample(levels);
    while (pause_until(levels, &due));
    return NULL;
}

enum infer_status levels_open(struct levels **out) {
    struct levels *l;
    *out = NULL;
    TRY(mem_new(&l, sizeof *l, "counters of a trace"));
    enum infer_status st = energy_open(&l->energy);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->wake, NULL);
    if (!st && nvml_open(&l->nvml) == INFER_OK)
        l->n_card = nvml_count(l->nvml) < CARDS ? nvml_count(l->nvml) : CARDS;
    l->joules = NAN;
    if (!st && pthread_create(&l->thread, NULL, run, l))
        st = err_set(INFER_E_MEMORY, "no thread for the counters of a trace");
    if (st) {
        energy_close(l->energy);
        nvml_close(l->nvml);
        mem_free(l);
        return st;
    }
    *out = l;
    return INFER_OK;
}

void levels_close(struct levels *l) {
    if (!l) return;
    pthread_mutex_lock(&l->lock);
    l->ends = true;
    pthread_cond_signal(&l->wake);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    energy_close(l->energy);
    nvml_close(l->nvml);
    mem_free(l);
}

static void write_level(FILE *f, const struct level *s, int n_card) {
    char name[32];
    trace_counter(f, "memory of the host, MiB", s->at, (double)s->host_mib);
    trace_counter(f, "power of the processors, W", s->at, (double)s->processors_watts);
    for (int i = 0; i < n_card; i++) {
        snprintf(name, sizeof name, "memory of card %d, MiB", i);
        trace_counter(f, name, s->at, (double)s->card_mib[i]);
        snprintf(name, sizeof name, "power of card %d, W", i);
        trace_counter(f, name, s->at, (double)s->card_watts[i]);
    }
}

void levels_write(void *levels, FILE *f, int64_t since) {
    struct levels *l = levels;
    pthread_mutex_lock(&l->lock);
    for (size_t i = l->n > KEPT ? l->n - KEPT : 0; i < l->n; i++)
        if (l->level[i % KEPT].at >= since) write_level(f, &l->level[i % KEPT], l->n_card);
    pthread_mutex_unlock(&l->lock);
}
