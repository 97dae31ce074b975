/* Inside of the HTTP side: connections (web.c), requests on them (http_request.c), and who watches both (http_watch.c). */
#pragma once
#include "serve/http/guard.h"
#include "serve/http/mhd.h"
#include "serve/api/routes.h"

enum {
    SOCK_LISTS = 1024,
    CONNECTION_BYTES = 65536, /* of libmicrohttpd, for a request's head and what is sent */
    IDLE_SECONDS = 75,
    PING_SECONDS = 15
};

/* A connection, from accept to close. */
struct sock {
    int fd;
    unsigned serial;     /* among all connections, 31 bits */
    bool local, is_unix; /* its address is this machine's alone; it is a unix socket */
    enum { SOCK_NEW, SOCK_BODY, SOCK_BUSY, SOCK_IDLE } state;
    double since; /* that it has been in it */
    bool cut;     /* it was too slow: nothing more is read */
    bool half;    /* its client has said that nothing more comes */
    int refused;  /* status of what libmicrohttpd refused by itself; 0: nothing */
    size_t body;  /* bytes of the request's body that have come */
    struct web *web;
    struct job *job; /* that it waits for; its hang-up is watched */
    struct sock *next, **at;
};

struct watch;
struct web {
    struct server *server;
    struct {
        struct MHD_Daemon *daemon;
        int fd;
        bool local;
        char said[160]; /* "http://127.0.0.1:8080" */
    } of[SERVE_LISTEN];
    int n;
    int most;         /* connections at once, on each address */
    char note[200];   /* what is to be said about it; "": nothing */
    char *cert, *key; /* texts */
    pthread_mutex_t lock;
    struct sock *socks[SOCK_LISTS]; /* all of them, by descriptor */
    unsigned serial;                /* of the next one */
    int n_busy;                     /* requests that are not answered whole */
    int *of_key;                    /* requests of a key that are here: nobody's, then of_key[keys] */
    struct watch *watch;
};

/* The one handler of requests. */
enum MHD_Result http_request_handle(void *user, struct MHD_Connection *connection, const char *url,
                                    const char *method, const char *version, const char *data, size_t *n,
                                    void **state);
void http_request_completed(void *user, struct MHD_Connection *connection, void **state,
                            enum MHD_RequestTerminationCode why);

/* errors: INFER_E_MEMORY */
enum infer_status watch_open(struct watch **out, struct web *w);
void watch_close(struct watch *w);
/* s is watched from its beginning to its end. */
void watch_sock(struct watch *w, struct sock *s, bool open);
/* From now on a hang-up on s ends its job. */
void watch_job(struct watch *w, struct sock *s, struct job *j);
void watch_wake(struct watch *w, struct job *j);
/* Of a client that has half-closed its connection and waits for an answer that does not stream: HTTP's sign of life goes out (100 Continue, which
 * every client of HTTP/1.1 passes over: RFC 9110, 15.2), and if the client is gone its system says so. Under the job's lock, before it is parked. */
void watch_ask(struct job *j, int fd);
/* fd is about to be closed, while its client may go on sending: what comes is read and dropped for a few seconds. */
void watch_linger(struct watch *w, int fd);
/* s is in a state from now on, and the watch looks at it in time. */
void sock_state(struct web *w, struct sock *s, int state);

/* closing.c: answers that are written past libmicrohttpd, where it would close a connection without one. text: an answer of a status, headers behind
 * closing_begin, the body with closing_end. From the connection's own thread, before anything else was sent. */
void closing_begin(struct buf *text, int status);
void closing_end(struct buf *text, const struct buf *body);
void closing_send(struct MHD_Connection *connection, const struct sock *s, const struct buf *text);
/* The connection closes; a request that never became one is told why, where it can be seen that it was told nothing. */
void closing_unheard(struct MHD_Connection *connection, const struct sock *s);

/* A line for a request that has ended. */
struct request_line {
    const char *request_id, *key, *route;
    const char *model; /* of several, the one that it was for; NULL: none */
    char why[256];
    int status;
    double seconds;
    struct job_counts counts; /* prompt 0: nothing was computed */
};
void log_request(const struct server *s, const struct request_line *l);
