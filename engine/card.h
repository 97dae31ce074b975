/* Cards that need not be here: what `infer plan --as` plans for. */
#pragma once
#include "infer.h"

/* name: a card of the table, as it is there ("rtx-5090") or as a driver or shop writes it ("NVIDIA GeForce RTX 5090"), or
 * "GIB,sm_XX" ("24,sm_89"), whose speed nobody knows here. errors: INFER_E_INPUT, the message names near ones;
 * INFER_E_UNSUPPORTED: there are no kernels for the chip */
enum infer_status card_find(const char *name, struct infer_card *out);
/* The table: card_table(&n)[n]. */
const struct infer_card *card_table(int *n);
