/* A vocabulary on its way from a tokenizer.json or tokenizer.model to metadata keys: its tokens, those that are added to
 * them, what is put in front of a text and behind it, and what tokenizer_config.json says of all that. */
#pragma once
#include <jansson.h>
#include "base/mem.h"
#include "files/tensorfile.h"

enum tok_type { /* GGUF's */
                TOK_TYPE_NORMAL = 1,
                TOK_TYPE_UNKNOWN,
                TOK_TYPE_CONTROL,
                TOK_TYPE_USER,
                TOK_TYPE_UNUSED,
                TOK_TYPE_BYTE,
};

enum tok_flag { /* bits of tok.flag[id] */
                TOK_F_STOP = 1,
                TOK_F_LSTRIP = 2, /* white space on its left (right) belongs to the special token */
                TOK_F_RSTRIP = 4,
                TOK_F_PLAIN = 8, /* user-defined and no markup: also parsed in marked bytes */
                TOK_F_WORD = 16, /* no token where a letter, digit or underscore stands beside it */
};

enum tok_side { TOK_FRONT, TOK_BEHIND };

struct tok_vocab {
    struct arena *a;
    int32_t n, room;       /* tokens; room: those that a config may add are counted in */
    struct str *text;      /* text[room] */
    int32_t *type;         /* type[room]: enum tok_type */
    float *score;          /* score[room]; NULL: none */
    uint8_t *flag;         /* flag[room]: enum tok_flag */
    int32_t bos, eos, unk; /* -1: none */
    struct tok_ids {
        int32_t *id; /* id[n] */
        size_t n;
    } around[2];          /* enum tok_side: what the model adds to a text */
    struct strmap *index; /* text -> id, made when many are looked for */
    int n_sought;
};

/* n tokens without text, of type unused, and room for those of config (NULL: none). errors: INFER_E_INPUT, INFER_E_MEMORY */
enum infer_status tok_vocab_make(struct tok_vocab *v, struct arena *a, size_t n, bool scores,
                                 const json_t *config);

/* The id of a text, -1 when it is no token. errors: INFER_E_MEMORY */
enum infer_status tok_vocab_id(struct tok_vocab *v, const char *text, int32_t *id);

/* Token id (below v->n) becomes the added token o: {"content": .., "special": .., "lstrip": .., ..}; special: it is one
 * whatever o says. errors: INFER_E_MEMORY */
enum infer_status tok_vocab_added(struct tok_vocab *v, int32_t id, const json_t *o, bool special);

/* The post_processor of a tokenizer.json, NULL: none. errors: INFER_E_INPUT, INFER_E_UNSUPPORTED */
enum infer_status tok_vocab_processor(struct tok_vocab *v, const json_t *o);

/* One id more at that end of side, as a processor does: what comes later goes outside. */
enum infer_status tok_vocab_around(struct tok_vocab *v, enum tok_side side, int32_t id);

/* tokenizer_config.json (NULL: none): added_tokens_decoder, the special tokens by name (bos, eos), add_bos_token and add_eos_token.
 * As transformers has it: a token that is there by its text is corrected, one that is not gets the next id; where the file
 * wants another id it is refused. errors: INFER_E_INPUT, INFER_E_UNSUPPORTED, INFER_E_MEMORY */
enum infer_status tok_vocab_config(struct tok_vocab *v, const json_t *config);

/* Adds the keys of all that, and the chat template of the config; model as in tokenizer.ggml.model. */
struct tok_keys;
enum infer_status tok_vocab_keys(struct tok_vocab *v, struct tok_keys *keys, const char *model,
                                 const json_t *config);
