/* A request on a connection: guarded, read, handed on, answered. Runs in libmicrohttpd's threads and never waits there: a connection that has
 * nothing to send is suspended until web_wake. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "serve/core/answer_log.h"
#include "serve/core/house.h"
#include "serve/http/page.h"
#include "serve/core/prompt_log.h"
#include "serve/http/web_impl.h"
#include "base/host.h"

enum { STREAM_BYTES = 4096 }; /* that libmicrohttpd keeps of a stream, also of one that waits */

struct http_request {
    struct web *web;
    struct MHD_Connection *connection;
    struct sock *sock;
    const struct route *route;
    const char *rest;
    const struct page_file *file; /* of the page; NULL: another path */
    struct guarded guarded;
    char origin[256], path[96];
    struct refusal refusal; /* before there was a job, or its */
    struct buf body, out;
    size_t came, held; /* bytes of the body that have come; that are taken of the memory for bodies */
    size_t sent;       /* of out */
    struct job *job;
    double began, wrote;
    bool post, old;         /* HTTP/1.0 */
    bool works;             /* it is answered by a job */
    bool all_here, counted; /* the whole request has come; its key has one more */
    bool answered, ended, failed;
    int status;
};

/* ---- answers ---- */

/* Where headers go: into a response, or into the text of one that is written past libmicrohttpd. */
struct head {
    struct MHD_Response *response;
    struct buf *text;
};

static void add_header(const struct head *h, const char *name, const char *value) {
    if (h->response)
        mhd.add_response_header(h->response, name, value);
    else
        buf_printf(h->text, "%s: %s\r\n", name, value);
}

/* What pages of a listed origin may read. */
static const char exposed[] = "x-request-id, request-id, openai-processing-ms, x-infer-warning, retry-after, "
                              "retry-after-ms, x-should-retry";

static void add_headers(struct http_request *c, const struct head *r, const char *type) {
    char text[64];
    add_header(r, "Content-Type", type);
    add_header(r, "x-request-id", c->guarded.request_id);
    add_header(r, "request-id", c->guarded.request_id); /* as Anthropic's clients look for it */
    add_header(r, "X-Content-Type-Options", "nosniff");
    snprintf(text, sizeof text, "%.0f", 1e3 * (host_seconds() - c->began));
    add_header(r, "openai-processing-ms", text);
    if (*c->origin) {
        add_header(r, "Access-Control-Allow-Origin", c->origin);
        add_header(r, "Access-Control-Expose-Headers", exposed);
        add_header(r, "Vary", "Origin");
    }
    if (c->job && c->job->warnings.n && c->job->warnings.p) { /* a header is ASCII of one line */
        char warnings[2600];
        text_escape(warnings, sizeof warnings, c->job->warnings.p, c->job->warnings.n);
        add_header(r, "x-infer-warning", warnings);
    }
}

static enum MHD_Result queue(struct http_request *c, int status, struct MHD_Response *r) {
    if (!r) return MHD_NO;
    c->status = status;
    c->answered = true;
    enum MHD_Result ok = mhd.queue_response(c->connection, (unsigned)status, r);
    mhd.destroy_response(r);
    return ok;
}

static enum MHD_Result send_out(struct http_request *c, int status, const char *type) {
    if (c->out.failed) return MHD_NO;
    struct MHD_Response *r =
        mhd.create_response_from_buffer(c->out.n, c->out.p ? c->out.p : "", MHD_RESPMEM_PERSISTENT);
    if (r) add_headers(c, &(struct head){.response = r}, type);
    return queue(c, status, r);
}

/* A file of the page; what the browser has already is not sent again. */
static enum MHD_Result send_file(struct http_request *c) {
    const struct page_file *f = c->file;
    const char *known = mhd.lookup_connection_value(c->connection, MHD_HEADER_KIND, "If-None-Match"),
               *takes = mhd.lookup_connection_value(c->connection, MHD_HEADER_KIND, "Accept-Encoding");
    const bool same = known && strstr(known, f->etag), gzip = takes && strstr(takes, "gzip");
    struct MHD_Response *r = mhd.create_response_from_buffer(same   ? 0
                                                             : gzip ? f->n_gzip
                                                                    : f->n,
                                                             (void *)(uintptr_t)(gzip ? f->gzip : f->data),
                                                             MHD_RESPMEM_PERSISTENT);
    if (!r) return MHD_NO;
    const struct head h = {.response = r};
    add_headers(c, &h, f->type);
    for (int i = 0; page_headers[i][0]; i++) add_header(&h, page_headers[i][0], page_headers[i][1]);
    add_header(&h, "ETag", f->etag);
    add_header(&h, "Vary", "Accept-Encoding");
    if (gzip && !same) add_header(&h, "Content-Encoding", "gzip");
    return queue(c, same ? 304 : 200, r);
}

/* What the route takes. */
static const char *allowed(const struct http_request *c) {
    if (c->route && c->route->get && c->route->front) return "GET, HEAD, POST, OPTIONS";
    return c->file || (c->route && c->route->get) ? "GET, HEAD, OPTIONS"
           : c->route && c->route->events         ? "GET, OPTIONS"
                                                  : "POST, OPTIONS";
}

static void add_refusal_headers(struct http_request *c, const struct head *r, const struct refusal *refusal) {
    char text[32];
    const int status = refusal->status, ms = refusal->retry_ms ? refusal->retry_ms : status == 503 ? 2000 : 0;
    add_headers(c, r, "application/json");
    if (status == 401) add_header(r, "WWW-Authenticate", "Bearer");
    if (status == 405) add_header(r, "Allow", allowed(c));
    if (status == 415) add_header(r, "Accept-Encoding", "identity");
    if (refusal->code && strcmp(refusal->code, "device_lost") == 0) add_header(r, "x-should-retry", "false");
    if (status == 413 || status == 408 || status == 431 || r->text) add_header(r, "Connection", "close");
    if (!ms) return;
    snprintf(text, sizeof text, "%d", (ms + 999) / 1000);
    add_header(r, "Retry-After", text);
    snprintf(text, sizeof text, "%d", ms);
    add_header(r, "retry-after-ms", text);
}

/* Writes the refusal's body into out, in the words of its front end. */
static void write_refusal(struct http_request *c, const struct refusal *refusal) {
    const struct front_end *f = route_errors(c->route, c->path);
    c->out.n = 0;
    f->error(c->job, refusal, c->guarded.request_id, false, &c->out);
    metrics_refused(&c->web->server->metrics, refusal);
}

static enum MHD_Result send_refusal(struct http_request *c, const struct refusal *refusal) {
    write_refusal(c, refusal);
    if (c->out.failed) return MHD_NO;
    struct MHD_Response *r = mhd.create_response_from_buffer(c->out.n, c->out.p, MHD_RESPMEM_PERSISTENT);
    if (!r) return MHD_NO;
    add_refusal_headers(c, &(struct head){.response = r}, refusal);
    return queue(c, refusal->status, r);
}

/* Where libmicrohttpd takes no answer, since the request is not whole: c->refusal goes out past it, and the connection is to be closed. */
static enum MHD_Result refuse_and_close(struct http_request *c) {
    struct buf text = {0};
    write_refusal(c, &c->refusal);
    closing_begin(&text, c->refusal.status);
    add_refusal_headers(c, &(struct head){.text = &text}, &c->refusal);
    closing_end(&text, &c->out);
    closing_send(c->connection, c->sock, &text);
    buf_free(&text);
    c->status = c->refusal.status;
    c->answered = c->failed = true;
    return MHD_NO;
}

static enum MHD_Result refuse(struct http_request *c, int status, const char *code, const char *message) {
    refusal_make(&c->refusal, status, code, NULL, "%s", message);
    return send_refusal(c, &c->refusal);
}

/* ---- streams ---- */

static void tell(struct job *j, const struct event *e, void *user) {
    struct http_request *c = user;
    j->front->event(j, e, &c->out);
}

static bool has_news(struct job *j) {
    if (j->stage == JOB_FAILED || j->ping || j->feed.n || atomic_load(&j->cancelled) == CANCEL_GONE)
        return true;
    for (int i = 0; i < j->n_choice; i++)
        if (j->choice[i].log.piece.n || (j->choice[i].finish && !j->choice[i].end_told)) return true;
    return false;
}

/* Makes events of what is new; false: there was nothing, and the connection sleeps. */
static bool fill(struct http_request *c) {
    struct job *j = c->job;
    c->out.n = c->sent = 0;
    pthread_mutex_lock(&j->lock);
    if (!has_news(j)) {
        j->parked = c->connection;
        mhd.suspend_connection(c->connection);
        pthread_mutex_unlock(&j->lock);
        return false;
    }
    const bool failed = j->stage == JOB_FAILED, ping = j->ping;
    j->ping = false;
    if (j->feed.n) buf_add(&c->out, j->feed.p, j->feed.n);
    j->feed.n = 0;
    pthread_mutex_unlock(&j->lock);
    c->ended = !j->feeds && log_read(j, tell, c);
    if (failed && !c->ended) {
        c->ended = c->failed = true;
        c->status = j->refusal.status;
        j->front->error(j, &j->refusal, c->guarded.request_id, true, &c->out);
    } else if (ping && !c->out.n) {
        j->front->event(j, &(struct event){.kind = EVENT_PING, .text = "", .stop_id = -1}, &c->out);
    }
    pthread_mutex_lock(&j->lock);
    j->wrote = host_seconds();
    pthread_mutex_unlock(&j->lock);
    return true;
}

static ssize_t read_stream(void *user, uint64_t pos, char *buf, size_t max) {
    struct http_request *c = user;
    (void)pos;
    while (c->sent == c->out.n) {
        if (c->out.failed) return MHD_CONTENT_READER_END_WITH_ERROR;
        /* also where the client has gone: an error would leave the socket open until the next event of libmicrohttpd 0.9.75's thread */
        if (c->ended || (c->failed = atomic_load(&c->job->cancelled) == CANCEL_GONE))
            return MHD_CONTENT_READER_END_OF_STREAM;
        if (!fill(c)) return 0;
    }
    size_t n = c->out.n - c->sent;
    if (n > max) n = max;
    memcpy(buf, c->out.p + c->sent, n);
    c->sent += n;
    return (ssize_t)n;
}

static enum MHD_Result begin_stream(struct http_request *c) {
    struct MHD_Response *r =
        mhd.create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BYTES, read_stream, c, NULL);
    if (!r) return MHD_NO;
    const struct head h = {.response = r};
    add_headers(c, &h, c->job->front->stream_type ? c->job->front->stream_type : "text/event-stream");
    add_header(&h, "Cache-Control", "no-cache");
    add_header(&h, "X-Accel-Buffering", "no");
    if (c->job->front->begin) c->job->front->begin(c->job, &c->out);
    return queue(c, 200, r);
}

/* ---- whole answers ---- */

/* Whole answers: events go nowhere, or to a front end that makes its parts of them. */
static void tell_parts(struct job *j, const struct event *e, void *user) {
    struct buf none = {0};
    (void)user;
    if (j->front->ordered) j->front->event(j, e, &none);
    buf_free(&none);
}

static enum MHD_Result send_whole(struct http_request *c) {
    struct job *j = c->job;
    log_read(j, tell_parts, NULL);
    for (int i = 0; i < j->n_choice; i++)
        if (j->choice[i].answer.text.failed)
            return refuse(c, 503, "unavailable", "out of memory: the answer");
    j->front->whole(j, &c->out);
    return send_out(c, 200, "application/json");
}

/* A stream waits for its first words. Under j->lock. */
static bool wait_to_stream(struct job *j) {
    if (!j->streams) j->wrote = host_seconds();
    if (!j->streams && j->half) j->ping = true;
    j->streams = true;
    return !has_news(j);
}

/* What the job has come to: an answer, or sleep. Of a stream too nothing is sent before there is something to say: what fails until then has a
 * status, and a proxy may ask another server. */
static enum MHD_Result go_on(struct http_request *c) {
    struct job *j = c->job;
    pthread_mutex_lock(&j->lock);
    const int stage = j->stage, gone = atomic_load(&j->cancelled) == CANCEL_GONE;
    const bool waits = stage == JOB_READING ||
                       (stage == JOB_QUEUED && (j->ask.stream ? wait_to_stream(j) : j->n_done < j->n_choice));
    if (waits && !gone) {
        if (j->half && !j->streams) watch_ask(j, c->sock->fd);
        j->parked = c->connection;
        mhd.suspend_connection(c->connection);
    }
    pthread_mutex_unlock(&j->lock);
    if (gone) return refuse(c, 499, "cancelled", "the client has gone");
    if (waits) return MHD_YES;
    if (stage == JOB_REFUSED || stage == JOB_FAILED) return send_refusal(c, &j->refusal);
    if (stage == JOB_REPLIED) {
        buf_add(&c->out, j->reply.p ? j->reply.p : "", j->reply.n);
        return send_out(c, 200, "application/json");
    }
    return j->ask.stream ? begin_stream(c) : send_whole(c);
}

/* ---- requests ---- */

static bool next_header(void *user, int i, const char **name, const char **value) {
    const char *const *list = user;
    *name = list[2 * i];
    *value = list[2 * i + 1];
    return *name != NULL;
}

struct header_list {
    const char *of[2 * 104];
    int n;
};
static enum MHD_Result add_to_list(void *user, enum MHD_ValueKind kind, const char *name, const char *value) {
    struct header_list *l = user;
    (void)kind;
    if (l->n >= 102) return MHD_NO;
    l->of[2 * l->n] = name;
    l->of[2 * l->n++ + 1] = value;
    return MHD_YES;
}

static bool guard(struct http_request *c, const char *url, bool open) {
    struct header_list list = {0};
    const union MHD_ConnectionInfo *head =
        mhd.get_connection_info(c->connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    mhd.get_connection_values(c->connection, MHD_HEADER_KIND, add_to_list, &list);
    const struct guard_headers h = {next_header, list.of};
    const struct guard_request q = {.post = c->post,
                                    .open = open,
                                    .local = c->sock->local,
                                    .is_unix = c->sock->is_unix,
                                    .old = c->old,
                                    .n_head = head ? head->header_size : 0,
                                    .n_url = strlen(url)};
    bool ok = guard_check(c->web->server, &h, &q, &c->guarded, &c->refusal);
    if (c->guarded.origin) snprintf(c->origin, sizeof c->origin, "%s", c->guarded.origin);
    return ok;
}

/* The headers that a page wants to send: to a listed origin any names are allowed, since clients send many of their own (x-stainless-..). */
static const char *asked_headers(struct http_request *c) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-, ";
    const char *asked =
        mhd.lookup_connection_value(c->connection, MHD_HEADER_KIND, "Access-Control-Request-Headers");
    return asked && *asked && strspn(asked, letters) == strlen(asked)
               ? asked
               : "authorization, content-type, x-api-key, x-request-id, anthropic-version, anthropic-beta";
}

/* A browser asks whether it may ask. */
static enum MHD_Result preflight(struct http_request *c) {
    struct MHD_Response *r = mhd.create_response_from_buffer(0, "", MHD_RESPMEM_PERSISTENT);
    if (!r) return MHD_NO;
    const struct head h = {.response = r};
    add_headers(c, &h, "text/plain");
    add_header(&h, "Allow", "GET, HEAD, POST, OPTIONS");
    if (*c->origin) {
        add_header(&h, "Access-Control-Allow-Methods", "GET, POST");
        add_header(&h, "Access-Control-Allow-Headers", asked_headers(c));
        if (mhd.lookup_connection_value(c->connection, MHD_HEADER_KIND,
                                        "Access-Control-Request-Private-Network"))
            add_header(&h, "Access-Control-Allow-Private-Network", "true");
        add_header(&h, "Access-Control-Max-Age", "600");
    }
    return queue(c, 204, r);
}

static struct http_request *new_call(struct web *w, struct MHD_Connection *connection, const char *url,
                                     const char *method, const char *version) {
    const union MHD_ConnectionInfo *info =
        mhd.get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct http_request *c = mem_alloc(sizeof *c);
    if (!c || !info || !info->socket_context) {
        mem_free(c);
        return NULL;
    }
    *c = (struct http_request){
        .web = w, .connection = connection, .sock = info->socket_context, .began = host_seconds()};
    text_escape(c->path, sizeof c->path, url, strnlen(url, 64));
    c->post = strcmp(method, "POST") == 0;
    c->old = strcmp(version, "HTTP/1.0") == 0;
    c->route = route_find(url, &c->rest);
    if (!c->route && !w->server->o.no_page) c->file = page_find(url);
    pthread_mutex_lock(&w->lock);
    w->n_busy++;
    pthread_mutex_unlock(&w->lock);
    sock_state(w, c->sock, SOCK_BODY);
    return c;
}

/* The request counts for its key from here on, until it has ended; false: the key has as many as it may. */
static bool count_for_key(struct http_request *c) {
    struct web *w = c->web;
    const int most = keys_max(w->server->keys, c->guarded.key, w->server->o.key_max);
    pthread_mutex_lock(&w->lock);
    int *n = &w->of_key[c->guarded.key + 1];
    c->counted = most <= 0 || *n < most;
    if (c->counted) ++*n;
    pthread_mutex_unlock(&w->lock);
    if (c->counted) return true;
    refusal_make(&c->refusal, 429, "rate_limit_exceeded", NULL,
                 "the API key has as many requests here as it may (--key-max). Please try again in 3s");
    c->refusal.retry_ms = 3000;
    atomic_fetch_add(&w->server->metrics.key_full, 1);
    return false;
}

static bool refuse_bodies(struct http_request *c) {
    refusal_make(&c->refusal, 503, "unavailable", NULL,
                 "the requests that are being read take all the memory that they may (--body-memory). Please "
                 "try again in 2s");
    return false;
}

static bool refuse_length(struct http_request *c) {
    refusal_make(&c->refusal, 413, "request_too_large", NULL, "the body may have %zu bytes",
                 server_body_most(c->web->server));
    return false;
}

/* Whether a request's body may come; false: refused. */
static bool may_send(struct http_request *c) {
    struct server *s = c->web->server;
    const int state = atomic_load(&s->state);
    if (c->guarded.length > (long long)server_body_most(s)) return refuse_length(c);
    if (state != SERVER_READY) {
        refusal_make(&c->refusal, 503, "unavailable", NULL, "%s",
                     state == SERVER_LOADING ? "Loading model"
                     : state == SERVER_LOST  ? "the device is lost"
                                             : "the server is stopping");
        return false;
    }
    if (!count_for_key(c)) return false;
    if (c->guarded.length > 0 && !server_bodies_fit(s, (size_t)c->guarded.length)) return refuse_bodies(c);
    return true;
}

static const char one_model[] = "this server has one model (infer serve --models has several)";

static enum MHD_Result begin(struct http_request *c, const char *url, const char *method) {
    const bool get = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0,
               options = strcmp(method, "OPTIONS") == 0;
    if (!guard(c, url, options || c->file || (c->route && c->route->open)))
        return send_refusal(c, &c->refusal);
    if (c->file) return get ? MHD_YES : refuse(c, 405, "method_not_allowed", "this route takes GET");
    if (!c->route) return refuse(c, 404, "not_found", "there is no such route here");
    if (options) return MHD_YES;
    c->works = c->route->events ? strcmp(method, "GET") == 0 : c->post && c->route->front;
    if (c->route->events && atomic_load(&c->web->server->state) == SERVER_READY && !c->web->server->house)
        return refuse(c, 404, "not_found", one_model);
    if (!(get && c->route->get) && !c->works)
        return refuse(c, 405, "method_not_allowed",
                      c->route->get || c->route->events ? "this route takes GET" : "this route takes POST");
    return !c->works || may_send(c) ? MHD_YES : send_refusal(c, &c->refusal);
}

/* Makes room for n more bytes of the body in the memory for bodies. */
static bool make_room(struct http_request *c, size_t n) {
    struct server *s = c->web->server;
    const size_t need = c->body.n + n,
                 most = c->guarded.length >= 0 ? (size_t)c->guarded.length : server_body_most(s),
                 grown = need + need / 2, room = grown < most ? grown : most;
    if (need < c->body.cap) return true;
    if (!server_bodies_take(s, room - c->held)) return refuse_bodies(c);
    c->held = room;
    buf_room(&c->body, room + 1);
    if (!c->body.failed) return true;
    refusal_make(&c->refusal, 503, "unavailable", NULL, "out of memory: a request");
    return false;
}

/* Takes bytes of the body; false: refused. Of requests that have none they are dropped. */
static bool take_body(struct http_request *c, const char *data, size_t n) {
    c->came += n;
    pthread_mutex_lock(&c->web->lock);
    c->sock->body += n;
    pthread_mutex_unlock(&c->web->lock);
    if (c->came > server_body_most(c->web->server)) return refuse_length(c);
    if (!c->post) return true;
    if (!make_room(c, n)) return false;
    buf_add(&c->body, data, n);
    return true;
}

static void drop_body(struct http_request *c) {
    buf_free(&c->body);
    server_bodies_give(c->web->server, c->held);
    c->held = 0;
}

/* A query's value or a path's end as it is meant: %41 is A. */
static void unescape(char *out, size_t n, const char *text) {
    size_t used = 0;
    for (; *text && used + 1 < n; text++) {
        unsigned x;
        char hex[3] = {text[0] == '%' ? text[1] : 0, 0, 0};
        if (*hex) hex[1] = text[2];
        const bool is = isxdigit((unsigned char)hex[0]) && isxdigit((unsigned char)hex[1]) &&
                        sscanf(hex, "%2x", &x) == 1 && x;
        out[used++] = is ? (char)x : *text;
        text += is ? 2 : 0;
    }
    out[used] = 0;
}

/* A page is of the whole server, or of the model that ?model= names. */
static void get_page(struct http_request *c, struct page *p) {
    struct server *s = c->web->server, *of = s;
    const char *said = mhd.lookup_connection_value(c->connection, MHD_GET_ARGUMENT_KIND, "model");
    char name[257] = "";
    if (said) unescape(name, sizeof name, said);
    struct house *h = house_of(s);
    if (h && c->route->of_model && (*name || c->route->of_model > 1)) of = house_hold(h, name, &c->refusal);
    if (of) {
        char rest[257];
        unescape(rest, sizeof rest, c->rest); /* a name may have slashes, and be sent with them or without */
        c->route->get(of, rest, p);
        if (of != s) house_release(h, of);
        return;
    }
    p->status = c->refusal.status;
    route_errors(c->route, c->path)->error(NULL, &c->refusal, c->guarded.request_id, false, &p->body);
}

static enum MHD_Result send_page(struct http_request *c) {
    struct page p = {.status = 200, .type = "application/json"};
    get_page(c, &p);
    buf_free(&c->out);
    c->out = p.body;
    return send_out(c, p.status, p.type);
}

static enum MHD_Result start_job(struct http_request *c) {
    struct server *s = c->web->server;
    if (!make_room(c, 0)) return send_refusal(c, &c->refusal); /* of an empty one */
    if (!(c->job = job_new(s, c->route->front)))
        return refuse(c, 503, "unavailable", "out of memory: a request");
    struct job *j = c->job;
    j->may_ask = !c->old && !c->web->cert;
    snprintf(j->request_id, sizeof j->request_id, "%s", c->guarded.request_id);
    const char *action = mhd.lookup_connection_value(c->connection, MHD_GET_ARGUMENT_KIND, "action");
    snprintf(j->rest, sizeof j->rest, "%s", c->rest);
    snprintf(j->action, sizeof j->action, "%s", action ? action : "");
    j->key = c->guarded.key;
    j->read_timeout = c->guarded.read_timeout;
    if (c->guarded.timeout > 0 && j->arrived + c->guarded.timeout < j->deadline)
        j->deadline = j->arrived + c->guarded.timeout;
    j->salt = j->key >= 0 ? keys_salt(s->keys, j->key) : 0; /* no key can time another's prompts */
    buf_add(&c->body, "", 0);
    j->body = c->body.p;
    j->n_body = c->body.n;
    j->body_held = c->held;
    c->held = 0;
    c->body = (struct buf){0};
    watch_job(c->web->watch, c->sock, j);
    if (!prepare_push(s->prepare, j))
        return refuse(c, 503, "unavailable", "too many requests wait to be read");
    return go_on(c);
}

enum MHD_Result http_request_handle(void *user, struct MHD_Connection *connection, const char *url,
                                    const char *method, const char *version, const char *data, size_t *n,
                                    void **state) {
    struct http_request *c = *state;
    if (!c) {
        *state = c = new_call(user, connection, url, method, version);
        return c ? begin(c, url, method) : MHD_NO;
    }
    if (*n) {
        const bool ok = c->answered || take_body(c, data, *n);
        *n = 0;
        if (!ok) drop_body(c);
        return ok ? MHD_YES : refuse_and_close(c);
    }
    c->all_here = true;
    if (c->answered) return MHD_YES;
    if (c->job) return go_on(c);
    sock_state(c->web, c->sock, SOCK_BUSY);
    if (strcmp(method, "OPTIONS") == 0) return preflight(c);
    return c->file ? send_file(c) : c->works ? start_job(c) : send_page(c);
}

/* The connection has ended before its request had: whoever only said that nothing more comes, or was too slow, is told why. */
static void answer_short(struct http_request *c) {
    pthread_mutex_lock(&c->web->lock);
    const bool cut = c->sock->cut;
    pthread_mutex_unlock(&c->web->lock);
    if (cut)
        refusal_make(&c->refusal, 408, "timeout", NULL, "the body did not come in time: %zu bytes did",
                     c->came);
    else if (c->guarded.length >= 0)
        refusal_make(&c->refusal, 400, "invalid_request", NULL,
                     "the connection ended after %zu of %lld bytes of the body", c->came, c->guarded.length);
    else
        refusal_make(&c->refusal, 400, "invalid_request", NULL,
                     "the connection ended within the body, after %zu bytes", c->came);
    refuse_and_close(c);
    if (!cut) c->status = 499; /* in the log: who has gone and who has only stopped sending look alike */
}

void http_request_completed(void *user, struct MHD_Connection *connection, void **state,
                            enum MHD_RequestTerminationCode why) {
    struct web *w = user;
    struct http_request *c = *state;
    (void)connection;
    if (!c) return;
    if (!c->answered && !c->all_here && !c->sock->refused && why == MHD_REQUEST_TERMINATED_CLIENT_ABORT)
        answer_short(c);
    /* more of its body may be on the way, and would make the client's system throw the answer away once the socket is closed */
    if (c->answered && c->guarded.body && !c->all_here && why != MHD_REQUEST_TERMINATED_CLIENT_ABORT)
        watch_linger(w->watch, c->sock->fd);
    const bool whole = c->answered && why == MHD_REQUEST_TERMINATED_COMPLETED_OK && !c->failed;
    struct request_line line = {.request_id = c->guarded.request_id,
                                .key = keys_name(w->server->keys, c->guarded.key),
                                .route = c->path,
                                .status = c->sock->refused     ? c->sock->refused
                                          : whole || c->failed ? c->status
                                                               : 499,
                                .seconds = host_seconds() - c->began};
    snprintf(line.why, sizeof line.why, "%.250s", c->refusal.status ? c->refusal.message : "");
    if (c->job) {
        watch_job(w->watch, c->sock, NULL);
        if (!whole) job_cancel(c->job, CANCEL_GONE);
        pthread_mutex_lock(&c->job->lock);
        c->job->parked = NULL;
        line.counts = c->job->counts;
        if (c->job->server->house && c->job->server->member >= 0) line.model = c->job->server->name;
        if (c->job->refusal.status) snprintf(line.why, sizeof line.why, "%.250s", c->job->refusal.message);
        pthread_mutex_unlock(&c->job->lock);
        const bool told = c->job->feeds        ? true
                          : c->job->ask.stream ? c->ended
                                               : c->answered && c->status != 499;
        if (atomic_load(&c->job->cancelled) == CANCEL_GONE && !told) {
            atomic_fetch_add(&w->server->metrics.gone[atomic_load(&c->job->reached)], 1);
            line.status = 499;
        }
    }
    if (c->job) prompt_log_add(w->server->prompts, c->job, line.key, c->path, line.status);
    log_request(w->server, &line);
    sock_state(w, c->sock, SOCK_IDLE);
    pthread_mutex_lock(&w->lock);
    w->n_busy--;
    if (c->counted) w->of_key[c->guarded.key + 1]--;
    pthread_mutex_unlock(&w->lock);
    job_unref(c->job);
    drop_body(c);
    buf_free(&c->out);
    mem_free(c);
    *state = NULL;
}
