#define _GNU_SOURCE /* memmem */
#include "request/answer.h"
#include <string.h>
#include "base/mem.h"

/* What models write around their thinking. */
static const struct {
    const char *open, *close;
} tags[] = {
    {"<think>", "</think>"},                    /* DeepSeek, Qwen, GLM, SmolLM3 and most others */
    {"[THINK]", "[/THINK]"},                    /* Mistral */
    {"<seed:think>", "</seed:think>"},          /* Seed-OSS */
    {"<|START_THINKING|>", "<|END_THINKING|>"}, /* Command R7B */
    {"<thought>", "</thought>"},
};
enum { N_TAG = sizeof tags / sizeof *tags };

enum { PHASE_START, PHASE_THINK, PHASE_GAP, PHASE_ANSWER }; /* GAP: white space between thinking and answer */

static size_t white(const char *s, size_t n) {
    size_t k = 0;
    while (k < n && (s[k] == ' ' || s[k] == '\n' || s[k] == '\t' || s[k] == '\r')) k++;
    return k;
}

bool answer_is_tag(const char *piece, size_t n) {
    for (int i = 0; i < N_TAG; i++)
        if ((strlen(tags[i].open) == n && memcmp(tags[i].open, piece, n) == 0) ||
            (strlen(tags[i].close) == n && memcmp(tags[i].close, piece, n) == 0))
            return true;
    return false;
}

const char *answer_opener(const char *piece, size_t n) {
    for (int i = 0; i < N_TAG; i++)
        if (strlen(tags[i].close) == n && memcmp(tags[i].close, piece, n) == 0) return tags[i].open;
    return NULL;
}

const char *answer_closing(int i) { return i < N_TAG ? tags[i].close : NULL; }

bool answer_sentence(const struct answer *a) {
    static const char *const wide[] = {"\u3002", "\uff01", "\uff1f", "\u2026"};
    size_t n = a->n;
    while (n && a->text[n - 1] == ' ') n--;
    while (n && strchr("\"'*)]", a->text[n - 1])) n--;
    if (!n) return false;
    const char last = a->text[n - 1];
    if (last == '\n' || last == '!' || last == '?') return true;
    if (last == '.') return n < 2 || a->text[n - 2] < '0' || a->text[n - 2] > '9'; /* 3.14 */
    for (int i = 0; i < 4; i++)
        if (n >= 3 && memcmp(a->text + n - 3, wide[i], 3) == 0) return true;
    return false;
}

const char *infer_prompt_closing(const char *prompt, size_t n) {
    while (n && white(prompt + n - 1, 1)) n--;
    for (int i = 0; i < N_TAG; i++) {
        size_t len = strlen(tags[i].open);
        if (n >= len && memcmp(prompt + n - len, tags[i].open, len) == 0) return tags[i].close;
    }
    return NULL;
}

void answer_start(struct answer *a, const char *const *stop, int n_stop, enum infer_answer_start start) {
    answer_free(a);
    a->stop = stop;
    a->n_stop = n_stop;
    a->phase = start == INFER_ANSWER_PLAIN   ? PHASE_ANSWER
               : start == INFER_ANSWER_MAYBE ? PHASE_START
                                             : PHASE_THINK;
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

/* The earliest of the closing tags in text[from..n); -1 none. */
static ptrdiff_t find_close(const struct answer *a, size_t from, size_t *len) {
    ptrdiff_t best = -1;
    for (int i = 0; i < N_TAG; i++) {
        size_t k = strlen(tags[i].close);
        const char *hit = a->n - from >= k ? memmem(a->text + from, a->n - from, tags[i].close, k) : NULL;
        if (!hit || (best >= 0 && hit - a->text >= best)) continue;
        best = hit - a->text;
        *len = k;
    }
    return best;
}

/* The text's beginning: an opening tag, the beginning of one (wait), or an answer. */
static void look_for_open(struct answer *a, bool finished) {
    size_t w = white(a->text, a->n), rest = a->n - w;
    bool wait = rest == 0;
    for (int i = 0; i < N_TAG; i++) {
        size_t len = strlen(tags[i].open);
        if (rest >= len && memcmp(a->text + w, tags[i].open, len) == 0) {
            a->phase = PHASE_THINK;
            a->thought = a->shown = w + len;
            return;
        }
        wait = wait || (rest < len && memcmp(a->text + w, tags[i].open, rest) == 0);
    }
    if (!wait || finished) a->phase = PHASE_ANSWER;
}

/* Moves from phase to phase as far as the text allows; from: where new text begins. */
static void advance(struct answer *a, size_t from, bool finished) {
    if (a->phase == PHASE_START) look_for_open(a, finished);
    if (a->phase == PHASE_THINK) {
        size_t back = from > 24 ? from - 24 : 0, len = 0; /* a tag may have begun in the text before */
        ptrdiff_t at = find_close(a, back > a->thought ? back : a->thought, &len);
        if (at >= 0) {
            a->thought_n = (size_t)at - a->thought;
            a->begin = (size_t)at + len;
            a->phase = PHASE_GAP;
        }
    }
    if (a->phase == PHASE_GAP) {
        a->begin += white(a->text + a->begin, a->n - a->begin);
        if (a->begin < a->n) a->phase = PHASE_ANSWER;
    }
}

/* Cuts the text before the first stop string of the answer; from: where new text begins. */
static void find_stop(struct answer *a, size_t from) {
    size_t best = a->n;
    for (int i = 0; i < a->n_stop; i++) {
        size_t len = strlen(a->stop[i]), begin = from > len ? from - len : 0;
        if (begin < a->begin) begin = a->begin;
        if (len == 0 || a->n - begin < len) continue;
        const char *hit = memmem(a->text + begin, a->n - begin, a->stop[i], len);
        if (hit && (size_t)(hit - a->text) < best) best = (size_t)(hit - a->text), a->stopped_by = i;
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
    bool waited = a->phase == PHASE_START;
    advance(a, from, false);
    if (a->phase == PHASE_ANSWER) find_stop(a, waited ? 0 : from);
    return INFER_OK;
}

enum infer_status answer_finish(struct answer *a) {
    size_t from = a->n;
    TRY(reserve(a, TOK_STREAM_MAX));
    if (!a->stopped) {
        size_t n = tok_stream_end(&a->stream, a->text + a->n);
        a->cut = n > 0;
        a->n += n;
    }
    a->text[a->n] = 0;
    advance(a, from, true);
    if (a->phase == PHASE_THINK) a->thought_n = a->n - a->thought, a->begin = a->n;
    a->phase = PHASE_ANSWER; /* nothing is held back any more */
    a->n_stop = 0;
    return INFER_OK;
}

/* Length of the longest end of text[n] that is a proper beginning of s. */
static size_t partial(const char *text, size_t n, const char *s) {
    size_t len = strlen(s), k = len ? len - 1 : 0;
    if (k > n) k = n;
    while (k && memcmp(text + n - k, s, k) != 0) k--;
    return k;
}

static size_t held_back(const struct answer *a) {
    size_t longest = 0;
    for (int i = 0; a->phase == PHASE_THINK && i < N_TAG; i++) {
        size_t k = partial(a->text, a->n, tags[i].close);
        if (k > longest) longest = k;
    }
    for (int i = 0; a->phase == PHASE_ANSWER && !a->stopped && i < a->n_stop; i++) {
        size_t k = partial(a->text, a->n, a->stop[i]);
        if (k > longest) longest = k;
    }
    return longest;
}

const char *answer_take(struct answer *a, size_t *n_out, bool *thinking) {
    size_t end = a->n;
    bool thought_over = a->phase == PHASE_GAP || a->phase == PHASE_ANSWER;
    *n_out = 0;
    *thinking = a->phase == PHASE_THINK || (thought_over && a->shown < a->thought + a->thought_n);
    if (a->phase == PHASE_START) return "";
    if (*thinking && thought_over) {
        end = a->thought + a->thought_n;
    } else if (thought_over && a->shown < a->begin) {
        a->shown = a->begin < end ? a->begin : end;
    }
    if (!(*thinking && thought_over)) end -= held_back(a);
    while (end > a->shown && end < a->n && ((unsigned char)a->text[end] & 0xc0) == 0x80)
        end--; /* a stop string may begin in the middle of a character */
    if (end <= a->shown || (a->phase == PHASE_GAP && !*thinking)) return "";
    const char *from = a->text + a->shown;
    *n_out = end - a->shown;
    a->shown = end;
    return from;
}

const char *answer_text(const struct answer *a, size_t *n_out) {
    *n_out = a->n - a->begin;
    return a->text ? a->text + a->begin : "";
}

const char *answer_thinking(const struct answer *a, size_t *n_out) {
    *n_out = a->thought_n;
    return a->text ? a->text + a->thought : "";
}

bool answer_thinks(const struct answer *a) { return a->phase == PHASE_THINK; }
