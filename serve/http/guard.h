/* What every request has to pass before its route is looked at: well-formed framing, a host and an origin that may, a key. */
#pragma once
#include <stdbool.h>
#include "serve/core/job.h"
#include "serve/core/api_keys.h"
#include "serve/core/server.h"

enum { HEAD_BYTES = 32768, URL_BYTES = 8192 };

/* Headers of a request as the guard looks at them; next gives the i-th, false behind the last. */
struct guard_headers {
    bool (*next)(void *user, int i, const char **name, const char **value);
    void *user;
};
/* What is known of a request beside its headers. */
struct guard_request {
    bool post;            /* it has a body */
    bool open;            /* its route needs no key */
    bool local, is_unix;  /* the address that it came to is this machine's alone; it is a unix socket */
    bool old;             /* HTTP/1.0, which knows no Host */
    size_t n_head, n_url; /* bytes of its head, and of the URL in it */
};
struct guarded {
    int key;            /* whose; -1: nobody's */
    const char *origin; /* that may read the answer; NULL: none asked, or it may not */
    bool body;          /* there is one, or should be */
    long long length;   /* of the body as it was told; -1: not told */
    bool chunked, json; /* its framing; its content type is application/json */
    char request_id[72];
    double timeout, read_timeout; /* seconds: of the request, of a client that reads no stream; 0: not said */
};
/* False: refused. Of other sites' pages no request is let through that a form could send, and none to a name that somebody else may have
 * given this machine. */
bool guard_check(const struct server *s, const struct guard_headers *h, const struct guard_request *q,
                 struct guarded *out, struct refusal *r);
