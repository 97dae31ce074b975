/* infer imatrix: which columns of its matrices a model uses most, on a text.
 *
 * The text is cut into chunks of so many tokens that know nothing of each other (a model that puts BOS before a text gets it in the place
 * of each chunk's first token, as in perplexity); what is left behind the last whole one is not read. */
#include <stdio.h>
#include <string.h>
#include "files/textfile.h"
#include "tools/file/imatrix.h"
#include "tools/session.h"
#include "tools/tool.h"

enum { CHUNK = 512 };

int cmd_imatrix(const struct options *o);

struct collector {
    struct session session;
    struct imatrix matrix;
    struct imatrix_entry *last; /* rows of a matrix come one after the other */
    const char *last_name;      /* which tensor's, by the address */
    enum infer_status status;   /* the first failure in a step */
    int32_t *ids;
    size_t n;
    int32_t bos; /* -1: the model adds none */
};

/* blk.3.ffn_up.5.weight, of a file that has its experts one by one, belongs to the stack that quantize makes of them. */
static void stack_name(const char *name, char out[80]) {
    int layer, expert, end = 0;
    char kind[16];
    if (sscanf(name, "blk.%d.ffn_%15[a-z].%d.weight%n", &layer, kind, &expert, &end) == 3 && end &&
        !name[end])
        snprintf(out, 80, "blk.%d.ffn_%s_exps.weight", layer, kind);
    else
        snprintf(out, 80, "%s", name);
}

/* What is outside of the blocks (the head) is left to the encoder, as llama.cpp does. */
static void collect(void *user, const char *name, int n_matrix, int matrix, const float *x, int k) {
    struct collector *c = user;
    if (c->status || strncmp(name, "blk.", 4) != 0) return;
    if (name != c->last_name || !x) { /* with x the entry is there: all are announced */
        char full[80];
        stack_name(name, full);
        c->status = imatrix_add(&c->matrix, full, n_matrix, k, &c->last);
        c->last_name = name;
    }
    if (!x || c->status) return;
    double *sum2 = c->last->sum2 + (size_t)matrix * (size_t)k;
    for (int i = 0; i < k; i++) sum2[i] += (double)x[i] * (double)x[i];
    c->last->count[matrix]++;
}

static enum infer_status read_text(struct collector *c, const struct options *o) {
    const struct infer_model *m = c->session.model;
    char *text;
    size_t n_text, n;
    int32_t begin[8];
    TRY(text_read(&text, &n_text, o->file, TEXT_CORPUS));
    enum infer_status st = mem_new(&c->ids, (n_text + 16) * sizeof *c->ids, "token ids of the text");
    if (!st) st = infer_tokenize(m, text, NULL, n_text, 0, c->ids, n_text + 16, &c->n);
    mem_free(text);
    if (!st) st = infer_tokenize(m, "a", NULL, 1, INFER_TOK_ADD, begin, 8, &n);
    if (st) return st;
    c->bos = n && begin[0] == infer_bos(m) ? begin[0] : -1;
    c->matrix.n_chunk = (uint32_t)(c->n / CHUNK);
    c->matrix.chunk_size = CHUNK;
    if (o->chunks && c->matrix.n_chunk > (uint32_t)o->chunks) c->matrix.n_chunk = (uint32_t)o->chunks;
    snprintf(c->matrix.dataset, sizeof c->matrix.dataset, "%s", o->file);
    if (c->matrix.n_chunk == 0)
        return err_set(INFER_E_INPUT, "%s has %zu tokens, one chunk takes %d", o->file, c->n, CHUNK);
    return INFER_OK;
}

static enum infer_status run_chunk(struct collector *c, int seq, const int32_t *ids) {
    struct infer_row rows[CHUNK];
    struct infer_output out;
    const int batch = c->session.place.n_batch < CHUNK ? c->session.place.n_batch : CHUNK;
    TRY(infer_seq_rewind(c->session.engine, seq, 0));
    for (int pos = 0, n; pos < CHUNK; pos += n) {
        n = CHUNK - pos < batch ? CHUNK - pos : batch;
        for (int i = 0; i < n; i++)
            rows[i] = (struct infer_row){
                .id = pos + i == 0 && c->bos >= 0 ? c->bos : ids[pos + i], .pos = pos + i, .seq = seq};
        TRY(infer_step(c->session.engine, rows, n, &out));
        TRY(c->status);
    }
    return INFER_OK;
}

/* Experts that no row chose have no importance: quantize takes their columns for equal. */
static void say_empty(const struct imatrix *m) {
    int empty = 0, all = 0;
    for (int i = 0; i < m->n_entry; i++)
        for (int k = 0; k < m->entry[i].n_matrix; k++, all++) empty += m->entry[i].count[k] == 0;
    if (empty)
        tool_say("no token of the text went to %d of %d matrices of experts: a longer or wider text would "
                 "reach more",
                 empty, all);
}

static enum infer_status run(struct collector *c, struct gguf_writer **w, const struct options *o) {
    struct session *s = &c->session;
    struct options local = *o;
    int seq;
    if (local.device && strcmp(local.device, "auto") == 0) local.device = "cpu";
    TRY(session_model_path(o, s->path, sizeof s->path));
    TRY(tool_check_output(o, s->path, o->output));
    TRY(gguf_writer_open(w, o->output));
    TRY(session_open(
        s, &local,
        &(struct session_need){
            .slots = 1, .ctx = CHUNK, .batch = CHUNK, .text = true, .tap = collect, .tap_user = c}));
    if (s->place.n_ctx < CHUNK)
        return err_set(INFER_E_INPUT, "a chunk has %d tokens, the context %d (--ctx)", CHUNK, s->place.n_ctx);
    TRY(c->status);
    TRY(read_text(c, o));
    TRY(infer_seq_open(s->engine, &seq));
    for (uint32_t i = 0; i < c->matrix.n_chunk; i++) {
        progress_show(&s->progress, "importance", (double)i * CHUNK, (double)c->matrix.n_chunk * CHUNK,
                      "tokens");
        TRY(run_chunk(c, seq, c->ids + (size_t)i * CHUNK));
    }
    progress_clear(&s->progress);
    return imatrix_write(&c->matrix, *w);
}

int cmd_imatrix(const struct options *o) {
    struct collector c = {0};
    struct gguf_writer *w = NULL;
    enum infer_status st = run(&c, &w, o);
    if (st)
        gguf_writer_abort(w);
    else
        st = gguf_writer_close(w);
    progress_clear(&c.session.progress);
    int code = st ? tool_fail(o, st) : EXIT_DONE;
    if (!st && !o->quiet) {
        tool_say("%s: %d matrices, %u chunks of %d tokens", o->output, c.matrix.n_entry, c.matrix.n_chunk,
                 CHUNK);
        say_empty(&c.matrix);
    }
    mem_free(c.ids);
    session_close(&c.session);
    imatrix_free(&c.matrix);
    return code;
}
