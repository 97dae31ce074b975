/* Cards that need not be here: what `infer plan --as` plans for. */
#pragma once
#include "infer.h"

/* name: a card of the table ("rtx-5090"), or "GIB,sm_XX" ("24,sm_89"), whose speed nobody knows here. errors:
 * INFER_E_INPUT, the message lists the table */
enum infer_status card_find(const char *name, struct infer_card *out);
