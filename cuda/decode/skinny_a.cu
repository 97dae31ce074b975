#include "cuda/decode/skinny_instances.h"
HALF_HALVES(f16, LAYOUT_F16)
