#include "tools/serve/metrics.h"
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <sys/resource.h>
#include "tools/serve/server.h"

const double metric_seconds[] = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                 1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
const int metric_n_seconds = sizeof metric_seconds / sizeof *metric_seconds;
const double metric_gaps[] = {.001, .0025, .005, .01, .025, .05, .075, .1, .15, .2, .3,
                              .4,   .5,    .75,  1,   2.5,  5,   7.5,  10, 20,  40, 80};
const int metric_n_gaps = sizeof metric_gaps / sizeof *metric_gaps;

void histogram_add(struct histogram *h, const double *bound, int n, double seconds) {
    int i = 0;
    while (i < n && seconds > bound[i]) i++;
    atomic_fetch_add(&h->bucket[i], 1);
    atomic_fetch_add(&h->count, 1);
    atomic_fetch_add(&h->sum_us, (unsigned long long)(seconds > 0 ? 1e6 * seconds : 0));
}

/* {model_name="..",engine="0"  */
static void labels(const struct server *s, struct buf *out) {
    buf_text(out, "{model_name=");
    buf_json_text(out, s->name);
    buf_text(out, ",engine=\"0\"");
}

static void value(struct server *s, struct buf *out, const char *type, const char *name, double x) {
    buf_printf(out, "# TYPE %s %s\n%s", name, type, name);
    if (strncmp(name, "vllm:", 5) == 0) {
        labels(s, out);
        buf_text(out, "}");
    }
    buf_printf(out, " %.17g\n", x);
}

static void histogram(struct server *s, struct buf *out, const char *name, struct histogram *h,
                      const double *bound, int n) {
    unsigned long long sum = 0;
    buf_printf(out, "# TYPE %s histogram\n", name);
    for (int i = 0; i <= n; i++) {
        sum += atomic_load(&h->bucket[i]);
        buf_printf(out, "%s_bucket", name);
        labels(s, out);
        if (i < n)
            buf_printf(out, ",le=\"%g\"} %llu\n", bound[i], sum);
        else
            buf_printf(out, ",le=\"+Inf\"} %llu\n", sum);
    }
    buf_printf(out, "%s_sum", name);
    labels(s, out);
    buf_printf(out, "} %.6f\n%s_count", (double)atomic_load(&h->sum_us) * 1e-6, name);
    labels(s, out);
    buf_printf(out, "} %llu\n", sum);
}

void metrics_write(struct server *s, struct buf *out) {
    struct metrics *m = &s->metrics;
    static const char *const reasons[] = {"stop", "length", "tool_calls"};
    int running = 0, waiting = 0;
    struct rusage use;
    if (s->lanes) lanes_count(s->lanes, &running, &waiting);
    value(s, out, "gauge", "vllm:num_requests_running", running);
    value(s, out, "gauge", "vllm:num_requests_waiting", waiting);
    value(s, out, "counter", "vllm:prompt_tokens_total", (double)atomic_load(&m->prompt_tokens));
    value(s, out, "counter", "vllm:generation_tokens_total", (double)atomic_load(&m->answer_tokens));
    value(s, out, "counter", "vllm:prefix_cache_queries_total", (double)atomic_load(&m->prompt_tokens));
    value(s, out, "counter", "vllm:prefix_cache_hits_total", (double)atomic_load(&m->cached_tokens));
    buf_text(out, "# TYPE vllm:request_success_total counter\n");
    for (int i = 0; i < 3; i++) {
        buf_text(out, "vllm:request_success_total");
        labels(s, out);
        buf_printf(out, ",finished_reason=\"%s\"} %llu\n", reasons[i],
                   (unsigned long long)atomic_load(&m->finished[i]));
    }
    histogram(s, out, "vllm:time_to_first_token_seconds", &m->first, metric_seconds, metric_n_seconds);
    histogram(s, out, "vllm:inter_token_latency_seconds", &m->gap, metric_gaps, metric_n_gaps);
    histogram(s, out, "vllm:e2e_request_latency_seconds", &m->whole, metric_seconds, metric_n_seconds);
    histogram(s, out, "vllm:request_queue_time_seconds", &m->queue, metric_seconds, metric_n_seconds);
    const double steps = (double)atomic_load(&m->steps), prompt = 1e-6 * (double)atomic_load(&m->prompt_us),
                 answer = 1e-6 * (double)atomic_load(&m->answer_us);
    value(s, out, "counter", "llamacpp:prompt_tokens_total", (double)atomic_load(&m->prompt_tokens));
    value(s, out, "counter", "llamacpp:prompt_seconds_total", prompt);
    value(s, out, "counter", "llamacpp:tokens_predicted_total", (double)atomic_load(&m->answer_tokens));
    value(s, out, "counter", "llamacpp:tokens_predicted_seconds_total", answer);
    value(s, out, "gauge", "llamacpp:requests_processing", running);
    value(s, out, "gauge", "llamacpp:requests_deferred", waiting);
    value(s, out, "counter", "llamacpp:n_decode_total", steps);
    value(s, out, "gauge", "llamacpp:n_busy_slots_per_decode",
          steps > 0 ? (double)atomic_load(&m->busy) / steps : 0);
    value(s, out, "counter", "infer_rejected_total", (double)atomic_load(&m->refused));
    value(s, out, "counter", "infer_queue_full_total", (double)atomic_load(&m->queue_full));
    value(s, out, "counter", "infer_cancelled_total", (double)atomic_load(&m->gone));
    value(s, out, "counter", "infer_failed_total", (double)atomic_load(&m->failed));
    getrusage(RUSAGE_SELF, &use);
    value(s, out, "counter", "process_cpu_seconds_total",
          (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
              1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec));
    value(s, out, "gauge", "process_start_time_seconds", (double)s->created);
}
