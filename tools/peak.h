/* Arithmetic ceilings of this processor, measured here and now: what the matmul of prompts is measured against. */
#pragma once
#include <stdbool.h>

/* One kind of instruction, 12 (AMX: 4) independent accumulators a thread, nothing read from memory. */
struct peak {
    const char *name;     /* "int8 VNNI 512" */
    const char *isa;      /* the instruction set of the engine that it bounds */
    bool (*here)(void);   /* the processor has it */
    double (*run)(int n); /* n rounds; returns a value, so that nothing is left out */
    double ops;           /* operations (2 per multiply-add) of a round */
};
extern const struct peak peaks[];
extern const int n_peak;

/* Operations a second of all threads together, over this many seconds. */
double peak_measure(const struct peak *p, int n_thread, double seconds);
/* The ceiling of an engine whose instruction sets are named like "avx512-vnni, amx-bf16"; NULL when none is
 * known. */
const struct peak *peak_of_isa(const char *isa);
