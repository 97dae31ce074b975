/* A model and an engine, opened as the options say: what run, chat, bench and the others start with. */
#pragma once
#include <stdbool.h>
#include <stdio.h>
#include "infer.h"
#include "infer_profile.h"
#include "infer_request.h"
#include "files/outfile.h"
#include "tools/adapters.h"
#include "tools/options.h"
#include "tools/sense/energy.h"
#include "tools/term.h"
#include "tools/trace.h"

#define DEFAULT_MODEL "SmolLM2-135M-Instruct.Q4_1.gguf" /* scripts/get-model installs it */

struct session {
    struct infer_model *model, *draft_model;
    struct infer_engine *engine, *drafter; /* drafter: of draft_model; NULL: nobody drafts */
    struct infer_model_info info;
    struct infer_engine_info place;
    struct adapter_list adapters;
    char path[4096];
    struct progress progress;
    /* of --profile and --trace, told when the session is closed; NULL: nobody asks */
    struct infer_profile *profile;
    struct outfile *trace;
    struct trace_extra trace_extra; /* the command's */
    struct levels *levels;          /* of --trace */
    struct trace_extra counters;    /* these, where there are some */
    bool show_profile;
    double roof_gb_s,
        roof_flops; /* of the card, measured before it was taken; 0: of the processor, measured at the end */
    struct energy_pace *pace; /* of --watts; NULL: none */
    bool pace_told;           /* that it cannot be kept */
};

/* Who guesses, as the options say: a model in a file, or (file NULL) layers of the model's own; at most so many tokens at once, 0: the
 * request's own limit. */
struct session_draft {
    enum infer_request_drafter by;
    const char *file;
    int most;
};

/* What a command needs beside the options; options that the user gave win. */
struct session_need {
    int slots, ctx, batch, decode_rows; /* 0: the engine's default */
    int contexts;                       /* whole ones that all slots share in a pool; 0: each has its own */
    /* what fits better than slots and contexts, where the options name neither; NULL: nothing does */
    enum infer_status (*size)(const struct infer_model *m, const char *as, struct infer_engine_options *eo);
    int repack_after; /* as struct infer_engine_options has it */
    bool all_logits;
    bool hidden;                       /* infer_hidden */
    bool text;                         /* the command needs a tokenizer */
    const struct session_draft *draft; /* NULL: nobody drafts */
    bool quiet;
    /* who is told how far loading is, in place of the terminal; NULL: it is */
    void (*progress)(void *progress_user, const char *what, double done, double total);
    void *progress_user;
    /* as struct infer_engine_options has it */
    void (*tap)(void *tap_user, const char *name, int n_matrix, int matrix, const float *x, int k);
    void *tap_user;
    void (*watch)(void *watch_user, const struct infer_watched *w);
    void *watch_user;
};

/* -m, else $INFER_MODEL, else the default model that scripts/get-model installs. errors: INFER_E_IO (none) */
enum infer_status session_model_path(const struct options *o, char *path, size_t n);
/* The options as the engine takes them. */
struct infer_engine_options session_engine_options(const struct options *o, const struct session_need *need);
/* Opens the model alone. */
enum infer_status session_open_model(struct session *s, const struct options *o);
/* Decode rows of a step of requests that guess, of an engine of this size without: those of a few of them have guesses at once, more would
 * cost more than they bring. Where layers have states, as many again are for rows behind a wrong guess, which are computed once more. */
int session_draft_rows(const struct infer_engine_info *size);
/* errors: INFER_E_INPUT (two guess, no such number of tokens) */
enum infer_status session_drafter(const struct options *o, struct session_draft *out);
/* Opens the model that drafts, with its engine's options and the other's, which are to be used then. as: its card, as infer_plan has it.
 * errors: those of infer_model_open, infer_vocab_same, infer_model_draft and infer_plan */
enum infer_status session_open_draft(struct session *s, const struct options *o,
                                     const struct session_draft *draft, const char *as,
                                     struct infer_engine_options *of, struct infer_engine_options *out);
/* Opens model and engine; Ctrl-C stops the engine's step until session_close (interrupt.h). */
enum infer_status session_open(struct session *s, const struct options *o, const struct session_need *need);
void session_close(struct session *s);
struct session_size {
    uint64_t host, card; /* bytes */
    uint64_t card_limit; /* bytes of the card that there are; 0: none is used */
    int n_ctx, n_slot;
    bool sees; /* a tower is beside it, and counted */
};
/* What session_open would take, by the plan, without taking it. s has the model's path and the numbers and words (arch, type_name) of its
 * info; no session_close. */
enum infer_status session_measure(struct session *s, const struct options *o, const struct session_need *need,
                                  struct session_size *out);
