/* What the CUDA backend of this build has for a chip. */
#pragma once
#include <stddef.h>

/* build: as infer_cuda_build gives it. The least driver that its toolkit's runtime works with: "580"; "" without. */
const char *cuda_driver_needed(const char *build);
/* The kernel image of the build that a chip of this compute capability runs, as words: "sm_90a", "compute_90, compiled by
 * the driver at first start", "none". source: CUDA C++ programming guide, compute capabilities: code of sm_XY runs on
 * later minor versions of X, of sm_XYa on XY alone, of sm_XYf on XY and later ones of X; PTX on all later ones. */
void cuda_image_for(const char *build, int major, int minor, char *out, size_t n);
