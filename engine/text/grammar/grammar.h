/* Constrained output: a grammar (GBNF, or made from a JSON Schema) decides which tokens may come next.
 *
 * A grammar is compiled to a pushdown automaton over bytes. A matcher follows one answer: its state is a set of stacks;
 * equal sets are one state with one number, and what a byte does to a state and which tokens a state allows are computed once
 * and kept. The tokens are walked as a trie. After matcher_open nothing allocates.
 * source: GBNF as in llama.cpp's grammars/README; JSON Schema 2020-12. */
#pragma once
#include "base/status.h"
#include "files/textfile.h"
#include "infer_request.h"

enum {
    GRAMMAR_MAX_DEPTH = 128, /* nested brackets of a grammar, nested parts of a schema */
    GRAMMAR_MAX_RULES = 10000,
    GRAMMAR_MAX_REPEAT = 20000,          /* copies that repetitions like {3,5} make, in all */
    GRAMMAR_MAX_TEXT = TEXT_MAX_GRAMMAR, /* bytes of a grammar */
    GRAMMAR_MAX_NODES = 1 << 20,         /* places of the automaton */
};

/* The GBNF text of a schema; free with mem_free. *free_names (NULL: nobody asks): some objects have names that the grammar alone lets come
 * twice. Errors as infer_grammar_from_schema. */
enum infer_status schema_to_gbnf(char **out, size_t *n_out, bool *free_names, const char *json, size_t n);

/* struct infer_grammar_vocab: the tokens of a vocabulary as a trie over their bytes. */
/* piece(user, id, &n) gives the bytes of a token as they would be shown, n = 0 for one that never is (a control token);
 * ends(user, id) says whether it ends the answer. errors: INFER_E_MEMORY */
struct grammar_tokens {
    int32_t n_vocab;
    const char *(*piece)(void *user, int32_t id, size_t *n);
    bool (*ends)(void *user, int32_t id);
    void *user;
};
enum infer_status grammar_vocab_open(struct infer_grammar_vocab **out, const struct grammar_tokens *t);

struct matcher;
/* g and v (NULL: bytes only) must outlive the matcher. errors: INFER_E_MEMORY, INFER_E_INPUT (the grammar branches too much
 * at its start) */
enum infer_status matcher_open(struct matcher **out, const struct infer_grammar *g,
                               const struct infer_grammar_vocab *v);
void matcher_close(struct matcher *m);
void matcher_reset(struct matcher *m);

/* Bit id % 64 of word id / 64 says whether token id may come next; words [(n_vocab + 63) / 64], valid until the next call.
 * Tokens that end the answer may come where the text is complete. No bit at all: the text fits nowhere. */
const uint64_t *matcher_mask(struct matcher *m);
/* Some mask since the last reset forbids tokens that would fit, because the grammar branches more than there is room to follow. */
bool matcher_cut(const struct matcher *m);
/* Sets logits[n_vocab] of forbidden tokens to -INFINITY. */
void matcher_apply(struct matcher *m, float *logits);
/* Goes on by a token. false, and nothing changes: it was not allowed (an ending token is, where the text is complete). */
bool matcher_accept(struct matcher *m, int32_t id);
/* Goes on by bytes: false, and nothing changes, when they do not fit. */
bool matcher_accept_bytes(struct matcher *m, const char *text, size_t n);
/* The text so far is complete. */
bool matcher_complete(const struct matcher *m);
