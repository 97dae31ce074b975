#include "serve/api/routes.h"
#include <string.h>

const struct route routes[] = {
#define POST(path, front)           {path, &front, NULL, false, 0, false},
#define GET(path, get)              {path, NULL, get, false, 0, false},
#define GET_OF(path, get, how)      {path, NULL, get, false, how, false},
#define BOTH(path, front, get, how) {path, &front, get, false, how, false},
#define OPEN(path, get)             {path, NULL, get, true, 0, false},
#define EVENTS(path, front)         {path, &front, NULL, false, 0, true},
#include "serve/api/routes.def"
    {NULL, NULL, NULL, false, 0, false},
};

const struct front_end *route_errors(const struct route *r, const char *path) {
    static const struct {
        const char *begin;
        const struct front_end *front;
    } of[] = {{"/api/", &ollama_chat}, {"/v1/messages/", &messages_api}};
    if (r && r->front) return r->front;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (strncmp(path, of[i].begin, strlen(of[i].begin)) == 0) return of[i].front;
    return &openai_chat;
}

const struct route *route_find(const char *url, const char **rest) {
    *rest = "";
    for (const struct route *r = routes; r->path; r++) {
        const size_t n = strlen(r->path);
        if (strcmp(r->path, url) == 0) return r;
        if (r->path[n - 1] == '/' && strncmp(r->path, url, n) == 0) {
            *rest = url + n;
            return r;
        }
    }
    return NULL;
}
