#include "cuda/decode/attend_more.h"
ATTEND_MORE_SET(attend_more_f16, KV_F16);
