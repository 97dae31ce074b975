#include "cuda/decode/attend_more.h"
ATTEND_MORE_SET(attend_more_f32, KV_F32);
