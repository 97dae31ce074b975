#include "cuda/decode/attend_more.h"
ATTEND_MORE_SET(attend_more_q8_0, KV_Q8_0);
