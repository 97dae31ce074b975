#include "serve/http/guard.h"
#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include "base/mem.h"
#include "files/textfile.h"

enum { MAX_HEADERS = 100 };

/* ---- headers ---- */

struct seen {
    int n, lengths, encodings, hosts, keys;
    const char *length, *encoding, *content_encoding, *host, *origin, *bearer, *x_key, *type, *site, *id,
        *timeout, *read_timeout;
};

static void look(struct seen *s, const char *name, const char *value) {
    if (!value) value = "";
    if (strcasecmp(name, "Content-Length") == 0) s->lengths++, s->length = value;
    if (strcasecmp(name, "Transfer-Encoding") == 0) s->encodings++, s->encoding = value;
    if (strcasecmp(name, "Content-Encoding") == 0) s->content_encoding = value;
    if (strcasecmp(name, "Host") == 0) s->hosts++, s->host = value;
    if (strcasecmp(name, "Origin") == 0) s->origin = value;
    if (strcasecmp(name, "Authorization") == 0) s->keys++, s->bearer = value;
    if (strcasecmp(name, "x-api-key") == 0) s->x_key = value;
    if (strcasecmp(name, "Content-Type") == 0) s->type = value;
    if (strcasecmp(name, "Sec-Fetch-Site") == 0) s->site = value;
    if (strcasecmp(name, "X-Request-Id") == 0) s->id = value;
    if (strcasecmp(name, "X-Request-Timeout") == 0) s->timeout = value;
    if (strcasecmp(name, "x-stainless-read-timeout") == 0) s->read_timeout = value;
}

static bool check_framing(const struct seen *s, const struct guard_request *q, struct guarded *out,
                          struct refusal *r) {
    out->body = s->lengths || s->encodings;
    if (q->n_url > URL_BYTES)
        refusal_make(r, 414, "invalid_request", NULL, "the URL has %zu bytes, at most %d", q->n_url,
                     URL_BYTES);
    else if (q->n_head > HEAD_BYTES)
        refusal_make(r, 431, NULL, NULL, "the request's head has %zu bytes, at most %d", q->n_head,
                     HEAD_BYTES);
    else if (s->n > MAX_HEADERS)
        refusal_make(r, 431, NULL, NULL, "the request has over %d headers", MAX_HEADERS);
    else if (s->lengths > 1 || s->encodings > 1 || s->hosts > 1 || s->keys > 1)
        refusal_make(r, 400, "invalid_request", NULL, "a header that may stand once is there twice");
    else if (s->lengths && s->encodings)
        refusal_make(r, 400, "invalid_request", NULL, "Content-Length and Transfer-Encoding are both there");
    else if (s->encoding && strcasecmp(s->encoding, "chunked") != 0)
        refusal_make(r, 400, "invalid_request", NULL, "Transfer-Encoding must be chunked");
    else if (q->post && s->content_encoding && strcasecmp(s->content_encoding, "identity") != 0)
        refusal_make(r, 415, "unsupported_encoding", NULL,
                     "the body is compressed (Content-Encoding: %.20s); send it as it is",
                     s->content_encoding);
    if (r->status) return false;
    out->chunked = s->encoding != NULL;
    out->length = s->length ? strtoll(s->length, NULL, 10) : -1;
    return true;
}

static bool is_one_of(const char *const *names, int n_name, const char *p, size_t n) {
    for (int i = 0; i < n_name; i++)
        if (strlen(names[i]) == n && strncasecmp(names[i], p, n) == 0) return true;
    return false;
}

/* The name in "host:port", "[::1]:port" or "http://host:port". */
static const char *name_in(const char *host, const char *scheme_end, size_t *n) {
    const char *p = scheme_end ? scheme_end + 3 : host;
    *n = *p == '[' ? strcspn(p, "]") + (strchr(p, ']') != NULL) : strcspn(p, ":");
    return p;
}

/* It is this machine, or a name that was given with --host-name. */
static bool known_name(const struct server *s, const char *p, size_t n) {
    static const char *const own[] = {"localhost", "127.0.0.1", "[::1]"};
    return is_one_of(own, 3, p, n) || is_one_of(s->o.host_name, s->o.n_host_name, p, n);
}

/* Addresses: nobody else can let a name of his own lead to one, since there is none. */
static bool is_address(const char *p, size_t n) {
    char text[INET6_ADDRSTRLEN];
    unsigned char to[16];
    const bool six = n > 2 && p[0] == '[' && p[n - 1] == ']';
    if (six) p++, n -= 2;
    if (n >= sizeof text) return false;
    memcpy(text, p, n);
    text[n] = 0;
    return inet_pton(six ? AF_INET6 : AF_INET, text, to) == 1;
}

/* Whether a request may come to this machine under that name. With keys at an address that others reach, any: no page knows a key. */
static bool may_host(const struct server *s, const struct guard_request *q, const char *host) {
    static const char *const gateways[] = {"host.docker.internal", "host.containers.internal"};
    char own[256] = "";
    size_t n;
    const char *p = name_in(host, NULL, &n);
    if (q->is_unix || (!q->local && s->keys) || is_one_of(s->o.host_name, s->o.n_host_name, "*", 1))
        return true;
    if (known_name(s, p, n) || is_one_of(gateways, 2, p, n)) return true;
    if (q->local) return false;
    if (gethostname(own, sizeof own - 1)) *own = 0;
    return is_address(p, n) || (*own && is_one_of((const char *[]){own}, 1, p, n));
}

static bool listed_origin(const struct server *s, const char *origin) {
    for (int i = 0; i < s->o.n_cors_origin; i++)
        if (strcmp(s->o.cors_origin[i], origin) == 0) return true;
    return false;
}

static bool is_json(const char *type) {
    return type && strncasecmp(type, "application/json", 16) == 0 && (!type[16] || strchr("; ", type[16]));
}

static bool check_site(const struct server *s, const struct seen *h, const struct guard_request *q,
                       struct guarded *out, struct refusal *r) {
    const bool listed = h->origin && listed_origin(s, h->origin);
    const char *scheme = h->origin ? strstr(h->origin, "://") : NULL;
    size_t n = 0;
    const char *name = scheme ? name_in(h->origin, scheme, &n) : NULL;
    const bool own =
        scheme && ((h->host && strcasecmp(scheme + 3, h->host) == 0) || /* the page of this server */
                   (q->local && known_name(s, name, n)));
    out->json = is_json(h->type);
    if (!h->host && !q->is_unix && !q->old)
        refusal_make(r, 400, "invalid_request", NULL, "the header Host is missing");
    else if (h->host && !may_host(s, q, h->host))
        refusal_make(r, 403, "forbidden", NULL,
                     "the Host of the request is not this machine's (--host-name names others)");
    else if (h->origin && !listed && !own)
        refusal_make(r, 403, "forbidden", NULL,
                     "pages of this Origin may not ask here (--cors-origin lets them)");
    else if (q->post && !out->json && (h->origin || (h->site && strcmp(h->site, "cross-site") == 0)))
        refusal_make(r, 400, "invalid_request", NULL, "the Content-Type must be application/json");
    if (listed) out->origin = h->origin;
    return !r->status;
}

static bool check_key(const struct server *s, const struct seen *h, struct guarded *out, struct refusal *r) {
    const char *key = h->x_key;
    if (h->bearer && strncasecmp(h->bearer, "Bearer ", 7) == 0)
        key = h->bearer + 7 + strspn(h->bearer + 7, " ");
    if (key) out->key = keys_find(s->keys, key, strlen(key));
    if (out->key >= 0) return true;
    refusal_make(r, 401, "invalid_api_key", NULL,
                 key ? "the API key is not one of this server's"
                     : "an API key is needed: Authorization: Bearer KEY");
    return false;
}

/* A number of seconds; what is none is not said. */
static double seconds(const char *text) {
    char *end;
    const double x = text ? strtod(text, &end) : 0;
    return text && end != text && !*end && x > 0 && x < 1e9 ? x : 0;
}

bool guard_check(const struct server *s, const struct guard_headers *h, const struct guard_request *q,
                 struct guarded *out, struct refusal *r) {
    struct seen seen = {0};
    const char *name, *value;
    *out = (struct guarded){.key = -1, .length = -1};
    *r = (struct refusal){0};
    for (; seen.n <= MAX_HEADERS && h->next(h->user, seen.n, &name, &value); seen.n++)
        look(&seen, name, value);
    out->timeout = seconds(seen.timeout);
    out->read_timeout = seconds(seen.read_timeout);
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    const size_t n = seen.id ? strlen(seen.id) : 0;
    if (n >= 1 && n <= 64 && strspn(seen.id, letters) == n)
        snprintf(out->request_id, sizeof out->request_id, "%s", seen.id);
    else
        memcpy(out->request_id, "req_", 4), job_random_id(out->request_id + 4);
    if (!check_framing(&seen, q, out, r) || !check_site(s, &seen, q, out, r)) return false;
    return !s->keys || q->open || check_key(s, &seen, out, r);
}
