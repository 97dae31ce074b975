/* The parts of `infer bench`. */
#pragma once
#include <jansson.h>
#include "tools/measure/bench_guess.h"
#include "tools/measure/bench_result.h"
#include "tools/peak.h"
#include "tools/measure/probe.h"
#include "tools/session.h"
#include "tools/sense/energy.h"
#include "tools/sense/held.h"

struct bench {
    const struct options *o;
    struct outfile *save; /* of --save, NULL: none is open */
    json_t *saved,
        *targets; /* files of --compare and --targets, read before anything is measured; NULL: not asked for */
    struct plot *plot;     /* of --plot, with the saved runs beside this one */
    struct outfile *drawn; /* its file */
    struct session session;
    struct session_draft draft; /* who guesses; then tests that decode are of requests of */
    struct infer_sched *sched;  /* NULL: nobody does */
    struct bench_guesses guesses;
    struct memory_probe probe; /* data NULL: the device's memory cannot be probed from here */
    const struct peak *peak;   /* the arithmetic ceiling; NULL: none is known */
    struct cuda_ceiling *card; /* both of a card that does all the work; NULL: none */
    double *probed;            /* probed[n_probed]: GB/s of every probe of this run */
    size_t n_probed, cap_probed;
    struct energy *energy;
    struct held *held;
    bool on_card;
    /* one thread of the processor does all: its own time is what that takes, whatever others do beside it */
    bool alone;
    double bandwidth;            /* median of probed, NAN without a probe */
    struct bench_result *result; /* result[n] */
    int n, cap;
};

/* Frees all that bench_run took. */
void bench_close(struct bench *b);
/* Reads what --plot-with names, and takes what --compare has, for bench_plot. errors: INFER_E_IO, INFER_E_INPUT */
enum infer_status bench_plot_open(struct bench *b);
void bench_plot_close(struct plot *d);
/* The results as SVG into b->drawn, which is closed, the saved ones beside them. errors: INFER_E_WRITE, INFER_E_MEMORY */
enum infer_status bench_plot(struct bench *b);
/* The tests as asked and with one thing at a time otherwise; a table on stdout. */
enum infer_status bench_ablate(const struct options *o);
/* Runs every test of the options. */
enum infer_status bench_run(struct bench *b);
/* {"machine": {}, "model": {}, "results": []} */
json_t *bench_json(const struct bench *b);
/* A number, null where it is not finite. */
json_t *bench_real(double x);
/* The name of the processor, "" when unknown. */
void bench_cpu_name(char *buf, size_t n);
/* Do the options ask for a test of this name? */
bool bench_asks(const struct options *o, const char *test);
/* Reads o->compare into b->saved: results of which at least one is asked for, none held back. errors: INFER_E_INPUT, INFER_E_IO */
enum infer_status bench_saved_open(struct bench *b);
/* The same of o->targets: {"tg128": tok/s, ..} */
enum infer_status bench_targets_open(struct bench *b);
/* One line per test of the earlier run, on stdout, and on stderr what else it was of; *slower: how many are. */
enum infer_status bench_compare_saved(const struct bench *b, int *slower);
/* Is it a program, which --compare takes turns with, or saved results? */
bool bench_is_program(const char *path);
/* Takes turns with o->compare; *slower: in how many tests this program is slower. errors: INFER_E_INPUT, INFER_E_IO */
enum infer_status bench_turns(const struct options *o, int *slower);
/* What a repetition took. */
struct bench_took {
    double seconds, processor; /* NAN: more than one thread had a part in it */
};
/* The other side: says that a test is ready, and repeats it as often as it is asked. */
enum infer_status bench_answer(const char *test,
                               enum infer_status (*repeat)(void *user, struct bench_took *took), void *user);
/* *below: how many are not reached. */
enum infer_status bench_compare_targets(const struct bench *b, int *below);
/* A file of JSON; errors: INFER_E_IO, INFER_E_INPUT, INFER_E_MEMORY */
enum infer_status bench_load_json(const char *path, json_t **out);
