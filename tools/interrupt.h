/* What signals do: none leaves a file half written; a closed pipe ends the program silently, Ctrl-C with a word and exit code 130, or
 * stops what said that it can be stopped. The one place of the program that a signal handler's state is in. */
#pragma once
#include <stdbool.h>
#include "infer.h"

struct infer_request;
struct infer_vision;

/* From the start of the program on. serves: SIGTERM ends a server that is not there yet with exit code 0. */
void interrupt_install(bool serves);
/* From here on the first Ctrl-C stops the engine's step and (not NULL) ends the request; a second one ends the program. NULL, NULL:
 * the first ends it. */
void interrupt_stops(struct infer_engine *e, struct infer_request *r);
/* Meanwhile it ends the picture that is being computed; NULL: nothing is. */
void interrupt_stops_picture(struct infer_vision *v);
/* As after interrupt_stops(NULL, NULL), for a Ctrl-C that came before too: a step that was stopped would only let the next write
 * wait for its reader. */
void interrupt_ends_at_once(void);
/* From here on another rank hears Ctrl-C, in the same terminal, and of a server SIGTERM, as who stops a job sends it to all: two within a
 * second end this one. */
void interrupt_follows(void);
/* With idle set Ctrl-C does nothing but end interrupt_wait_for. */
void interrupt_idle(bool idle);
/* Waits until fd can be read; false with EINTR: a signal came, or a Ctrl-C at any time since the last interrupt_clear. */
bool interrupt_wait_for(int fd);
/* Ctrl-C since the last interrupt_clear. */
bool interrupted(void);
void interrupt_clear(void);
