/* What infer monitor shows beside cards: processors, processes called infer, and the metrics of a server. */
#include <ctype.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/host.h"
#include "tools/machine/monitor_impl.h"

/* ---- the machine ---- */

/* source: proc(5): user nice system idle iowait irq softirq steal */
static void processors(struct monitor *m) {
    double t[8] = {0}, all = 0, idle;
    FILE *f = fopen("/proc/stat", "re");
    if (!f || fscanf(f, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", t, t + 1, t + 2, t + 3, t + 4, t + 5, t + 6,
                     t + 7) < 8)
        all = NAN;
    if (f) fclose(f);
    for (int i = 0; i < 8; i++) all += t[i];
    idle = t[3] + t[4];
    m->host.busy = all > m->host.ticks ? 1 - (idle - m->host.idle) / (all - m->host.ticks) : NAN;
    m->host.ticks = all, m->host.idle = idle;
}

static void memory(struct monitor *m) {
    char line[128];
    double total = NAN, available = NAN;
    FILE *f = fopen("/proc/meminfo", "re");
    while (f && fgets(line, sizeof line, f)) {
        sscanf(line, "MemTotal: %lf", &total);
        sscanf(line, "MemAvailable: %lf", &available);
    }
    if (f) fclose(f);
    m->host.total_bytes = 1024 * total, m->host.used_bytes = 1024 * (total - available);
}

static bool read_first(const char *pid, const char *name, char *out, int n) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%.20s/%s", pid, name);
    FILE *f = fopen(path, "re");
    const bool there = f && fgets(out, n, f);
    if (f) fclose(f);
    return there;
}

static void processes(struct monitor *m) {
    char text[256];
    double size, resident;
    DIR *d = opendir("/proc");
    m->host.n_infer = 0;
    for (struct dirent *f; d && (f = readdir(d)) && m->host.n_infer < MONITOR_PROCESSES;) {
        const int pid = isdigit((unsigned char)*f->d_name) ? atoi(f->d_name) : 0;
        if (!pid || pid == getpid() || !read_first(f->d_name, "comm", text, sizeof text) ||
            strcmp(text, "infer\n") != 0)
            continue;
        if (!read_first(f->d_name, "statm", text, sizeof text) ||
            sscanf(text, "%lf %lf", &size, &resident) != 2)
            continue;
        m->host.infer[m->host.n_infer].pid = pid;
        m->host.infer[m->host.n_infer++].bytes = resident * (double)sysconf(_SC_PAGESIZE);
    }
    if (d) closedir(d);
}

void monitor_host(struct monitor *m) {
    const double now = host_seconds(), joules = energy_now(m->energy).processors;
    processors(m);
    memory(m);
    processes(m);
    m->host.watts = m->host.time > 0 ? (joules - m->host.joules) / (now - m->host.time) : NAN;
    m->host.joules = joules, m->host.time = now;
}

/* ---- the server ---- */

/* The sum of a metric's lines, whatever their labels; NAN: there is none. */
static double metric(const char *text, const char *name) {
    const size_t n = strlen(name);
    double sum = NAN;
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, n) != 0 || (line[n] != ' ' && line[n] != '{')) continue;
        const char *at = line[n] == '{' ? strchr(line, '}') : line + n;
        if (at) sum = (isfinite(sum) ? sum : 0) + strtod(at + (*at == '}'), NULL);
    }
    return sum;
}

void monitor_server(struct monitor *m) {
    struct monitor_server now = {.time = host_seconds()}, before = m->server;
    char url[1024], *text = NULL;
    struct http_answer a = {0};
    size_t n;
    if (!m->o->url_monitor) return;
    size_t length = strlen(m->o->url_monitor);
    while (length && m->o->url_monitor[length - 1] == '/') length--;
    snprintf(url, sizeof url, "%.*s/metrics", (int)(length < 1000 ? length : 1000), m->o->url_monitor);
    const struct http_request r = {
        .url = url, .bearer = getenv("INFER_API_KEY"), .seconds = 5, .most = 1 << 22};
    now.answers = now.prompts = now.row_sum = now.steps = now.running = now.waiting = now.energy = NAN;
    now.there = http_text(&r, url, &a, &text, &n) == INFER_OK;
    if (!now.there) {
        snprintf(now.why, sizeof now.why, "%s", err_message());
        if (before.there || before.time == 0) monitor_tell(m, now.why);
    } else {
        now.answers = metric(text, "vllm:generation_tokens_total"),
        now.prompts = metric(text, "vllm:prompt_tokens_total");
        now.row_sum = metric(text, "vllm:iteration_tokens_total_sum"),
        now.steps = metric(text, "vllm:iteration_tokens_total_count");
        now.running = metric(text, "vllm:num_requests_running"),
        now.waiting = metric(text, "vllm:num_requests_waiting");
        now.energy = metric(text, "infer_energy_joules_total");
    }
    const double seconds = before.there ? now.time - before.time : NAN;
    now.answer_rate = (now.answers - before.answers) / seconds,
    now.prompt_rate = (now.prompts - before.prompts) / seconds;
    now.rows = before.there ? (now.row_sum - before.row_sum) / (now.steps - before.steps) : NAN;
    now.joules = before.there ? (now.energy - before.energy) / (now.answers - before.answers) : NAN;
    m->server = now;
    mem_free(text);
    http_answer_free(&a);
}
