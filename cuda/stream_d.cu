#include "stream.cuh"
#include "stream_table.h"
MM_INT(q3k, LAYOUT_Q3K, 8, 2, 2)
MM_INT(iq4, LAYOUT_IQ4, 8, 2, 2)
