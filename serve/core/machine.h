/* The machine's cards and energy, for /metrics and for the usage of answers; opened at the first question, one for the process. */
#pragma once
#include "serve/buf.h"

/* Joules that cards, or processors where no card counts, took since the first question; NAN: nobody counts. Any thread. */
double machine_joules(void);
/* infer_card_.. of every card, infer_energy_joules_total: types always, lines of what there is. */
void machine_metrics(struct buf *out);
