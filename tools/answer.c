#include "answer.h"
#include <string.h>
#include "mem.h"

void answer_start(struct answer *a, const struct option_texts *stop) {
    answer_free(a);
    a->stop = stop;
}

void answer_free(struct answer *a) {
    mem_free(a->text);
    *a = (struct answer){0};
}

static enum infer_status reserve(struct answer *a, size_t more) {
    size_t need;
    if (!size_add(a->n, more, &need) || !size_add(need, 1, &need))
        return err_set(INFER_E_MEMORY, "the answer is too long");
    if (need <= a->cap) return INFER_OK;
    size_t cap = a->cap * 2 > need ? a->cap * 2 : need + 4096;
    char *p = mem_realloc(a->text, cap);
    if (!p) return err_set(INFER_E_MEMORY, "%zu bytes for the answer", cap);
    a->text = p;
    a->cap = cap;
    return INFER_OK;
}

/* Cuts the text before the first stop string in it; from: where a new match can begin. */
static void find_stop(struct answer *a, size_t from) {
    size_t best = a->n;
    for (int i = 0; a->stop && i < a->stop->n; i++) {
        size_t len = strlen(a->stop->text[i]), begin = from > len ? from - len : 0;
        if (len == 0 || a->n - begin < len) continue;
        const char *hit = memmem(a->text + begin, a->n - begin, a->stop->text[i], len);
        if (hit && (size_t)(hit - a->text) < best) best = (size_t)(hit - a->text);
    }
    if (best == a->n) return;
    a->n = best;
    a->text[best] = 0;
    a->stopped = true;
}

enum infer_status answer_push(struct answer *a, const char *piece, size_t n) {
    size_t from = a->n;
    TRY(reserve(a, n + TOK_STREAM_MAX));
    a->n += tok_stream_push(&a->stream, (struct str){piece, n}, a->text + a->n);
    a->text[a->n] = 0;
    find_stop(a, from);
    return INFER_OK;
}

enum infer_status answer_finish(struct answer *a) {
    TRY(reserve(a, TOK_STREAM_MAX));
    if (!a->stopped) {
        size_t n = tok_stream_end(&a->stream, a->text + a->n);
        a->cut = n > 0;
        a->n += n;
    }
    a->text[a->n] = 0;
    return INFER_OK;
}

/* Length of the longest end of the text that is a proper beginning of a stop string. */
static size_t held_back(const struct answer *a) {
    size_t longest = 0;
    for (int i = 0; a->stop && i < a->stop->n; i++) {
        const char *s = a->stop->text[i];
        size_t len = strlen(s), k = len ? len - 1 : 0;
        if (k > a->n) k = a->n;
        while (k > longest && memcmp(a->text + a->n - k, s, k) != 0) k--;
        if (k > longest) longest = k;
    }
    return longest;
}

const char *answer_take(struct answer *a, bool finished, size_t *n_out) {
    size_t end = a->n;
    if (!finished && !a->stopped) {
        end -= held_back(a);
        while (end > a->shown && end < a->n && ((unsigned char)a->text[end] & 0xc0) == 0x80)
            end--; /* a stop string may begin in the middle of a character */
    }
    const char *from = a->text ? a->text + a->shown : "";
    *n_out = end > a->shown ? end - a->shown : 0;
    if (end > a->shown) a->shown = end;
    return from;
}
