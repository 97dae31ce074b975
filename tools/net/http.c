#include "tools/net/http.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/mem.h"
#include "tools/net/curl.h"

enum { ERROR_TEXT = 4096, REDIRECTS = 6, IDLE_SECONDS = 60 };

struct transfer {
    const struct http_request *r;
    struct http_answer *a;
    CURL *handle;
    size_t got, n_text;
};

enum infer_status http_open(void) { return curl_open(); }

static long status_of(CURL *h) {
    long status = 0;
    curl.easy_getinfo(h, CURLINFO_RESPONSE_CODE, &status);
    return status;
}
static bool is_data(long status) { return status == 200 || status == 206; }

static size_t take_body(char *data, size_t size, size_t n, void *user) {
    struct transfer *t = user;
    const long status = status_of(t->handle);
    n *= size;
    t->got += n;
    if (!is_data(status)) {
        const size_t room = ERROR_TEXT - t->n_text, some = n < room ? n : room;
        if (t->a->text) memcpy(t->a->text + t->n_text, data, some);
        t->n_text += some;
        return t->got > (1 << 20) ? 0 : n;
    }
    if (t->r->most && t->got > t->r->most) {
        snprintf(t->a->why, sizeof t->a->why, "it has more than %zu bytes", t->r->most);
        return 0;
    }
    if (t->r->write && !t->r->write(t->r->user, status, data, n)) {
        t->a->stopped = true;
        return 0;
    }
    return n;
}

/* "Name: value" of line[n] into to[room]. */
static bool header(const char *line, size_t n, const char *name, char *to, size_t room) {
    const size_t len = strlen(name);
    if (n <= len || line[len] != ':' || strncasecmp(line, name, len) != 0) return false;
    line += len + 1, n -= len + 1;
    while (n && (*line == ' ' || *line == '\t')) line++, n--;
    while (n && (line[n - 1] == '\r' || line[n - 1] == '\n' || line[n - 1] == ' ')) n--;
    snprintf(to, room, "%.*s", (int)n, line);
    return true;
}
static size_t take_header(char *line, size_t size, size_t n, void *user) {
    struct transfer *t = user;
    struct http_answer *a = t->a;
    char number[32];
    n *= size;
    header(line, n, "x-error-code", a->error_code, sizeof a->error_code);
    header(line, n, "x-error-message", a->error_text, sizeof a->error_text);
    header(line, n, "x-repo-commit", a->commit, sizeof a->commit);
    header(line, n, "content-type", a->type, sizeof a->type);
    if (header(line, n, "retry-after", number, sizeof number)) a->retry_after = strtod(number, NULL);
    return n;
}
static int look(void *user, curl_off_t all, curl_off_t now, curl_off_t up, curl_off_t sent) {
    struct transfer *t = user;
    (void)all, (void)now, (void)up, (void)sent;
    if (!t->r->stop || !t->r->stop(t->r->stop_user)) return 0;
    t->a->stopped = true;
    return 1;
}

static struct curl_slist *headers_of(const struct http_request *r) {
    char line[4096];
    struct curl_slist *list = NULL;
    if (r->bearer) {
        snprintf(line, sizeof line, "Authorization: Bearer %s", r->bearer);
        list = curl.slist_append(list, line);
    }
    if (r->accept) {
        snprintf(line, sizeof line, "Accept: %s", r->accept);
        list = curl.slist_append(list, line);
    }
    return list;
}
static void set_up(struct transfer *t, struct curl_slist *headers, const char *range, char *error) {
    CURL *h = t->handle;
    const struct http_request *r = t->r;
    const bool safe = strncasecmp(r->url, "https:", 6) == 0;
    curl.easy_setopt(h, CURLOPT_URL, r->url);
    curl.easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
    curl.easy_setopt(h, CURLOPT_USERAGENT, "infer");
    curl.easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
    curl.easy_setopt(h, CURLOPT_REDIR_PROTOCOLS_STR, safe ? "https" : "http,https");
    curl.easy_setopt(h, CURLOPT_FOLLOWLOCATION, r->stays ? 0L : 1L);
    curl.easy_setopt(h, CURLOPT_MAXREDIRS, (long)REDIRECTS);
    curl.easy_setopt(h, CURLOPT_CONNECTTIMEOUT, 20L);
    curl.easy_setopt(h, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl.easy_setopt(h, CURLOPT_LOW_SPEED_TIME, (long)IDLE_SECONDS);
    curl.easy_setopt(h, CURLOPT_TIMEOUT_MS, (long)(r->seconds * 1e3));
    curl.easy_setopt(h, CURLOPT_HTTPHEADER, headers);
    curl.easy_setopt(h, CURLOPT_WRITEFUNCTION, take_body);
    curl.easy_setopt(h, CURLOPT_WRITEDATA, t);
    curl.easy_setopt(h, CURLOPT_HEADERFUNCTION, take_header);
    curl.easy_setopt(h, CURLOPT_HEADERDATA, t);
    curl.easy_setopt(h, CURLOPT_XFERINFOFUNCTION, look);
    curl.easy_setopt(h, CURLOPT_XFERINFODATA, t);
    curl.easy_setopt(h, CURLOPT_NOPROGRESS, 0L);
    curl.easy_setopt(h, CURLOPT_ERRORBUFFER, error);
    if (r->part) curl.easy_setopt(h, CURLOPT_RANGE, range);
}
static void location_of(CURL *h, char *to, size_t n) {
    char *url = NULL;
    curl.easy_getinfo(h, CURLINFO_REDIRECT_URL, &url);
    if (url && strlen(url) < n) snprintf(to, n, "%s", url);
}
static void host_of(CURL *h, char *to, size_t n) {
    char *url = NULL;
    curl.easy_getinfo(h, CURLINFO_EFFECTIVE_URL, &url);
    const char *begin = url ? strstr(url, "://") : NULL;
    begin = begin ? begin + 3 : "";
    snprintf(to, n, "%.*s", (int)strcspn(begin, "/?"), begin);
}

enum infer_status http_do(const struct http_request *r, struct http_answer *a) {
    char error[CURL_ERROR_SIZE] = "", range[64];
    struct transfer t = {.r = r, .a = a};
    *a = (struct http_answer){0};
    TRY(curl_open());
    TRY(mem_new(&a->text, ERROR_TEXT + 1, "an answer"));
    if (!(t.handle = curl.easy_init())) {
        http_answer_free(a);
        return err_set(INFER_E_MEMORY, "out of memory for a connection");
    }
    struct curl_slist *headers = headers_of(r);
    snprintf(range, sizeof range, "%llu-%llu", (unsigned long long)r->first, (unsigned long long)r->last);
    set_up(&t, headers, range, error);
    const CURLcode code = curl.easy_perform(t.handle);
    a->status = status_of(t.handle);
    host_of(t.handle, a->host, sizeof a->host);
    location_of(t.handle, a->location, sizeof a->location);
    if (code != CURLE_OK && !a->why[0])
        snprintf(a->why, sizeof a->why, "%s", error[0] ? error : curl.easy_strerror(code));
    curl.easy_cleanup(t.handle);
    curl.slist_free_all(headers);
    return INFER_OK;
}
void http_answer_free(struct http_answer *a) {
    mem_free(a->text);
    a->text = NULL;
}

struct text {
    char *at;
    size_t n, cap;
    bool full;
};
static bool add_text(void *user, long status, const char *data, size_t n) {
    struct text *t = user;
    (void)status;
    if (t->n + n + 1 > t->cap) {
        const size_t cap = 2 * (t->n + n + 1);
        char *more = mem_realloc(t->at, cap);
        if (!more) return !(t->full = true);
        t->at = more, t->cap = cap;
    }
    memcpy(t->at + t->n, data, n);
    t->n += n;
    t->at[t->n] = 0;
    return true;
}
enum infer_status http_text(const struct http_request *r, const char *what, struct http_answer *a,
                            char **text, size_t *n) {
    struct text t = {0};
    struct http_request own = *r;
    own.write = add_text;
    own.user = &t;
    *text = NULL;
    *n = 0;
    TRY(add_text(&t, 200, "", 0) ? INFER_OK : err_set(INFER_E_MEMORY, "out of memory for %s", what));
    enum infer_status st = http_do(&own, a);
    if (st == INFER_OK && t.full) st = err_set(INFER_E_MEMORY, "out of memory for %s", what);
    if (st == INFER_OK && (a->status != 200 || a->why[0]))
        st = a->why[0] ? err_set(INFER_E_IO, "%s: %s", what, a->why)
                       : err_set(INFER_E_IO, "%s: the server says %ld", what, a->status);
    if (st != INFER_OK) {
        mem_free(t.at);
        return st;
    }
    *text = t.at;
    *n = t.n;
    return INFER_OK;
}
