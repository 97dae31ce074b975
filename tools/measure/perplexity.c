/* infer perplexity: how surprised the model is by a text; exp of the mean of -log p(token).
 *
 * The text is cut into windows of 512 tokens that know nothing of each other; the tokens 256 to 511 of each
 * count, so every one of them has at least 256 tokens in front. A model that puts BOS before a text gets it as
 * the first token of each window, in the place of the token that stands there. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "tools/session.h"
#include "files/textfile.h"
#include "tools/tool.h"

enum { WINDOW = 512, FIRST = 256, STEP = 128 };

int cmd_perplexity(const struct options *o);

struct perplexity {
    struct session session;
    int32_t *ids; /* ids[n] */
    size_t n;
    int32_t bos; /* -1: the model adds none */
    int n_window;
    double sum, sum2; /* of -log p and its square */
    long count;
};

static enum infer_status tokenize(struct perplexity *p, const struct options *o) {
    char *text;
    size_t n_text, n = 0;
    TRY(text_read(&text, &n_text, o->file, TEXT_CORPUS));
    struct infer_model *m = p->session.model;
    enum infer_status st = mem_new(&p->ids, (n_text + 16) * sizeof *p->ids, "token ids of the text");
    if (!st) st = infer_tokenize(m, text, NULL, n_text, 0, p->ids, n_text + 16, &p->n);
    mem_free(text);
    int32_t begin[8];
    if (!st) st = infer_tokenize(m, "a", NULL, 1, INFER_TOK_ADD, begin, 8, &n);
    if (st) return st;
    p->bos = n && begin[0] == infer_bos(m) ? begin[0] : -1;
    p->n_window = (int)(p->n / WINDOW);
    if (p->n_window == 0)
        return err_set(INFER_E_INPUT, "%s has %zu tokens, one window takes %d", o->file, p->n, WINDOW);
    return INFER_OK;
}

/* -log of the softmax of logits[n_vocab] at id */
static double surprise(const float *logits, int n_vocab, int32_t id) {
    float max = logits[0];
    for (int i = 1; i < n_vocab; i++) max = logits[i] > max ? logits[i] : max;
    double sum = 0;
    for (int i = 0; i < n_vocab; i++) sum += expf(logits[i] - max);
    return log(sum) - (double)(logits[id] - max);
}

static enum infer_status run_window(struct perplexity *p, int seq, const int32_t *ids) {
    struct session *s = &p->session;
    TRY(infer_seq_rewind(s->engine, seq, 0));
    for (int pos = 0; pos < WINDOW - 1;) { /* the last token is predicted, not fed */
        struct infer_row rows[STEP];
        int m = WINDOW - 1 - pos < STEP ? WINDOW - 1 - pos : STEP;
        if (m > s->place.n_batch) m = s->place.n_batch;
        for (int i = 0; i < m; i++)
            rows[i] = (struct infer_row){.id = pos + i == 0 && p->bos >= 0 ? p->bos : ids[pos + i],
                                         .pos = pos + i,
                                         .seq = seq,
                                         .want = pos + i >= FIRST - 1 ? INFER_WANT_LOGITS : INFER_WANT_NONE};
        struct infer_output out;
        TRY(infer_step(s->engine, rows, m, &out));
        int from = pos > FIRST - 1 ? pos : FIRST - 1;
        for (int i = 0; i < out.n; i++) {
            double x = surprise(out.logits[i], s->info.n_vocab, ids[from + i + 1]);
            p->sum += x;
            p->sum2 += x * x;
            p->count++;
        }
        pos += m;
    }
    return INFER_OK;
}

static enum infer_status print_result(const struct perplexity *p, const struct options *o) {
    double mean = p->sum / (double)p->count, variance = p->sum2 / (double)p->count - mean * mean;
    double value = exp(mean), error = value * sqrt(variance / (double)p->count);
    if (!isfinite(value)) return err_set(INFER_E_NAN, "the perplexity is not finite");
    if (o->json) {
        printf("{\"perplexity\":%.6f,\"standard_error\":%.6f,\"tokens\":%ld,\"windows\":%d}\n", value, error,
               p->count, p->n_window);
    } else {
        printf("perplexity %.4f +- %.4f, %ld tokens of %d windows\n", value, error, p->count, p->n_window);
    }
    return tool_flush();
}

static enum infer_status run_all(struct perplexity *p, const struct options *o) {
    struct session *s = &p->session;
    TRY(session_open(
        s, o,
        &(struct session_need){.slots = 1, .ctx = WINDOW, .batch = STEP, .all_logits = true, .text = true}));
    if (s->place.n_ctx < WINDOW - 1)
        return err_set(INFER_E_INPUT, "a window has %d tokens, the context %d (--ctx)", WINDOW,
                       s->place.n_ctx);
    TRY(tokenize(p, o));
    int seq;
    TRY(infer_seq_open(s->engine, &seq));
    for (int w = 0; w < p->n_window; w++) {
        progress_show(&s->progress, "perplexity", (double)w * WINDOW, (double)p->n_window * WINDOW, "tokens");
        TRY(run_window(p, seq, p->ids + (size_t)w * WINDOW));
    }
    progress_clear(&s->progress);
    return print_result(p, o);
}

int cmd_perplexity(const struct options *o) {
    struct perplexity p = {0};
    enum infer_status st = run_all(&p, o);
    progress_clear(&p.session.progress);
    int code = st ? tool_fail(o, st) : EXIT_DONE;
    mem_free(p.ids);
    session_close(&p.session);
    return code;
}
