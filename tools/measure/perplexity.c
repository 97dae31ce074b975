/* infer perplexity: how surprised the model is by a text; exp of the mean of -log p(token).
 *
 * The text is cut into windows of 512 tokens that know nothing of each other; the tokens 256 to 511 of each
 * count, so every one of them has at least 256 tokens in front. A model that puts BOS before a text gets it as
 * the first token of each window, in the place of the token that stands there.
 *
 * --save-logits keeps what the model said of each counted token, --kl compares with that (kl.h). */
#include <math.h>
#include <stdio.h>
#include "base/mem.h"
#include "tools/measure/kl.h"
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
    struct kl kl;
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
    if (o->windows && p->n_window > o->windows) p->n_window = o->windows;
    if (p->n_window == 0)
        return err_set(INFER_E_INPUT, "%s has %zu tokens, one window takes %d", o->file, p->n, WINDOW);
    return INFER_OK;
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
            double x = kl_surprise(out.logits[i], s->info.n_vocab, ids[from + i + 1]);
            p->sum += x;
            p->sum2 += x * x;
            p->count++;
            TRY(kl_token(&p->kl, out.logits[i], ids[from + i + 1], x));
        }
        pos += m;
    }
    return INFER_OK;
}

/* Beside a base, as numbers by their names in JSON. */
struct named {
    const char *name, *text;
    double value, error; /* error below 0: none */
};
static void print_kl(struct perplexity *p, double value, bool json) {
    struct kl *k = &p->kl;
    const double n = (double)k->n, mean = k->sum / n, change = k->change / n, same = (double)k->same / n;
    const double base = exp(k->base_sum / n);
    const struct named rows[] = {
        {"base_perplexity", "perplexity of the base", base, -1},
        {"perplexity_ratio", "perplexity / that of the base", value / base, -1},
        {"kl_mean", "KL divergence, mean", mean, sqrt(fmax(0, k->sum2 / n - mean * mean) / n)},
        {"kl_median", "  median", kl_quantile(k, 0.5), -1},
        {"kl_99", "  of 99% of the tokens less than", kl_quantile(k, 0.99), -1},
        {"kl_max", "  largest", kl_quantile(k, 1), -1},
        {"same_top", "the likeliest token is the same, share", same, sqrt(same * (1 - same) / n)},
        {"p_change_mean", "p of the token that came, mean change", change,
         sqrt(fmax(0, k->change2 / n - change * change) / n)},
        {"p_change_rms", "  root mean square", sqrt(k->change2 / n), -1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct named *r = &rows[i];
        if (json && r->error >= 0)
            printf(",\"%s\":%.8g,\"%s_error\":%.3g", r->name, r->value, r->name, r->error);
        else if (json)
            printf(",\"%s\":%.8g", r->name, r->value);
        else if (r->error >= 0)
            printf("%-40s %12.6f +- %.6f\n", r->text, r->value, r->error);
        else
            printf("%-40s %12.6f\n", r->text, r->value);
    }
}

static enum infer_status print_result(struct perplexity *p, const struct options *o) {
    double mean = p->sum / (double)p->count, variance = p->sum2 / (double)p->count - mean * mean;
    double value = exp(mean), error = value * sqrt(variance / (double)p->count);
    if (!isfinite(value)) return err_set(INFER_E_NAN, "the perplexity is not finite");
    if (o->json) {
        printf("{\"perplexity\":%.6f,\"standard_error\":%.6f,\"tokens\":%ld,\"windows\":%d", value, error,
               p->count, p->n_window);
        if (p->kl.n) print_kl(p, value, true);
        printf("}\n");
    } else {
        printf("perplexity %.4f +- %.4f, %ld tokens of %d windows\n", value, error, p->count, p->n_window);
        if (p->kl.n) print_kl(p, value, false);
    }
    return tool_flush();
}

/* What is saved and what it is compared with, of the windows that both have. */
static enum infer_status open_base(struct perplexity *p, const struct options *o) {
    struct kl_header h = {.n_vocab = (uint32_t)p->session.info.n_vocab,
                          .window = WINDOW,
                          .first = FIRST,
                          .n_window = (uint32_t)p->n_window};
    if (o->kl) {
        TRY(kl_open(&p->kl, o->kl, &h));
        p->n_window = (int)h.n_window;
        return INFER_OK;
    }
    if (!o->save_logits) return INFER_OK;
    TRY(tool_check_output(o, p->session.path, o->save_logits));
    return kl_make(&p->kl, o->save_logits, &h);
}

static enum infer_status run_all(struct perplexity *p, const struct options *o) {
    struct session *s = &p->session;
    if (o->kl && o->save_logits)
        return err_set(INFER_E_INPUT, "--kl compares with a base, --save-logits makes one: one of them");
    TRY(session_open(
        s, o,
        &(struct session_need){.slots = 1, .ctx = WINDOW, .batch = STEP, .all_logits = true, .text = true}));
    if (s->place.n_ctx < WINDOW - 1)
        return err_set(INFER_E_INPUT, "a window has %d tokens, the context %d (--ctx)", WINDOW,
                       s->place.n_ctx);
    TRY(tokenize(p, o));
    TRY(open_base(p, o));
    int seq;
    TRY(infer_seq_open(s->engine, &seq));
    for (int w = 0; w < p->n_window; w++) {
        progress_show(&s->progress, "perplexity", (double)w * WINDOW, (double)p->n_window * WINDOW, "tokens");
        TRY(run_window(p, seq, p->ids + (size_t)w * WINDOW));
    }
    progress_clear(&s->progress);
    TRY(kl_done(&p->kl));
    return print_result(p, o);
}

int cmd_perplexity(const struct options *o) {
    struct perplexity p = {0};
    enum infer_status st = run_all(&p, o);
    progress_clear(&p.session.progress);
    int code = st ? tool_fail(o, st) : EXIT_DONE;
    mem_free(p.ids);
    kl_close(&p.kl);
    session_close(&p.session);
    return code;
}
