/* tokenizer.json of Hugging Face's tokenizers -> the metadata keys that tok_open reads.
 *
 * Keys of the GGUF specification where it has one (tokenizer.ggml.*), and keys of our own for what it cannot say:
 *
 *     tokenizer.infer.characters    bool: BPE merges characters, not bytes (Llama 2, Gemma)
 *     tokenizer.infer.escape_space  bool: a space is written U+2581
 *     tokenizer.infer.patterns      strings: regular expressions that cut the text, in order
 *     tokenizer.infer.patterns_mapped  u32: the last so many of them read the text in the byte alphabet, as they stand behind
 *                                   ByteLevel; absent: none
 *     tokenizer.infer.modes         u8 each: enum tok_split_mode, what becomes of a match
 *     tokenizer.infer.ignore_merges bool: a piece that is a token is that token
 *     tokenizer.infer.fuse_unknown  bool: neighbouring unknown characters are one unknown token
 *     tokenizer.infer.normal_form   "nfc", "nfd", "nfkc" or "nfkd"
 *     tokenizer.infer.lowercase     bool
 *     tokenizer.infer.prefix        "always": a space in front of each stretch between special tokens; "first": in
 *                                   front of the text; absent: none
 *     tokenizer.infer.prefix_unless bool: no such space where there is one
 *     tokenizer.infer.stops         ids that end an answer beside GGUF's eos, eot and eom (generation_config.json)
 *     tokenizer.infer.lstrip, tokenizer.infer.rstrip    ids of special tokens that take the white space on that side
 *     tokenizer.infer.single_word   ids of special tokens that are none beside a letter, digit or underscore
 *     tokenizer.infer.front, tokenizer.infer.behind     all ids that go in front of a text and behind it, where there is more
 *                                   than BOS and EOS
 */
#pragma once
#include "files/tensorfile.h"

#define TOK_SPACE "\xe2\x96\x81" /* U+2581, how SentencePiece writes a space */
/* GPT-2 (Radford et al. 2019, encoder.py); also the default of Hugging Face's ByteLevel */
#define TOK_PATTERN_GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
enum { TOK_PRE_MAX = 10 }; /* patterns of a vocabulary */

enum tok_split_mode {
    TOK_SPLIT_ISOLATED = 0, /* matches and what lies between them are pieces */
    TOK_SPLIT_KEEP,         /* matches are pieces, what lies between is dropped */
    TOK_SPLIT_DROP,         /* what lies between matches are pieces, matches are dropped */
    TOK_SPLIT_PREVIOUS,     /* a match goes with what lies in front of it */
    TOK_SPLIT_NEXT,         /* a match goes with what follows */
};

/* The keys of data[n], a tokenizer.json or a tokenizer.model (the first byte decides): *out points to *n_out of them
 * in the arena, and to nothing in data. config[n_config]: tokenizer_config.json or NULL.
 * errors: INFER_E_INPUT (not JSON, or not of this form: names the place), INFER_E_UNSUPPORTED (names the normalizer,
 * pre-tokenizer or model that is not known), INFER_E_MEMORY. source: the tokenizers library's file format. */
enum infer_status tok_vocab_meta(struct meta **out, size_t *n_out, struct arena *a, const char *data,
                                 size_t n, const char *config, size_t n_config);

/* Fills f, whose first part is a mapped tokenizer.json or tokenizer.model, with its keys and no tensors; a
 * tokenizer_config.json beside it is read when it is there. */
enum infer_status tok_vocab_read(struct tensorfile *f);
