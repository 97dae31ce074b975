/* Joules that cards and processors have taken, by counters that need no privileges: NVML's of cards, RAPL's of processors (Intel and AMD, where
 * class/powercap of sense_sysfs may be read). What nobody counts is not told: nothing is guessed. Any thread may ask. */
#pragma once
#include <stdbool.h>
#include "base/status.h"

/* /sys, or $INFER_SYSFS. */
const char *sense_sysfs(void);

struct energy;

struct energy_joules { /* since energy_open; NAN: nobody counts them here */
    double cards, processors;
};

/* errors: INFER_E_MEMORY */
enum infer_status energy_open(struct energy **out);
void energy_close(struct energy *e);
struct energy_joules energy_now(struct energy *e);
/* What an engine on the processors (cards false), or on cards, took: of cards with the processors, where these are counted. NAN: not counted. */
double energy_of(struct energy *e, bool cards);

/* --watts: waits, before a step, until what was taken since the steps began is within so many watts; what was not taken while nothing was asked for is
 * kept for a second. */
struct energy_pace;
/* errors: INFER_E_UNSUPPORTED (nothing is counted here), INFER_E_MEMORY */
enum infer_status energy_pace_open(struct energy_pace **out, double watts, bool cards);
void energy_pace_close(struct energy_pace *p);
/* false: two seconds were not enough, since idle takes more than that; the budget begins anew, and for ten seconds nobody waits. */
bool energy_pace_wait(struct energy_pace *p);
