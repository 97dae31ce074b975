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
    /* of a server of several models it is of one: 1: where ?model= names it, 2: always */
    int of_model;
    bool events; /* a GET that the front end's job answers */
};
extern const struct route routes[]; /* ended by path NULL */
/* NULL: there is none. *rest: what stands behind the path. */
const struct route *route_find(const char *url, const char **rest);

/* Whose words an error of this path has: the route's, or those of the API that the path is of. r NULL: there is no such route. */
const struct front_end *route_errors(const struct route *r, const char *path);

#define POST(path, front)           extern const struct front_end front;
#define GET(path, get)              void get(struct server *s, const char *rest, struct page *p);
#define OPEN                        GET
#define GET_OF(path, get, how)      GET(path, get)
#define EVENTS                      POST
#define BOTH(path, front, get, how) POST(path, front) GET(path, get)
#include "serve/api/routes.def"
#undef POST
#undef GET
#undef OPEN
#undef GET_OF
#undef EVENTS
#undef BOTH
/* Of the API of ollama: {error: message} */
void ollama_error(const struct job *j, const struct refusal *r, const char *request_id, bool in_stream,
                  struct buf *out);
