/* Several models behind one HTTP side: a server each (server.h), loaded when a request names one, within the room that there is; fleet.h
 * says who. Two threads: one gives requests to the models that are there and looks after those that wait, one measures, loads and lets go,
 * one model at a time. A model that goes has no requests left; its keys and values go with it, its counters stay. Where models could be kept
 * instead of dropped (host memory that a card reads fast) is behind house_calls.unload, which ends with a model that is loaded anew. */
#pragma once
#include "serve/core/fleet.h"
#include "serve/core/server.h"

/* What a model's file says, without loading it. */
struct house_info {
    char arch[32], type[24];
    int n_ctx, n_slot, n_ctx_train, n_embd, n_vocab, n_layer;
    uint64_t n_param, file_bytes;
    bool sees, talks; /* pictures; it has a chat template */
    struct fleet_bytes need;
    uint64_t card_room; /* bytes of a card that there are for all models; 0: none is used */
};
struct house_model {
    char name[257];         /* what requests call it */
    const char *aliases;    /* NAME,..: other names; NULL: none */
    const char *path;       /* as it was given */
    struct serve_options o; /* of requests for it */
    bool pinned;
    double keep; /* seconds, as struct fleet_model has it */
};
/* What the house does not do itself; from its second thread, one call at a time. errors: any, and the model has failed with the message */
struct house_calls {
    void *user;
    enum infer_status (*measure)(void *user, int i, struct house_info *out);
    /* Ends with server_begin_model; tells of its progress by house_progress. */
    enum infer_status (*load)(void *user, int i, struct server *s);
    void (*unload)(void *user, int i, struct server *s); /* begins with server_leave_model */
};

/* room.card 0: what the first model on a card is told. turn 0: the default. errors: INFER_E_INPUT (a name twice, too many), INFER_E_MEMORY */
enum infer_status house_open(struct house **out, struct server *front, const struct house_model *model, int n,
                             const struct house_calls *calls, struct fleet_bytes room);
/* Measures pinned models, and loads them while requests are taken. errors: INFER_E_INPUT (they have no room), those of measure */
enum infer_status house_begin(struct house *h);
/* Ends all that waits, and after `seconds` all that runs. */
void house_drain(struct house *h, double seconds);
/* Ends what could tell a connection something: the house's own threads and those of its models. Before web_close. */
void house_end(struct house *h);
/* Behind server_close. false: a load goes on, and its memory has to stay until the process ends. */
bool house_close(struct house *h);

/* That a server opens to; NULL: it has one model, or is not ready yet. From any thread. */
static inline struct house *house_of(const struct server *s) {
    return atomic_load(&s->state) == SERVER_LOADING ? NULL : s->house;
}

/* ---- requests ---- */

/* A job of the front, whose body this is (it is taken), goes to the model that it names, now or later, or is refused. errors: INFER_E_INPUT
 * after job_refuse */
enum infer_status house_route(struct house *h, struct job *j, json_t *body);
/* A job of this server has ended. */
void house_left(struct server *s);
/* The server is lost to what it computed last: the house goes on without it, or, where a card is lost, ends. */
void house_lost(struct server *s);
/* The server of a model that is loaded, which stays until house_release; NULL: r says why. name "": the only one there, or pinned. */
struct server *house_hold(struct house *h, const char *name, struct refusal *r);
void house_release(struct house *h, struct server *s);
/* A stream of events begins with the state of every model. false: refused. */
bool house_feed(struct house *h, struct job *j);
/* A model is to be loaded or to go, by its name, without waiting for it. errors: INFER_E_INPUT after job_refuse */
enum infer_status house_ask(struct house *h, struct job *j, const char *name, bool in);

/* ---- what it shows ---- */

struct house_view {
    const char *name, *path;
    const struct server *server; /* names[n_name] */
    enum fleet_state state;
    bool known, pinned; /* info is there */
    struct house_info info;
    char why[640]; /* FLEET_FAILED */
    int n_run, n_wait, n_load;
    double stays; /* seconds until it goes if nobody asks; less than 0: for ever */
};
int house_count(const struct house *h);
void house_see(struct house *h, int i, struct house_view *out);
/* A model by its name; -1: none, and r says so with those that are near. */
int house_find(struct house *h, const char *name, struct refusal *r);
/* Requests that run and wait, steps so far: of all models. */
void house_totals(struct house *h, int *running, int *waiting, unsigned long long *steps);
/* Prometheus text of all models. */
void house_metrics(struct house *h, struct buf *out);
/* {value:'loaded'} and the like, as llama.cpp's router has it. */
void house_status(const struct house_view *v, struct buf *out);
/* From house_calls.load: how far it is. */
void house_progress(struct server *s, const char *what, double done, double total);
