#include "request/logprobs.h"
#include <math.h>
#include <string.h>
#include "base/mem.h"
#include "tools/term.h"

void logprobs_start(struct logprobs *p, int n_top) {
    if (n_top != p->n_top) logprobs_free(p);
    p->n_top = n_top;
    p->n = 0;
}

void logprobs_free(struct logprobs *p) {
    mem_free(p->row);
    *p = (struct logprobs){.n_top = -1};
}

/* The likeliest of logits[n_vocab] into top[n_top]; how many there are. */
static int likeliest(const float *logits, int n_vocab, struct logprob *top, int n_top) {
    int n = 0;
    for (int id = 0; id < n_vocab; id++) {
        if (n == n_top && !(n && logits[id] > top[n - 1].logprob)) continue;
        int at = n < n_top ? n++ : n - 1;
        for (; at > 0 && logits[id] > top[at - 1].logprob; at--) top[at] = top[at - 1];
        top[at] = (struct logprob){id, logits[id]};
    }
    return n;
}

static struct logprob *row_at(const struct logprobs *p, int i) {
    return p->row + (size_t)i * (size_t)(1 + p->n_top);
}

enum infer_status logprobs_add(struct logprobs *p, const float *logits, int n_vocab, int32_t id) {
    if (p->n == p->cap) {
        int cap = p->cap ? 2 * p->cap : 256;
        struct logprob *grown = mem_realloc(p->row, (size_t)cap * (size_t)(1 + p->n_top) * sizeof *grown);
        if (!grown) return err_set(INFER_E_MEMORY, "log probabilities of %d tokens", cap);
        p->row = grown;
        p->cap = cap;
    }
    struct logprob *row = row_at(p, p->n++);
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < n_vocab; i++) max = logits[i] > max ? logits[i] : max;
    for (int i = 0; i < n_vocab; i++) sum += exp(logits[i] - max);
    double all = max + log(sum);
    row[0] = (struct logprob){id, (float)(logits[id] - all)};
    int n = likeliest(logits, n_vocab, row + 1, p->n_top);
    for (int i = 1; i <= n; i++) row[i].logprob = (float)(row[i].logprob - all);
    for (int i = n + 1; i <= p->n_top; i++) row[i] = (struct logprob){-1, -INFINITY}; /* a tiny vocabulary */
    return INFER_OK;
}

static json_t *entry_json(const struct session *s, const struct logprob *e) {
    size_t n;
    const char *piece = infer_piece(s->model, e->id, true, false, &n);
    json_t *j = json_pack("{s:i, s:f}", "id", (int)e->id, "logprob", (double)e->logprob);
    json_t *text = json_stringn(piece, n);
    if (j && text) {
        json_object_set_new(j, "token", text);
    } else if (j) {
        json_t *bytes = json_array();
        for (size_t i = 0; i < n; i++) json_array_append_new(bytes, json_integer((unsigned char)piece[i]));
        json_object_set_new(j, "bytes", bytes);
    }
    return j;
}

json_t *logprobs_json(const struct logprobs *p, const struct session *s, int n) {
    json_t *all = json_array();
    for (int i = 0; i < n && i < p->n; i++) {
        const struct logprob *row = row_at(p, i);
        json_t *j = entry_json(s, row), *top = json_array();
        for (int k = 1; k <= p->n_top && row[k].id >= 0; k++)
            json_array_append_new(top, entry_json(s, row + k));
        json_object_set_new(j, "top", top);
        json_array_append_new(all, j);
    }
    return all;
}

/* "piece" with its line ends and quotes escaped, as printable text */
static void print_piece(const struct session *s, int32_t id) {
    size_t n;
    const char *piece = infer_piece(s->model, id, true, false, &n);
    fputc('"', stderr);
    for (size_t i = 0, len; i < n; i += len) {
        len = text_utf8_len(piece + i, n - i);
        if (!len) len = 1;
        if (piece[i] == '\n' || piece[i] == '\t')
            fputs(piece[i] == '\n' ? "\\n" : "\\t", stderr);
        else
            term_write_safe(stderr, piece + i, len);
    }
    fputc('"', stderr);
}

void logprobs_print(const struct logprobs *p, const struct session *s, int n) {
    for (int i = 0; i < n && i < p->n; i++) {
        const struct logprob *row = row_at(p, i);
        fprintf(stderr, "%9.4f %5.1f%%  ", (double)row->logprob, 100 * exp((double)row->logprob));
        print_piece(s, row->id);
        for (int k = 1; k <= p->n_top && row[k].id >= 0; k++) {
            fprintf(stderr, "%s%.1f%% ", k == 1 ? "  of  " : ", ", 100 * exp((double)row[k].logprob));
            print_piece(s, row[k].id);
        }
        fputc('\n', stderr);
    }
}
