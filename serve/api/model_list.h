/* A server of several models: what the routes of models say of them (model_list.c). */
#pragma once
#include "serve/api/routes.h"

void models_list(struct server *s, struct page *p);
void models_one(struct server *s, const char *name, struct page *p);
/* Of the server, not of one of them. */
void models_props(struct server *s, struct page *p);
/* What Codex reads of a model, an element of an array. */
void models_codex(const char *name, int n_ctx, bool sees, struct buf *out);
