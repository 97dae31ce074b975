#include "cuda/decode/skinny_instances.h"
HALF_HALVES(bf16, LAYOUT_BF16)
