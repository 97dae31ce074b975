/* LINK_PLAIN: what no pattern takes, an operation each. */
#include "cuda/plan/link_type.h"

const struct link_type link_plain = {0};
