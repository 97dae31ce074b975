/* Last words: answers of ours where libmicrohttpd 0.9.75 closes a connection without one, or takes none (a body that is too long, or ends too
 * soon). They are written past it, from the connection's own thread, when nothing of an answer has gone out. */
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>
#include "serve/api/openai.h"
#include "serve/http/web_impl.h"

void closing_begin(struct buf *text, int status) {
    buf_printf(text, "HTTP/1.1 %d %s\r\n", status, mhd.get_reason_phrase_for((unsigned)status));
}

void closing_end(struct buf *text, const struct buf *body) {
    buf_printf(text, "Content-Length: %zu\r\n\r\n", body->n);
    buf_add(text, body->p ? body->p : "", body->n);
}

void closing_send(struct MHD_Connection *connection, const struct sock *s, const struct buf *text) {
    const union MHD_ConnectionInfo *tls =
        mhd.get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    if (text->failed) return;
    if (tls && tls->tls_session) {
        if (mhd.gnutls_record_send) mhd.gnutls_record_send(tls->tls_session, text->p, text->n);
    } else {
        send(s->fd, text->p, text->n, MSG_NOSIGNAL | MSG_DONTWAIT); /* who is gone is not told */
    }
}

/* Something has come over TCP, and nothing was sent: libmicrohttpd has an answer of its own to some of what is no request. */
static bool is_unheard(const struct sock *s) {
    struct tcp_info t = {0};
    socklen_t n = sizeof t;
    return getsockopt(s->fd, IPPROTO_TCP, TCP_INFO, &t, &n) == 0 &&
           n >= offsetof(struct tcp_info, tcpi_data_segs_out) + sizeof t.tcpi_data_segs_out &&
           t.tcpi_data_segs_in && !t.tcpi_data_segs_out;
}

/* An error of ours, where no front end is known. */
static void answer(struct MHD_Connection *connection, const struct sock *s, const struct refusal *r) {
    struct buf text = {0}, body = {0};
    metrics_refused(&s->web->server->metrics, r);
    openai_error(NULL, r, "", false, &body);
    closing_begin(&text, r->status);
    buf_text(&text, "Content-Type: application/json\r\nConnection: close\r\n");
    closing_end(&text, &body);
    closing_send(connection, s, &text);
    buf_free(&text);
    buf_free(&body);
}

/* libmicrohttpd answers what it refuses itself (a wrong version, headers or chunks that are none, a head above its memory) with a page of HTML,
 * by its own function of this name. It calls it as a dynamic symbol, which is looked up in the program first, and the link exports this
 * one: our error goes out, and the library closes the connection, as it does where its page cannot be queued. Our own answers go by
 * mhd.queue_response. */
enum MHD_Result MHD_queue_response(struct MHD_Connection *connection, unsigned status,
                                   struct MHD_Response *page) {
    const union MHD_ConnectionInfo *info =
        mhd.get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct sock *s = info ? info->socket_context : NULL;
    struct refusal r;
    (void)page;
    if (!s) return MHD_NO;
    refusal_make(&r, (int)status, "invalid_request", NULL, "the request cannot be read: %s",
                 mhd.get_reason_phrase_for(status));
    s->refused = (int)status;
    answer(connection, s, &r);
    watch_linger(s->web->watch, s->fd);
    return MHD_NO;
}

void closing_unheard(struct MHD_Connection *connection, const struct sock *s) {
    struct refusal r;
    if (s->refused || s->state != SOCK_NEW || s->is_unix || s->web->cert || !is_unheard(s)) return;
    if (s->cut)
        refusal_make(&r, 408, "timeout", NULL, "the request's head did not come in time");
    else
        refusal_make(&r, 400, "invalid_request", NULL, "this is no request of HTTP/1.1, or not a whole one");
    answer(connection, s, &r);
}
