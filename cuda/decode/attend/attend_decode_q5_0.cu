#include "cuda/decode/attend/attend_decode_instances.h"
ATTEND_MORE_SET(attend_more_q5_0, KV_Q5_0);
