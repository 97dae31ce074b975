/* Lines from the user: edited with history on a terminal (libedit), plain from a pipe.
 *
 * A line that ends with a backslash goes on in the next one; a line that begins with """ goes on until a line
 * that ends with """; a pasted text is one input whatever lines it has. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "base/status.h"

enum line_result { LINE_TEXT, LINE_END, LINE_INTERRUPT };

struct line; /* one at a time: libedit's callbacks find it through a static pointer */

/* terminal: edit on stdin. complete: fills out[cap] with what may stand in place of the text before the cursor from
 * byte *from on, a blank behind what is whole; returns how many (at most cap); the strings are freed with free(). May be NULL.
 * errors: INFER_E_MEMORY */
enum infer_status
line_open(struct line **out, bool terminal, bool colour,
          int (*complete)(void *user, const char *before, size_t *from, char **out, int cap), void *user);
void line_close(struct line *l);
/* Puts text into the next line of a terminal, to be edited; newlines show as those of a pasted text do. */
void line_preset(struct line *l, const char *text);
/* Reads one input into *text (without the last newline; valid until the next call), *n bytes. */
enum line_result line_read(struct line *l, const char **text, size_t *n);
