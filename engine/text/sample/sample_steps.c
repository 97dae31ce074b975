/* The steps of a sampler. Each reads and changes the candidates c[n]; probabilities are those of the candidates that are
 * left when it begins. */
#include <float.h>
#include <math.h>
#include <string.h>
#include "text/sample/sample_int.h"

/* ---- order: a heap whose top is the likeliest; equal logits: the lower id ---- */

static bool before(const struct sample_candidate *a, const struct sample_candidate *b) {
    return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

static void heap_sink(struct sample_candidate *h, int n, int i) {
    struct sample_candidate x = h[i];
    for (int child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && before(&h[child + 1], &h[child])) child++;
        if (!before(&h[child], &x)) break;
        h[i] = h[child];
    }
    h[i] = x;
}

static void heap_make(struct sampler *s) {
    for (int i = s->n / 2 - 1; i >= 0; i--) heap_sink(s->c, s->n, i);
}

static struct sample_candidate heap_pop(struct sample_candidate *h, int *n) {
    struct sample_candidate top = h[0];
    h[0] = h[--*n];
    if (*n) heap_sink(h, *n, 0);
    return top;
}

/* The kept[n] in other become the candidates, likeliest first. */
static void swap(struct sampler *s, int n) {
    struct sample_candidate *t = s->c;
    s->c = s->other;
    s->other = t;
    s->n = n;
    s->sorted = true;
}

void sample_keep(struct sampler *s, int k) {
    if (k > s->n) k = s->n;
    if (s->sorted) {
        s->n = k;
        return;
    }
    heap_make(s);
    int n = s->n, kept = 0;
    while (kept < k) s->other[kept++] = heap_pop(s->c, &n);
    swap(s, kept);
}

void sample_top_k(struct sampler *s) { sample_keep(s, s->params.top_k); }

static float greatest(const struct sampler *s) {
    float max = s->c[0].logit;
    for (int i = 1; !s->sorted && i < s->n; i++) max = s->c[i].logit > max ? s->c[i].logit : max;
    return max;
}

/* The fewest likeliest that add up to top_p. */
void sample_top_p(struct sampler *s) {
    double limit = 0, sum = 0;
    float max = greatest(s);
    for (int i = 0; i < s->n; i++) limit += exp((double)s->c[i].logit - max);
    limit *= s->params.top_p;
    if (s->sorted) {
        int kept = 0;
        do sum += exp((double)s->c[kept++].logit - max);
        while (kept < s->n && sum < limit);
        s->n = kept;
        return;
    }
    heap_make(s);
    int n = s->n, kept = 0;
    do {
        s->other[kept] = heap_pop(s->c, &n);
        sum += exp((double)s->other[kept++].logit - max);
    } while (n && sum < limit);
    swap(s, kept);
}

static void keep_from(struct sampler *s, float least) {
    int n = 0;
    for (int i = 0; i < s->n; i++)
        if (s->c[i].logit >= least) s->c[n++] = s->c[i];
    s->n = n;
}

/* p >= min_p * p_max is a bound on the logit; a logit of that size is only known to its last bit. */
void sample_min_p(struct sampler *s) {
    float max = greatest(s);
    float least = max + logf(s->params.min_p) - FLT_EPSILON * fabsf(max);
    keep_from(s, least < max ? least : max);
}

void sample_top_n_sigma(struct sampler *s) {
    float max = greatest(s);
    double mean = 0, square = 0;
    for (int i = 0; i < s->n; i++) mean += s->c[i].logit;
    mean /= s->n;
    for (int i = 0; i < s->n; i++) square += (s->c[i].logit - mean) * (s->c[i].logit - mean);
    keep_from(s, (float)(max - s->params.top_n_sigma * sqrt(square / s->n)));
}

/* Those whose surprise is nearest the expected one (the entropy), until they add up to typical_p. */
void sample_typical(struct sampler *s) {
    sample_softmax(s);
    double entropy = 0, sum = 0;
    for (int i = 0; i < s->n; i++)
        if (s->c[i].p > 0) entropy -= s->c[i].p * log(s->c[i].p);
    /* order by nearness: the distance takes the place of the logit in other, p keeps the place in c */
    for (int i = 0; i < s->n; i++) {
        double away = s->c[i].p > 0 ? fabs(-log(s->c[i].p) - entropy) : INFINITY;
        s->other[i] = (struct sample_candidate){.id = i, .logit = (float)-away};
    }
    for (int i = s->n / 2 - 1; i >= 0; i--) heap_sink(s->other, s->n, i);
    int n = s->n;
    do {
        struct sample_candidate *c = &s->c[heap_pop(s->other, &n).id];
        sum += c->p;
        c->p = -1; /* chosen */
    } while (n && sum <= s->params.typical_p);
    int kept = 0;
    for (int i = 0; i < s->n; i++)
        if (s->c[i].p == -1) s->c[kept++] = s->c[i];
    s->n = kept;
}

/* With the given chance: of the tokens above the threshold only the least likely stays. */
void sample_xtc(struct sampler *s) {
    const struct infer_sample_params *p = &s->params;
    if (s->n < 2) return;
    if (sample_uniform(s, SAMPLE_STREAM_XTC, 0) >= p->xtc_probability) return;
    sample_keep(s, s->n);
    sample_softmax(s);
    int above = 0;
    while (above < s->n && s->c[above].p >= p->xtc_threshold) above++;
    if (above < 2) return;
    s->n -= above - 1;
    memmove(s->c, s->c + above - 1, (size_t)s->n * sizeof *s->c);
}

/* Plain: logits over temp. Dynamic: temp -+ range, by the entropy of the candidates over its greatest value to the exponent. */
void sample_temp(struct sampler *s) {
    const struct infer_sample_params *p = &s->params;
    double temp = p->temp;
    if (p->temp_range > 0 && s->n > 1) {
        double low = temp > p->temp_range ? temp - p->temp_range : 0, high = temp + p->temp_range,
               entropy = 0;
        sample_softmax(s);
        for (int i = 0; i < s->n; i++)
            if (s->c[i].p > 0) entropy -= s->c[i].p * log(s->c[i].p);
        temp = low + (high - low) * pow(entropy / log(s->n), p->temp_exponent);
    }
    if (temp < 1e-6) { /* next to nothing: the likeliest alone */
        sample_keep(s, 1);
        return;
    }
    float max = greatest(s);
    for (int i = 0; i < s->n; i++) s->c[i].logit = (float)(((double)s->c[i].logit - max) / temp);
}

void sample_mirostat(struct sampler *s) {
    sample_keep(s, s->n);
    sample_softmax(s);
    int kept = 1;
    while (kept < s->n && -log2f(s->c[kept].p) <= s->mu) kept++;
    s->n = kept;
}

/* ---- what was said before ---- */

/* The last n tokens into back, newest first; returns how many there are. */
static int recent(struct sampler *s, int n) {
    if (n > s->n_last) n = s->n_last;
    for (int i = 0; i < n; i++)
        s->back[i] = s->last[(s->next - 1 - i + 2 * INFER_SAMPLE_MAX_LAST) % INFER_SAMPLE_MAX_LAST];
    return n;
}

/* s->count of the recent tokens; sets back[n]. */
static int count_recent(struct sampler *s) {
    int n = recent(s, s->params.repeat_last);
    for (int i = 0; i < n; i++)
        if (s->back[i] >= 0 && s->back[i] < s->n_vocab) s->count[s->back[i]]++;
    return n;
}
static void clear_counts(struct sampler *s, int n) {
    for (int i = 0; i < n; i++)
        if (s->back[i] >= 0 && s->back[i] < s->n_vocab) s->count[s->back[i]] = 0;
}
static float penalty(const struct infer_sample_params *p, int count) {
    return (float)count * p->frequency_penalty + p->presence_penalty;
}

void sample_penalties(struct sampler *s) {
    const struct infer_sample_params *p = &s->params;
    int n = count_recent(s);
    for (int i = 0; i < s->n; i++) {
        struct sample_candidate *c = &s->c[i];
        int count = s->count[c->id];
        if (count == 0) continue;
        c->logit = c->logit > 0 ? c->logit / p->repeat_penalty : c->logit * p->repeat_penalty;
        c->logit -= penalty(p, count);
    }
    clear_counts(s, n);
    s->sorted = false;
}

static bool breaks(const struct infer_sample_params *p, int32_t id) {
    for (int i = 0; i < p->n_dry_breaker; i++)
        if (p->dry_breaker[i] == id) return true;
    return false;
}

/* match[i] = how many tokens before back[i] (i included) equal the newest ones: the Z function of back[n].
 * source: Gusfield 1997, section 1.4 */
static void match_ends(const int32_t *back, int32_t *match, int n) {
    int from = 0, to = 0; /* the match that reaches farthest covers back[from..to) */
    for (int i = 1; i < n; i++) {
        int len = i < to ? (match[i - from] < to - i ? match[i - from] : to - i) : 0;
        while (i + len < n && back[len] == back[i + len]) len++;
        match[i] = len;
        if (i + len > to) from = i, to = i + len;
    }
}

/* s->count: the longest passage that each token would extend, where it is long enough; sets back[n]. */
static int count_passages(struct sampler *s) {
    const struct infer_sample_params *p = &s->params;
    if (p->dry_last <= p->dry_allowed) return 0;
    int n = recent(s, p->dry_last), limit = 0;
    while (limit < n && !breaks(p, s->back[limit])) limit++; /* no passage reaches across a breaker */
    if (n <= p->dry_allowed || limit < p->dry_allowed) return 0;
    match_ends(s->back, s->match, n);
    for (int i = 1; i < n; i++) {
        int len = s->match[i] < limit ? s->match[i] : limit, id = s->back[i - 1];
        if (len >= p->dry_allowed && id >= 0 && id < s->n_vocab && s->count[id] < len) s->count[id] = len;
    }
    return n;
}
static float dry_loss(const struct infer_sample_params *p, int32_t id, int len) {
    if (len == 0 || breaks(p, id)) return 0;
    double loss = p->dry_multiplier * pow(p->dry_base, len - p->dry_allowed);
    return (float)(loss < 1e30 ? loss : 1e30);
}

/* A token that would go on as the text did after an equal passage loses multiplier * base^(length - allowed).
 * source: the DRY proposal for text-generation-webui, 2024 */
void sample_dry(struct sampler *s) {
    int n = count_passages(s);
    for (int i = 0; n && i < s->n; i++)
        s->c[i].logit -= dry_loss(&s->params, s->c[i].id, s->count[s->c[i].id]);
    clear_counts(s, n);
    s->sorted = false;
}

/* ---- the same as edits of single logits ---- */

/* The edit of a token; NULL: no room, or no token. */
static struct infer_edit *edit_of(struct sampler *s, int32_t id, int *n) {
    if (id < 0 || id >= s->n_vocab) return NULL;
    if (!s->edit_of[id]) {
        if (*n >= INFER_EDITS_MAX) {
            *n = INFER_EDITS_MAX + 1;
            return NULL;
        }
        s->edit[(*n)++] = (struct infer_edit){.id = id, .ratio = 1};
        s->edit_of[id] = *n;
    }
    return &s->edit[s->edit_of[id] - 1];
}

static void edit_penalties(struct sampler *s, int *n) {
    const struct infer_sample_params *p = &s->params;
    int n_back = count_recent(s);
    for (int i = 0; i < n_back; i++) {
        int32_t id = s->back[i];
        struct infer_edit *e = edit_of(s, id, n);
        if (!e || !s->count[id]) continue;
        e->ratio = p->repeat_penalty;
        e->less += penalty(p, s->count[id]);
        s->count[id] = 0; /* once */
    }
    clear_counts(s, n_back);
}
static void edit_dry(struct sampler *s, int *n, bool after_penalties) {
    int n_back = count_passages(s);
    for (int i = 0; i < n_back; i++) {
        int32_t id = s->back[i];
        if (id < 0 || id >= s->n_vocab) continue;
        float loss = dry_loss(&s->params, id, s->count[id]);
        struct infer_edit *e = loss != 0 ? edit_of(s, id, n) : NULL;
        if (e && after_penalties) e->less += loss;
        if (e && !after_penalties) e->add -= loss;
        s->count[id] = 0;
    }
    clear_counts(s, n_back);
}

int sample_edits(struct sampler *s) {
    const struct infer_sample_params *p = &s->params;
    int n = 0;
    for (int i = 0; i < p->n_bias; i++) {
        struct infer_edit *e = edit_of(s, p->bias[i].id, &n);
        if (e) e->add += p->bias[i].bias;
    }
    bool penalised = false;
    for (int i = 0; i < INFER_SAMPLE_STEPS && p->order[i]; i++) {
        if (p->order[i] == INFER_SAMPLE_PENALTIES && sample_is_active(p, INFER_SAMPLE_PENALTIES))
            edit_penalties(s, &n);
        if (p->order[i] == INFER_SAMPLE_DRY && sample_is_active(p, INFER_SAMPLE_DRY))
            edit_dry(s, &n, penalised);
        penalised |= p->order[i] == INFER_SAMPLE_PENALTIES;
    }
    for (int i = 0; i < n && i < INFER_EDITS_MAX; i++) s->edit_of[s->edit[i].id] = 0;
    return n > INFER_EDITS_MAX ? -1 : n;
}
