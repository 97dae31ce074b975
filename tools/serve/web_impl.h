/* Inside of the HTTP side: connections (web.c), requests on them (call.c), and who watches both (watch.c). */
#pragma once
#include "tools/serve/guard.h"
#include "tools/serve/mhd.h"
#include "tools/serve/routes.h"

enum { SOCK_LISTS = 1024, BODY_BYTES = 32 << 20, IDLE_SECONDS = 75, PING_SECONDS = 15 };

/* A connection, from accept to close. */
struct sock {
    int fd;
    bool local;
    enum { SOCK_NEW, SOCK_BODY, SOCK_BUSY, SOCK_IDLE } state;
    double since;    /* that it has been in it */
    size_t body;     /* bytes of the request's body that have come */
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
    char *cert, *key; /* texts */
    pthread_mutex_t lock;
    struct sock *socks[SOCK_LISTS]; /* all of them, by descriptor */
    int n_busy;                     /* requests that are not answered whole */
    struct watch *watch;
};

/* The one handler of requests. */
enum MHD_Result call_handle(void *user, struct MHD_Connection *connection, const char *url,
                            const char *method, const char *version, const char *data, size_t *n,
                            void **state);
void call_completed(void *user, struct MHD_Connection *connection, void **state,
                    enum MHD_RequestTerminationCode why);

/* errors: INFER_E_MEMORY */
enum infer_status watch_open(struct watch **out, struct web *w);
void watch_close(struct watch *w);
/* From now on a hang-up on s ends its job. */
void watch_job(struct watch *w, struct sock *s, struct job *j);
void watch_wake(struct watch *w, struct job *j);
/* s is in a state from now on, and the watch looks at it in time. */
void sock_state(struct web *w, struct sock *s, int state);

/* A line for a request that has ended. */
struct log_call {
    const char *request_id, *key, *route;
    char why[256];
    int status;
    double seconds;
    struct job_counts counts; /* prompt 0: nothing was computed */
};
void call_log(const struct server *s, const struct log_call *l);
