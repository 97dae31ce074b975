/* A file that is written: whole or not at all.
 *
 *     struct outfile *f;
 *     TRY(outfile_open(&f, path, OUTFILE_DEFAULT));        before long work: a name that cannot be written shows here
 *     status = outfile_write(f, data, n);                  as often as wanted
 *     status = outfile_close(f);                           or outfile_abort(f)
 *
 * It grows as NAME.part-PID in the folder of its name, with the permissions that the umask leaves or, where a file is
 * there, with that one's, and takes the name in outfile_close after it has reached the disk. Until then, and after every
 * error, the old file is as it was. A name that is a link stands for what the link leads to. Devices, pipes and
 * /dev/stdout are written as they are: never replaced, never removed. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "base/status.h"

enum outfile_kind {
    OUTFILE_DEFAULT,
    OUTFILE_PRIVATE, /* conversations: the owner alone reads it (0600); a link under the name is replaced, not followed */
};

struct outfile;

/* errors: INFER_E_IO (no such folder, no permission), INFER_E_WRITE (no room), INFER_E_MEMORY */
enum infer_status outfile_open(struct outfile **out, const char *path, enum outfile_kind kind);
/* Takes room on the disk for a file of so many bytes, where that can be done. errors: INFER_E_WRITE */
enum infer_status outfile_reserve(struct outfile *f, uint64_t bytes);
/* errors: INFER_E_WRITE, INFER_E_CANCEL (a signal came while a pipe was full) */
enum infer_status outfile_write(struct outfile *f, const void *data, size_t n);
/* A stream whose bytes go to f, for what is printed; fclose it before f is closed. What f cannot take fails the stream, and the reason is this
 * thread's message. NULL: no memory. */
FILE *outfile_stream(struct outfile *f);
/* Puts the file in its place; frees f in any case. errors: INFER_E_WRITE */
enum infer_status outfile_close(struct outfile *f);
/* Removes what was written and frees f; this thread's message stays. NULL does nothing. */
void outfile_abort(struct outfile *f);
/* data[n] as a file, in one call. errors: as above */
enum infer_status outfile_put(const char *path, enum outfile_kind kind, const void *data, size_t n);

/* Removes every file that is open here and not in its place: for the handler of a signal that ends the program
 * (async-signal-safe). */
void outfile_remove_unfinished(void);

/* INFER_E_INPUT when writing to path would replace the file input, under whatever name. */
enum infer_status outfile_differs(const char *path, const char *input);
