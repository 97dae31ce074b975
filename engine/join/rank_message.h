/* Inside of the room: what rank 0 asks of a rank in another process, as bytes. What comes in is checked before anything is done by it. */
#pragma once
#include "join/rank_call.h"
#include "plan/plan.h"

/* Kinds of messages, beside enum rank_ask. */
enum rank_said { RANK_OPEN = 200, RANK_ANSWER };

/* What calls may name and carry. */
struct rank_limits {
    int n_vocab, n_input, n_ctx, n_slot, n_state_slot; /* n_input: numbers of a row that is no token */
    int max_rows[ROW_CLASS_COUNT], max_out[ROW_CLASS_COUNT];
    int n_group, n_page[KV_GROUPS], max_pages[KV_GROUPS];
    int n_store, n_state, n_adapter;
    const struct kv_store *store; /* store, state: of the rank that is asked: its heads */
    const struct state_store *state;
};
struct rank_limits rank_limits_of(const struct plan *plan, const struct model *m);
/* Bytes of the longest message. */
size_t rank_message_most(const struct rank_limits *l);

/* The call as bytes, at most rank_message_most of them; pages: whether the step's page tables go along. */
size_t rank_message_put(void *out, const struct rank_limits *l, const struct rank_call *call, bool pages);
/* A step that came: the arrays lie in the message, but for these. */
struct rank_inbox {
    struct step step;
    int32_t *pages[KV_GROUPS]; /* [n_slot * max_pages] as they came last */
    const float **input;       /* [max_rows] */
    struct infer_draw *draw;   /* [max_out] */
    const struct infer_draw **drawn;
    const float **adapter; /* [n_slot] */
    float *numbers;        /* of stores and states that are read, or bytes */
    size_t n_numbers;
    bool has_pages;
};
enum infer_status rank_inbox_new(struct rank_inbox *in, const struct rank_limits *l);
void rank_inbox_free(struct rank_inbox *in);
/* bytes[n], aligned to 8, as a call of this kind; views into both. errors: INFER_E_INPUT (what is no such call) */
enum infer_status rank_message_get(struct rank_call *call, struct rank_inbox *in, const struct rank_limits *l,
                                   enum rank_ask ask, const void *bytes, size_t n);
/* What a call that reads has in `numbers` afterwards, bytes. */
size_t rank_call_reads(const struct rank_limits *l, const struct rank_call *call);
