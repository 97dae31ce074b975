/* The models of infer serve --models: files of a folder, or sections of a file of presets. */
#pragma once
#include "serve/core/house.h"
#include "tools/session.h"

/* Requests of a model that run at once where nothing is said, and the whole contexts that they share. */
enum { SERVE_SLOTS = 16, SERVE_CONTEXTS = 4 };
/* What computes the answers of a session's model. errors: INFER_E_MEMORY */
struct engine_port;
enum infer_status serve_port(struct engine_port **out, const struct options *o, const struct session *s,
                             struct infer_vision *vision, const struct session_draft *draft);

/* Whether several are to be served: --models is said nearer to the command line than --model, or as near. errors: INFER_E_INPUT (both are on it) */
enum infer_status serve_models_asked(const struct options *o, bool *several);
struct serve_models;
/* Requests to front are taken from now on. options: what the options of a model say of its requests. errors: INFER_E_INPUT (options, sections, pins
 * that do not fit), INFER_E_IO, INFER_E_MEMORY; *out is to be closed then, too */
enum infer_status serve_models_open(struct serve_models **out, struct server *front, const struct options *o,
                                    struct serve_options (*options)(const struct options *o));
int serve_models_count(const struct serve_models *m);
/* Behind server_close; false: a load goes on, and the process has to end without it. */
bool serve_models_close(struct serve_models *m);
