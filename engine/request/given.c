/* Rows of a prompt that are no tokens. Each takes a place in the sequence; the positions that turn rows part from the places where a picture
 * takes fewer of them than it has rows (Qwen2-VL: arXiv 2409.12191, section 2.1). */
#include "request/request_impl.h"

static enum infer_status check_token(const struct infer_sched *s, int i, int32_t id) {
    if (id >= 0 && id < s->n_vocab) return INFER_OK;
    return err_set(INFER_E_INPUT, "token %d of the prompt is %d, outside of the vocabulary of %d", i, id,
                   s->n_vocab);
}

enum infer_status given_check(const struct infer_sched *s, const struct infer_request_params *p) {
    int i = 0;
    for (int k = 0; k < p->n_rows; k++) {
        const struct infer_prompt_rows *g = &p->rows[k];
        if (g->at < i || g->n < 1 || g->n > p->n_id - g->at || !g->embed ||
            (g->axis && (g->advance < 1 || g->advance > g->n)))
            return err_set(INFER_E_INPUT, "rows %d to %d that are no tokens do not fit a prompt of %d", g->at,
                           g->at + g->n - 1, p->n_id);
        if (g->both_ways && g->n > s->n_batch)
            return err_set(
                INFER_E_FULL,
                "a picture of %d rows that see each other is computed in one step, and a step has %d (.batch)",
                g->n, s->n_batch);
        for (; i < g->at; i++) TRY(check_token(s, i, p->ids[i]));
        i += g->n;
    }
    for (; i < p->n_id; i++) TRY(check_token(s, i, p->ids[i]));
    if (p->n_rows && p->rows[p->n_rows - 1].at + p->rows[p->n_rows - 1].n == p->n_id)
        return err_set(INFER_E_INPUT, "the prompt ends with a row that is no token");
    if (p->n_rows && (p->score || p->make))
        return err_set(INFER_E_UNSUPPORTED,
                       "a prompt with rows that are no tokens can be answered, and not scored or embedded");
    return INFER_OK;
}

/* Row i of g. */
static const float *row_of(const struct infer_request *r, const struct infer_prompt_rows *g, int i) {
    return g->embed + (size_t)i * (size_t)(g->stride ? g->stride : r->sched->n_embd);
}

/* Rows that see each other are what they are together: the id of each has those of all in it, so that no page is shared with a picture
 * that only begins alike. */
static void mix_ids(int32_t *id, int n) {
    uint64_t all = 1469598103934665603u;
    for (int i = 0; i < n; i++) all = (all ^ (uint32_t)id[i]) * 1099511628211u;
    for (int i = 0; i < n; i++) {
        uint64_t x = (all ^ (uint32_t)id[i]) * 0x9e3779b97f4a7c15u;
        x ^= x >> 32;
        id[i] = -2 - (int32_t)(x & 0x3fffffff);
    }
}

void given_ids(struct infer_request *r) {
    for (int k = 0; k < r->p.n_rows; k++) {
        const struct infer_prompt_rows *g = &r->p.rows[k];
        for (int i = 0; i < g->n; i++) r->feed[g->at + i] = infer_embed_id(r->sched->engine, row_of(r, g, i));
        if (g->both_ways) mix_ids(r->feed + g->at, g->n);
    }
    const struct drafter *d = r->sched->drafter;
    if (r->p.n_rows && r->p.drafter == INFER_DRAFT_MODEL && d && !d->n_embd) r->p.drafter = INFER_DRAFT_NONE;
}

/* Row at place pos: its embedding, and into axis its positions; false: those are pos. */
static bool given_row(const struct infer_request *r, struct infer_row *row, int32_t *axis) {
    int first = row->pos; /* less those that rows in front have not taken */
    bool other = false;
    for (int k = 0; k < r->p.n_rows && r->p.rows[k].at <= row->pos; k++) {
        const struct infer_prompt_rows *g = &r->p.rows[k];
        const int i = row->pos - g->at;
        other |= g->axis != NULL;
        if (i < g->n) {
            row->embed = row_of(r, g, i);
            if (g->both_ways) row->until = g->at + g->n - 1;
            for (int a = 0; g->axis && a < 3; a++) axis[a] = first - i + g->axis[i][a];
            if (g->axis) return true;
        } else if (g->axis) {
            first -= g->n - g->advance;
        }
    }
    axis[0] = axis[1] = axis[2] = first;
    return other;
}

void given_fill(const struct infer_request *r, struct infer_row *rows, int n) {
    for (int i = 0; i < n && r->p.n_rows; i++) {
        int32_t *axis = r->sched->axis[&rows[i] - r->sched->rows];
        if (given_row(r, &rows[i], axis)) rows[i].axis = axis;
    }
}

/* The picture whose rows see each other and that place `at` is within; NULL: none. */
static const struct infer_prompt_rows *whole_at(const struct infer_request *r, int at) {
    for (int k = 0; k < r->p.n_rows; k++) {
        const struct infer_prompt_rows *g = &r->p.rows[k];
        if (g->both_ways && at >= g->at && at < g->at + g->n) return g;
    }
    return NULL;
}

int given_part(const struct infer_request *r, int from, int n) {
    if (r->sched->encoder) return n < r->n_feed ? 0 : n; /* a text is whole */
    const struct infer_prompt_rows *g = n ? whole_at(r, from + n - 1) : NULL;
    if (!g || from + n == g->at + g->n) return n;
    return g->at > from ? g->at - from : 0;
}

int given_least(const struct infer_request *r, int from) {
    if (r->sched->encoder) return r->n_feed;
    const struct infer_prompt_rows *g = whole_at(r, from);
    return g ? g->at + g->n - from : 1;
}
