/* What `infer monitor` knows at one moment, and what it had known at the one before. */
#pragma once
#include <jansson.h>
#include "base/mem.h"
#include "files/json.h"
#include "tools/net/http.h"
#include "tools/sense/energy.h"
#include "tools/sense/nvml.h"
#include "tools/tool.h"

enum { MONITOR_CARDS = 64, MONITOR_PROCESSES = 32, MONITOR_NOTES = 8, MONITOR_NOTE = 320 };
enum monitor_event { EVENT_HEAT, EVENT_MEMORY, EVENT_THROTTLED, MONITOR_EVENTS };

/* Of /metrics; rates are those since the last sample, NAN with the first one. All is NAN where it is not there. */
struct monitor_server {
    bool there;
    char why[160]; /* it is not */
    double answer_rate, prompt_rate, running, waiting;
    double rows, joules; /* rows a step; joules a token of an answer */
    double answers, prompts, row_sum, steps, energy, time;
};

struct monitor {
    const struct options *o;
    struct nvml *nvml; /* NULL: none */
    struct energy *energy;
    int n_card;
    struct nvml_sample card[MONITOR_CARDS];
    struct {
        double busy, used_bytes, total_bytes, watts;
        int n_infer;
        struct {
            int pid;
            double bytes; /* resident */
        } infer[MONITOR_PROCESSES];
        double ticks, idle, joules, time; /* of the sample before */
    } host;
    struct monitor_server server;
    bool on[MONITOR_CARDS][MONITOR_EVENTS]; /* the event goes on */
    double throttled[MONITOR_CARDS];        /* when it was last so, by host_seconds */
    int n_alert;
    /* What was told, the newest at note[(n_note - 1) % MONITOR_NOTES]: a view that stays has it, as what else stands on its screen is lost. */
    bool stays;
    char note[MONITOR_NOTES][MONITOR_NOTE];
    int n_note;
};

/* monitor_host.c: processors, memory, processes called infer, RAPL. */
void monitor_host(struct monitor *m);
/* The server of --url; leaves .there false where it does not answer. */
void monitor_server(struct monitor *m);
/* A line for whoever looks at the view that stays, with the time of day; on stderr where that is another place. */
void monitor_tell(struct monitor *m, const char *text);
/* monitor_alert.c: a line on stderr where an event of a card begins, and --alert's command. */
void monitor_alerts(struct monitor *m, int card);
