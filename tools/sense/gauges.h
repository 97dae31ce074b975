/* What a card is doing by the names that Prometheus has for it: infer_card_NAME. */
#pragma once
#include "tools/sense/nvml.h"

enum { CARD_GAUGES = 18 };
struct card_gauge {
    const char *name; /* "temperature_celsius"; of counters it ends in _total */
    double x;         /* NAN: not told */
};
/* All of them, always in one order; s NULL: their names. */
void card_gauges(const struct nvml_sample *s, struct card_gauge out[CARD_GAUGES]);
