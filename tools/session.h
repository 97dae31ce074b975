/* A model and an engine, opened as the options say: what run, chat, bench and the others start with. */
#pragma once
#include <stdbool.h>
#include "infer.h"
#include "request/request.h"
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

/* What a command needs beside the options; options that the user gave win. */
struct session_need {
    int slots, ctx, batch, decode_rows; /* 0: the engine's default */
    bool all_logits;
    bool text;         /* the command needs a tokenizer */
    const char *draft; /* file of the model that drafts; NULL: none */
    bool quiet;
};

/* -m, else $INFER_MODEL, else the default model that scripts/get-model installs. errors: INFER_E_IO (none) */
enum infer_status session_model_path(const struct options *o, char *path, size_t n);
/* The options as the engine takes them. */
struct infer_engine_options session_engine_options(const struct options *o, const struct session_need *need);
/* Opens the model alone. */
enum infer_status session_open_model(struct session *s, const struct options *o);
/* Who guesses. errors: INFER_E_INPUT (two do) */
enum infer_status session_drafter(const struct options *o, enum request_drafter *out);
/* And the one that drafts, with its engine's options, which follow from the plan of the other's (as: its card, as infer_plan has it). errors: those of infer_model_open,
 * infer_vocab_same and infer_plan */
enum infer_status session_open_draft(struct session *s, const struct options *o, const char *path,
                                     const struct infer_engine_options *of, const char *as,
                                     struct infer_engine_options *out);
/* Opens model and engine; Ctrl-C stops the engine's step until session_close (interrupt.h). */
enum infer_status session_open(struct session *s, const struct options *o, const struct session_need *need);
void session_close(struct session *s);
