/* How many requests run at once on a card, where nobody says. */
#pragma once
#include "infer.h"

enum {
    SLOT_SHARE = 3500
}; /* positions that a slot has on average, at least; less where the context is shorter */

/* Sets .slots and .kv_tokens to the most of 256, 128, 64 and 32 slots whose shares a card has room for beside the model, and to what they
 * come to; leaves the options as they are where the steps are computed by a host, and where a card has no room for so many. as: a card
 * that is not here, as infer_plan has it. errors: those of infer_plan */
enum infer_status default_slots(const struct infer_model *m, const char *as, struct infer_engine_options *o);
