#include "serve/core/prompt_log.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/mem.h"
#include "serve/core/server.h"

struct prompt_log {
    int fd;
    atomic_bool failed; /* and said so */
};

enum infer_status prompt_log_open(struct prompt_log **out, const char *path) {
    struct stat st;
    *out = NULL;
    if (!path) return INFER_OK;
    const int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return err_set(INFER_E_IO, "--log-prompts %s: %s", path, strerror(errno));
    enum infer_status s = INFER_OK;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_mode & 077)
        s = err_set(INFER_E_INPUT, "--log-prompts %s can be read by others: chmod 600 %s", path, path);
    if (!s) s = mem_new(out, sizeof **out, "the log of prompts");
    if (s)
        close(fd);
    else
        (*out)->fd = fd;
    return s;
}

void prompt_log_close(struct prompt_log *l) {
    if (!l) return;
    close(l->fd);
    mem_free(l);
}

static void add_prompt(const struct job *j, const struct infer_prompt *p, struct buf *b) {
    struct buf text = {0};
    if (p->text) {
        json_put(b, "%.*s", (int)p->n_text, p->text);
        return;
    }
    for (int i = 0; i < p->n; i++) {
        size_t n;
        const char *piece = infer_piece(j->server->model, p->ids[i], true, i == 0, &n);
        buf_add(&text, piece, n);
    }
    json_put(b, "%.*s", BUF_TEXT(text));
    buf_free(&text);
}

static void add_answer(const struct job_answer *a, struct buf *b) {
    json_put(b, "{text:%.*s", BUF_TEXT(a->text));
    if (a->reasoning.n) json_put(b, "reasoning:%.*s", BUF_TEXT(a->reasoning));
    if (a->n_call) json_put(b, "calls:[");
    for (int i = 0; i < a->n_call; i++)
        json_put(b, "{name:%.*s arguments:%.*s}", BUF_TEXT(a->call[i].name), BUF_TEXT(a->call[i].args));
    json_put(b, a->n_call ? "]}" : "}");
}

void prompt_log_add(struct prompt_log *l, struct job *j, const char *key, const char *route, int status) {
    struct buf b = {0};
    char at[40];
    const time_t now = time(NULL);
    struct tm utc;
    if (!l || !j->n_choice) return;
    strftime(at, sizeof at, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    json_put(&b, "{time:%s id:%s key:%s route:%s status:%d prompts:[", at, j->request_id, key, route, status);
    for (int i = 0; i < j->n_prompt; i++) add_prompt(j, &j->prompt[i], &b);
    json_put(&b, "] answers:[");
    for (int i = 0; i < j->n_choice; i++) add_answer(job_answer(j, i), &b);
    json_put(&b, "]}\n");
    if (!b.failed && write(l->fd, b.p, b.n) != (ssize_t)b.n && !atomic_exchange(&l->failed, true))
        fprintf(stderr, "infer: --log-prompts: a line could not be written: %s\n", strerror(errno));
    buf_free(&b);
}
