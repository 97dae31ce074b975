/* Layers on two backends: the first ones on the host, the rest and the outputs on the device. */
#pragma once
#include "plan/plan.h"

/* A backend that runs both parts of a plan of two parts, the first one and then the second on the rows of the residual
 * stream that it left, which cross in float32 and so change no bit. The plan outlives it. errors: as the parts' open */
enum infer_status split_open(struct backend **out, const struct plan *plan);
