#include "tools/sense/held.h"
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "tools/sense/energy.h"
#include "tools/sense/nvml.h"

struct held {
    struct nvml *nvml;
    bool cards;
    double count; /* of times that processors were too hot, so far */
};

/* Numbers in the files of a pattern below sysfs. */
struct numbers {
    int n;
    double sum, most;
};
static struct numbers numbers_in(const char *pattern) {
    char path[512];
    glob_t g = {0};
    struct numbers r = {0, 0, -INFINITY};
    double x;
    snprintf(path, sizeof path, "%.200s/%s", sense_sysfs(), pattern);
    if (glob(path, 0, NULL, &g) != 0) return r;
    for (size_t i = 0; i < g.gl_pathc; i++) {
        FILE *f = fopen(g.gl_pathv[i], "re");
        if (f && fscanf(f, "%lf", &x) == 1) r.n++, r.sum += x, r.most = fmax(r.most, x);
        if (f) fclose(f);
    }
    globfree(&g);
    return r;
}

/* source: Documentation/admin-guide/pm and hwmon of Linux: kHz, thousandths of a degree, times that a package or core was held back. */
static const char throttle[] = "devices/system/cpu/cpu*/thermal_throttle/*_throttle_count";

enum infer_status held_open(struct held **out, bool cards) {
    struct held *h;
    TRY(mem_new(&h, sizeof *h, "clocks and heat"));
    h->cards = cards;
    if (cards && nvml_open(&h->nvml)) h->nvml = NULL;
    h->count = numbers_in(throttle).sum;
    *out = h;
    return INFER_OK;
}

void held_close(struct held *h) {
    if (!h) return;
    nvml_close(h->nvml);
    mem_free(h);
}

static struct held_back look_at_cards(const struct held *h) {
    struct held_back b = {NAN, NAN, false, false};
    struct nvml_sample s;
    double mhz = 0;
    int n = 0;
    for (int i = 0; h->nvml && i < nvml_count(h->nvml); i++) {
        if (nvml_sample(h->nvml, i, &s)) continue;
        b.known = true, b.throttled |= s.throttled;
        b.celsius = fmax(b.celsius, s.celsius);
        if (isfinite(s.sm_mhz)) mhz += s.sm_mhz, n++;
    }
    if (n) b.mhz = mhz / n;
    return b;
}

struct held_back held_look(struct held *h) {
    if (h->cards) return look_at_cards(h);
    const struct numbers hot = numbers_in("class/hwmon/hwmon*/temp1_input"),
                         clock = numbers_in("devices/system/cpu/cpu*/cpufreq/scaling_cur_freq"),
                         times = numbers_in(throttle);
    const struct held_back b = {hot.n ? hot.most / 1000 : NAN, clock.n ? clock.sum / clock.n / 1000 : NAN,
                                times.n > 0, times.sum > h->count};
    h->count = times.sum;
    return b;
}
