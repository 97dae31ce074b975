/* The table of kernels as text. */
#pragma once
#include <stdio.h>

/* Every row of cuda/plan/cuda_routes.c, then the group that prompt rows of each layout take on each chip. */
void routes_print(FILE *out);
