/* Layers on a device, the experts of the first ones on the host. */
#pragma once
#include "plan/plan.h"

/* A backend of both parts of a plan whose first part is experts: the device runs every list and asks the host for these, layer by
 * layer (seam/elsewhere.h). The plan outlives it. errors: as the parts' open */
enum infer_status host_experts_open(struct backend **out, const struct plan *plan);
