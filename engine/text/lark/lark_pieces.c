/* %regex {"substring_words": TEXT}, substring_chars, substring_chunks: pieces of a text, any that follow each other in it, or none. source:
 * llguidance's page on syntax */
#include <string.h>
#include <utf8proc.h>
#include "files/json.h"
#include "text/lark/lark_int.h"

/* Rules of one text: piece i and what may follow it. */
struct pieces {
    struct stext *out;
    int id, n;
};
static void put_piece(struct pieces *p, const char *s, size_t n) {
    stext_put(p->out, "p%d-%d ::= ( ", p->id, p->n);
    stext_literal(p->out, s, n);
    stext_put(p->out, "p%d-%d )?\n", p->id, p->n + 1);
    p->n++;
}

/* Blanks, letters with digits and _, and all else: words end where the kind changes. Marks stay with letters. */
enum kind { BLANK, WORD, OTHER };
static enum kind kind_of(utf8proc_int32_t c) {
    const utf8proc_category_t k = utf8proc_category(c);
    if ((c >= 9 && c <= 13) || c == 0x85 || (k >= UTF8PROC_CATEGORY_ZS && k <= UTF8PROC_CATEGORY_ZP))
        return BLANK;
    return c == '_' || (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_NO) ? WORD : OTHER;
}

/* text[n] is UTF-8 (json_loadb has checked it). */
static void put_text(struct pieces *p, const char *text, size_t n, bool words) {
    size_t begin = 0, at = 0;
    enum kind before = OTHER;
    while (at < n) {
        utf8proc_int32_t c = 0;
        const utf8proc_ssize_t m =
            utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(n - at), &c);
        const enum kind kind = kind_of(c);
        if (at > begin && (!words || kind != before)) {
            put_piece(p, text + begin, at - begin);
            begin = at;
        }
        before = kind;
        at += m > 0 ? (size_t)m : 1;
    }
    if (n > begin) put_piece(p, text + begin, n - begin);
}
static bool put_list(struct pieces *p, const json_t *list) {
    size_t i;
    json_t *v;
    json_array_foreach((json_t *)list, i, v) {
        if (!json_is_string(v)) return false;
        if (json_string_length(v)) put_piece(p, json_string_value(v), json_string_length(v));
    }
    return json_is_array(list);
}

static enum infer_status put_all(struct lark *K, const json_t *j) {
    static const char asked[] =
        "%regex is {\"substring_words\": TEXT}, or substring_chars, or substring_chunks with a list of texts";
    struct pieces p = {&K->schemas, ++K->n_pieces, 0};
    const json_t *words = json_object_get(j, "substring_words"),
                 *chars = json_object_get(j, "substring_chars"),
                 *chunks = json_object_get(j, "substring_chunks"), *text = words ? words : chars;
    if (json_object_size(j) != 1 || (text ? !json_is_string(text) : !chunks)) return lark_bad(K, asked);
    if (text) put_text(&p, json_string_value(text), json_string_length(text), words != NULL);
    if (!text && !put_list(&p, chunks)) return lark_bad(K, asked);
    if (p.n > LARK_PIECES)
        return err_set(INFER_E_INPUT, "lark line %d: %%regex has %d pieces, more than %d", K->line, p.n,
                       LARK_PIECES);
    stext_put(&K->schemas, "p%d-%d ::= \"\"\n", p.id, p.n);
    stext_put(&K->rules, "( ");
    for (int i = 0; i <= p.n; i++) stext_put(&K->rules, "%sp%d-%d ", i ? "| " : "", p.id, i);
    stext_put(&K->rules, ") ");
    return INFER_OK;
}

enum infer_status lark_pieces(struct lark *K) {
    json_t *j;
    TRY(lark_object(K, "%regex", &j));
    const enum infer_status st = put_all(K, j);
    json_decref(j);
    return st;
}
