#include "tools/talk/logprobs_show.h"
#include <math.h>
#include <stdio.h>
#include "base/mem.h"
#include "tools/term.h"

static json_t *entry_json(const struct infer_model *m, const struct infer_logprob *e) {
    size_t n;
    const char *piece = infer_piece(m, e->id, true, false, &n);
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

json_t *logprobs_json(const struct infer_logprobs *p, const struct infer_model *m, int n) {
    json_t *all = json_array();
    for (int i = 0; i < n && i < p->n; i++) {
        const struct infer_logprob *row = infer_logprobs_at(p, i);
        json_t *j = entry_json(m, row), *top = json_array();
        for (int k = 1; k <= p->n_top && row[k].id >= 0; k++)
            json_array_append_new(top, entry_json(m, row + k));
        json_object_set_new(j, "top", top);
        json_array_append_new(all, j);
    }
    return all;
}

/* "piece" with its line ends and quotes escaped, as printable text */
static void print_piece(const struct infer_model *m, int32_t id) {
    size_t n;
    const char *piece = infer_piece(m, id, true, false, &n);
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

void logprobs_print(const struct infer_logprobs *p, const struct infer_model *m, int n) {
    for (int i = 0; i < n && i < p->n; i++) {
        const struct infer_logprob *row = infer_logprobs_at(p, i);
        fprintf(stderr, "%9.4f %5.1f%%  ", (double)row->logprob, 100 * exp((double)row->logprob));
        print_piece(m, row->id);
        for (int k = 1; k <= p->n_top && row[k].id >= 0; k++) {
            fprintf(stderr, "%s%.1f%% ", k == 1 ? "  of  " : ", ", 100 * exp((double)row[k].logprob));
            print_piece(m, row[k].id);
        }
        fputc('\n', stderr);
    }
}
