/* One model and its engine: what the threads of the server share. A server of several models (house.h) is one that has the HTTP side and no
 * model, and one for each model behind it. */
#pragma once
#include "infer_request.h"
#include "serve/core/grammars.h"
#include "serve/core/job.h"
#include "serve/core/metrics.h"
#include "serve/core/turns.h"
#include "serve/toolcall/tool_probe.h"
#include "tools/adapters.h"

enum { SERVE_LISTEN = 4, SERVE_NAMES = 16, SERVE_TEXTS = 16 };

/* What the command line says; texts live as long as the server. */
struct serve_options {
    const char
        *listen[SERVE_LISTEN]; /* "127.0.0.1:8080", "[::1]:0", "unix:/run/infer.sock"; listen[n_listen] */
    int n_listen;
    const char *api_key_file; /* NULL: none */
    bool insecure;            /* an address that is not this machine's alone, without keys */
    const char *host_name[SERVE_TEXTS];
    int n_host_name;
    const char *cors_origin[SERVE_TEXTS];
    int n_cors_origin;
    const char *tls_cert, *tls_key; /* files; NULL: none */
    const char *model_name;         /* NAME,ALIAS,..; NULL: the file's name */
    const char *image_urls;         /* hosts from which pictures are fetched, HOST,HOST:PORT; NULL: none */
    bool strict_model, strict_fields;
    int queue;            /* jobs that wait at most */
    int key_max;          /* requests of a key that are here at most; 0: no limit */
    uint64_t body_memory; /* bytes of the bodies that are being read; 0: BODY_MEMORY */
    double timeout;       /* seconds of a request */
    double drain;         /* seconds that running ones have after SIGTERM */
    /* to send a request's head; its body, and a second a MiB; 0: 10 and 30 */
    double head_seconds, body_seconds;
    bool metrics, no_page;
    bool cache_exact; /* prefixes that were computed as prompts alone */
    bool log_json, log_off;
    /* Of requests that say nothing of it: */
    /* sets the samplers that hold instead of the file's; NULL: none */
    void (*sampling)(const struct options *given, struct infer_sample_params *p);
    const struct options *given;
    const char *system;        /* NULL: none */
    const char *template_file; /* instead of the file's own template; NULL: none */
    enum serve_thinking {
        THINKING_UNSAID,
        THINKING_ON,
        THINKING_OFF,
        THINKING_SHOWN,
        THINKING_HIDDEN
    } thinking;
    int think_budget;        /* tokens of reasoning where a request says nothing; 0: no limit */
    double think_seconds;    /* 0: no limit */
    const char *slot_folder; /* of files of lanes; NULL: none */
    const char *log_prompts; /* file for texts of prompts and answers; NULL: none */
    bool quiet;
};

enum server_state { SERVER_LOADING, SERVER_READY, SERVER_DRAINING, SERVER_LOST };

struct engine_port;
struct lane_order;
struct house;
struct keys;
struct timeline;
struct web;
struct scheduler;
struct loras;
struct prepare;
struct server {
    struct serve_options o;
    atomic_int state; /* enum server_state */
    long created;
    /* of the model, from SERVER_READY on */
    const struct infer_model *model;
    struct infer_model_info info;
    struct infer_vision *vision;           /* the caller's; NULL: it reads text alone */
    struct infer_prompt_template template; /* text NULL: the file has none */
    char *template_text;                   /* of o.template_file; NULL: the file's own holds */
    struct infer_turn_end end;             /* how the template ends a turn */
    struct tool_probe tools;               /* what it knows of tools and reasoning */
    char name[257];                        /* of the model, as answers have it */
    char names[SERVE_NAMES][257];          /* name and aliases, names[n_name] */
    int n_name;
    char fingerprint[24];
    struct infer_sample_params sample; /* where a client says nothing */
    struct engine_port *port;
    int n_ctx, n_slot;
    bool guesses; /* as the port has it */
    /* the caller's, set before the model is taken; NULL: none. scale[n]: of requests that say nothing, under vocab_lock */
    const struct adapter_list *adapters;
    float scale[ADAPTERS_MAX];
    struct loras *loras; /* that come and go; NULL: none do (loras.c) */
    pthread_mutex_t vocab_lock;
    struct infer_grammar_vocab *vocab; /* for grammars; NULL: not needed yet */
    struct grammars *grammars;         /* that requests have asked for */
    struct prompt_log *prompts;        /* --log-prompts; NULL: none */
    /* the caller's: of --profile and --trace; NULL: nobody asks */
    struct infer_profile *profile;
    const struct trace_extra *counters; /* beside its steps; NULL: none */
    struct timeline *timeline;

    struct keys *keys;           /* NULL: none */
    struct web *web;             /* the HTTP side */
    struct prepare *prepare;     /* bodies -> jobs */
    struct scheduler *scheduler; /* jobs -> answers: the engine thread */
    struct metrics metrics;
    atomic_size_t body_bytes; /* of bodies that are being read */

    struct house *house; /* that it is of, or (member -1) that it opens to; NULL: it has one model, its own */
    int member;
    struct turns *turns; /* that it shares with others; NULL: with none */
    struct turn turn;
};

/* Opens sockets and starts the HTTP threads; the state is SERVER_LOADING. errors: INFER_E_UNSUPPORTED (no libmicrohttpd), INFER_E_INPUT
 * (addresses, keys, certificates), INFER_E_IO (an address in use), INFER_E_MEMORY */
enum infer_status server_open(struct server *s, const struct serve_options *o);
/* Takes the model, which stays the caller's, and who computes; requests are answered from now on. file: the model's path. */
enum infer_status server_ready(struct server *s, const struct infer_model *m, struct engine_port *port,
                               const char *file);
/* The first half of it: requests can be prepared, and nobody answers. */
enum infer_status server_take_model(struct server *s, const struct infer_model *m, struct engine_port *port,
                                    const char *file);
/* Lets go of it and of the port, when no job of it is left; the metrics stay. */
void server_leave_model(struct server *s);
/* server_take_model, and jobs of it are answered. */
enum infer_status server_begin_model(struct server *s, const struct infer_model *m, struct engine_port *port,
                                     const char *file);
/* Requests are taken from now on, each for a model of the house. errors: INFER_E_MEMORY */
enum infer_status server_open_house(struct server *s, struct house *h);
/* Waits for SIGTERM or SIGINT, or for the loss of the device, ends what runs and stops; the exit code: 0 or 70. */
int server_run(struct server *s);
/* The device is lost: server_run returns. From any thread. */
void server_lost(struct server *s);
void server_close(struct server *s);

/* ---- memory for bodies of requests: from their first byte until they are JSON ---- */

/* Most bytes of one. */
size_t server_body_most(const struct server *s);
/* Whether n bytes more would fit now; takes them, or does not; gives them back. */
bool server_bodies_fit(const struct server *s, size_t n);
bool server_bodies_take(struct server *s, size_t n);
void server_bodies_give(struct server *s, size_t n);

/* ---- jobs ---- */

enum job_stage {
    JOB_READING, /* prepare has it */
    JOB_REPLIED, /* `reply` is the body of an answer that needed no engine */
    JOB_QUEUED,  /* prepared: an answer's headers can go out */
    JOB_REFUSED, /* refusal says why, nothing was answered */
    JOB_FAILED,  /* after JOB_QUEUED: what came before holds, then the refusal */
};
enum job_cancel { CANCEL_NO, CANCEL_GONE, CANCEL_TIMEOUT, CANCEL_DRAIN, CANCEL_STALLED };

/* refs 1. NULL: no memory */
struct job *job_new(struct server *s, const struct front_end *f);
struct job *job_ref(struct job *j);
void job_unref(struct job *j);
/* Under the lock: a stage. */
void job_set_stage(struct job *j, enum job_stage stage);
/* The file of an address, to be fetched where it was not yet named. NULL: no memory */
struct job_file *job_file(struct job *j, const char *url);
/* Nothing of its body was read. */
void job_read_again(struct job *j);
/* It is of this server from now on, and has its defaults. */
void job_move(struct job *j, struct server *s);
/* Reads its body, which goes: JSON of an object. errors: INFER_E_INPUT after job_refuse, INFER_E_MEMORY */
enum infer_status job_read_body(struct job *j, json_t **out);
/* The first reason stays. */
void job_cancel(struct job *j, enum job_cancel why);
/* Sets the refusal that a status and this thread's message come to. */
void job_fail_status(struct job *j, enum infer_status st);
/* JOB_ID random characters and a 0. */
void job_random_id(char *out);
bool server_knows_model(const struct server *s, const char *name);
/* Scales of all adapters, scale[n], as requests have them that say nothing; *out NULL: there are no adapters. errors: INFER_E_MEMORY */
enum infer_status server_scales(struct server *s, float **out);
/* From now on these are it. */
void server_set_scales(struct server *s, const float *scale);
/* ---- adapters that come and go (loras.c) ---- */

enum { LORAS_MAX = 64 };
/* What is asked; *_at: names of fields for messages. */
struct lora_ask {
    char path[4096], name[257]; /* name "": that of the file */
    const char *path_at, *name_at;
    int id;      /* of what is to go; -1: it is named */
    float scale; /* of requests that say nothing */
};
struct lora_seen {
    char name[257], path[4096];
};
/* dir NULL: none do. s has its model's adapters. errors: INFER_E_IO, INFER_E_MEMORY */
enum infer_status loras_open(struct server *s, const char *dir);
void loras_close(struct server *s);
/* What stands at the place of a scale; false: nothing. */
bool loras_at(struct server *s, int scale, struct lora_seen *out);
/* The scale of the one of this name; -1: there is none. */
int loras_named(struct server *s, const char *name);
/* The job has those with a scale until loras_release. errors: INFER_E_INPUT after job_refuse (one is gone) */
enum infer_status loras_hold(struct job *j);
void loras_release(struct job *j);
/* The place of its scale; that one goes, when nobody has it any more. errors: INFER_E_INPUT after job_refuse, INFER_E_MEMORY */
enum infer_status loras_load(struct job *j, struct lora_ask *a, int *scale);
enum infer_status loras_unload(struct job *j, struct lora_ask *a);

/* This model's grammar vocabulary, made at the first call. */
enum infer_status server_vocab(struct server *s, struct infer_grammar_vocab **out);

/* ---- from thread to thread ---- */

/* prepare.c: the job, with its body, is taken (with a reference of its own); false: too many wait. */
bool prepare_push(struct prepare *p, struct job *j);
enum infer_status prepare_open(struct prepare **out, struct server *s);
void prepare_close(struct prepare *p);
/* What its thread does with a job that is to be answered, before it is queued. errors: in job->refusal, too */
enum infer_status prepare_job(struct job *j);
/* scheduler.c: the queue and the engine thread. */
enum infer_status scheduler_open(struct scheduler **out, struct server *s);
/* Queues a prepared job; false: refused (refusal set). */
bool scheduler_push(struct scheduler *l, struct job *j);
/* Takes nothing any more, and ends what waits. */
void scheduler_quiet(struct scheduler *l);
/* The same, and ends after `seconds` all that runs. Returns when nothing is left. */
void scheduler_drain(struct scheduler *l, double seconds);
/* Ends its thread: nobody hears from it again. It can still be asked what it did. */
void scheduler_end(struct scheduler *l);
void scheduler_close(struct scheduler *l);
/* Has the engine thread do it, and waits. errors: those of the order (lanes.h), INFER_E_UNSUPPORTED: no lanes, or the server is stopping */
enum infer_status scheduler_order(struct scheduler *l, struct lane_order *o);
void scheduler_count(struct scheduler *l, int *running, int *waiting);
/* One lane of each slot as JSON. */
void scheduler_show(struct scheduler *l, struct buf *out);

/* web.c: something happened to the job: its connection goes on. From any thread. */
void web_wake(struct web *w, struct job *j);
