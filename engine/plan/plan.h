/* Every size is known here before anything is taken: KV, activations, workspace, outputs, weights, reserve. */
#pragma once
#include "seam/backend.h"
#include "plan/device.h"
#include "plan/kv_types.h"
#include "model/forward.h"
#include "base/mem.h"
#include "model/model.h"
#include "quant/quant.h"

/* Read bandwidths, 1e9 bytes a second. */
struct plan_rates {
    double device_gb_s, host_gb_s;
    bool assumed; /* the device's: a card that nobody knows */
};
/* A way to share a model between device and host, and what decoding comes to by bytes over rates (predict.c). */
struct plan_share {
    bool there;                        /* it was laid out */
    int n;                             /* layers whose experts, or which as a whole, are on the host */
    uint64_t device_bytes, host_bytes; /* of weights that a token reads */
    uint64_t host_weights;             /* bytes of all weights on the host */
    double tok_s;
};

enum {
    PLAN_STAGES = 16,
    PLAN_PARTS = PLAN_STAGES,
    PLAN_NEAREST = 8,
    PLAN_FLIGHTS = 2 /* steps that may be queued at once */
};

/* What decides the sizes, complete: no value means "default". */
struct plan_settings {
    int n_ctx, n_slot, n_batch, n_decode_rows; /* rows of the largest prompt step and decode step */
    int n_kv_token;                            /* positions of all sequences; 0: every slot's whole context */
    int n_device_layer;                        /* the last layers, on the device; the others on the host */
    int n_device_experts; /* of the layers on the device, the last whose experts are there, too; those of the others on the host */
    enum kv_type kv_type;      /* of all stores; KV_TYPES: kv says */
    const struct kv_types *kv; /* kv[n_store]; NULL: all are of kv_type */
    bool slot_rows;            /* n_decode_rows follows n_slot */
    int n_state_copy;          /* 0: by n_slot */
    bool state_host;           /* the copies in host memory */
    /* n_stage 0: one device, or that and the host. Else a backend for each run of layers, up to stage_end[n_stage], on the device */
    int n_stage, stage_end[PLAN_STAGES];
};

/* A run of layers on one backend, or of layers' experts. */
struct plan_part {
    const struct backend_type *type;
    struct backend_config config;
    struct backend_sizes size;
    struct op_list list[ROW_CLASS_COUNT];
    struct layer_range range;
    size_t total_bytes; /* all that the backend takes of its memory */
    size_t limit_bytes; /* what there is to take; SIZE_MAX: unknown */
    bool measured;      /* size.driver_bytes is measured, not assumed */
    bool experts;       /* only these, of the range's layers; the last part has the rest of them */
};

struct plan {
    struct plan_settings set;
    struct placement place;
    /* part[n_part], in the order of the layers: the last one has the outputs */
    struct plan_part part[PLAN_PARTS];
    int n_part;
    struct kv_group *kv_group; /* the same for every part */
    struct kv_store *store;    /* the model's, in their types; the same for every part */
    /* of every state: for prefixes and rewinds; of each slot, for guesses that are taken back */
    int n_state_copy, n_state_mark;
    int n_prompt_out; /* outputs of the largest prompt step */
    size_t map_bytes; /* the file, whose weights a host backend reads in place */
    bool fits;
    struct plan_rates rates; /* of a model that card and host share, or would by nearest */
    struct plan_share experts,
        layers;                     /* the two ways, as far as they were considered; the taken one is there */
    char nearest[PLAN_NEAREST][64]; /* nearest[n_nearest]: settings that fit where these do not */
    double nearest_tok_s[PLAN_NEAREST]; /* as predicted, of those that share; 0: the others */
    int n_nearest;
    const char *text; /* the report */
};

/* Decoding as it was measured: a row of measured.def. */
struct plan_measured {
    bool card, experts;
    const char *model, *on;
    enum quant_type type;
    double gb, gb_s; /* a token reads, and the read bandwidth */
    int kernels;     /* of a step */
    double tok_s;
};
/* What models of a kind came to: share of the read bandwidth beside what their kernels take. */
struct plan_reached {
    double share;
    int n;                          /* rows that say so */
    const struct plan_measured *as; /* the first of them */
};

/* What is asked for; the caller's words are numbers and enums by now (engine_options.c). 0 and -1 as in infer.h. */
struct plan_options {
    struct device_wish wish;
    struct placement place;
#define INFER_FOR_PLAN(type, field)     type field;
#define INFER_FOR_BACKENDS(type, field) type field;
#include "infer_options.def"
    struct cpu_options cpu;
    struct cuda_options cuda;
    struct plan_rates rates; /* 0: looked up, and probed */
    void (*progress)(void *user, const char *what, double done, double total);
    void *user;
    const struct placement *stage; /* stage[stages]: the card of each; NULL: all are on place */
    const struct tap *tap;         /* NULL: none */
    struct infer_profile *profile; /* of rank 0; NULL: none */
    const struct taps
        *taps; /* what a head for the model reads; NULL: there is none; not on cards, nor in stages */
    /* NULL: none; not with ranks, nor of experts on the host beside a card */
    const struct adapters *adapters;
    bool keep_all; /* no two buffers share memory: for taps */
};

/* Makes the lists, asks the backends for sizes and lays out the activations. What the options leave open (the most
 * positions, the most slots, the layers on the device) is searched. A plan that does not fit is still a plan (fits is
 * false, nearest and text say what would). errors: INFER_E_INPUT (an option is out of range), INFER_E_MEMORY,
 * INFER_E_UNSUPPORTED (the backend has no kernel for an op) */
enum infer_status plan_make(struct plan *out, struct arena *arena, const struct model *m,
                            const struct plan_options *options);

/* plan.c: the sizes of these settings, nothing searched, no text. */
enum infer_status plan_lay_out(struct plan *p, struct arena *arena, const struct model *m,
                               const struct plan_options *options, const struct plan_settings *set);
/* stages.c: n stages of whole layers, each with its share of the bytes of weights (NULL: the same). n below 2: none. errors:
 * INFER_E_INPUT (more than layers), INFER_E_UNSUPPORTED (one device has all layers) */
enum infer_status plan_stages(struct plan_settings *s, const struct model *m, int n, const double *share);
/* plan.c: gives every buffer of a list the lowest place that no buffer alive at the same time holds (keep_all: no other buffer).
 * *arena_bytes: raised to what they take. errors: INFER_E_MEMORY (more than an address has) */
enum infer_status plan_place_buffers(struct op_list *l, bool keep_all, size_t *arena_bytes);
/* plan.c: positions that all sequences hold together. */
int plan_kv_tokens(const struct plan *p);
/* plan.c: whether some layer before layer n has experts. */
bool plan_has_experts(const struct model *m, int n);
/* Whether some adapter is added to products of experts. */
bool plan_adapts_experts(const struct plan_options *o);
/* plan_fit.c: changes set->n_slot, n_ctx and, where the model does not fit, n_device_layer or n_device_experts, as far as the options
 * leave them open, to the most that fits; of the last two it takes what is predicted to be faster. p: rates and shares, if that was
 * the question. */
enum infer_status plan_search(struct plan *p, const struct model *m, const struct plan_options *options,
                              struct plan_settings *set);
/* predict.c: the rates of the options, of card.def and of a probe of 0.2 s; the share of a plan that is laid out. */
void plan_rates_find(const struct plan_options *o, struct plan_rates *out);
struct plan_share plan_share_of(const struct plan *p, const struct plan_rates *r);
/* predict.c: the rows of measured.def, n of them; what those like a model have reached, of its type or of the types that are nearest in
 * bits; the type that most bytes of a token have, and whether it has experts. */
const struct plan_measured *plan_measured_table(int *n);
struct plan_reached plan_reached_by(bool card, bool experts, enum quant_type type);
enum quant_type plan_type_of(const struct op_list *decode, bool *experts);
/* predict.c: weights that a token reads by a decode list, of experts of which it has a part those of the busiest rank; experts that the
 * busiest of n ranks computes of `used` drawn evenly, the mean. */
uint64_t plan_token_bytes(const struct op_list *decode);
double plan_busiest(int experts, int used, int n);
/* predict.c: kernels of a decode step of a part; 0: it is on the host, or nobody knows. */
int plan_kernels(const struct plan *p, const struct plan_part *part);
/* predict.c: seconds of a token, at least (reached NULL) or as such models have it. */
double plan_token_s(double bytes, double gb_s, int kernels, const struct plan_reached *reached);
/* plan_fit.c: fills p->nearest of a plan that does not fit. */
enum infer_status plan_nearest(struct plan *p, const struct model *m, const struct plan_options *options);
/* plan_text.c: the report, into the arena. errors: INFER_E_MEMORY */
enum infer_status plan_write(struct plan *p, struct arena *arena, const struct model *m);
