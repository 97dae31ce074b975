/* The HTTP side: sockets, libmicrohttpd's threads, and the watch over connections. */
#pragma once
#include "serve/core/server.h"

/* Listens. errors: as server_open */
enum infer_status web_open(struct web **out, struct server *s);
/* No new connections from now on. */
void web_quiet(struct web *w);
/* Waits up to `seconds` until all answers are written. */
void web_finish(struct web *w, double seconds);
/* All jobs must have ended. */
void web_close(struct web *w);
/* Removes the names of unix sockets: for the handler of a signal that ends the program (async-signal-safe). */
void web_remove_sockets(void);
/* "http://127.0.0.1:8080", one a line, into text[n]. */
void web_where(const struct web *w, char *text, size_t n);
/* What is to be said about how it serves: a line, or "". */
const char *web_note(const struct web *w);
