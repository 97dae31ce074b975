/* The options of infer.h as the plan takes them: words become enums here, once. */
#pragma once
#include "infer.h"
#include "plan/plan.h"

/* o NULL: the defaults. out->place is left open. errors: INFER_E_INPUT (a word that is not known) */
enum infer_status engine_options_read(struct plan_options *out, const struct infer_engine_options *o);
