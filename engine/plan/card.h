/* Cards that need not be here: what `infer plan --as` plans for. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/status.h"

/* A card as the plan needs it, as infer.h has it. */
struct card {
    char name[32];
    int sm;   /* 120 */
    int n_sm; /* multiprocessors; 0: unknown */
    uint64_t memory_bytes;
    double read_gb_s, f16_tflops, int8_tops, tf32_tflops;
    const char *source; /* where the rates come from */
};

/* name: a card of the table, as it is there ("rtx-5090") or as a driver or shop writes it ("NVIDIA GeForce RTX 5090"), or
 * "GIB,sm_XX" ("24,sm_89"), whose speed nobody knows here. errors: INFER_E_INPUT, the message names near ones;
 * INFER_E_UNSUPPORTED: there are no kernels for the chip */
enum infer_status card_find(const char *name, struct card *out);
/* As a driver and cuda's memory() call it: "NVIDIA H100 80GB HBM3, sm_90". False: none of the table. */
bool card_of_driver(const char *name, struct card *out);
/* Several: names with commas between, card[most]; *n: how many. errors: as card_find, INFER_E_INPUT (more than most) */
enum infer_status cards_find(const char *names, struct card *card, int most, int *n);
/* The table: card_table(&n)[n]. */
const struct card *card_table(int *n);
