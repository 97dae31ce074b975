/* Which instructions this processor has: the one place that asks.
 *
 * Files named *_avx2.c, *_avxvnni.c, *_avx512.c and *_amx.c are compiled for their instruction set; nothing else in the
 * engine is, and nothing of theirs runs before cpu_isa_pick has said yes. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/status.h"

enum cpu_isa {
    CPU_ISA_NONE,    /* less than the floor */
    CPU_ISA_AVX2,    /* AVX2, FMA, F16C: the floor */
    CPU_ISA_AVXVNNI, /* and AVX-VNNI */
    CPU_ISA_AVX512,  /* AVX-512 F, BW, VL, DQ, VNNI, BF16; AVX-VNNI need not be there */
    CPU_ISA_AMX,     /* and AMX tiles with BF16, which the kernel must grant */
};

/* The best set that processor and operating system offer; asked once. */
enum cpu_isa cpu_isa_best(void);
/* name NULL: the best; "avx2", "avxvnni", "avx512", "amx": that one. errors: INFER_E_DEVICE (below the floor, or not
 * here), INFER_E_INPUT (unknown name) */
enum infer_status cpu_isa_pick(const char *name, enum cpu_isa *out);
const char *cpu_isa_name(enum cpu_isa isa);

/* Teams of a step, for the same tests: as busy as the machine is; all threads; one fewer each step down to one, then all. */
enum cpu_teams { CPU_TEAMS_MEASURED, CPU_TEAMS_WHOLE, CPU_TEAMS_CHANGE };
void cpu_teams_pretend(enum cpu_teams teams);
/* Threads of a step that are late, for tests of what is shared: before operations and units each waits at random for up to some 30 us,
 * by this seed. 0: none does. */
void cpu_delays_pretend(uint32_t seed);
