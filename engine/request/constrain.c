#include "request/constrain.h"
#include <string.h>
#include "text/grammar/grammar.h"
#include "base/mem.h"
#include "files/textfile.h"
#include "tools/tool.h"

struct constraint {
    struct grammar *grammar;
    struct grammar_vocab *vocab;
    struct matcher *matcher;
    float *logits; /* logits[n_vocab]: a copy to forbid tokens in */
    int n_vocab;
};

static const char *piece(void *model, int32_t id, size_t *n) {
    return infer_piece(model, id, false, false, n);
}
static bool ends(void *model, int32_t id) { return infer_is_stop(model, id); }

static enum infer_status compile(struct constraint *c, const struct options *o) {
    const char *path = o->grammar ? o->grammar : o->json_schema;
    char *text;
    size_t n;
    TRY(text_read(&text, &n, path, o->grammar ? TEXT_GRAMMAR : TEXT_SCHEMA));
    enum infer_status st =
        o->grammar ? grammar_from_gbnf(&c->grammar, text, n) : grammar_from_schema(&c->grammar, text, n);
    mem_free(text);
    return st ? err_prefix(st, "%s", path) : INFER_OK;
}

enum infer_status constrain_open(struct constraint **out, const struct session *s, const struct options *o) {
    struct constraint *c;
    *out = NULL;
    if (!o->grammar && !o->json_schema) return INFER_OK;
    if (o->grammar && o->json_schema)
        return err_set(INFER_E_INPUT, "--grammar and --json-schema are both given, and one can hold");
    TRY(mem_new(&c, sizeof *c, "a grammar"));
    c->n_vocab = s->info.n_vocab;
    const struct grammar_tokens tokens = {c->n_vocab, piece, ends, s->model};
    enum infer_status st = compile(c, o);
    if (!st) st = grammar_vocab_open(&c->vocab, &tokens);
    if (!st) st = matcher_open(&c->matcher, c->grammar, c->vocab);
    if (!st) st = mem_new(&c->logits, (size_t)c->n_vocab * sizeof *c->logits, "logits under a grammar");
    if (st)
        constrain_close(c);
    else
        *out = c;
    return st;
}

void constrain_close(struct constraint *c) {
    if (!c) return;
    matcher_close(c->matcher);
    grammar_vocab_close(c->vocab);
    grammar_free(c->grammar);
    mem_free(c->logits);
    mem_free(c);
}

void constrain_reset(struct constraint *c) { matcher_reset(c->matcher); }

enum infer_status constrain_token(struct constraint *c, struct sampler *sampler, const float *logits,
                                  int32_t *id) {
    memcpy(c->logits, logits, (size_t)c->n_vocab * sizeof *logits);
    matcher_apply(c->matcher, c->logits);
    *id = sample_token(sampler, c->logits);
    if (!matcher_accept(c->matcher, *id))
        return err_set(INFER_E_UNSUPPORTED, matcher_cut(c->matcher)
                                                ? "the grammar branches too much here to be followed"
                                                : "no token of this vocabulary fits the grammar here");
    return INFER_OK;
}
