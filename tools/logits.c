/* infer logits: the logits of given token ids as a NumPy file, float32 [rows][vocab]. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "mem.h"
#include "session.h"
#include "tool.h"

int cmd_logits(const struct options *o);

/* The NumPy header of a float32 array [rows][columns], little endian, C order. source: NumPy's npy format 1.0 */
static bool write_header(FILE *out, int rows, int columns) {
    char dict[118];
    int n = snprintf(dict, sizeof dict, "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }", rows,
                     columns);
    memset(dict + n, ' ', sizeof dict - (size_t)n); /* 10 + 118 bytes: the data begins at a multiple of 64 */
    dict[sizeof dict - 1] = '\n';
    return fwrite("\x93NUMPY\x01\x00\x76\x00", 1, 10, out) == 10 &&
           fwrite(dict, 1, sizeof dict, out) == sizeof dict;
}

/* Runs the tokens and writes the rows that are wanted. */
static enum infer_status write_rows(FILE *out, struct session *s, const struct options *o,
                                    struct infer_row *rows) {
    const int n = o->tokens.n, step = o->decode_rows ? 1 : s->place.n_batch;
    int seq;
    TRY(infer_seq_open(s->engine, &seq));
    for (int pos = 0; pos < n;) {
        int m = n - pos < step ? n - pos : step;
        for (int i = 0; i < m; i++)
            rows[i] =
                (struct infer_row){.id = o->tokens.value[pos + i],
                                   .pos = pos + i,
                                   .seq = seq,
                                   .decode = o->decode_rows,
                                   .want = o->all || pos + i + 1 == n ? INFER_WANT_LOGITS : INFER_WANT_NONE};
        struct infer_output got;
        TRY(infer_step(s->engine, rows, m, &got));
        for (int i = 0; i < got.n; i++)
            if (fwrite(got.logits[i], sizeof(float), (size_t)s->info.n_vocab, out) != (size_t)s->info.n_vocab)
                return err_set(INFER_E_IO, "%s: %s", o->output, strerror(errno));
        pos += m;
        progress_show(&s->progress, "tokens", pos, n, "tokens");
    }
    progress_clear(&s->progress);
    return INFER_OK;
}

static enum infer_status write_file(struct session *s, const struct options *o) {
    bool to_stdout = strcmp(o->output, "-") == 0;
    FILE *out = to_stdout ? stdout : fopen(o->output, "wb");
    if (!out) return err_set(INFER_E_IO, "%s: %s", o->output, strerror(errno));
    struct infer_row *rows;
    enum infer_status st = mem_new(&rows, (size_t)s->place.n_batch * sizeof *rows, "rows of a step");
    if (!st && !write_header(out, o->all ? o->tokens.n : 1, s->info.n_vocab))
        st = err_set(INFER_E_IO, "%s: %s", o->output, strerror(errno));
    if (!st) st = write_rows(out, s, o, rows);
    mem_free(rows);
    if ((to_stdout ? fflush(out) : fclose(out)) != 0 && !st)
        st = err_set(INFER_E_IO, "%s: %s", o->output, strerror(errno));
    if (st && !to_stdout) remove(o->output); /* half a file is no result */
    return st;
}

int cmd_logits(const struct options *o) {
    struct session s = {0};
    enum infer_status st = INFER_OK;
    if (!o->tokens.n) st = err_set(INFER_E_INPUT, "--tokens is missing: the ids, like 1,5,9");
    if (!st && !o->output) st = err_set(INFER_E_INPUT, "-o is missing: the file to write, - for stdout");
    if (!st)
        st =
            session_open(&s, o, &(struct session_need){.slots = 1, .ctx = o->tokens.n, .all_logits = o->all});
    if (!st && o->tokens.n > s.place.n_ctx)
        st = err_set(INFER_E_FULL, "%d tokens, the context holds %d (--ctx)", o->tokens.n, s.place.n_ctx);
    if (!st) st = write_file(&s, o);
    int code = st ? tool_fail(o, st) : EXIT_DONE;
    session_close(&s);
    return code;
}
