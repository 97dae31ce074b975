/* Files from addresses whose hosts a list names. */
#pragma once
#include "tools/net/http.h"

/* Whether a text begins as an address of http or https. */
bool http_is_url(const char *text);
/* Whether the list names the host of an address: "example.org,localhost:8080", a host with no port stands for the scheme's own. What is not
 * written plainly (user names, escapes, spaces) is named by no list. */
bool http_listed(const char *list, const char *url);
/* host[n]: "example.org:8080" of an address, without the scheme's own port. false: it is not written plainly */
bool http_host(const char *url, char *host, size_t n);
/* All bytes of an address, at most so many, in at most so many seconds; redirects to hosts that the list names alone, and from https to
 * https. (*bytes)[*n] is of mem_alloc. stop: as in http_request.
 * errors: INFER_E_INPUT (not listed, too large, an answer that is none: the message says which), INFER_E_UNSUPPORTED (no libcurl),
 * INFER_E_CANCEL (stopped), INFER_E_MEMORY */
struct http_limits {
    size_t bytes;
    double seconds;
    bool (*stop)(void *user);
    void *user;
};
enum infer_status http_fetch_listed(const char *url, const char *list, const struct http_limits *most,
                                    char **bytes, size_t *n);
