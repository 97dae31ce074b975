/* The table of routes: which path is which front end's, or which function's. */
#pragma once
#include "serve/core/frontend.h"

/* What a GET is answered with, by an HTTP thread: it must not wait for anything. */
struct page {
    int status;
    const char *type; /* "application/json" */
    struct buf body;
};

struct route {
    const char *path;              /* "/v1/models/": with what stands behind it, when it ends with / */
    const struct front_end *front; /* of POST; NULL: GET (and HEAD) alone */
    void (*get)(struct server *s, const char *rest, struct page *p);
    bool open; /* without a key */
};
extern const struct route routes[]; /* ended by path NULL */
/* NULL: there is none. *rest: what stands behind the path. */
const struct route *route_find(const char *url, const char **rest);

/* Whose words an error of this path has: the route's, or those of the API that the path is of. r NULL: there is no such route. */
const struct front_end *route_errors(const struct route *r, const char *path);

extern const struct front_end openai_chat, openai_text, openai_count, rest_tokenize, rest_detokenize,
    messages_api, ollama_chat, ollama_generate, ollama_show, ollama_embed, ollama_embedding, embeddings_api,
    infill_api, native_completion, native_embedding, rerank_api, score_api, messages_count, responses_api,
    responses_count, rest_template;
void ollama_error(const struct job *j, const struct refusal *r, const char *request_id, bool in_stream,
                  struct buf *out);
void ollama_tags(struct server *s, const char *rest, struct page *p);
void ollama_ps(struct server *s, const char *rest, struct page *p);
void ollama_version(struct server *s, const char *rest, struct page *p);
