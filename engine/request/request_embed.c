/* Requests that want numbers instead of an answer: hidden rows of the prompt, or logits behind it. */
#include "base/mem.h"
#include "request/request_impl.h"

bool embed_of_rows(const struct infer_request *r) { return r->p.make && r->p.make != INFER_MAKE_LOGITS; }

/* Of what is taken over from others nothing is known: rows that count have to be computed. */
int embed_shares(const struct infer_request *r) {
    if (r->sched->encoder) return 1;
    return r->p.make == INFER_MAKE_FIRST || r->p.make == INFER_MAKE_MEAN ? 1 : r->n_feed;
}

/* Rows first .. first + n - 1 of the prompt that the step of a part computed, at `from`. */
static enum infer_status add_rows(struct infer_request *r, const struct request_part *part, int from,
                                  int first, int n) {
    const size_t width = (size_t)r->sched->n_embd;
    const float *h;
    if (n < 1) return INFER_OK;
    if (!r->sum) TRY(mem_new(&r->sum, width * sizeof *r->sum, "hidden rows"));
    TRY(infer_hidden(r->sched->engine, false, part->row + first - from, n, &h));
    for (int t = 0; t < n; t++)
        for (size_t i = 0; i < width; i++) r->sum[i] += (double)h[(size_t)t * width + i];
    r->n_sum += n;
    return INFER_OK;
}

enum infer_request_make infer_model_makes(const struct infer_model_info *m) {
    static const enum infer_request_make makes[] = {INFER_MAKE_LAST, INFER_MAKE_MEAN, INFER_MAKE_FIRST,
                                                    INFER_MAKE_LAST,
                                                    INFER_MAKE_FIRST}; /* by GGUF's numbers */
    return m->pooling >= 0 && m->pooling < (int)(sizeof makes / sizeof *makes) ? makes[m->pooling]
                                                                               : INFER_MAKE_LAST;
}

static enum infer_status logits(struct infer_request *r, const float *row) {
    TRY(mem_new(&r->made, (size_t)r->p.n_make_id * sizeof *r->made, "logits"));
    for (int i = 0; i < r->p.n_make_id; i++) r->made[i] = row[r->p.make_id[i]];
    r->n_made = r->p.n_make_id;
    return INFER_OK;
}

enum infer_status embed_saw(struct infer_request *r, const struct request_part *part,
                            const struct infer_output *out, int from) {
    const int end = from + part->n_row, last = r->n_feed - 1;
    if (r->p.make == INFER_MAKE_LOGITS) return end > last ? logits(r, out->logits[part->first]) : INFER_OK;
    /* a part that is computed again after others had the pages has the bits that it had: it counts once */
    const int begin = r->p.make == INFER_MAKE_LAST ? last : r->n_sum,
              stop = r->p.make == INFER_MAKE_FIRST ? 1 : r->n_feed, first = begin > from ? begin : from;
    TRY(add_rows(r, part, from, first, (stop < end ? stop : end) - first));
    if (end <= last) return INFER_OK;
    struct infer_model_info info;
    infer_model_info(r->sched->model, &info);
    TRY(mem_new(&r->made, (size_t)info.n_vector * sizeof *r->made, "hidden rows"));
    for (int i = 0; i < info.n_embd; i++) r->sum[i] /= r->n_sum;
    TRY(infer_vector(r->sched->model, r->sum, r->made));
    r->n_made = info.n_vector;
    return INFER_OK;
}

const float *infer_request_made(const struct infer_request *r, int *n) {
    *n = r->n_made;
    return r->made;
}
