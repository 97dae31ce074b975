// Decode attention of what a plain Llama does not have (MORE of attend_decode.cuh) and of heads up to 512, by type of cache;
// of types that are turned, of a plain Llama's, too.
#pragma once
#include "cuda/decode/attend/attend_decode.cuh"

enum { ATTEND_MORE = 4 }; // sizes of heads
#define ATTEND_MORE_KERNEL(d, t)                                                                             \
    {                                                                                                        \
        d, t, attend_shape<d, t>::warps, attend_shape<d, t>::apart,                                          \
            {attend_decode_kernel<d, t, false, true>, attend_decode_kernel<d, t, false, true>},              \
            attend_put_kernel<d, t, true>, attend_shape<d, t>::bytes, NULL, NULL                             \
    }
#define ATTEND_MORE_SET(name, t)                                                                             \
    const struct attend_kernel name[ATTEND_MORE] = {ATTEND_MORE_KERNEL(64, t), ATTEND_MORE_KERNEL(128, t),   \
                                                    ATTEND_MORE_KERNEL(256, t), ATTEND_MORE_KERNEL(512, t)}
extern const struct attend_kernel attend_more_f16[ATTEND_MORE], attend_more_q8_0[ATTEND_MORE],
    attend_more_f32[ATTEND_MORE], attend_more_f8[ATTEND_MORE], attend_more_q5_0[ATTEND_MORE],
    attend_more_q4_0[ATTEND_MORE];
