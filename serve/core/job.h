/* One request of a client on its way: a front end (frontend.h) fills `ask` from JSON, the prepare thread makes prompts of it, the engine
 * thread answers, and what comes goes back to the front end as events. Nothing below the front ends knows which API it was.
 *
 * Who touches what: until it is queued, the prepare thread alone; then `ask` and what was made of it are read only, the engine thread adds
 * to each choice's log under its lock, and the HTTP thread of the connection reads it there (answer_log.h). */
#pragma once
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include "infer_request.h"
#include "serve/buf.h"

enum {
    JOB_STOPS = 16, /* stop texts of a request, of 1 to JOB_STOP_BYTES bytes */
    JOB_STOP_BYTES = 256,
    JOB_CHOICES = 16, /* n */
    JOB_PROMPTS = 64, /* of /v1/completions */
    JOB_BIASES = 1024,
    JOB_STOP_IDS = 64,
    JOB_TOOLS = 128,
    JOB_MESSAGES = 4096,
    JOB_PICTURES = 64,
    JOB_ID = 24, /* of [a-z0-9] */
};

/* Why a request is refused or has failed, in the words of OpenAI's errors; each front end makes its own body of it. */
struct refusal {
    int status;       /* of HTTP; 0: nothing is wrong */
    const char *type; /* "invalid_request_error" */
    const char *code; /* "invalid_value"; NULL: none */
    char param[128];  /* "messages[3].content"; "": none */
    char message[640];
    int retry_ms; /* when to come again; 0: not said */
    /* context_length_exceeded: tokens of the prompt, and those there is room for; else 0 */
    int n_prompt, n_limit;
};

/* A prompt that no template makes. */
struct ask_prompt {
    char *text; /* text[n]; NULL: ids */
    size_t n;
    int32_t *ids; /* ids[n_id] */
    int n_id;
    int n_first; /* infer_request_params.n_first */
};

/* A picture of a message, and its place for messages. */
struct ask_picture {
    struct infer_picture *picture;
    char at[96];
};

/* A file that a request names by its address. */
struct job_file {
    char *url;
    char *bytes; /* bytes[n]; NULL: it is to be fetched, or .why says why it cannot be */
    size_t n;
    char *why;
};

enum ask_tools { TOOLS_NONE, TOOLS_AUTO, TOOLS_REQUIRED, TOOLS_NAMED };

/* What a client asks for. json_begin has put the server's defaults in; a front end changes what its fields say. */
struct ask {
    /* The prompt: messages for the chat template of the file, or prompts[n_prompt] as they are. Messages have the shape that templates
     * read, [{role, content: text, and where they are there reasoning_content: text, tool_calls: [{id, type: "function", function: {name,
     * arguments: text or object}}], tool_call_id: text, name: text}]; content null and parts {type: "text"} are made fit later;
     * parts {type: "image", picture: which of picture} stay. */
    json_t *messages;
    json_t *tools;     /* [{type: "function", function: {name, description, parameters}}], NULL: none */
    json_t *variables; /* further ones of the template by name, scalars; NULL: none */
    bool go_on;        /* the last message is the assistant's, and its text goes on */
    bool no_turn;      /* no beginning of an answer behind the messages (add_generation_prompt false) */
    struct ask_picture *picture; /* picture[n_picture] */
    int n_picture;
    struct ask_prompt *prompt; /* prompt[n_prompt] */
    int n_prompt;
    /* ids of an earlier answer that stand in front of the prompt, context[n_context]; NULL: none */
    int32_t *context;
    int n_context;
    bool add_special; /* what the model adds goes in front (tokenize) */
    bool plain_text;  /* special tokens in prompts are text */

    /* The answer. */
    int n; /* choices of each prompt */
    /* What each choice asks of the engine. The prepare thread completes it; ids, seed, constraint and callbacks are the choice's own.
     * n_predict -1: the room that is left, 0: none, the prompt is scored. loop_stop goes where length as such is asked for. */
    struct infer_request_params params;
    struct infer_sample_bias *bias; /* params.sample.bias (ask_bias) */
    char *stop[JOB_STOPS];
    int n_stop;
    int32_t stop_id[JOB_STOP_IDS]; /* params.end_ids */
    bool *allowed;                 /* allowed[n_vocab]: the tokens that may come; NULL: all */
    char *bad[INFER_AVOID_TEXTS];  /* texts that may not, bad[n_bad] */
    int n_bad;
    bool ignore_eos;
    bool echo;   /* the prompt is part of the answer */
    int best_of; /* 0: not said */
    /* What the answer has to be, or NULL: a grammar, a schema ("{}": any value), ..; and the field that said so. */
    char *form;
    enum infer_grammar_kind form_kind;
    char form_at[40];

    /* Tools and reasoning. */
    enum ask_tools tool_choice;
    char tool_name[129]; /* TOOLS_NAMED */
    bool parallel_calls;
    bool strict_tools;
    char effort[12];          /* reasoning: "" the template's own, "none", "low", .. */
    bool thinking_hidden;     /* it is not told */
    bool thinking_as_content; /* reasoning_format none: nothing is told apart */
    int n_think;              /* most tokens of reasoning; -1: no limit */
    float think_seconds;      /* most seconds of it; 0: no limit */

    /* How it is told. */
    bool stream;
    bool usage_chunk; /* stream_options.include_usage */
    bool energy;      /* include_energy */
    bool progress;    /* return_progress */
    bool return_ids;  /* return_token_ids */
    char *prediction; /* what the answer is thought to be, NULL: nothing is said; params.told */
    int32_t *told;
    bool no_drafts; /* nobody guesses tokens; params.n_draft: at most so many at once */

    /* scales of all adapters; NULL: there are none, or nothing is said yet */
    float *adapter;
    bool lora_said;     /* the request names them */
    int id_slot;        /* the lane that it is noted in (lanes.h); -1: any */
    int32_t make_id[2]; /* params.make_id */
    char model[257];    /* as the client says it; "": nothing */
};
/* Adds a bias. errors: INFER_E_MEMORY */
enum infer_status ask_bias(struct ask *a, int32_t id, float bias);

enum job_finish {
    FINISH_NONE,
    FINISH_STOP,   /* the model's turn ended, or a stop text came */
    FINISH_LENGTH, /* most tokens, or the context is full */
    FINISH_CALLS,  /* it calls tools */
};

/* One answer: choice c of prompt p has index p * n + c. */
struct choice;

struct job_counts {
    int prompt, cached;    /* tokens of the prompts; those of them that had not to be computed */
    int answer, reasoning; /* tokens of all answers */
    /* until it began; in its steps; from its arrival to the first token */
    double queue_ms, prompt_ms, answer_ms, first_ms;
    int n_decoded;
    double joules;      /* its share, where it asked; NAN: not counted */
    int guessed, right; /* tokens that were guessed, and those of them that were right */
};

/* Who comes first in the queue. */
enum { CLASS_FLEX = -1, CLASS_DEFAULT, CLASS_PRIORITY };

struct server;
struct front_end;
struct job {
    struct server *server;
    const struct front_end *front;
    char id[40];               /* 24 of [a-z0-9] behind the front end's prefix */
    char request_id[72];       /* x-request-id */
    char rest[24], action[24]; /* what stands behind the route's path, and ?action= */
    long created;              /* seconds of the calendar */
    char *body;                /* body[n_body], until it is read */
    size_t n_body;
    /* file[n_file]: fetched. fetches: one more is wanted, after which `again`, the body, is read anew */
    struct job_file *file;
    int n_file;
    bool fetches;
    json_t *again;
    size_t body_held;         /* bytes that it takes of the memory for bodies */
    double arrived, deadline; /* host_seconds */
    /* seconds after which the client leaves, if the answer does not stream; 0: not said */
    double read_timeout;
    int key;   /* whose; -1: nobody's */
    int class; /* CLASS_.. */
    struct ask ask;
    atomic_ullong rows; /* tokens computed for it */
    bool counts_energy; /* from these on */
    double joules_before;
    unsigned long long rows_before;
    void *state; /* the front end's */

    /* prepared */
    struct infer_prompt *prompt; /* prompt[n_prompt] */
    int n_prompt;
    struct choice *choice; /* choice[n_choice] */
    int n_choice;
    struct infer_grammar *grammar; /* kept's */
    struct kept_grammar *kept;
    bool parsed;                     /* choices have parsers (tool_job.h), which begin at tool_start */
    int tool_start;                  /* enum tool_start */
    bool wakes;                      /* the grammar holds from the first call on */
    int32_t *think_end;              /* params.think_end */
    const char *stop[JOB_STOPS + 1]; /* the client's, and the text that ends a turn: stop[n_stop] */
    int n_stop;
    struct infer_avoid *avoid; /* of ask.bad; NULL: none */
    int n_predict;             /* most tokens of a choice, with the room that there is */
    struct buf warnings;       /* "field: reason; .." */
    uint64_t seed;
    uint64_t loras;   /* bits of the places that it has (loras.c) */
    uint64_t salt;    /* of the prefix cache: of the key and cache_salt */
    struct buf reply; /* of a front end that has `reply` */

    struct refusal refusal; /* status 0: none. Written before `stage` says so */
    struct job_counts counts;

    atomic_int refs;
    atomic_int cancelled; /* enum job_cancel */
    atomic_int reached;   /* enum metric_state */
    pthread_mutex_t lock; /* of what follows, and of the choices' logs */
    int stage;            /* enum job_stage */
    void *parked;         /* struct MHD_Connection that waits for it; NULL: none */
    int n_done;           /* choices that have ended */
    struct job *next;     /* of the queue that it is in */
    struct job *wake;     /* of the waker's list */
    bool waking;
    bool streams;    /* its answer is a stream, begun or waiting for its first words */
    bool ping;       /* it has been silent for long */
    bool half;       /* nothing more comes from its client, which may be gone, or wait for the answer */
    bool may_ask;    /* the client takes a sign of life before an answer that does not stream (watch_ask) */
    double wrote;    /* when something was written last */
    bool loads_only; /* it is answered once its model is there */
    bool feeds;      /* it is a stream of what `feed` gets, as it is, until its client leaves or it fails */
    struct buf feed;
};

/* What is said of an answer that repeated itself. */
#define JOB_LOOPED "the answer repeats itself without end and was stopped (loop_stop false lets it go on)"

/* Of all its prompts, once they are made. */
int job_prompt_tokens(const struct job *j);
/* Its body has been read. */
void job_drop_body(struct job *j);
/* Notes that a field of the request does not do what it says: goes into x-infer-warning and infer.warnings. */
void job_warn(struct job *j, const char *field, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A refusal, with the type that goes with its status; param may be NULL. */
void refusal_make(struct refusal *r, int status, const char *code, const char *param, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* Refuses the request: param may be NULL. Returns INFER_E_INPUT, so that a reader can return it. The first refusal stays. */
enum infer_status job_refuse(struct job *j, int status, const char *code, const char *param,
                             const char *format, ...) __attribute__((format(printf, 5, 6)));
/* A field that is not as it has to be. */
#define job_invalid(j, param, ...) job_refuse(j, 400, "invalid_value", param, __VA_ARGS__)
