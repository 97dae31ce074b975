/* What was found out about this card before, kept in one small text file: kernels that the tuner chose, self-tests passed.
 * An entry counts for one card, driver and build of the program only. */
#pragma once
#include <stdbool.h>
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tune;

/* Reads $XDG_CACHE_HOME/infer/routes (else ~/.cache/infer/routes); a file that is not there or not readable is empty.
 * device: name of the card, driver: its version. errors: INFER_E_MEMORY. */
enum infer_status tune_open(struct tune **out, const char *device, int driver);
/* The table of a file of its own, whose entries count for the card alone, whatever driver and build: one that is handed on, and pinned. to_write:
 * it need not be there. errors: INFER_E_IO, INFER_E_INPUT (no such table), INFER_E_WRITE, INFER_E_MEMORY. */
enum infer_status tune_open_file(struct tune **out, const char *device, const char *path, bool to_write);
/* How many entries are of this card. */
int tune_count(const struct tune *t);
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
