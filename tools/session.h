/* A model and an engine, opened as the options say: what run, chat, bench and the others start with. */
#pragma once
#include <stdbool.h>
#include "infer.h"
#include "infer_request.h"
#include "tools/options.h"
#include "tools/term.h"

struct session {
    struct infer_model *model, *draft_model;
    struct infer_engine *engine, *drafter; /* drafter: of draft_model; NULL: nobody drafts */
    struct infer_model_info info;
    struct infer_engine_info place;
    char path[4096];
    double load_seconds;
    struct progress progress;
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
    /* as struct infer_engine_options has it */
    void (*tap)(void *tap_user, const char *name, int n_matrix, int matrix, const float *x, int k);
    void *tap_user;
};

/* -m, else $INFER_MODEL, else the default model that scripts/get-model installs. errors: INFER_E_IO (none) */
enum infer_status session_model_path(const struct options *o, char *path, size_t n);
/* The options as the engine takes them. */
struct infer_engine_options session_engine_options(const struct options *o, const struct session_need *need);
/* Opens the model alone. */
enum infer_status session_open_model(struct session *s, const struct options *o);
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
