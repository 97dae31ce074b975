/* What was found out about this card before, kept in one small text file: kernels that the tuner chose, self-tests passed.
 * An entry counts for one card, driver and build of the program only. */
#pragma once
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tune;

/* Reads $XDG_CACHE_HOME/infer/routes (else ~/.cache/infer/routes); a file that is not there or not readable is empty.
 * device: name of the card, driver: its version. errors: INFER_E_MEMORY. */
enum infer_status tune_open(struct tune **out, const char *device, int driver);
/* Value of an entry of this card, driver and build; none where there is none. */
int tune_get(const struct tune *t, const char *what, int none);
/* Sets an entry; kept by tune_save. */
void tune_set(struct tune *t, const char *what, int value);
/* Writes the file anew if an entry was set: others' entries first, the oldest left out above 256 KiB. errors:
 * those of outfile_put. */
enum infer_status tune_save(struct tune *t);
void tune_close(struct tune *t);

#ifdef __cplusplus
}
#endif
