/* Lanes: what llama.cpp calls slots, for clients that save and restore them by number. Here a sequence has no place of its own: its pages are
 * found by what they are of. A lane is a note of what was answered last in its name, and what is asked of it is done with the pages of
 * that which are still there. The engine thread's. */
#pragma once
#include "infer.h"

enum lane_action { LANE_SAVE, LANE_RESTORE, LANE_ERASE, LANE_ADAPTER /* of no lane: infer_engine_adapter */ };
struct lane_order {
    enum lane_action action;
    int lane; /* of LANE_ADAPTER the place */
    struct infer_adapter *put;
    uint64_t salt;        /* of who asks: lanes of others are empty */
    const float *adapter; /* scales of what is restored (struct infer_prefix) */
    char file[300];       /* path */
    /* how it went */
    int n;          /* tokens saved, restored, erased */
    uint64_t bytes; /* of the file */
    double ms;
    enum infer_status status;
    char message[300];

    bool done; /* the scheduler's, as next */
    struct lane_order *next;
};

struct lanes;
/* errors: INFER_E_MEMORY */
enum infer_status lanes_open(struct lanes **out, struct infer_engine *e, int n_lane);
void lanes_close(struct lanes *l);
/* Notes ids[n] and behind them more[n_more], known under salt and scales of adapters, in lane (-1: the one that it goes on with, else the one noted longest ago);
 * which. -1: there is no memory. */
int lanes_note(struct lanes *l, int lane, uint64_t salt, const float *adapter, const int32_t *ids, int n,
               const int32_t *more, int n_more);
/* No step may be in flight. false: all sequences are taken, later perhaps. */
bool lanes_do(struct lanes *l, struct lane_order *o);
