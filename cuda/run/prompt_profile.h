#pragma once
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Times the links of the fused program of prompt rows one by one, on the rows of the step that ran last: n_row of them, n_out outputs.
 * line(user, kind of the link, what it is called, microseconds) for each in its order. errors: INFER_E_UNSUPPORTED where prompt rows are not
 * fused */
struct backend;
enum infer_status prompt_profile(struct backend *b, int n_row, int n_out,
                                 void (*line)(void *user, const char *kind, const char *name, float us),
                                 void *user);

#ifdef __cplusplus
}
#endif
