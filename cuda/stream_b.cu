#include "stream.cuh"
#include "stream_table.h"
MM_ONE(q4, LAYOUT_Q4, 2, 8, 2, 1)
MM_ONE(q4m, LAYOUT_Q4M, 2, 8, 2, 1)
MM_ONE(q8, LAYOUT_Q8, 2, 8, 1, 1)
MM_ONE(q8m, LAYOUT_Q8M, 2, 8, 1, 1)
MM_NARROW(q4, LAYOUT_Q4, 8, 4, 2)
MM_NARROW(q4m, LAYOUT_Q4M, 8, 4, 2)
MM_NARROW(q8, LAYOUT_Q8, 8, 2, 1)
