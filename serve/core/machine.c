#include "serve/core/machine.h"
#include <math.h>
#include <pthread.h>
#include <string.h>
#include "tools/sense/energy.h"
#include "tools/sense/gauges.h"

enum { CARDS = 16 };
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct nvml *cards;    /* NULL: none */
static struct energy *energy; /* NULL: no memory */

static void open_all(void) {
    if (nvml_open(&cards)) cards = NULL;
    if (energy_open(&energy)) energy = NULL;
}

double machine_joules(void) {
    pthread_once(&once, open_all);
    if (!energy) return NAN;
    const double all = energy_of(energy, true);
    return isfinite(all) ? all : energy_of(energy, false);
}

static void write_energy(struct buf *out) {
    const struct energy_joules j = energy ? energy_now(energy) : (struct energy_joules){NAN, NAN};
    buf_text(out, "# TYPE infer_energy_joules_total counter\n");
    if (isfinite(j.cards)) buf_printf(out, "infer_energy_joules_total{of=\"cards\"} %.17g\n", j.cards);
    if (isfinite(j.processors))
        buf_printf(out, "infer_energy_joules_total{of=\"processors\"} %.17g\n", j.processors);
}

void machine_metrics(struct buf *out) {
    struct card_gauge all[CARDS][CARD_GAUGES], name[CARD_GAUGES];
    struct nvml_sample s;
    pthread_once(&once, open_all);
    int n = cards ? nvml_count(cards) : 0;
    if (n > CARDS) n = CARDS;
    for (int i = 0; i < n; i++) card_gauges(nvml_sample(cards, i, &s) ? NULL : &s, all[i]);
    card_gauges(NULL, name);
    for (int k = 0; k < CARD_GAUGES; k++) {
        const char *end = strrchr(name[k].name, '_');
        buf_printf(out, "# TYPE infer_card_%s %s\n", name[k].name,
                   end && !strcmp(end, "_total") ? "counter" : "gauge");
        for (int i = 0; i < n; i++)
            if (isfinite(all[i][k].x))
                buf_printf(out, "infer_card_%s{card=\"%d\"} %.17g\n", name[k].name, i, all[i][k].x);
    }
    write_energy(out);
}
