/* A model on several cards that may not be here: ways to divide it, predicted. */
#pragma once
#include "plan/card.h"
#include "plan/plan.h"
#include "seam/comm.h"

enum plan_way_kind {
    WAY_TENSOR,
    WAY_PIPELINE,
    WAY_EXPERTS,
    WAY_ONE,
    WAYS
}; /* ONE: the fastest card has all */
/* What a card would hold: bytes in all, of what there are. */
struct plan_on_card {
    int no; /* of the cards given */
    size_t bytes, limit, weights, kv;
    int first, end; /* layers */
};
struct plan_way {
    bool there, fits;
    char why[128]; /* of one that is not there */
    struct plan_on_card card[RANKS_MAX];
    int n_card;
    double token_bytes; /* of weights, of the slowest rank; of a pipeline the stage that reads most */
    int exchanges;      /* of a token: reduces and gathers, or rows to the next stage; */
    double between_s;   /* and what they take */
    double tok_s;       /* of one row */
    int n_whole;        /* parts of layers that every rank has whole */
};
struct plan_several {
    int n;
    const char *link;
    struct plan_way way[WAYS];
    int taken; /* the fastest of those that fit and were asked for, of all where nothing was; -1: none */
    struct plan_settings set;
};

/* errors: INFER_E_INPUT (options that go with another number of cards, a card whose speed nobody knows), INFER_E_MEMORY */
enum infer_status plan_several(struct plan_several *out, const struct model *m,
                               const struct plan_options *options, const struct card *card, int n);
/* Takes the fastest of these ways (bit k: enum plan_way_kind k) that fits, in place of what was taken; -1: none. */
int plan_several_take(struct plan_several *s, unsigned ways);
const char *plan_way_name(enum plan_way_kind k);
/* Lines of each way. */
void plan_several_write(const struct plan_several *s, const struct model *m, const struct card *card,
                        char *text, size_t size);
