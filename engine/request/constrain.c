#include "request/constrain.h"
#include "text/grammar/grammar.h"
#include <string.h>
#include "base/mem.h"

struct infer_constraint {
    struct matcher *matcher;
    float *logits; /* logits[n_vocab]: a copy to forbid tokens in */
    int n_vocab;
};

static const char *piece(void *model, int32_t id, size_t *n) {
    return infer_piece(model, id, false, false, n);
}
static bool ends(void *model, int32_t id) { return infer_is_stop(model, id); }

enum infer_status infer_grammar_vocab_open(struct infer_grammar_vocab **out, const struct infer_model *m) {
    struct infer_model_info info;
    infer_model_info(m, &info);
    const struct grammar_tokens tokens = {info.n_vocab, piece, ends, (void *)m};
    return grammar_vocab_open(out, &tokens);
}

enum infer_status infer_constraint_open(struct infer_constraint **out, const struct infer_grammar *g,
                                        const struct infer_grammar_vocab *v, int n_vocab) {
    struct infer_constraint *c;
    *out = NULL;
    TRY(mem_new(&c, sizeof *c, "a grammar"));
    c->n_vocab = n_vocab;
    enum infer_status st = matcher_open(&c->matcher, g, v);
    if (!st) st = mem_new(&c->logits, (size_t)n_vocab * sizeof *c->logits, "logits under a grammar");
    if (st)
        infer_constraint_close(c);
    else
        *out = c;
    return st;
}

void infer_constraint_close(struct infer_constraint *c) {
    if (!c) return;
    matcher_close(c->matcher);
    mem_free(c->logits);
    mem_free(c);
}

void constrain_reset(struct infer_constraint *c) { matcher_reset(c->matcher); }

const uint64_t *constrain_mask(struct infer_constraint *c) { return matcher_mask(c->matcher); }

const float *constrain_logits(struct infer_constraint *c, const float *logits) {
    memcpy(c->logits, logits, (size_t)c->n_vocab * sizeof *logits);
    matcher_apply(c->matcher, c->logits);
    return c->logits;
}

enum infer_status constrain_accept(struct infer_constraint *c, int32_t id) {
    if (!matcher_accept(c->matcher, id))
        return err_set(INFER_E_UNSUPPORTED, matcher_cut(c->matcher)
                                                ? "the grammar branches too much here to be followed"
                                                : "no token of this vocabulary fits the grammar here");
    return INFER_OK;
}

bool constrain_text(struct infer_constraint *c, const char *text, size_t n) {
    return matcher_accept_bytes(c->matcher, text, n);
}
