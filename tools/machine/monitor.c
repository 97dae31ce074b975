/* infer monitor: what cards, processors and a running `infer serve` are doing: on a terminal a view that stays, else a line of JSON each. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/host.h"
#include "tools/machine/monitor_impl.h"
#include "tools/term.h"

int cmd_monitor(const struct options *o);

/* ---- the view ---- */

/* x in a column, "-" when it cannot be read */
static void column(const char *format, double x, int width) {
    if (isfinite(x))
        printf(format, width, x);
    else
        printf("%*s", width, "-");
}

static void show_card(int device, const struct nvml_sample *s) {
    printf("%4d", device);
    column("%*.0f%%", 100 * s->busy, 5);
    column("%*.0f%%", 100 * s->memory_busy, 8);
    column("%*.2f", s->used_bytes / (1 << 30), 11);
    column("%*.1f", s->total_bytes / (1 << 30), 8);
    column("%*.0f", s->sm_mhz, 8);
    column("%*.0f", s->memory_mhz, 9);
    column("%*.0f", s->celsius, 5);
    column("%*.0f", s->watts, 7);
    column("%*.0f", s->limit_watts, 6);
    column("%*.0f", s->pcie_generation, 6);
    column("x%-*.0f", s->pcie_lanes, 2);
    column("%*.1f", 1e-9 * (s->pcie_sent + s->pcie_received), 7);
    column("%*.0f", s->ecc_uncorrected, 5);
    printf("  %s\n", s->throttled ? s->reasons : "-");
    for (int i = 0; i < s->n_process && i < NVML_PROCESSES; i++)
        printf("      process %u: %.2f GiB\n", s->process[i].pid, s->process[i].bytes / (1 << 30));
}

static void show(const struct monitor *m) {
    if (m->n_card)
        printf(
            "card   use  mem use   used GiB  of GiB  SM MHz  mem MHz    C      W  of W  PCIe      GB/s  ECC  throttled by\n");
    for (int i = 0; i < m->n_card; i++) show_card(i, &m->card[i]);
    printf("processors %.0f%% busy, %.1f of %.1f GiB of memory used", 100 * m->host.busy,
           m->host.used_bytes / (1 << 30), m->host.total_bytes / (1 << 30));
    if (isfinite(m->host.watts)) printf(", %.1f W", m->host.watts);
    printf("\n");
    for (int i = 0; i < m->host.n_infer; i++)
        printf("infer, process %d: %.2f GiB\n", m->host.infer[i].pid, m->host.infer[i].bytes / (1 << 30));
    const struct monitor_server *v = &m->server;
    if (v->there)
        printf("serve: %.1f tok/s of answers, %.1f of prompts, %.0f requests, %.0f wait", v->answer_rate,
               v->prompt_rate, v->running, v->waiting);
    if (v->there && isfinite(v->rows)) printf(", %.1f rows a step", v->rows);
    if (v->there && isfinite(v->joules)) printf(", %.3f joules a token", v->joules);
    if (v->there) printf("\n");
    if (m->o->url_monitor && !v->there) printf("serve: no answer from %s\n", m->o->url_monitor);
}

/* ---- lines of JSON ---- */

static json_t *number(double x) { return isfinite(x) ? json_real(x) : json_null(); }

static enum infer_status print_json(json_t *j, uint64_t failed) {
    char *line;
    TRY(json_write(&line, j, failed, JSON_COMPACT | JSON_REAL_PRECISION(10), "a sample as JSON"));
    printf("%s\n", line);
    mem_free(line);
    return INFER_OK;
}

static json_t *processes_json(const struct nvml_sample *s) {
    json_t *all = json_array();
    for (int i = 0; i < s->n_process && i < NVML_PROCESSES; i++)
        json_array_append_new(all, json_pack("{s:i, s:o}", "pid", (int)s->process[i].pid, "memory_used",
                                             number(s->process[i].bytes)));
    return all;
}

static json_t *card_json(int device, const struct nvml_sample *s, double seconds) {
    json_t *j = json_pack("{s:f, s:i, s:s, s:s, s:b, s:s, s:o}", "time", seconds, "device", device, "name",
                          s->name, "pci", s->pci, "throttled", s->throttled, "reasons", s->reasons,
                          "processes", processes_json(s));
    const struct {
        const char *key;
        double x;
    } all[] = {{"memory_used", s->used_bytes},
               {"memory_total", s->total_bytes},
               {"busy", s->busy},
               {"memory_busy", s->memory_busy},
               {"sm_mhz", s->sm_mhz},
               {"memory_mhz", s->memory_mhz},
               {"celsius", s->celsius},
               {"watts", s->watts},
               {"limit_watts", s->limit_watts},
               {"joules", s->joules},
               {"pcie_generation", s->pcie_generation},
               {"pcie_lanes", s->pcie_lanes},
               {"pcie_sent", s->pcie_sent},
               {"pcie_received", s->pcie_received},
               {"ecc_corrected", s->ecc_corrected},
               {"ecc_uncorrected", s->ecc_uncorrected}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        json_object_set_new(j, all[i].key, number(all[i].x));
    return j;
}

static json_t *host_json(const struct monitor *m, double seconds) {
    json_t *all = json_array();
    for (int i = 0; i < m->host.n_infer; i++)
        json_array_append_new(
            all, json_pack("{s:i, s:f}", "pid", m->host.infer[i].pid, "memory_used", m->host.infer[i].bytes));
    return json_pack("{s:f, s:s, s:o, s:o, s:o, s:o, s:o}", "time", seconds, "device", "processors", "busy",
                     number(m->host.busy), "memory_used", number(m->host.used_bytes), "memory_total",
                     number(m->host.total_bytes), "watts", number(m->host.watts), "infer", all);
}

static enum infer_status print_lines(const struct monitor *m, double seconds) {
    const struct monitor_server *v = &m->server;
    for (int i = 0; i < m->n_card; i++) {
        const uint64_t failed = mem_failed();
        TRY(print_json(card_json(i, &m->card[i], seconds), failed));
    }
    uint64_t failed = mem_failed();
    TRY(print_json(host_json(m, seconds), failed));
    if (!m->o->url_monitor) return INFER_OK;
    failed = mem_failed();
    return print_json(json_pack("{s:f, s:s, s:b, s:o, s:o, s:o, s:o, s:o, s:o}", "time", seconds, "device",
                                "serve", "there", v->there, "answer_tok_s", number(v->answer_rate),
                                "prompt_tok_s", number(v->prompt_rate), "running", number(v->running),
                                "waiting", number(v->waiting), "rows", number(v->rows), "joules_per_token",
                                number(v->joules)),
                      failed);
}

/* ---- samples ---- */

static enum infer_status sample(struct monitor *m, double seconds, bool view) {
    for (int i = 0; i < m->n_card; i++) TRY(nvml_sample(m->nvml, i, &m->card[i]));
    monitor_host(m);
    monitor_server(m);
    if (view && term_colour(stdout)) printf("\033[H\033[J");
    if (view)
        show(m);
    else
        TRY(print_lines(m, seconds));
    TRY(tool_flush());
    for (int i = 0; i < m->n_card; i++) monitor_alerts(m, i);
    return INFER_OK;
}

static enum infer_status run(struct monitor *m) {
    const struct options *o = m->o;
    const bool view = !o->json && isatty(STDOUT_FILENO);
    const double begin = host_seconds();
    for (int i = 0; o->samples == 0 || i < o->samples; i++) {
        if (i)
            nanosleep(
                &(struct timespec){(time_t)o->interval, (long)((o->interval - floor(o->interval)) * 1e9)},
                NULL);
        TRY(sample(m, host_seconds() - begin, view));
    }
    return INFER_OK;
}

int cmd_monitor(const struct options *o) {
    struct monitor m = {.o = o};
    enum infer_status st = o->url_monitor ? http_open() : INFER_OK, cards = INFER_OK;
    if (!st && (cards = nvml_open(&m.nvml)) != INFER_OK) tool_say("%s; processors are shown", err_message());
    if (m.nvml) m.n_card = nvml_count(m.nvml) < MONITOR_CARDS ? nvml_count(m.nvml) : MONITOR_CARDS;
    if (!st && !cards && !m.n_card)
        tool_say("the driver %s knows no card; processors are shown", nvml_driver(m.nvml)),
            cards = INFER_E_DEVICE;
    if (!st) st = energy_open(&m.energy);
    if (!st) st = run(&m);
    const int code = st ? tool_fail(o, st) : m.n_alert ? EXIT_CHECK : cards ? EXIT_CANNOT : EXIT_DONE;
    energy_close(m.energy);
    nvml_close(m.nvml);
    return code;
}
