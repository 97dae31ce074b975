/* Inside the engine behind infer.h: what its files share. engine.c: models, text, plan and creation; sequence.c: what a
 * sequence holds; step.c: rows to steps to results. */
#pragma once
#include "infer.h"
#include "base/mem.h"
#include "cache/kv.h"
#include "join/join.h"
#include "model/model.h"
#include "plan/plan.h"
#include "seam/profile.h"
#include "seam/tap.h"

/* One step between submit and wait. */
struct flight {
    struct step step[ROW_CLASS_COUNT];
    int32_t *id[ROW_CLASS_COUNT], *pos[ROW_CLASS_COUNT], *slot[ROW_CLASS_COUNT]; /* [max_rows] */
    const float **input[ROW_CLASS_COUNT];                                        /* [max_rows] */
    int32_t *place
        [ROW_CLASS_COUNT]; /* [max_rows]: where each row that was given stands; rows that a state lacked are between */
    int32_t *until[ROW_CLASS_COUNT];   /* [max_rows] */
    int32_t *axis[ROW_CLASS_COUNT][3]; /* [max_rows] */
    int32_t *out_row[ROW_CLASS_COUNT]; /* [max_out] */
    uint8_t *want[ROW_CLASS_COUNT];
    const struct infer_draw **draw[ROW_CLASS_COUNT];
    uint8_t *out_cls;   /* out_cls[n_out]: class that computes output i, in the order of the rows given */
    int32_t *out_index; /* out_index[n_out]: its index inside that class */
    int32_t *out_slot;
    int n_out;
    int n_joined;                   /* decode rows in front of those given, which a state lacked */
    int32_t *length_before;         /* length_before[n_slot]; -1: not in this step */
    int64_t begin[ROW_CLASS_COUNT]; /* of a profile */
    double queued;                  /* host_seconds */
    int32_t *token;                 /* results */
    const float **logits;
    const struct infer_top **top;
    struct infer_top *top_ids; /* top_ids[n_out], of a model with ids of its own: in those of its target */
};

struct infer_engine {
    const struct infer_model *model;
    struct arena arena;
    struct plan plan; /* of rank 0, where there are several */
    /* ranks[n_rank] that compute the model together; their backends read these. n_rank 0: one computes it alone */
    struct rank_plan *ranks;
    int n_rank;
    struct infer_group *group;   /* of ranks that are processes; NULL: threads */
    struct rank_order *order;    /* what they are told to open */
    struct backend_config whole; /* what a sequence keeps: of all ranks */
    struct adapters adapters;    /* of the options */
    struct adapters
        *rank_adapters; /* [n_rank], of processes [1]: what each rank adds of them; NULL: no ranks */
    float *scale, *default_scale;           /* scale[n_slot][n_adapter] of sequences; [n_adapter] */
    const float **scale_of;                 /* scale_of[n_slot]: NULL: all 0 (step.adapter) */
    void (*before_step)(void *before_user); /* of the options */
    void *before_user;
    struct tap tap; /* of the options */
    struct infer_profile *profile;
    bool queues;  /* the backend's steps are queued: they end when they are waited for */
    int64_t told; /* of a profile: when the last step of such a backend ended */
    struct backend *backend;
    struct kv kv;
    /* after[n_slot]: what waits for the steps in flight: a length to go back to, or enum after */
    int32_t *after;
    int n_after;       /* of those that wait */
    int32_t *last;     /* last[n_slot]: the token a sequence just sampled, -1: none, or not read yet */
    int32_t *last_out; /* last_out[n_slot]: scratch of collect */
    struct flight flight[PLAN_FLIGHTS];
    unsigned n_submit, n_wait;
    float *host_state;    /* [n_state_copy][all states of a sequence]; NULL: the backend has the copies */
    uint64_t n_replayed;  /* rows that were computed again */
    int grid;             /* struct backend_info */
    uint64_t fingerprint; /* of the model, once a snapshot needed it */
    /* rows[max_rows][n_embd + n_given]: of a model that drafts, what its list reads; NULL: another one */
    float *rows;
    const float *given; /* hidden[n][n_given] of the step that is being queued */
    float *tapped;      /* tapped[max_rows][n_tapped]: of infer_tapped; NULL: without */
    float *hidden;      /* hidden[max_rows][n_embd]: of infer_hidden; NULL: without */
    /* how many steps were waited for when all rows of one were read, of an encoder or of those that decode; and these, of tapped */
    unsigned hidden_of, tapped_of;
    struct kept *kept; /* pages and states in files; NULL: none */
    /* What prompts took lately, of steps that have nothing else; and when the last step ended. */
    double prompt_rows, prompt_seconds, ended;
    bool poisoned;
    char poison[256];
};

struct infer_model {
    struct model *m;
};
struct infer_adapter {
    struct adapter *a;
    const struct infer_model *of;
};

enum after { AFTER_NOTHING = -1, AFTER_CLOSE = -2 };

/* The part of the plan that has the outputs. */
static inline const struct plan_part *last_part(const struct infer_engine *e) {
    return &e->plan.part[e->plan.n_part - 1];
}

/* ranks_pick.c: .ranks auto, or .devices without it: says how this machine's cards share the model, aloud, and has po ask for that. */
enum infer_status engine_ranks_pick(const struct model *m, struct plan_options *po);
/* ranks.c: the shares of the model, where the options ask for several ranks; what rank 0's plan is of; the others' plans, behind it. */
enum infer_status engine_ranks_model(struct infer_engine *e, struct plan_options *po);
/* The cards of the stages that the options ask for, where they are on cards. */
enum infer_status engine_stages_place(struct arena *arena, const struct model *m, struct plan_options *po,
                                      const struct infer_group *g);
const struct model *engine_plan_model(const struct infer_engine *e);
enum infer_status engine_ranks_plan(struct infer_engine *e, const struct plan_options *po);
void engine_ranks_free(struct infer_engine *e);
/* One rank's share by the options. errors: those of model_shard */
enum infer_status engine_rank_share(struct model **out, const struct model *m, const struct plan_options *po,
                                    int rank);
/* follow.c: takes the group of the options, if there is one; what its ranks are told to open, once there is a plan. */
enum infer_status engine_group_take(struct infer_engine *e, const struct infer_engine_options *options);
enum infer_status engine_group_order(struct infer_engine *e, const struct infer_engine_options *options);
/* Where this process computes; g: the group whose rank it is, NULL: none. */
enum infer_status engine_place(struct plan_options *po, const struct infer_group *g);
/* The threads of a process of the group: those wanted, or (0) its part of the processors that it shares. */
int engine_group_threads(const struct infer_group *g, int wanted);
/* Of a report: rank 0's share, and its threads; NULL: one rank has all. */
enum infer_status engine_ranks_share(struct model **out, const struct model *m, struct plan_options *po);
/* Of a report: what a token reads on the slowest rank. */
enum infer_status engine_ranks_read(const struct model *m, const struct plan_options *po,
                                    struct infer_plan_report *r);
/* adapt.c: adapters of the options, before the plan; memory for their scales, once there is a plan. errors: INFER_E_INPUT (another model's, a
 * scale that is no number), INFER_E_UNSUPPORTED */
enum infer_status engine_adapters_read(struct adapters *out, struct arena *arena, const struct infer_model *m,
                                       const struct infer_engine_options *options);
/* What a rank adds of `whole`, until engine_adapters_unshare. errors: those of adapter_share */
enum infer_status engine_adapters_share(struct adapters *out, struct arena *arena,
                                        const struct adapters *whole, const struct model *share);
void engine_adapters_unshare(struct adapters *a);
/* The same for this process's ranks, once there are shares of the model; and what a rank's list has, NULL: there are no adapters. */
enum infer_status engine_ranks_adapters(struct infer_engine *e);
const struct adapters *engine_adapters_of(const struct infer_engine *e, int rank);
void engine_ranks_adapters_free(struct infer_engine *e);
enum infer_status engine_adapters_open(struct infer_engine *e, const struct infer_engine_options *options);
/* What prefixes of such scales are known by; NULL: the engine's own. 0: no adapter is added. */
uint64_t engine_adapter_key(const struct infer_engine *e, const float *scale);
/* sequence.c: the same for the cache. */
struct kv_find engine_find(const struct infer_engine *e, const struct infer_prefix *among);
/* The sequence has these scales from now on. */
void engine_adapt(struct infer_engine *e, int seq, const float *scale);
/* hidden.c: memory for what rows hand to a model that drafts, before the backend opens; and of a step whose rows are checked and placed,
 * what such a model reads. */
enum infer_status engine_hidden_open(struct infer_engine *e);
void engine_hidden_fill(struct infer_engine *e, struct flight *f, const struct infer_row *rows, int n);
/* The state of a sequence to where it ends, by the rows from where it stands; no step may be in flight. errors: of the steps */
enum infer_status engine_replay(struct infer_engine *e, int seq);
/* n rows of a sequence from a position on into the arrays of a flight, from row at of a class on, which nobody wants anything of. */
void engine_put_again(struct infer_engine *e, struct flight *f, enum row_class c, int at, int seq, int from,
                      int n);
/* Brings the states of the sequences in a step of rows[n] to where they end, but for what the step itself can do first. errors: of steps;
 * INFER_E_INPUT: a step is in flight, and that cannot be done in it */
enum infer_status engine_catch_up(struct infer_engine *e, const struct infer_row *rows, int n);
/* Keeps copies of the states before rows that may be taken back: several decode rows of a sequence. */
enum infer_status engine_mark(struct infer_engine *e, const struct infer_row *rows, int n);
/* The same where a next step could not do it, and none is in flight. */
enum infer_status engine_goes_on(struct infer_engine *e, int seq);
/* A state to another slot, of which those of copies may be in host memory; after all queued steps. */
enum infer_status engine_copy_state(struct infer_engine *e, int from, int to);
/* Copies in the backend what a sequence adopts or goes back to (sequence.c). */
enum infer_status engine_move(struct infer_engine *e, const struct kv_moves *m);

/* A slot of the state stores, those of copies among them, as it would be written: all stores, one behind the other. */
enum infer_status engine_read_state(struct infer_engine *e, int slot, float *out);
/* kept.c: opens the folder of the options, if they name one, once the backend is; what is not written yet is, and it is closed. */
enum infer_status engine_kept_open(struct infer_engine *e, const struct infer_engine_options *options);
void engine_kept_close(struct infer_engine *e);
/* The pages that a sequence holds are in use. */
void engine_kept_used(struct infer_engine *e, int seq);
/* And are to be found no more. */
void engine_kept_forget(struct infer_engine *e, int seq);
/* It does not go on with what infer_seq_kept has begun. */
void engine_kept_leave(struct infer_engine *e, int seq);

static inline bool seq_is_open(const struct infer_engine *e, int seq) {
    return seq >= 0 && seq < e->kv.n_slot && e->kv.seq[seq].open && e->after[seq] != AFTER_CLOSE;
}
/* Whether a queued step has rows of the sequence. */
bool engine_in_flight(const struct infer_engine *e, int seq);
/* Closes and rewinds what waited for the steps that have been read. */
void engine_settle(struct infer_engine *e);
/* A fault from which no later step can be trusted. */
void engine_poison(struct infer_engine *e, enum infer_status s);
