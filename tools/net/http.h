/* One HTTP request of a client, by libcurl: redirects (a bearer token goes to the first host alone), proxies as $https_proxy and
 * $no_proxy say, certificates of the system. A call blocks; several threads may be in one each. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/status.h"

struct http_request {
    const char *url;    /* http or https; from https no redirect goes to http */
    const char *bearer; /* NULL: no authorization */
    bool part;          /* bytes first .. last of the file */
    uint64_t first, last;
    double seconds; /* for all of it; 0: as long as bytes come (one in 60 s) */
    size_t most;    /* bytes of the answer, after which it is refused; 0: any number */
    /* Bytes of an answer 200 or 206, which `status` says first; false ends the request. NULL: nobody wants them. */
    bool (*write)(void *user, long status, const char *data, size_t n);
    void *user;
    bool (*stop)(void *user); /* asked some times a second; NULL: never */
    void *stop_user;
    bool stays;         /* a redirect is an answer: .location */
    const char *accept; /* media type; NULL: any */
};
struct http_answer {
    long status;         /* 0: no answer came */
    char error_code[64]; /* X-Error-Code and X-Error-Message of the hub, "" without */
    char error_text[256];
    char commit[80];     /* X-Repo-Commit */
    char type[128];      /* media type */
    double retry_after;  /* seconds; 0: not said */
    char why[256];       /* no answer, or one that broke off: the reason */
    char *text;          /* of answers that are neither 200 nor 206, at most 4 KB */
    char host[128];      /* that answered last */
    char location[2048]; /* where a redirect leads, a whole address; "": it is none */
    bool stopped;        /* by write or stop */
};

/* errors: INFER_E_UNSUPPORTED (no libcurl), INFER_E_MEMORY. All else stands in the answer: whoever asked knows what it means. Call
 * once from the main thread (http_open) before threads do. */
enum infer_status http_open(void);
enum infer_status http_do(const struct http_request *r, struct http_answer *a);
void http_answer_free(struct http_answer *a);
/* An answer of 200 whole in memory: *text[*n], a zero behind it, to be freed with mem_free. errors: as above; INFER_E_IO with the
 * reason (`what` it was) */
enum infer_status http_text(const struct http_request *r, const char *what, struct http_answer *a,
                            char **text, size_t *n);
