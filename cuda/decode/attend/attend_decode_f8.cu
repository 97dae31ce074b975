#include "cuda/decode/attend/attend_decode_instances.h"
ATTEND_MORE_SET(attend_more_f8, KV_F8);
