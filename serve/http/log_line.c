/* One line a request: never text of prompts or answers, control characters escaped. */
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include "serve/http/web_impl.h"

static void when(char *text, size_t n) {
    struct timeval t;
    struct tm utc;
    char seconds[32];
    gettimeofday(&t, NULL);
    strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", gmtime_r(&t.tv_sec, &utc));
    snprintf(text, n, "%s.%03dZ", seconds, (int)(t.tv_usec / 1000));
}

static void as_json(struct buf *b, const struct request_line *l, const char *at) {
    const struct job_counts *n = &l->counts;
    json_put(b, "{time:%s id:%s key:%s route:%s status:%d seconds:%.4f", at, l->request_id, l->key, l->route,
             l->status, l->seconds);
    if (l->model) json_put(b, "model:%s", l->model);
    if (n->prompt)
        json_put(b, "prompt_tokens:%d cached_tokens:%d answer_tokens:%d queue_ms:%.2f first_ms:%.2f",
                 n->prompt, n->cached, n->answer, n->queue_ms, n->first_ms);
    if (*l->why) json_put(b, "reason:%s", l->why);
    json_put(b, "}\n");
}

static void as_text(struct buf *b, const struct request_line *l, const char *at) {
    char why[256];
    text_escape(why, sizeof why, l->why, strnlen(l->why, 200));
    buf_printf(b, "%s %s %s%s%s %d %.1f ms", at, l->request_id, l->key, *l->key ? " " : "", l->route,
               l->status, 1e3 * l->seconds);
    if (l->model) {
        char name[256];
        text_escape(name, sizeof name, l->model, strnlen(l->model, 200));
        buf_printf(b, ", %s", name);
    }
    if (l->counts.prompt) {
        const struct job_counts *n = &l->counts;
        buf_printf(b, ", prompt %d (%d cached), answer %d, queued %.1f ms, first token %.1f ms", n->prompt,
                   n->cached, n->answer, n->queue_ms, n->first_ms);
    }
    buf_printf(b, "%s%s\n", *why ? ": " : "", why);
}

void log_request(const struct server *s, const struct request_line *l) {
    char at[48];
    struct buf b = {0};
    if (s->o.log_off) return;
    when(at, sizeof at);
    (s->o.log_json ? as_json : as_text)(&b, l, at);
    if (!b.failed && write(STDERR_FILENO, b.p, b.n) < 0) { /* a log that is full or closed ends nothing */
        buf_free(&b);
        return;
    }
    buf_free(&b);
}
