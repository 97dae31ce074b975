/* A model's file by path or by name (hub.h). */
#pragma once
#include "tools/options.h"
#include "base/status.h"

/* text, a path or a name, as a path: a name that is in the cache is not asked for again, else it is fetched, with progress on stderr. errors:
 * those of hub_pull */
enum infer_status model_path_of(const struct options *o, const char *text, char *path, size_t n);
/* Fetches a name, a newer commit too. */
enum infer_status model_pull(const struct options *o, const char *text, char *path, size_t n);
/* Whether a path, or all of what a hub's name means, is on this disk; asks nobody. */
bool model_is_here(const char *text);
