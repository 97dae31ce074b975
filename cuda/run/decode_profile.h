#pragma once
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Times the parts of the fused decode program of a CUDA backend on the step that ran last, launched for rows rows, at least as
 * many as that step has: line(name, microseconds alone, microseconds that the whole loses without it, launches). errors:
 * INFER_E_UNSUPPORTED where decode is not fused; INFER_E_INPUT for fewer rows than the step has. */
struct backend;
enum infer_status decode_profile(struct backend *b, int rows,
                                 void (*line)(const char *name, float alone, float without, int n));

#ifdef __cplusplus
}
#endif
