/* Requests, beside infer.h: a prompt goes in, an answer comes out as text. What a program needs that answers many clients from one
 * engine: chat templates, sampling, grammars, stop texts, log probabilities, and the steps of all of them side by side.
 *
 *     infer_sched_open(&s, engine, model);
 *     infer_request_chat(&a, s, &params_a, messages);   // at any time between two steps
 *     infer_request_new(&b, s, &params_b);              // of ids
 *     while (infer_sched_step(s)) ...;   // a step of all that are not done; the callbacks of the parameters get what comes
 *     if (infer_request_status(a)) ...   // what failed, alone; infer_request_why and the text tell the rest
 *     infer_request_free(a);
 *
 * An answer is the same whoever else is there. One thread calls these functions for one engine; infer_request_cancel alone may come from
 * another thread or a signal handler. docs/requests.md has a program of two. */
#pragma once
#include "infer.h"
#include "infer_sample.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- prompts: messages -> token ids, through a chat template, or a text as it is --------------------------------- */

struct json_t; /* of jansson */
struct infer_picture;

/* Rows of a prompt that are no tokens: those of a picture. */
struct infer_prompt_rows {
    int at, n;          /* in place of ids[at .. at + n), which are not read */
    const float *embed; /* embed[n][stride]: what infer_row.embed is of each */
    int stride;         /* 0: n_embd */
    /* Positions beside the first row's, axis[n][3] (infer_row.axis), and how many of them the rows take; NULL: n, one after the other */
    const int32_t (*axis)[3];
    int advance;
    bool both_ways; /* each of them sees all, infer_row.until: they are computed in one step */
};

struct infer_prompt {
    char *text; /* text[n_text], as the tokenizer gets it */
    size_t n_text;
    int32_t *ids; /* ids[n] */
    int n;
    struct infer_prompt_rows
        *rows; /* rows[n_rows]: of pictures; their embeddings come with infer_prompt_see */
    struct infer_picture **picture; /* picture[n_rows]: whose they are */
    int n_rows;
    int n_first; /* infer_request_params.n_first */
};
void infer_prompt_free(struct infer_prompt *p);

struct infer_prompt_template {
    const char *text; /* text[n], of the model's file or another; NULL: none */
    size_t n;
    bool no_thinking; /* enable_thinking is false */
    /* Of one conversation: further variables by name (tools, switches), NULL: none; and tail[n_tail], text behind what the template makes,
     * in which special tokens are text. */
    const struct json_t *variables;
    const char *tail;
    size_t n_tail, n_own;                 /* but for its first bytes, tail[n_own], where they are tokens */
    struct infer_picture *const *picture; /* picture[n_picture], which parts of messages name */
    int n_picture;
};

/* Renders messages (a JSON array of {role, content}) with the beginning of an answer behind them, or (generate false) without. content is
 * a text or a list of parts {type: "text", text} and {type: "image", picture: which of t->picture}. Where a template writes no place for a
 * picture, what its model reads around one stands in the text. errors: INFER_E_INPUT (the template's, no such picture),
 * INFER_E_UNSUPPORTED (no tokenizer; the vocabulary has no token for pictures), INFER_E_MEMORY */
enum infer_status infer_prompt_render(struct infer_prompt *p, const struct infer_model *m,
                                      const struct infer_prompt_template *t, struct json_t *messages,
                                      bool generate);
/* Its pictures are decoded and their rows computed, those that were not seen lately. errors: INFER_E_INPUT (a broken one), INFER_E_MEMORY, INFER_E_CANCEL, INFER_E_DEVICE, INFER_E_NAN */
enum infer_status infer_prompt_see(struct infer_prompt *p);
/* Text as it is; special tokens in it are text, or (special) tokens; what the model adds in front is added. */
enum infer_status infer_prompt_text(struct infer_prompt *p, const struct infer_model *m, const char *text,
                                    size_t n, bool special);

/* Appends {role, content[n]}; errors: INFER_E_INPUT (no UTF-8: names the byte), INFER_E_MEMORY */
enum infer_status infer_prompt_add_message(struct json_t *messages, const char *role, const char *content,
                                           size_t n);

/* How the template ends an answer: the control token behind it, or the text where the vocabulary has no such token. */
struct infer_turn_end {
    int32_t id;    /* -1: none was found */
    char text[64]; /* "": a token ends it, or nothing does */
};
/* Renders a short conversation and looks behind the answer in it. Nothing is found where the template refuses. */
struct infer_turn_end infer_prompt_turn_end(const struct infer_model *m,
                                            const struct infer_prompt_template *t);

/* What closes the thinking part that the end of a prompt opens; NULL: none is open. */
const char *infer_prompt_closing(const char *prompt, size_t n);
/* What ends thinking behind this prompt, for think_end: ids[most]; how many, 0: nothing is known that would. */
int infer_prompt_think_end(const struct infer_model *m, const struct infer_prompt *p, int32_t *ids, int most);

/* ---- pictures: files to rows of a prompt ---------------------------------------------------------------------- */

/* What sees for a model: a tower with its memory, and the rows that it made lately. Any number of threads may use one. */
struct infer_vision;
struct infer_vision_options {
    int max_tokens; /* rows of a picture, 0: the family's own number */
    int threads;    /* 0: as an engine's */
    /* where pictures are computed, a word of an engine's .device; NULL: on the CPU. The engine of a card that takes their rows has .inputs */
    const char *device;
    /* Limits of a file, 0: 20 MB, 64 million pixels; of rows that are kept for pictures that come again, 0: 256 MiB */
    size_t max_bytes;
    uint64_t max_pixels;
    size_t cache_bytes;
};
/* Opens an mmproj file, or a folder of Hugging Face that has a tower, for m, which outlives it. errors: INFER_E_IO, INFER_E_INPUT (broken, or
 * of another model), INFER_E_UNSUPPORTED, INFER_E_MEMORY */
enum infer_status infer_vision_open(struct infer_vision **out, const struct infer_model *m, const char *path,
                                    const struct infer_vision_options *options);
/* Its pictures have to be freed before. */
void infer_vision_close(struct infer_vision *v);
/* Of the files *mmproj*.gguf beside a model's the one whose name is most like its, the first of equals; or the model's folder itself. Into
 * path[n]; false: there is none. */
bool infer_vision_beside(const char *model, char *path, size_t n);
struct infer_vision_info {
    const char *projector, *path;      /* "qwen3vl_merger" */
    int max_tokens;                    /* of a picture */
    size_t weight_bytes, memory_bytes; /* of the file, which is mapped; taken, */
    size_t device_bytes;               /* of that on a card */
};
/* What infer_vision_open would take, of a card where card says so (this machine need not have one), of which an engine beside it leaves that
 * much (.vram_reserve). path is NULL. errors: as infer_vision_open */
enum infer_status infer_vision_plan(const struct infer_model *m, const char *path,
                                    const struct infer_vision_options *options, bool card,
                                    struct infer_vision_info *out);
void infer_vision_info(const struct infer_vision *v, struct infer_vision_info *out);
/* Ends the picture that is being computed, with INFER_E_CANCEL; async-signal-safe. */
void infer_vision_cancel(struct infer_vision *v);
/* From now on the rows of pictures are computed by whoever calls infer_vision_work, some seconds of it at a time, between steps of answers;
 * infer_picture_see and infer_prompt_see wait for that, and call news before. news NULL: they compute again themselves, and what waits ends
 * with INFER_E_CANCEL. Not beside infer_vision_work. */
void infer_vision_share(struct infer_vision *v, void (*news)(void *user), void *user);
/* false: no picture waits for it any more. */
bool infer_vision_work(struct infer_vision *v, double seconds);

enum {
    INFER_PICTURE_LOW = 1, /* roughly: its longer side has at most 512 pixels */
};
/* A picture of a file's bytes[n] (JPEG, PNG, WebP, GIF, BMP), which are copied, measured by its header: infer_prompt_see decodes it.
 * errors: INFER_E_INPUT and INFER_E_UNSUPPORTED (one line says what is wrong with it), INFER_E_MEMORY */
enum infer_status infer_picture_open(struct infer_picture **out, struct infer_vision *v, const void *bytes,
                                     size_t n, unsigned flags);
void infer_picture_free(struct infer_picture *p); /* prompts keep theirs */
/* Decodes it and computes its rows, where these pixels were not seen lately. errors: as infer_prompt_see */
enum infer_status infer_picture_see(struct infer_picture *p);
struct infer_picture_info {
    const char *kind;                       /* "JPEG" */
    int width, height, to_width, to_height; /* of the file, upright; as the model sees it */
    int n_token;                            /* of a prompt: its rows, and marks between them */
};
void infer_picture_info(const struct infer_picture *p, struct infer_picture_info *out);

/* ---- which tokens an answer may have: a grammar (GBNF, Lark, of a JSON Schema, a regular expression, tags), and texts that may not come -- */

struct infer_grammar; /* immutable, shared by constraints and threads */
enum infer_grammar_kind {
    INFER_GRAMMAR_TEXT, /* GBNF, rule root; or Lark, where it begins with "%" or its first rule has ":" and not "::=" */
    INFER_GRAMMAR_LARK,   /* Lark, rule start */
    INFER_GRAMMAR_SCHEMA, /* a JSON Schema: every text of the grammar parses and validates */
    INFER_GRAMMAR_REGEX, /* a regular expression that the whole answer matches: classes, \d \w \s (of ASCII; of Unicode behind (?u)), \pL,
                             groups, alternatives, counted repetitions, (?i) (?s) (?x), ^ and $ at the ends */
    INFER_GRAMMAR_TAGS,  /* a structural tag, JSON: free text and tags in it whose content has a form */
};
/* Compiles text[n], UTF-8. errors: INFER_E_INPUT (syntax, with line, character or place; unknown names; a rule that begins with itself and
 * has no other text; budgets), INFER_E_UNSUPPORTED (names the keyword or the construct and its place), INFER_E_MEMORY. */
enum infer_status infer_grammar_open(struct infer_grammar **out, enum infer_grammar_kind kind,
                                     const char *text, size_t n);
/* infer_grammar_open of GBNF alone, and of a schema. */
enum infer_status infer_grammar_from_gbnf(struct infer_grammar **out, const char *text, size_t n);
enum infer_status infer_grammar_from_schema(struct infer_grammar **out, const char *json, size_t n);
void infer_grammar_free(struct infer_grammar *g);

/* The vocabulary of a model as grammars need it; immutable, shared by the constraints of all requests. errors: INFER_E_MEMORY */
struct infer_grammar_vocab;
enum infer_status infer_grammar_vocab_open(struct infer_grammar_vocab **out, const struct infer_model *m);
void infer_grammar_vocab_close(struct infer_grammar_vocab *v);

/* Follows one answer at a time. g and v outlive it. errors: INFER_E_MEMORY, INFER_E_INPUT (the grammar branches too much at its start) */
struct infer_constraint;
enum infer_status infer_constraint_open(struct infer_constraint **out, const struct infer_grammar *g,
                                        const struct infer_grammar_vocab *v, int n_vocab);
void infer_constraint_close(struct infer_constraint *c);

/* Texts that an answer must not hold, whatever tokens they would be made of; immutable, shared by requests. text[n], of 1 to INFER_AVOID_BYTES
 * bytes each, at most INFER_AVOID_TEXTS. Looks at the vocabulary once a text. errors: INFER_E_INPUT, INFER_E_MEMORY */
enum { INFER_AVOID_TEXTS = 64, INFER_AVOID_BYTES = 128 };
struct infer_avoid;
enum infer_status infer_avoid_open(struct infer_avoid **out, const struct infer_model *m,
                                   const char *const *text, int n);
void infer_avoid_close(struct infer_avoid *a);

/* ---- what a request asks for -------------------------------------------------------------------------------------- */

enum infer_answer_start {
    INFER_ANSWER_PLAIN,   /* all of the text is the answer */
    INFER_ANSWER_MAYBE,   /* it may begin with a thinking part */
    INFER_ANSWER_THINKING /* the prompt has opened a thinking part */
};
enum { INFER_REQUEST_DRAFT = 6 }; /* most tokens that are guessed at once */

/* Who guesses what follows, so that several tokens are checked in one step. */
enum infer_request_drafter {
    INFER_DRAFT_NONE,
    INFER_DRAFT_LOOKUP, /* the text so far: what stood behind its last three tokens before */
    INFER_DRAFT_MODEL,  /* the model of infer_sched_draft_with */
};

/* What becomes of the prompt: an answer, or numbers alone (infer_request_made), after which the request is done (INFER_REQUEST_LIMIT). */
enum infer_request_make {
    INFER_MAKE_ANSWER,
    /* the hidden row of its last token, with what the model has behind that, [n_vector] (struct infer_model_info); as the next two with an
     * engine that was made with .hidden, or of an encoder */
    INFER_MAKE_LAST,
    INFER_MAKE_FIRST,  /* of its first */
    INFER_MAKE_MEAN,   /* the mean of all of them */
    INFER_MAKE_LOGITS, /* the logits of make_id[n_make_id] behind its last token */
};

/* How a model's file has the rows of a text pooled; the last one where it says nothing. */
enum infer_request_make infer_model_makes(const struct infer_model_info *m);

/* What happens when the context is full. */
enum infer_request_overflow {
    INFER_OVERFLOW_END,   /* the answer ends (INFER_REQUEST_FULL) */
    INFER_OVERFLOW_SHIFT, /* its older half, but for its first token, is dropped and the rest computed again */
};

/* Texts, lists and the constraint are the caller's and have to live until infer_request_free; ids are copied. */
struct infer_request_params {
    int seq; /* an open sequence of the engine, of this request alone until it is done; -1: one that is taken when there is a slot and
                pages for it, and given back when it is done */
    /* of seq -1 and of what is put aside: among whose pages the beginning of the prompt is looked for, and by which adapters it is answered
     * (prefix.adapter is the caller's until infer_request_free, too) */
    struct infer_prefix prefix;
    int priority; /* who waits, the greatest first; the least are put aside when pages run out */
    const int32_t
        *ids; /* the prompt, ids[n_id]: what the sequence holds of it already is not computed again */
    int n_id;
    /* rows[n_rows] of it that are no tokens, in their order; the caller's. What is known of such a prompt does not go to a smaller model
     * that drafts, a full context ends the answer, and its tokens are not scored */
    const struct infer_prompt_rows *rows;
    int n_rows;
    struct infer_sample_params sample;   /* without dry_breaker, which the vocabulary gives */
    struct infer_constraint *constraint; /* NULL: every token may come */
    const struct infer_avoid *avoid;     /* NULL: every text may come */
    const char *const *stop;             /* stop[n_stop]: the answer ends before any of these texts */
    int n_stop;
    int32_t end_id;         /* a token that ends the answer beside those of the model; -1: none */
    const int32_t *end_ids; /* further such tokens, end_ids[n_end_id] */
    int n_end_id;
    bool special;                  /* control tokens are part of the text */
    enum infer_answer_start start; /* how the answer begins, which the prompt decides */
    bool first; /* its first token begins a text: a leading space of SentencePiece is dropped */
    enum infer_request_make make;
    int n_first; /* of an encoder: the first so many tokens are the first of two texts; 0: there is one */
    const int32_t *make_id; /* make_id[n_make_id] */
    int n_make_id;
    int min_tokens; /* before so many nothing but a limit ends the answer; not under a grammar */
    int n_predict;  /* most tokens of the answer; -1: no limit */
    enum infer_request_overflow overflow;
    bool loop_stop; /* an answer ends whose last 256 tokens or more are one cycle, four times at least */
    /* answers have the tokens that they have without; how many are guessed, if any, follows from what steps take and how many were right */
    enum infer_request_drafter drafter;
    /* what the answer is thought to be, told[n_told]: guesses follow it as far as the answer does, and come from elsewhere where it has left
     * it; drafter is INFER_DRAFT_LOOKUP then. n_told 0: nothing is */
    const int32_t *told;
    int n_told;
    int n_draft;  /* most tokens guessed at once; 0: INFER_REQUEST_DRAFT */
    bool no_turn; /* for measuring: no token ends the answer's turn */
    /* for measuring: whether a guess counts as right, and stands in the answer then, in place of comparing it with what was chosen; NULL: by
     * comparing. n_draft, if it is not 0, are guessed then whenever they can be, whatever that brings */
    bool (*holds)(void *user, int32_t chosen, int32_t guess);
    int n_logprob; /* log probabilities with so many alternatives; -1: none */
    /* the prompt's tokens have them, too (infer_request_scores); slow: a step gives few rows of logits */
    bool score;
    /* A budget of thinking, in tokens or in seconds from its first one, whichever is used up first. In its last tenth the mark that ends
     * thinking becomes likelier from token to token (up to 10 more of its logit), and thinking ends where a sentence does; at the latest it
     * ends when the budget has. A thought that goes in circles (128 tokens of one cycle, four times at least) ends as well; without a budget,
     * one that loop_stop would end the answer for. Then think_end's tokens are the answer's next ones, and no other thought begins. thinks
     * tells whether a token that was told to on_token is one of thinking, for a reader that takes them apart itself (start
     * INFER_ANSWER_PLAIN); NULL: by start. */
    int n_think;              /* 0: no limit */
    double think_seconds;     /* 0: no limit */
    const int32_t *think_end; /* think_end[n_think_end]; 0: nothing of this */
    int n_think_end;
    bool (*thinks)(void *user);
    /* With a constraint: it does not hold until this, asked behind each token, gives a text; then for what follows, as if that text had
     * come first. NULL: from the beginning. */
    const char *(*wakes)(void *user);
    /* Called by infer_sched_step, and none after the request is done; each may be NULL. token: one of the answer, before its text. text:
     * the next part that can be shown, all of it answer or all of it thinking; an error ends the request with it. prompt: tokens of
     * the prompt computed now, of those that have to be: from 0 to n. */
    void (*on_token)(void *user, int32_t id);
    enum infer_status (*on_text)(void *user, const char *text, size_t n, bool thinking);
    void (*on_prompt)(void *user, int done, int n);
    void *user;
};

/* A greedy request without limits, which takes a sequence when one is free; without a prompt. */
struct infer_request_params infer_request_defaults(void);
/* Its prompt is this one, which outlives it; chat: rendered messages, so that the answer begins a text and may think first. */
void infer_request_prompt(struct infer_request_params *p, const struct infer_prompt *prompt, bool chat);
/* True when the device chooses the tokens: nothing needs a row of logits. */
bool infer_request_is_greedy(const struct infer_request_params *p);

/* ---- requests of one engine, side by side --------------------------------------------------------------------------- */

struct infer_sched; /* what the requests of one engine share */
struct infer_request;

/* errors: INFER_E_MEMORY */
enum infer_status infer_sched_open(struct infer_sched **out, struct infer_engine *e,
                                   const struct infer_model *m);
/* Frees the requests that are left, too. */
void infer_sched_close(struct infer_sched *s);
/* Requests with INFER_DRAFT_MODEL have their guesses from this engine, of a model with the same vocabulary (infer_vocab_same) or of layers that
 * draft (infer_model_draft; s's engine was made with .hidden then), with as many slots and INFER_REQUEST_DRAFT + 1 decode rows, better as many as
 * s's engine has: requests guess side by side; it serves nobody else and outlives s. Where s's model keeps states, half of its decode rows
 * beyond one a slot are for rows behind wrong guesses, which are computed once more. errors: INFER_E_MEMORY */
enum infer_status infer_sched_draft_with(struct infer_sched *s, struct infer_engine *e,
                                         const struct infer_model *m);
/* One step: rows of every request that is not done go to the engine together, results come back. False: nothing was left to do. What
 * fails ends the requests in question (INFER_REQUEST_FAILED). */
bool infer_sched_step(struct infer_sched *s);

/* True when no step is in flight and nothing is half taken out of .kv_store, so that something else may be asked of the engine; else no step
 * is queued ahead until that is so. */
bool infer_sched_rests(struct infer_sched *s);

/* Seconds of a step with so many rows that decode and none of a prompt, or (guess) of one that guesses, as seen lately; 0: none was. */
double infer_sched_seconds(const struct infer_sched *s, bool guess, int rows);

/* Rows of prompts in a step in which others decode: at most `rows` (0: as many as a step has), and no more than keep it, as measured so
 * far, under so many milliseconds (0: no matter), at least 64. What no prompt may hold up for long is the tokens of the others. */
void infer_sched_pace(struct infer_sched *s, int rows, double milliseconds);

/* errors: INFER_E_INPUT (no prompt, a token outside of the vocabulary, parameters out of range, the sequence is not open or is another request's), INFER_E_FULL (a
 * prompt longer than the context or than all pages: both numbers), INFER_E_MEMORY, those of infer_seq_rewind */
enum infer_status infer_request_new(struct infer_request **out, struct infer_sched *s,
                                    const struct infer_request_params *p);
/* The same with messages (infer_prompt_render) as its prompt, through the chat template of the model's file. errors: its, too */
enum infer_status infer_request_chat(struct infer_request **out, struct infer_sched *s,
                                     const struct infer_request_params *p, struct json_t *messages);
/* Of a request that is not done too; a step that it is in is waited for, and may call back others. r NULL: nothing. */
void infer_request_free(struct infer_request *r);
/* Steps until this one is done; infer_request_status. */
enum infer_status infer_request_run(struct infer_request *r);

/* Ends it before its next row; what was answered is kept. Async-signal-safe; infer_cancel beside it stops the step that runs, which
 * is repeated for the other requests. */
void infer_request_cancel(struct infer_request *r);

/* Why an answer ended. */
enum infer_request_why {
    INFER_REQUEST_RUNS,      /* it has not */
    INFER_REQUEST_TURN,      /* the model ended its turn */
    INFER_REQUEST_STOP,      /* a stop text */
    INFER_REQUEST_LIMIT,     /* n_predict */
    INFER_REQUEST_FULL,      /* the context is full, or no page is left and nobody else has one */
    INFER_REQUEST_CANCELLED, /* infer_request_cancel */
    INFER_REQUEST_LOOP,      /* it repeats itself */
    INFER_REQUEST_FAILED,    /* infer_request_status says how */
};
enum infer_request_why infer_request_why(const struct infer_request *r);
/* It has ended and no step has anything of it: its sequence holds the prompt and the answer but for its last tokens. */
bool infer_request_done(const struct infer_request *r);
/* INFER_OK, or what ended it, with its message as this thread's. */
enum infer_status infer_request_status(const struct infer_request *r);

/* The answer so far, or what the model thought before it (thinking), text[*n], whole when it has ended; a view until the next step. */
const char *infer_request_text(const struct infer_request *r, bool thinking, size_t *n);

/* How likely the model held each token, and the n_top likeliest ones at its place: ln of the softmax over all of the model's logits, before
 * biases, penalties, temperature, filters and grammar; the same for any number of threads. */
enum { INFER_LOGPROBS_MAX = 20 }; /* most alternatives */
struct infer_logprob {
    int32_t id;
    float logprob;
};
struct infer_logprobs {
    int n_top;  /* -1: off */
    int n, cap; /* tokens so far */
    /* row[n][1 + n_top]: the chosen token, then the likeliest, the lowest id first on ties */
    struct infer_logprob *row;
};

/* The tokens so far in the order of the answer: entries [1 + n_top], the chosen token first; id -1: none. */
const struct infer_logprob *infer_logprobs_at(const struct infer_logprobs *p, int i);
/* Of the answer's tokens; n_top -1 without n_logprob. */
const struct infer_logprobs *infer_request_logprobs(const struct infer_request *r);

/* Of the prompt's tokens from the second on (score), once the prompt is computed. */
const struct infer_logprobs *infer_request_scores(const struct infer_request *r);

/* Of a request that makes numbers alone (make), made[n], once it is done with INFER_REQUEST_LIMIT. */
const float *infer_request_made(const struct infer_request *r, int *n);

struct infer_request_figures {
    int n_reused, n_prompt;  /* tokens of the prompt: found in the sequence, computed */
    int n_answer, n_decoded; /* tokens of the answer; those that decoding made, all but the first */
    int n_held;              /* tokens that the sequence holds */
    int n_step;              /* decode steps */
    int n_guessed, n_right;  /* tokens that were guessed, and those of them that were right */
    int n_aside;             /* how often it gave its pages to others, and was computed again */
    int n_shift;             /* how often a full context was shortened */
    int32_t end_id;          /* the token that ended the turn; -1: none did */
    int stop;                /* which of .stop ended the answer; -1: none did */
    int cycle;               /* tokens of the cycle that the answer repeated in the end; 0: none */
    int n_thought;           /* tokens of thinking, with a budget */
    bool thought_ended;      /* by think_end */
    double prompt_seconds, answer_seconds; /* in steps that it was in, and in guessing for it */
    int n_even, n_even_step; /* of n_decoded and n_step: but for steps in which a host copied weights */
    double even_seconds;     /* and of answer_seconds */
    double plain_seconds;    /* the shortest step without guesses behind the first ones; 0: there was none */
};
const struct infer_request_figures *infer_request_figures(const struct infer_request *r);

#ifdef __cplusplus
}
#endif
