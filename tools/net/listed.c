#include "tools/net/listed.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "base/host.h"

enum { HOPS = 5 };

static size_t scheme(const char *url) {
    return strncasecmp(url, "https://", 8) == 0 ? 8 : strncasecmp(url, "http://", 7) == 0 ? 7 : 0;
}
bool http_is_url(const char *text) { return scheme(text) != 0; }

/* A port of digits alone, "" for the scheme's own. */
static bool read_port(const char *s, size_t n, bool safe, char *port) {
    size_t k = 0;
    *port = 0;
    if (!n) return true;
    if (*s != ':' || n < 2 || n > 6) return false;
    for (k = 1; k < n; k++)
        if (!isdigit((unsigned char)s[k])) return false;
    snprintf(port, 8, "%.*s", (int)n, s);
    if (strcmp(port, safe ? ":443" : ":80") == 0) *port = 0;
    return true;
}

bool http_host(const char *url, char *host, size_t n) {
    const size_t at = scheme(url);
    const char *begin = url + at;
    const size_t all = strcspn(begin, "/?#"); /* others read a \ or an @ in it otherwise: refused */
    size_t name = 0;
    char port[8];
    if (!at) return false;
    for (const char *c = url; *c; c++)
        if ((unsigned char)*c <= ' ' || *c == 0x7f || *c == '\\') return false;
    if (*begin == '[') {
        name = strcspn(begin, "]") + 1;
        if (name > all || strspn(begin + 1, "0123456789abcdefABCDEF:.") != name - 2) return false;
    } else {
        while (name < all && (isalnum((unsigned char)begin[name]) || strchr("-._", begin[name]))) name++;
    }
    if (!name || name + sizeof port >= n || !read_port(begin + name, all - name, at == 8, port)) return false;
    snprintf(host, n, "%.*s%s", (int)name, begin, port);
    return true;
}

bool http_listed(const char *list, const char *url) {
    char host[300];
    if (!list || !http_host(url, host, sizeof host)) return false;
    for (const char *s = list; *s; s += strspn(s, ", ")) {
        const size_t n = strcspn(s, ", ");
        if (n == strlen(host) && strncasecmp(s, host, n) == 0) return true;
        s += n;
    }
    return false;
}

static enum infer_status may(const char *list, const char *from, const char *url) {
    if (from && scheme(from) == 8 && scheme(url) != 8)
        return err_set(INFER_E_INPUT, "it is sent on from https to another scheme");
    if (http_listed(list, url)) return INFER_OK;
    return err_set(INFER_E_INPUT, from ? "it is sent on to a host that --image-urls does not name"
                                       : "--image-urls does not name its host");
}

/* What an answer that is no file means. */
static enum infer_status refused(const struct http_answer *a) {
    if (a->stopped) return err_set(INFER_E_CANCEL, "cancelled");
    return a->why[0] ? err_set(INFER_E_INPUT, "it cannot be fetched: %s", a->why)
                     : err_set(INFER_E_INPUT, "it cannot be fetched: its server says %ld", a->status);
}

enum infer_status http_fetch_listed(const char *url, const char *list, const struct http_limits *most,
                                    char **bytes, size_t *n) {
    char at[sizeof((struct http_answer *)0)->location];
    const double end = host_seconds() + most->seconds;
    const char *from = NULL;
    *bytes = NULL;
    if (strlen(url) >= sizeof at)
        return err_set(INFER_E_INPUT, "its address is longer than %zu", sizeof at - 1);
    snprintf(at, sizeof at, "%s", url);
    for (int hop = 0; hop < HOPS; hop++) {
        struct http_answer a;
        const double left = end - host_seconds();
        TRY(may(list, from, at));
        const struct http_request r = {.url = at,
                                       .stays = true,
                                       .seconds = left > 0.01 ? left : 0.01,
                                       .most = most->bytes,
                                       .stop = most->stop,
                                       .stop_user = most->user,
                                       .accept = "image/*"};
        enum infer_status st = http_text(&r, "a picture", &a, bytes, n);
        if (st == INFER_E_IO && a.location[0] && !a.why[0]) {
            from = scheme(at) == 8 ? "https://" : "http://";
            snprintf(at, sizeof at, "%s", a.location);
            http_answer_free(&a);
            continue;
        }
        if (st == INFER_E_IO) st = refused(&a);
        http_answer_free(&a);
        return st;
    }
    return err_set(INFER_E_INPUT, "it is sent on more than %d times", HOPS - 1);
}
