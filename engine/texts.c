/* Texts as encoders take them: one, or two with what separates them, cut off where they are too long. */
#include "engine_impl.h"

/* What stands around a text, and two of them; source: BertTokenizer, RobertaTokenizer and XLMRobertaTokenizer of transformers, of which those
 * whose separator is </s> put two between texts. */
struct around {
    size_t front, behind;
    bool twice, types; /* two separators between texts; the second text's tokens are of type 1 */
};

static struct around around_of(const struct model *m) {
    const struct tok *t = m->tok;
    struct around a = {.front = tok_adds(t, false), .behind = tok_adds(t, true)};
    const struct str s = tok_piece(t, tok_eos(t), true, false);
    a.twice = s.len == 4 && memcmp(s.data, "</s>", 4) == 0;
    a.types = !a.twice && m->n_type > 1;
    return a;
}

/* A text's ids with what stands around it; free with mem_free. */
static enum infer_status encoded(const struct tok *t, const char *text, size_t n, int32_t **ids,
                                 size_t *n_id) {
    size_t cap = n / 2 + 16;
    *ids = NULL;
    for (int turn = 0; turn < 2; turn++) {
        mem_free(*ids);
        TRY(mem_new(ids, cap * sizeof **ids, "ids of a text"));
        enum infer_status s = tok_encode(t, text, NULL, n, TOK_ADD, *ids, cap, n_id);
        if (s || *n_id <= cap) return s;
        cap = *n_id;
    }
    return INFER_OK;
}

/* The longer one is cut first. source: truncation LongestFirst of Hugging Face's tokenizers */
static void cut(size_t *a, size_t *b, size_t most) {
    const bool first = *a <= *b;
    size_t *less = first ? a : b, *more = first ? b : a;
    if (*less + *more <= most) return;
    const size_t left = *less > most ? 0 : most - *less;
    *more = left > *less ? left : *less;
    if (*less + *more <= most) return;
    *less = most / 2;
    *more = most / 2 + most % 2;
}

static int32_t *put(int32_t *to, const int32_t *ids, size_t n) {
    memcpy(to, ids, n * sizeof *to);
    return to + n;
}

static enum infer_status write_ids(const struct around *s, const int32_t *a, size_t na, const int32_t *b,
                                   size_t nb, struct infer_text *out) {
    const size_t all = s->front + na + s->behind + (b ? nb + s->behind * (s->twice ? 2 : 1) : 0);
    const int32_t *behind = a + s->front + out->n_a;
    TRY(mem_new(&out->ids, (all ? all : 1) * sizeof *out->ids, "ids of a text"));
    int32_t *to = put(out->ids, a, s->front + na);
    to = put(to, behind, s->behind);
    if (b && s->twice) to = put(to, behind, s->behind);
    out->n_first = b && s->types ? (int)(to - out->ids) : 0; /* RoBERTa has one type */
    if (b) to = put(to, b + s->front, nb);
    if (b) to = put(to, behind, s->behind);
    out->n = (int)(to - out->ids);
    return INFER_OK;
}

enum infer_status infer_text_ids(const struct infer_model *im, const struct infer_text_options *o,
                                 struct infer_text *out) {
    const struct tok *t = im->m->tok;
    int32_t *a = NULL, *b = NULL;
    size_t na = 0, nb = 0;
    *out = (struct infer_text){0};
    if (!t) return err_set(INFER_E_UNSUPPORTED, "%s has no tokenizer", im->m->file->path);
    const struct around s = around_of(im->m);
    const size_t more = s.front + s.behind, fixed = more + (o->b ? s.behind * (s.twice ? 2 : 1) : 0);
    enum infer_status st = encoded(t, o->a, o->n_a, &a, &na);
    if (!st && o->b) st = encoded(t, o->b, o->n_b, &b, &nb);
    if (!st) {
        size_t la = na - more, lb = b ? nb - more : 0;
        out->n_a = la;
        out->n_whole = (int)(la + lb + fixed);
        if (o->most && (size_t)o->most > fixed) cut(&la, &lb, (size_t)o->most - fixed);
        st = write_ids(&s, a, la, b, lb, out);
    }
    mem_free(a);
    mem_free(b);
    return st;
}

void infer_text_free(struct infer_text *t) {
    mem_free(t->ids);
    *t = (struct infer_text){0};
}
