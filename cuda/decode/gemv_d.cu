#include "cuda/decode/gemv.cuh"
#include "cuda/decode/gemv_instances.h"
MM_CODES(q3k, LAYOUT_Q3K, 8, 2)
MM_CODES(iq4, LAYOUT_IQ4, 8, 2)
MM_CODES(q2k, LAYOUT_Q2K, 8, 2)
