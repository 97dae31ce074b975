/* Inside of the house: house.c (threads, loads), house_route.c (requests), house_show.c (what it tells). */
#pragma once
#include "serve/core/house.h"

enum { HOUSE_FEEDS = 64, HOUSE_FEED_BYTES = 1 << 20 };
struct member {
    struct server server;
    const char *path;
    struct house_info info;
    bool known;
    char why[640];
    struct job *first, **last; /* that wait for it, in their order */
    char stage[48];            /* of its load */
    double progress, told;     /* 0 .. 1; when it was told last */
    int n_load;
    bool lost; /* what it computes is worth nothing any more */
};
struct house {
    struct server *front;
    struct house_calls calls;
    struct member *member;      /* member[n] */
    struct fleet_model *models; /* fleet.model */
    int n;
    struct turns turns;
    pthread_t keeper, worker;
    bool begun, stuck; /* its threads run; one of them could not be ended */

    pthread_mutex_t lock; /* of what follows, and of members but for their servers */
    pthread_cond_t news, work;
    struct fleet fleet;
    struct fleet_act act; /* the worker's */
    bool busy, stopping, draining;
    int n_waiting;
    struct job *feed[HOUSE_FEEDS]; /* feed[n_feed] */
    int n_feed;
};

/* Under the lock: tells those that listen. */
void house_tell(struct house *h, int i);
/* Under the lock: listeners whose clients have gone go. */
void house_sweep_feeds(struct house *h);
/* A job that was counted as one of model i goes to it. Not under the lock. */
void house_give(struct house *h, int i, struct job *j);
/* Refuses a job that waited, as job->cancelled or (why not NULL) that says. */
void house_refuse(struct house *h, struct job *j, const char *why);
