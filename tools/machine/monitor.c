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

static const double FIRST_SECONDS = 0.1; /* for the first sample's share of the processors' time */

/* ---- the view ---- */

/* x in a column, "-" when it cannot be read */
static void column(const char *format, double x, int width) {
    if (isfinite(x))
        printf(format, width, x);
    else
        printf("%*s", width, "-");
}

/* ": 1.00 GiB" */
static const char *size(char text[32], double bytes) {
    text[0] = 0;
    if (isfinite(bytes)) snprintf(text, 32, ": %.2f GiB", bytes / (1 << 30));
    return text;
}

static void show_card(int device, const struct nvml_sample *s) {
    char text[32];
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
        printf("      process %u%s\n", s->process[i].pid, size(text, s->process[i].bytes));
}

static void show_server(const struct monitor *m) {
    const struct monitor_server *v = &m->server;
    if (!v->there) {
        printf("serve: not there\n");
        return;
    }
    printf("serve: ");
    column("%*.1f", v->answer_rate, 1);
    printf(" tok/s of answers, ");
    column("%*.1f", v->prompt_rate, 1);
    printf(" of prompts, %.0f requests, %.0f wait", v->running, v->waiting);
    if (isfinite(v->rows)) printf(", %.1f rows a step", v->rows);
    if (isfinite(v->joules)) printf(", %.3f joules a token", v->joules);
    printf("\n");
}

static void show(const struct monitor *m) {
    if (m->n_card)
        printf(
            "card   use  mem use   used GiB  of GiB  SM MHz  mem MHz    C      W  of W  PCIe      GB/s  ECC  throttled by\n");
    for (int i = 0; i < m->n_card; i++) show_card(i, &m->card[i]);
    printf("processors ");
    column("%*.0f%%", 100 * m->host.busy, 1);
    printf(" busy, ");
    column("%*.1f", m->host.used_bytes / (1 << 30), 1);
    printf(" of ");
    column("%*.1f", m->host.total_bytes / (1 << 30), 1);
    printf(" GiB of memory used");
    if (isfinite(m->host.watts)) printf(", %.1f W", m->host.watts);
    printf("\n");
    for (int i = 0; i < m->host.n_infer; i++)
        printf("infer, process %d: %.2f GiB\n", m->host.infer[i].pid, m->host.infer[i].bytes / (1 << 30));
    if (m->o->url_monitor) show_server(m);
    for (int i = m->n_note > MONITOR_NOTES ? m->n_note - MONITOR_NOTES : 0; i < m->n_note; i++)
        printf("%s\n", m->note[i % MONITOR_NOTES]);
}

void monitor_tell(struct monitor *m, const char *text) {
    char *note = m->note[m->n_note % MONITOR_NOTES];
    const time_t now = time(NULL);
    struct tm local;
    const size_t n = localtime_r(&now, &local) ? strftime(note, MONITOR_NOTE, "%H:%M:%S  ", &local) : 0;
    text_escape(note + n, MONITOR_NOTE - n, text, strlen(text));
    m->n_note++;
    if (!m->stays || !isatty(STDERR_FILENO)) tool_say("%s", text);
}

/* ---- lines of JSON ---- */

static json_t *number(double x) { return isfinite(x) ? json_real(x) : json_null(); }
/* What is counted, bytes and errors. */
static json_t *count(double x) { return isfinite(x) ? json_integer((json_int_t)x) : json_null(); }

static enum infer_status print_json(json_t *j, uint64_t failed) {
    char *line;
    TRY(json_write(&line, j, failed, JSON_COMPACT | JSON_REAL_PRECISION(13), "a sample as JSON"));
    printf("%s\n", line);
    mem_free(line);
    return INFER_OK;
}

static json_t *processes_json(const struct nvml_sample *s) {
    json_t *all = json_array();
    for (int i = 0; i < s->n_process && i < NVML_PROCESSES; i++)
        json_array_append_new(all, json_pack("{s:i, s:o}", "pid", (int)s->process[i].pid, "memory_used",
                                             count(s->process[i].bytes)));
    return all;
}

static json_t *card_json(int device, const struct nvml_sample *s, double seconds) {
    json_t *j = json_pack("{s:f, s:i, s:s, s:s, s:b, s:s, s:o}", "time", seconds, "device", device, "name",
                          s->name, "pci", s->pci, "throttled", s->throttled, "reasons", s->reasons,
                          "processes", processes_json(s));
    const struct {
        const char *key;
        double x;
        json_t *(*as)(double x);
    } all[] = {{"memory_used", s->used_bytes, count},
               {"memory_total", s->total_bytes, count},
               {"busy", s->busy, number},
               {"memory_busy", s->memory_busy, number},
               {"sm_mhz", s->sm_mhz, number},
               {"memory_mhz", s->memory_mhz, number},
               {"celsius", s->celsius, number},
               {"watts", s->watts, number},
               {"limit_watts", s->limit_watts, number},
               {"joules", s->joules, number},
               {"pcie_generation", s->pcie_generation, count},
               {"pcie_lanes", s->pcie_lanes, count},
               {"pcie_sent", s->pcie_sent, count},
               {"pcie_received", s->pcie_received, count},
               {"ecc_corrected", s->ecc_corrected, count},
               {"ecc_uncorrected", s->ecc_uncorrected, count}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        json_object_set_new(j, all[i].key, all[i].as(all[i].x));
    return j;
}

static json_t *host_json(const struct monitor *m, double seconds) {
    json_t *all = json_array();
    for (int i = 0; i < m->host.n_infer; i++)
        json_array_append_new(all, json_pack("{s:i, s:o}", "pid", m->host.infer[i].pid, "memory_used",
                                             count(m->host.infer[i].bytes)));
    return json_pack("{s:f, s:s, s:o, s:o, s:o, s:o, s:o}", "time", seconds, "device", "processors", "busy",
                     number(m->host.busy), "memory_used", count(m->host.used_bytes), "memory_total",
                     count(m->host.total_bytes), "watts", number(m->host.watts), "infer", all);
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
    return print_json(json_pack("{s:f, s:s, s:b, s:s?, s:o, s:o, s:o, s:o, s:o, s:o}", "time", seconds,
                                "device", "serve", "there", v->there, "error", v->there ? NULL : v->why,
                                "answer_tok_s", number(v->answer_rate), "prompt_tok_s",
                                number(v->prompt_rate), "running", number(v->running), "waiting",
                                number(v->waiting), "rows", number(v->rows), "joules_per_token",
                                number(v->joules)),
                      failed);
}

/* ---- samples ---- */

static void wait_for(double seconds) {
    nanosleep(&(struct timespec){(time_t)seconds, (long)((seconds - floor(seconds)) * 1e9)}, NULL);
}

static enum infer_status sample(struct monitor *m, bool view) {
    struct timespec now;
    for (int i = 0; i < m->n_card; i++) TRY(nvml_sample(m->nvml, i, &m->card[i]));
    for (int i = 0; i < m->n_card; i++) monitor_alerts(m, i);
    monitor_host(m);
    monitor_server(m);
    clock_gettime(CLOCK_REALTIME, &now);
    if (m->stays) printf("\033[H\033[J");
    if (view)
        show(m);
    else
        TRY(print_lines(m, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec));
    return tool_flush();
}

static enum infer_status run(struct monitor *m) {
    const struct options *o = m->o;
    const bool view = !o->json && isatty(STDOUT_FILENO);
    monitor_host(m); /* what processors do is told since then */
    wait_for(FIRST_SECONDS);
    for (int i = 0; o->samples == 0 || i < o->samples; i++) {
        if (i) wait_for(o->interval);
        TRY(sample(m, view));
    }
    return INFER_OK;
}

/* --url, before the first sample. */
static enum infer_status check_url(const char *url) {
    const char *host = url ? strstr(url, "://") : NULL;
    if (!url) return INFER_OK;
    if (!host || !host[3] || host[3] == '/' ||
        (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0))
        return err_set(INFER_E_INPUT, "--url is '%.200s', must be http://HOST:PORT", url);
    return http_open();
}

int cmd_monitor(const struct options *o) {
    struct monitor m = {.o = o, .stays = !o->json && isatty(STDOUT_FILENO) && term_colour(stdout)};
    char none[256];
    enum infer_status st = check_url(o->url_monitor), cards = INFER_OK;
    if (!st && (cards = nvml_open(&m.nvml)) != INFER_OK) {
        snprintf(none, sizeof none, "%.200s; processors are shown", err_message());
        monitor_tell(&m, none);
    }
    if (m.nvml) m.n_card = nvml_count(m.nvml) < MONITOR_CARDS ? nvml_count(m.nvml) : MONITOR_CARDS;
    if (!st && !cards && !m.n_card) {
        snprintf(none, sizeof none, "the driver %.100s knows no card; processors are shown",
                 nvml_driver(m.nvml));
        monitor_tell(&m, none);
        cards = INFER_E_DEVICE;
    }
    if (!st) st = energy_open(&m.energy);
    if (!st) st = run(&m);
    const int code = st ? tool_fail(o, st) : m.n_alert ? EXIT_CHECK : cards ? EXIT_CANNOT : EXIT_DONE;
    energy_close(m.energy);
    nvml_close(m.nvml);
    return code;
}
