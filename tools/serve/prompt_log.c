#include "tools/serve/prompt_log.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/mem.h"
#include "tools/serve/server.h"

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

static void add_prompt(const struct job *j, const struct prompt *p, struct buf *b) {
    struct buf text = {0};
    if (p->text) {
        buf_json(b, p->text, p->n_text);
        return;
    }
    for (int i = 0; i < p->n; i++) {
        size_t n;
        const char *piece = infer_piece(j->server->model, p->ids[i], true, i == 0, &n);
        buf_add(&text, piece, n);
    }
    buf_json(b, text.p ? text.p : "", text.n);
    buf_free(&text);
}

static void add_answer(const struct job_answer *a, struct buf *b) {
    buf_text(b, "{\"text\":");
    buf_json(b, a->text.p ? a->text.p : "", a->text.n);
    if (a->reasoning.n) {
        buf_text(b, ",\"reasoning\":");
        buf_json(b, a->reasoning.p, a->reasoning.n);
    }
    for (int i = 0; i < a->n_call; i++) {
        buf_text(b, i ? ",{\"name\":" : ",\"calls\":[{\"name\":");
        buf_json(b, a->call[i].name.p ? a->call[i].name.p : "", a->call[i].name.n);
        buf_text(b, ",\"arguments\":");
        buf_json(b, a->call[i].args.p ? a->call[i].args.p : "", a->call[i].args.n);
        buf_text(b, "}");
    }
    buf_text(b, a->n_call ? "]}" : "}");
}

void prompt_log_add(struct prompt_log *l, struct job *j, const char *key, const char *route, int status) {
    struct buf b = {0};
    char at[40];
    const time_t now = time(NULL);
    struct tm utc;
    if (!l || !j->n_choice) return;
    strftime(at, sizeof at, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    buf_printf(&b, "{\"time\":\"%s\",\"id\":", at);
    buf_json_text(&b, j->request_id);
    buf_text(&b, ",\"key\":");
    buf_json_text(&b, key);
    buf_text(&b, ",\"route\":");
    buf_json_text(&b, route);
    buf_printf(&b, ",\"status\":%d,\"prompts\":[", status);
    for (int i = 0; i < j->n_prompt; i++) {
        if (i) buf_text(&b, ",");
        add_prompt(j, &j->prompt[i], &b);
    }
    buf_text(&b, "],\"answers\":[");
    for (int i = 0; i < j->n_choice; i++) {
        if (i) buf_text(&b, ",");
        add_answer(job_answer(j, i), &b);
    }
    buf_text(&b, "]}\n");
    if (!b.failed && write(l->fd, b.p, b.n) != (ssize_t)b.n && !atomic_exchange(&l->failed, true))
        fprintf(stderr, "infer: --log-prompts: a line could not be written: %s\n", strerror(errno));
    buf_free(&b);
}
