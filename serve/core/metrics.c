#include "serve/core/metrics.h"
#include "serve/core/engine_port.h"
#include "serve/core/machine.h"
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "serve/core/server.h"

const struct bounds metric_first = {22, {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                         1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560}};
const struct bounds metric_gaps = {22, {.001, .0025, .005, .01, .025, .05, .075, .1, .15, .2, .3,
                                        .4,   .5,    .75,  1,   2.5,  5,   7.5,  10, 20,  40, 80}};
const struct bounds metric_long = {
    21, {.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}};
const struct bounds metric_tokens = {19,
                                     {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000,
                                      50000, 100000, 200000, 500000, 1000000}};
const struct bounds metric_choices = {5, {1, 2, 5, 10, 20}};
const struct bounds metric_rows = {
    15, {1, 8, 16, 24, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768}};
const struct bounds metric_steps = {
    15, {.001, .0025, .005, .0075, .01, .015, .02, .03, .05, .075, .1, .25, .5, 1, 5}};

void histogram_add(struct histogram *h, const struct bounds *b, double x) {
    int i = 0;
    while (i < b->n && x > b->of[i]) i++;
    atomic_fetch_add(&h->bucket[i], 1);
    atomic_fetch_add(&h->count, 1);
    atomic_fetch_add(&h->sum_us, (unsigned long long)(x > 0 ? 1e6 * x : 0));
}

/* Why a request is refused, as the label has it: by its code where there is one in the list, else by its status. */
static const struct {
    const char *name, *code;
    int status;
} reasons[METRIC_REASONS] = {
    {"too_long", "context_length_exceeded", 400},
    {"invalid", NULL, 400},
    {"no_key", NULL, 401},
    {"forbidden", NULL, 403},
    {"not_found", NULL, 404},
    {"method", NULL, 405},
    {"slow", NULL, 408},
    {"too_large", NULL, 413},
    {"busy", NULL, 429},
    {"head_too_large", NULL, 431},
    {"gone", NULL, 499},
    {"device_lost", "device_lost", 500},
    {"internal", NULL, 500},
    {"unavailable", NULL, 503},
    {"timeout", NULL, 504},
    {"other", NULL, 0},
};

void metrics_refused(struct metrics *m, const struct refusal *r) {
    for (int i = 0; i < METRIC_REASONS; i++) {
        if (reasons[i].status && reasons[i].status != r->status) continue;
        if (reasons[i].code && (!r->code || strcmp(reasons[i].code, r->code) != 0)) continue;
        atomic_fetch_add(&m->refused[i], 1);
        return;
    }
}

/* ---- writing ---- */

struct page_of_metrics {
    struct server *s;
    struct buf *out;
    bool named; /* it is one of several: every line says model="..", but for what is of no model */
};

static void model_label(const struct page_of_metrics *p, const char *before) {
    if (!p->named) return;
    buf_printf(p->out, "%smodel=", before);
    buf_json_text(p->out, p->s->name);
}

/* {model_name="..",engine="0"  */
static void labels(const struct page_of_metrics *p) {
    buf_text(p->out, "{model_name=");
    buf_json_text(p->out, p->s->name);
    buf_text(p->out, ",engine=\"0\"");
    model_label(p, ",");
}

static void type(const struct page_of_metrics *p, const char *name, const char *is) {
    buf_printf(p->out, "# TYPE %s %s\n", name, is);
}

/* A line; those of vLLM's names have its labels. label NULL: no further one. */
static void line(const struct page_of_metrics *p, const char *name, const char *label, const char *is,
                 double x) {
    buf_text(p->out, name);
    if (strncmp(name, "vllm:", 5) == 0) {
        labels(p);
        if (label) buf_printf(p->out, ",%s=\"%s\"", label, is);
        buf_text(p->out, "}");
    } else if (label || p->named) {
        buf_text(p->out, "{");
        model_label(p, "");
        if (label) buf_printf(p->out, "%s%s=\"%s\"", p->named ? "," : "", label, is);
        buf_text(p->out, "}");
    }
    buf_printf(p->out, " %.17g\n", x);
}

static void gauge(const struct page_of_metrics *p, const char *name, double x) {
    type(p, name, "gauge");
    line(p, name, NULL, NULL, x);
}
static void counter(const struct page_of_metrics *p, const char *name, atomic_ullong *x) {
    type(p, name, "counter");
    line(p, name, NULL, NULL, (double)atomic_load(x));
}
static void count(const struct page_of_metrics *p, const char *name, double x) {
    type(p, name, "counter");
    line(p, name, NULL, NULL, x);
}

static void buckets(const struct page_of_metrics *p, const char *name, const char *more, struct histogram *h,
                    const struct bounds *b) {
    unsigned long long sum = 0;
    for (int i = 0; i <= b->n; i++) {
        sum += atomic_load(&h->bucket[i]);
        buf_printf(p->out, "%s_bucket", name);
        labels(p);
        if (i < b->n)
            buf_printf(p->out, "%s,le=\"%g\"} %llu\n", more, b->of[i], sum);
        else
            buf_printf(p->out, "%s,le=\"+Inf\"} %llu\n", more, sum);
    }
    buf_printf(p->out, "%s_sum", name);
    labels(p);
    buf_printf(p->out, "%s} %.6f\n%s_count", more, (double)atomic_load(&h->sum_us) * 1e-6, name);
    labels(p);
    buf_printf(p->out, "%s} %llu\n", more, sum);
}

static void histogram(const struct page_of_metrics *p, const char *name, struct histogram *h,
                      const struct bounds *b) {
    type(p, name, "histogram");
    buckets(p, name, "", h, b);
}

static void of_vllm(const struct page_of_metrics *p, int running, int waiting) {
    struct metrics *m = &p->s->metrics;
    static const char *const ends[] = {"stop", "length", "tool_calls"};
    unsigned long long gone = 0;
    const int all = atomic_load(&m->kv_tokens), free = atomic_load(&m->kv_free);
    gauge(p, "vllm:num_requests_running", running);
    gauge(p, "vllm:num_requests_waiting", waiting);
    gauge(p, "vllm:kv_cache_usage_perc", all > 0 ? 1 - (double)free / all : 0);
    type(p, "vllm:cache_config_info", "gauge");
    buf_text(p->out, "vllm:cache_config_info");
    labels(p);
    buf_printf(p->out, ",block_size=\"64\",num_gpu_blocks=\"%d\"} 1\n", all / 64);
    counter(p, "vllm:prompt_tokens_total", &m->prompt_tokens);
    counter(p, "vllm:generation_tokens_total", &m->answer_tokens);
    counter(p, "vllm:prefix_cache_queries_total", &m->prompt_tokens);
    counter(p, "vllm:prefix_cache_hits_total", &m->cached_tokens);
    counter(p, "vllm:num_preemptions_total", &m->put_aside);
    counter(p, "vllm:spec_decode_num_draft_tokens_total", &m->guessed_tokens);
    counter(p, "vllm:spec_decode_num_accepted_tokens_total", &m->right_tokens);
    type(p, "vllm:request_success_total", "counter");
    for (int i = 0; i < 3; i++)
        line(p, "vllm:request_success_total", "finished_reason", ends[i],
             (double)atomic_load(&m->finished[i]));
    for (int i = 0; i < METRIC_STATES; i++) gone += atomic_load(&m->gone[i]);
    line(p, "vllm:request_success_total", "finished_reason", "abort", (double)gone);
    line(p, "vllm:request_success_total", "finished_reason", "error", (double)atomic_load(&m->failed));
    histogram(p, "vllm:time_to_first_token_seconds", &m->first, &metric_first);
    histogram(p, "vllm:inter_token_latency_seconds", &m->gap, &metric_gaps);
    histogram(p, "vllm:time_per_output_token_seconds", &m->each, &metric_gaps);
    histogram(p, "vllm:e2e_request_latency_seconds", &m->whole, &metric_long);
    histogram(p, "vllm:request_queue_time_seconds", &m->queue, &metric_long);
    histogram(p, "vllm:request_inference_time_seconds", &m->inference, &metric_long);
    histogram(p, "vllm:request_prefill_time_seconds", &m->prefill, &metric_long);
    histogram(p, "vllm:request_decode_time_seconds", &m->decode, &metric_long);
    histogram(p, "vllm:request_prompt_tokens", &m->prompts, &metric_tokens);
    histogram(p, "vllm:request_generation_tokens", &m->answers, &metric_tokens);
    histogram(p, "vllm:request_params_max_tokens", &m->asked, &metric_tokens);
    histogram(p, "vllm:request_params_n", &m->choices, &metric_choices);
    histogram(p, "vllm:iteration_tokens_total", &m->rows, &metric_rows);
}

static void of_llamacpp(const struct page_of_metrics *p, int running, int waiting) {
    struct metrics *m = &p->s->metrics;
    const double steps = (double)atomic_load(&m->steps), prompt = 1e-6 * (double)atomic_load(&m->prompt_us),
                 answer = 1e-6 * (double)atomic_load(&m->answer_us),
                 computed = (double)(atomic_load(&m->prompt_tokens) - atomic_load(&m->cached_tokens)),
                 told = (double)atomic_load(&m->answer_tokens);
    counter(p, "llamacpp:prompt_tokens_total", &m->prompt_tokens);
    count(p, "llamacpp:prompt_seconds_total", prompt);
    counter(p, "llamacpp:tokens_predicted_total", &m->answer_tokens);
    count(p, "llamacpp:tokens_predicted_seconds_total", answer);
    gauge(p, "llamacpp:prompt_tokens_seconds", prompt > 0 ? computed / prompt : 0);
    gauge(p, "llamacpp:predicted_tokens_seconds", answer > 0 ? told / answer : 0);
    gauge(p, "llamacpp:requests_processing", running);
    gauge(p, "llamacpp:requests_deferred", waiting);
    count(p, "llamacpp:n_decode_total", steps);
    gauge(p, "llamacpp:n_busy_slots_per_decode", steps > 0 ? (double)atomic_load(&m->busy) / steps : 0);
    count(p, "llamacpp:n_tokens_max", atomic_load(&m->longest));
}

static void of_this(const struct page_of_metrics *p) {
    static const char *const states[METRIC_STATES] = {"read", "queue", "prompt", "answer"};
    struct metrics *m = &p->s->metrics;
    type(p, "infer_step_seconds", "histogram");
    buckets(p, "infer_step_seconds", ",class=\"decode\"", &m->step[0], &metric_steps);
    buckets(p, "infer_step_seconds", ",class=\"prompt\"", &m->step[1], &metric_steps);
    type(p, "infer_rejected_total", "counter");
    for (int i = 0; i < METRIC_REASONS; i++)
        line(p, "infer_rejected_total", "reason", reasons[i].name, (double)atomic_load(&m->refused[i]));
    type(p, "infer_cancelled_total", "counter");
    for (int i = 0; i < METRIC_STATES; i++)
        line(p, "infer_cancelled_total", "state", states[i], (double)atomic_load(&m->gone[i]));
    counter(p, "infer_queue_full_total", &m->queue_full);
    counter(p, "infer_key_full_total", &m->key_full);
    counter(p, "infer_failed_total", &m->failed);
    counter(p, "infer_grammar_cache_hits_total", &m->grammars_known);
    counter(p, "infer_grammar_cache_misses_total", &m->grammars_made);
}

/* Of --kv-store. */
static void of_files(const struct page_of_metrics *p) {
    struct infer_kept_info k = {0};
    if (p->s->port && p->s->port->kept) p->s->port->kept(p->s->port, &k);
    if (!k.folder) return;
    gauge(p, "infer_kv_store_bytes", (double)k.bytes);
    count(p, "infer_kv_store_read_total", (double)k.n_read);
    count(p, "infer_kv_store_written_total", (double)k.n_written);
    count(p, "infer_kv_store_damaged_total", (double)k.n_damaged);
    count(p, "infer_kv_store_removed_total", (double)k.n_gone);
    count(p, "infer_kv_store_failed_total", (double)k.n_failed);
}

/* Of the process, as Prometheus' own clients name them. */
static void of_process(const struct page_of_metrics *p) {
    struct rusage use;
    struct rlimit limit;
    unsigned long long size = 0, resident = 0, threads = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f && fscanf(f, "%llu %llu", &size, &resident) != 2) size = resident = 0;
    if (f) fclose(f);
    const char *const folders[] = {"/proc/self/fd", "/proc/self/task"};
    int n[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        DIR *d = opendir(folders[i]);
        while (d && readdir(d)) n[i]++;
        if (d) closedir(d), n[i] -= i ? 2 : 3; /* . and .., and this descriptor */
    }
    threads = (unsigned long long)n[1];
    getrusage(RUSAGE_SELF, &use);
    count(p, "process_cpu_seconds_total",
          (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
              1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec));
    gauge(p, "process_resident_memory_bytes", (double)resident * (double)sysconf(_SC_PAGESIZE));
    gauge(p, "process_virtual_memory_bytes", (double)size * (double)sysconf(_SC_PAGESIZE));
    gauge(p, "process_open_fds", n[0]);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) gauge(p, "process_max_fds", (double)limit.rlim_cur);
    gauge(p, "process_threads", (double)threads);
    gauge(p, "process_start_time_seconds", (double)p->s->created);
}

void metrics_of_model(struct server *s, bool loaded, struct buf *out) {
    const struct page_of_metrics p = {s, out, s->house != NULL};
    int running = 0, waiting = 0;
    if (loaded) scheduler_count(s->scheduler, &running, &waiting);
    of_vllm(&p, running, waiting);
    of_llamacpp(&p, running, waiting);
    of_this(&p);
    if (loaded) of_files(&p);
}

void metrics_of_front(struct server *s, struct buf *out) {
    of_this(&(struct page_of_metrics){s, out, false});
}

void metrics_of_process(struct server *s, struct buf *out) {
    of_process(&(struct page_of_metrics){s, out, false});
    machine_metrics(out);
}

void metrics_write(struct server *s, struct buf *out) {
    metrics_of_model(s, s->scheduler != NULL, out);
    metrics_of_process(s, out);
}
