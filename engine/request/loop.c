#include "request/loop.h"
#include <string.h>

void loop_start(struct loop *l) {
    memset(l, 0, sizeof *l);
    memset(l->recent, -1, sizeof l->recent); /* no token */
}

int loop_push(struct loop *l, int32_t id) {
    const int32_t *old = l->recent + l->at;
    l->longest = 0;
    for (int i = 0; i < LOOP_CYCLE; i++) {
        l->same[i] = old[i] == id ? l->same[i] + 1 : 0;
        l->longest = l->same[i] > l->longest ? l->same[i] : l->longest;
    }
    if (l->at == LOOP_CYCLE) {
        memcpy(l->recent, l->recent + LOOP_CYCLE, LOOP_CYCLE * sizeof *l->recent);
        l->at = 0;
    }
    l->recent[LOOP_CYCLE + l->at++] = id;
    return loop_cycle(l, LOOP_TOKENS);
}

int loop_cycle(const struct loop *l, int tokens) {
    if (l->longest < tokens / LOOP_TIMES * (LOOP_TIMES - 1)) return 0; /* as nearly always */
    for (int p = 1; p <= LOOP_CYCLE; p++) {
        int n = l->same[LOOP_CYCLE - p] + p;
        if (n >= tokens && n >= LOOP_TIMES * p) return p;
    }
    return 0;
}
