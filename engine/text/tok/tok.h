/* Tokenizer: text <-> token ids, from the vocabulary in a model file.
 *
 * Immutable after tok_open; any number of threads may encode and decode at once. Encoding is linear in the
 * text for every input. sources: the GPT-2 byte-level BPE (Radford et al. 2019), SentencePiece (Kudo 2018).
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "files/tensorfile.h"

struct tok;

enum tok_flags {
    TOK_SPECIAL = 1, /* parse special tokens in the text (outside marked bytes) */
    TOK_ADD = 2,     /* add what the model adds: BOS in front, EOS behind */
};

/* Properties of one token. */
enum tok_attr {
    TOK_ATTR_NORMAL = 0,
    TOK_ATTR_UNKNOWN = 1,
    TOK_ATTR_CONTROL = 2, /* never shown, parsed only with TOK_SPECIAL */
    TOK_ATTR_USER = 3,    /* user-defined: parsed always, shown */
    TOK_ATTR_BYTE = 4,
    TOK_ATTR_UNUSED = 5,
};

/* Builds the tokenizer of f, which must stay open as long as it. *out is NULL with INFER_OK when the file has no vocabulary.
 * errors: INFER_E_INPUT (sizes disagree, ids out of range), INFER_E_UNSUPPORTED (names the model and
 * pre-tokenizer). */
enum infer_status tok_open(struct tok **out, const struct tensorfile *f);
void tok_close(struct tok *t);

/* Text to ids. marks: NULL, or marks[n], non-zero where the byte is content of a user, tool or document
 * message: no token with markup in it is parsed out of such bytes (of user-defined ones only those that hold none
 * of <>[]{}| are, such as runs of spaces). Writes at most cap ids and sets *n_out to the
 * number there are (more than cap: call again with room). errors: INFER_E_INPUT (invalid UTF-8 is encoded
 * bytewise, not an error), INFER_E_MEMORY. */
enum infer_status tok_encode(const struct tok *t, const char *text, const uint8_t *marks, size_t n,
                             unsigned flags, int32_t *ids, size_t cap, size_t *n_out);

/* Bytes of one token; special tokens give their text only when special is true, else nothing. Returns a view
 * valid as long as t; an id outside the vocabulary gives nothing. first: this is the first token of a text
 * (the leading space of SentencePiece is dropped). */
struct str tok_piece(const struct tok *t, int32_t id, bool special, bool first);

/* Streaming: pushes one piece into a buffer that never lets half a UTF-8 sequence out. out has room for
 * TOK_STREAM_MAX bytes + the piece; returns the bytes to show. Flush the rest with tok_stream_end. */
enum { TOK_STREAM_MAX = 8 };
struct tok_stream {
    unsigned char held[TOK_STREAM_MAX];
    int n_held;
};
size_t tok_stream_push(struct tok_stream *s, struct str piece, char *out);
size_t tok_stream_end(struct tok_stream *s, char *out);

int32_t tok_size(const struct tok *t);
const char *tok_model_name(const struct tok *t); /* "gpt2", "llama", ... */
const char *tok_pre_name(const struct tok *t);
/* Special ids, -1 when the vocabulary has none. */
int32_t tok_bos(const struct tok *t);
int32_t tok_eos(const struct tok *t);
bool tok_adds_bos(const struct tok *t);
/* How many tokens TOK_ADD puts in front of a text, or behind it. */
size_t tok_adds(const struct tok *t, bool behind);
/* Ends a turn: EOS, EOT, end-of-message and the like. */
bool tok_is_stop(const struct tok *t, int32_t id);
enum tok_attr tok_attr(const struct tok *t, int32_t id);
/* Id whose text is exactly s, -1 when there is none. */
int32_t tok_find(const struct tok *t, const char *s, size_t n);
