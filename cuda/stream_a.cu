#include "stream.cuh"
#include "stream_table.h"
MM_ONE(q4k, LAYOUT_Q4K, 2, 8, 2, 1)
MM_ONE(q6k, LAYOUT_Q6K, 2, 8, 1, 1)
MM_TWO(q4k_q6k, LAYOUT_Q4K, LAYOUT_Q6K, 2, 8, 2, 1)
MM_NARROW(q4k, LAYOUT_Q4K, 8, 4, 2)
MM_NARROW(q6k, LAYOUT_Q6K, 8, 3, 2)
MM_TWO(q4k_q6k_narrow, LAYOUT_Q4K, LAYOUT_Q6K, 1, 8, 4, 3)
