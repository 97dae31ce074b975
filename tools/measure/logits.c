/* infer logits: the logits of given token ids as a NumPy file, float32 [rows][vocab]. */
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "tools/interrupt.h"
#include "tools/npy.h"
#include "tools/session.h"
#include "tools/tool.h"

int cmd_logits(const struct options *o);

/* Runs the tokens and writes the rows that are wanted. */
static enum infer_status write_rows(struct outfile *out, struct session *s, const struct options *o,
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
            TRY(outfile_write(out, got.logits[i], (size_t)s->info.n_vocab * sizeof(float)));
        pos += m;
        progress_show(&s->progress, "tokens", pos, n, "tokens");
    }
    progress_clear(&s->progress);
    return INFER_OK;
}

static enum infer_status write_all(struct outfile *out, struct session *s, const struct options *o) {
    struct infer_row *rows;
    if (o->tokens.n > s->place.n_ctx)
        return err_set(INFER_E_FULL, "%d tokens, the context holds %d (--ctx)", o->tokens.n, s->place.n_ctx);
    TRY(npy_header(out, o->all ? o->tokens.n : 1, s->info.n_vocab));
    TRY(mem_new(&rows, (size_t)s->place.n_batch * sizeof *rows, "rows of a step"));
    enum infer_status st = write_rows(out, s, o, rows);
    mem_free(rows);
    return st;
}

/* The file is opened before the model is: a name that cannot be written shows before the work. */
static enum infer_status run(struct session *s, struct outfile **out, const struct options *o) {
    const char *path = strcmp(o->output, "-") == 0 ? "/dev/stdout" : o->output;
    TRY(session_model_path(o, s->path, sizeof s->path));
    TRY(tool_check_output(o, s->path, path));
    TRY(outfile_open(out, path, OUTFILE_DEFAULT));
    TRY(session_open(s, o, &(struct session_need){.slots = 1, .ctx = o->tokens.n, .all_logits = o->all}));
    interrupt_ends_at_once();
    return write_all(*out, s, o);
}

int cmd_logits(const struct options *o) {
    struct session s = {0};
    struct outfile *out = NULL;
    enum infer_status st = run(&s, &out, o);
    if (st)
        outfile_abort(out);
    else
        st = outfile_close(out);
    progress_clear(&s.progress);
    int code = st ? tool_fail(o, st) : EXIT_DONE;
    session_close(&s);
    return code;
}
