/* The seam between the APIs that clients speak and the server: an API is one struct front_end in a file of its own (openai_chat.c is one),
 * named in the table of routes.
 *
 *     read    prepare thread   body -> job->ask; refuses (job_refuse), warns (job_warn)
 *     begin   HTTP thread      the answer begins: headers have gone out. Streams only
 *     event   HTTP thread      one thing that happened -> server-sent events. Streams only
 *     whole   HTTP thread      all that happened, added up -> the object of an answer that does not stream
 *     error   any thread       a refusal -> body of an error, or (in_stream) the event that ends a stream
 *
 * Events of one choice come in their order: reasoning and text in pieces, calls one after another (EVENT_CALL, any number of EVENT_ARGS,
 * EVENT_CALL_END), last EVENT_END; of several choices they mix. Behind the last choice's end comes one EVENT_DONE, or somewhere one error
 * instead: `error`, after which nothing comes. What events have said is also added up in job_answer, before the front end sees them. */
#pragma once
#include "serve/core/job.h"
#include "serve/json_put.h"

/* A token of the answer (or, with echo, of the prompt) with its log probability; top[n_top]: the likeliest at its place. */
struct event_token {
    int32_t id;
    const char *piece; /* piece[n]: its bytes */
    size_t n;
    float logprob; /* NAN: of the first token of a prompt there is none */
    const struct infer_logprob *top;
    int n_top;
};

enum event_kind {
    EVENT_PROGRESS,  /* part of the prompt is computed: done, total, cached */
    EVENT_REASONING, /* text[n] */
    EVENT_TEXT,      /* text[n] */
    EVENT_CALL,      /* a call begins: text[n] is its name, call and call_id */
    EVENT_ARGS,      /* text[n] is the next part of its arguments, JSON */
    EVENT_CALL_END,
    EVENT_END,  /* the choice has ended: finish, stop_text or stop_id */
    EVENT_DONE, /* all have: job->counts is complete */
    EVENT_PING, /* nothing for 15 s: say so in the API's way */
};

struct event {
    enum event_kind kind;
    int choice; /* 0 .. */
    const char
        *text; /* text[n]: whole UTF-8 characters, but for EVENT_ARGS as a whole; valid during the call */
    size_t n;
    /* token[n_token]: those that text is of, when log probabilities or ids are asked for */
    const struct event_token *token;
    int n_token;
    int call;            /* 0, 1, .. in its choice */
    const char *call_id; /* call_prefix and 24 of [a-z0-9], or the model's own */
    enum job_finish finish;
    const char *stop_text; /* that ended it; NULL: none */
    int32_t stop_id;       /* of stop_token_ids; -1: none */
    bool looped;           /* it repeated itself without end */
    int done, total, cached;
    double ms; /* since the request arrived */
};

/* What a choice's events have said so far. */
struct answer_call {
    struct buf name, args, id;
};
struct job_answer {
    struct buf reasoning, text;
    struct answer_call *call; /* call[n_call] */
    int n_call;
    /* token[n_token], with echo those of the prompt first; views that live as long as the job */
    struct event_token *token;
    int n_token;
    enum job_finish finish;
    const char *stop_text;
    int32_t stop_id;
    int lane; /* where it was noted (lanes.h), -1: nowhere */
};
const struct job_answer *job_answer(const struct job *j, int choice);

struct front_end {
    const char *prefix;      /* of ids: "chatcmpl-" */
    const char *call_prefix; /* of the ids of calls: "call_"; NULL: none */
    const char *stream_type; /* of a stream's content; NULL: server-sent events */
    /* `event` is called for whole answers too, what it writes is dropped: `whole` needs their order */
    bool ordered;
    bool bodyless; /* no body is {} */
    bool list;     /* the body may be an array */
    size_t state;  /* bytes of job->state, which are zeros when read is called; 0: it has none */
    /* errors: INFER_E_INPUT after job_refuse, INFER_E_MEMORY */
    enum infer_status (*read)(struct job *j, const json_t *body);
    /* NULL: the request is queued and answered. Else the prepare thread asks this for the body, once prompts are made (those that the ask
     * has), and that is all: count_tokens. errors: as read */
    enum infer_status (*reply)(struct job *j, struct buf *out);
    void (*begin)(struct job *j, struct buf *out); /* NULL: nothing is to be said */
    void (*event)(struct job *j, const struct event *e, struct buf *out);
    void (*whole)(struct job *j, struct buf *out);
    /* j NULL: before there was one (a guard) */
    void (*error)(const struct job *j, const struct refusal *r, const char *request_id, bool in_stream,
                  struct buf *out);
    void (*done)(struct job *j); /* frees what job->state holds; NULL: nothing */
    /* It is about models, not for one: of a server of several `reply`, or (NULL) the stream of events, is the front's (house.h). */
    bool of_house;
    bool keeps; /* its requests say how long their model stays (keep_alive), where several are served */
    /* Of those whether one asks for nothing else, and its answer, why: "load" or "unload". NULL: none does */
    bool (*loads_only)(const json_t *body);
    void (*loaded)(const struct job *j, const char *why, struct buf *out);
};
