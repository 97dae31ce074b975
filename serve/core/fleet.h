/* Which of a server's models are loaded, which requests wait for one, and who goes for it: the policy alone, of numbers and times that the
 * caller gives (house.c does what it says). No threads, no clock of its own.
 *
 * Room is bytes, of the host and of the card; a model that is pinned has its own, loaded or not. Of those that are not loaded the one whose
 * oldest request waits longest is next, and all that wait for it begin with it. Room is made by those that answer nothing, the least
 * recently used first, each once it has been there as long as its load took. Where they are too few, those that answer take no more
 * requests once they have been there for their turn (the greater of `turn` and 4 loads), and go when they have answered. So none waits
 * longer than the turns, answers and loads of those before it, and a crowd has each model load no more often than that. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum { FLEET_MODELS = 256 }; /* at most */
enum fleet_state { FLEET_OUT, FLEET_LOADING, FLEET_IN, FLEET_LEAVING, FLEET_FAILED };

struct fleet_bytes {
    uint64_t host, card;
};
struct fleet_model {
    /* the caller's */
    bool pinned; /* it never goes for another one, nor for want of requests */
    double keep; /* seconds without a request after which it goes; less than 0: it stays */
    /* the policy's, for the caller to read */
    enum fleet_state state;
    bool measured; /* need is known */
    struct fleet_bytes need;
    int n_run, n_wait; /* requests that it answers, that wait for it */
    double since;      /* when the oldest of them came, or it was asked for */
    bool asked_in;     /* to be loaded without a request */
    bool asked_out;    /* to go when it has answered */
    bool closed;       /* it takes no more requests */
    double loaded, load_seconds;
    double used; /* last beginning or end of an answer */
    double failed;
};
struct fleet {
    struct fleet_model *model; /* model[n], zeros but for the caller's part */
    int n;
    struct fleet_bytes room;
    double turn;  /* seconds that a model which answers keeps its place at least */
    double retry; /* seconds for which what failed is not tried again */
    int n_load;   /* so far */
};

enum fleet_answer { FLEET_GOES, FLEET_WAITS, FLEET_REFUSED };
/* A request for model i: it begins at once, waits, or is refused since the model has failed lately. */
enum fleet_answer fleet_came(struct fleet *f, int i, double now);
/* One that waited has gone; since: when the oldest that is left came. */
void fleet_gave_up(struct fleet *f, int i, double since);
/* Whether all that wait for model i can begin, which they then have. */
bool fleet_takes(struct fleet *f, int i, double now);
/* One that it answered is over. */
void fleet_left(struct fleet *f, int i, double now);
/* It is to be loaded, or to go, though no request says so. false: it has failed lately, or is pinned. */
bool fleet_ask_in(struct fleet *f, int i, double now);
bool fleet_ask_out(struct fleet *f, int i);

struct fleet_act {
    enum { FLEET_NOTHING, FLEET_MEASURE, FLEET_LOAD, FLEET_UNLOAD, FLEET_TOO_LARGE } kind;
    int i;
    double until; /* FLEET_NOTHING: when to ask again if nothing happens; INFINITY: never */
};
/* What is to be done now, one thing at a time: none while something loads or leaves. Its state is changed (LOADING, LEAVING), and the
 * caller says how it ended by one of the functions below. FLEET_TOO_LARGE: it waits and can never fit. */
struct fleet_act fleet_next(struct fleet *f, double now);
void fleet_measured(struct fleet *f, int i, struct fleet_bytes need);
void fleet_loaded(struct fleet *f, int i, double now, double seconds);
void fleet_gone(struct fleet *f, int i);
/* Those that wait for it are to be refused. */
void fleet_failed(struct fleet *f, int i, double now);

/* Bytes that pinned models have, and those of all that are loaded or about to be. */
struct fleet_bytes fleet_pinned(const struct fleet *f);
struct fleet_bytes fleet_taken(const struct fleet *f);
