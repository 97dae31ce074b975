/* `infer bench serve`: load for a server that speaks OpenAI's API, and what its clients see of it. Plain HTTP/1.1, one thread, epoll; prompts
 * are token ids where the server can make some (/tokenize), answers are streams of events that are scanned, not parsed. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "base/status.h"

/* ---- what one answer is, as it comes (bench_serve_http.c) ---- */

/* A response while its bytes come. */
struct load_answer {
    int status;                /* of HTTP, 0: its head has not ended */
    bool chunked;              /* else left bytes, or to the end of the connection (left -1) */
    int64_t left;              /* of the body, or of the chunk */
    int part;                  /* where in the chunks it is */
    bool whole, close, failed; /* it ended; the connection does with it; it is an error or no HTTP */
    int n_event;               /* events with text */
    int n_token;               /* of the usage that the server says; -1: it has not */
    size_t n; /* line[n]: the head, then the line of the body that comes just now; what is longer is cut */
    char line[4096];
};
void load_answer_start(struct load_answer *a);
/* Takes data[n]; how many of its events had text. The connection's end is n 0. */
int load_answer_take(struct load_answer *a, const char *data, size_t n);

/* ---- a run (bench_serve_run.c) ---- */

struct load_mix {
    int n_in, n_out; /* tokens */
};
struct load_target {
    char host[256], port[8], path[256]; /* path: in front of /v1/completions */
    const char *key;                    /* NULL: none */
};
struct load_plan {
    struct load_target target;
    int n_request, n_stream;    /* requests in all; at once, at most */
    double rate;                /* requests a second, at random (Poisson); 0: the next one when one ends */
    const struct load_mix *mix; /* mix[n_mix]: one after the other */
    int n_mix;
    int n_shared;       /* tokens with which all prompts begin alike */
    const int32_t *ids; /* ids[n_id]: what prompts are made of; NULL: words */
    int n_id;
    uint64_t seed;
    double temp, top_p; /* of all requests; temp 0: greedy */
    double seconds;     /* the run is given up then */
};
/* Of one request: seconds from its arrival; end 0: it failed. */
struct load_sample {
    double begin, first, end; /* begin: from the start of the run */
    int n_token, status;
};
struct load_result {
    struct load_sample *sample; /* sample[n_request] */
    double *gap;                /* gap[n_gap], seconds between events */
    size_t n_gap, cap_gap;
    int n_done, n_failed;
    double seconds;
    char failure[256]; /* of the first that failed */
};
/* errors: INFER_E_IO (no such host, nobody answers), INFER_E_MEMORY. Free with load_free also then. */
enum infer_status load_run(const struct load_plan *p, struct load_result *out);
void load_free(struct load_result *r);
/* "http://host:port/path"; errors: INFER_E_INPUT */
enum infer_status load_target_read(struct load_target *out, const char *url);
/* Token ids of a text by the server; *n 0: it has no /tokenize. errors: INFER_E_IO (nobody answers), INFER_E_MEMORY */
enum infer_status load_tokens(const struct load_target *t, const char *text, int32_t *ids, int cap, int *n);

/* ---- what it comes to (bench_serve_figures.c) ---- */

struct load_goal {
    double first_ms, gap_ms; /* 0: none */
};
enum { LOAD_CURVE = 101 };
struct load_figures {
    int n_stream, n_done, n_failed;
    double req_s, tok_s, first_ms[3], gap_ms[3], whole_ms[3]; /* p50, p95, p99 */
    double good_req_s, good; /* requests that keep the goals: a second, and their share */
    bool keeps;              /* p95 keeps the goals, and none failed */
    double first_curve[LOAD_CURVE], gap_curve[LOAD_CURVE]; /* milliseconds at each percent */
};
void load_figures(struct load_result *r, const struct load_goal *goal, int n_stream,
                  struct load_figures *out);
struct options;
/* bench_serve_report.c: the figures of n runs as a program for gnuplot, which draws PATH.png, into out. errors: INFER_E_WRITE, INFER_E_MEMORY */
struct outfile;
enum infer_status load_plot(struct outfile *out, const char *path, const struct load_figures *f, int n);
/* A JSON object {"tok_s": 9000, "first_ms_p95": 850, ..}. errors: INFER_E_INPUT (no such figure, none at all), those of reading */
enum infer_status load_targets_open(json_t **out, const char *path);
/* Prints how the figures stand to those of such an object; *missed: how many they miss. */
enum infer_status load_targets(const json_t *targets, const struct load_figures *f, FILE *out, int *missed);
/* bench_serve.c: the command; *code: EXIT_CHECK where a target is missed. errors: of options, of runs */
enum infer_status bench_serve(const struct options *o, int *code);
