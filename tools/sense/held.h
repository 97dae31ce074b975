/* Clocks, heat and what holds them back, of cards or of processors, looked at now and then: what says whether a measurement counts. */
#pragma once
#include <stdbool.h>
#include "base/status.h"

struct held;
struct held_back {
    double celsius, mhz; /* of the hottest; mean of all. NAN: not told */
    bool known;          /* .throttled is */
    bool throttled;      /* since the look before */
};

/* cards: of them, else of processors (cpufreq, thermal_throttle and hwmon of sense_sysfs). errors: INFER_E_MEMORY */
enum infer_status held_open(struct held **out, bool cards);
void held_close(struct held *h);
struct held_back held_look(struct held *h);
