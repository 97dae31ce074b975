/* tokenizer.model: a protobuf message of SentencePiece.
 *
 *     ModelProto       1: SentencePiece, one a token   2: TrainerSpec   3: NormalizerSpec
 *     SentencePiece    1: text   2: score (float)   3: type (GGUF's numbers)
 *     TrainerSpec      3: 1 Unigram, 2 BPE   40 41 42: ids of unknown, BOS, EOS
 *     NormalizerSpec   2: charsmap   3: a space in front   4: white space collapses
 *
 * A field is a number (field << 3 | wire type) and a value: 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes.
 * source: sentencepiece_model.proto; the protocol buffers encoding. */
#include "files/vocab_added.h"
#include "files/vocab_keys.h"

#include <string.h>

struct cursor {
    const unsigned char *start, *at, *end;
};
struct field {
    uint32_t number, wire;
    uint64_t value;   /* varint; float bits */
    struct cursor in; /* wire type 2 */
};

static enum infer_status broken(const struct cursor *c, const char *what) {
    return err_set(INFER_E_INPUT, "byte %zu of a message: %s", (size_t)(c->at - c->start), what);
}

static enum infer_status varint(struct cursor *c, uint64_t *v) {
    *v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (c->at == c->end) return broken(c, "the message ends inside a number");
        unsigned char b = *c->at++;
        *v |= (uint64_t)(b & 127) << shift;
        if (b < 128) return INFER_OK;
    }
    return broken(c, "a number has more than 64 bits");
}

/* The next field; only called when there are bytes left. */
static enum infer_status next_field(struct cursor *c, struct field *f) {
    uint64_t tag, n;
    *f = (struct field){0};
    TRY(varint(c, &tag));
    f->number = (uint32_t)(tag >> 3);
    f->wire = tag & 7;
    if (f->wire == 0) return varint(c, &f->value);
    if (f->wire == 2) {
        TRY(varint(c, &n));
    } else if (f->wire == 1 || f->wire == 5) {
        n = f->wire == 1 ? 8 : 4;
    } else {
        return broken(c, "a field of an unknown kind");
    }
    if (n > (size_t)(c->end - c->at)) return broken(c, "a field is longer than the message");
    f->in = (struct cursor){c->at, c->at, c->at + n};
    if (f->wire != 2) memcpy(&f->value, c->at, n);
    c->at += n;
    return INFER_OK;
}

struct model {
    struct tok_vocab v;
    int32_t at; /* pieces read */
    uint64_t kind;
    bool prefix, collapse;
    struct cursor charsmap;
};

static enum infer_status read_piece(struct model *m, struct cursor c) {
    struct field f;
    int32_t id = m->at++;
    m->v.type[id] = TOK_TYPE_NORMAL;
    while (c.at < c.end) {
        TRY(next_field(&c, &f));
        if (f.number == 1 && f.wire == 2) {
            size_t n = (size_t)(f.in.end - f.in.start);
            char *copy = arena_strndup(m->v.a, (const char *)f.in.start, n);
            if (!copy) return err_set(INFER_E_MEMORY, "out of memory: reading a vocabulary");
            m->v.text[id] = (struct str){copy, n};
        } else if (f.number == 2 && f.wire == 5) {
            memcpy(&m->v.score[id], &f.value, 4);
        } else if (f.number == 3 && f.wire == 0) {
            if (f.value < 1 || f.value > 6) return broken(&c, "a token of an unknown type");
            m->v.type[id] = (int32_t)f.value;
        }
    }
    return INFER_OK;
}

static enum infer_status read_spec(struct model *m, struct cursor c, bool trainer) {
    struct field f;
    while (c.at < c.end) {
        TRY(next_field(&c, &f));
        int32_t id = f.value < INT32_MAX ? (int32_t)f.value : -1;
        if (trainer && f.wire == 0) {
            if (f.number == 3) m->kind = f.value;
            if (f.number == 40) m->v.unk = id;
            if (f.number == 41) m->v.bos = id;
            if (f.number == 42) m->v.eos = id;
        } else if (!trainer) {
            if (f.number == 2 && f.wire == 2) m->charsmap = f.in;
            if (f.number == 3 && f.wire == 0) m->prefix = f.value != 0;
            if (f.number == 4 && f.wire == 0) m->collapse = f.value != 0;
        }
    }
    return INFER_OK;
}

/* What models of this kind add when no config says more: Llama's put BOS in front, T5's EOS behind. */
static enum infer_status read_config(struct model *m, const json_t *config) {
    enum tok_side side = m->kind == 1 ? TOK_BEHIND : TOK_FRONT;
    int32_t id = side == TOK_BEHIND ? m->v.eos : m->v.bos;
    if (id >= 0 && id < m->v.n) TRY(tok_vocab_around(&m->v, side, id));
    return tok_vocab_config(&m->v, config);
}

static enum infer_status write_keys(struct tok_keys *k, struct model *m, const json_t *config) {
    size_t n_map = (size_t)(m->charsmap.end - m->charsmap.start);
    TRY(tok_vocab_keys(&m->v, k, m->kind == 1 ? "t5" : "llama", config));
    TRY(tok_keys_bool(k, "tokenizer.ggml.add_space_prefix", m->prefix));
    TRY(tok_keys_bool(k, "tokenizer.ggml.remove_extra_whitespaces", m->collapse));
    if (!n_map) return INFER_OK;
    return tok_keys_raw(k, "tokenizer.ggml.precompiled_charsmap", META_ARRAY, META_U8, n_map, n_map,
                        m->charsmap.start);
}

enum infer_status tok_proto_keys(struct tok_keys *k, const unsigned char *data, size_t n,
                                 const json_t *config) {
    if (!n) return err_set(INFER_E_INPUT, "it holds no tokens");
    struct model m = {.kind = 1, .prefix = true, .collapse = true};
    struct cursor whole = {data, data, data + n}, c = whole;
    struct field f;
    size_t pieces = 0;
    while (c.at < c.end) {
        TRY(next_field(&c, &f));
        pieces += f.number == 1 && f.wire == 2;
    }
    if (!pieces) return err_set(INFER_E_INPUT, "it holds no tokens");
    TRY(tok_vocab_make(&m.v, k->a, pieces, true, config));
    m.v.unk = 0;
    m.v.bos = 1;
    m.v.eos = 2;
    for (c = whole; c.at < c.end;) {
        TRY(next_field(&c, &f));
        if (f.number == 1 && f.wire == 2) TRY(read_piece(&m, f.in));
        if ((f.number == 2 || f.number == 3) && f.wire == 2) TRY(read_spec(&m, f.in, f.number == 2));
    }
    if (m.kind != 1 && m.kind != 2)
        return err_set(INFER_E_UNSUPPORTED,
                       "SentencePiece model of type %llu; 1 (Unigram) and 2 (BPE) are supported",
                       (unsigned long long)m.kind);
    TRY(read_config(&m, config));
    return write_keys(k, &m, config);
}
