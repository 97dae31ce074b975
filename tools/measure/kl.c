#include "tools/measure/kl.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char magic[8] = {'I', 'N', 'F', 'E', 'R', 'K', 'L', '1'};

static size_t row_bytes(const struct kl_header *h) {
    return sizeof(struct kl_row) + (h->n_vocab + (size_t)(h->n_vocab & 1)) * 2;
}
static size_t tokens(const struct kl_header *h) { return (size_t)h->n_window * (h->window - h->first); }

enum infer_status kl_make(struct kl *k, const char *path, const struct kl_header *header) {
    k->header = *header;
    memcpy(k->header.magic, magic, sizeof magic);
    TRY(mem_new(&k->code, ((size_t)header->n_vocab + 1) * sizeof *k->code, "codes of logits"));
    TRY(outfile_open(&k->out, path, OUTFILE_DEFAULT));
    TRY(outfile_reserve(k->out, sizeof k->header + tokens(header) * row_bytes(header)));
    return outfile_write(k->out, &k->header, sizeof k->header);
}

enum infer_status kl_open(struct kl *k, const char *path, struct kl_header *header) {
    const struct kl_header *h = &k->header;
    TRY(mapfile_open(&k->base, path, false));
    if (k->base.size < sizeof *h || memcmp(k->base.data, magic, sizeof magic) != 0)
        return err_set(INFER_E_INPUT, "%s holds no logits of a base; perplexity --save-logits FILE makes one",
                       path);
    memcpy(&k->header, k->base.data, sizeof k->header);
    if (h->n_vocab != header->n_vocab)
        return err_set(INFER_E_INPUT, "%s is of a model with %u tokens, this one has %u", path, h->n_vocab,
                       header->n_vocab);
    if (h->window != header->window || h->first != header->first || h->n_window == 0 || h->n_window > 1 << 24)
        return err_set(INFER_E_INPUT,
                       "%s has %u windows of %u tokens, of which those from %u on count; here %u and %u",
                       path, h->n_window, h->window, h->first, header->window, header->first);
    if (k->base.size != sizeof *h + tokens(h) * row_bytes(h))
        return err_set(INFER_E_INPUT, "%s has %zu bytes, %u windows take %zu: was it cut?", path,
                       k->base.size, h->n_window, sizeof *h + tokens(h) * row_bytes(h));
    if (h->n_window > header->n_window)
        return err_set(INFER_E_INPUT, "%s has %u windows, the text %u: it is of another text", path,
                       h->n_window, header->n_window);
    header->n_window = h->n_window;
    k->n_max = tokens(h);
    return mem_new(&k->each, k->n_max * sizeof *k->each, "divergences of tokens");
}

double kl_surprise(const float *logits, int n_vocab, int32_t id) {
    float max = logits[0];
    for (int i = 1; i < n_vocab; i++) max = logits[i] > max ? logits[i] : max;
    double sum = 0;
    for (int i = 0; i < n_vocab; i++) sum += expf(logits[i] - max);
    return log(sum) - (double)(logits[id] - max);
}

/* log_z: log of the sum of exp(logits). */
static enum infer_status save(struct kl *k, const float *logits, int32_t id, double log_z) {
    const uint32_t n = k->header.n_vocab;
    float most = logits[0], lowest = logits[0];
    for (uint32_t i = 1; i < n; i++) {
        most = logits[i] > most ? logits[i] : most;
        lowest = logits[i] < lowest ? logits[i] : lowest;
    }
    if (lowest < most - 16) lowest = most - 16;
    struct kl_row row = {.least = (float)((double)lowest - log_z),
                         .step = (most - lowest) / 65535,
                         .log_p = (float)((double)logits[id] - log_z),
                         .id = id};
    const float inverse = row.step > 0 ? 1 / row.step : 0;
    memset(k->code, 0, ((size_t)n + 1) * sizeof *k->code);
    for (uint32_t i = 0; i < n; i++)
        if (logits[i] > lowest) k->code[i] = (uint16_t)lrintf((logits[i] - lowest) * inverse);
    TRY(outfile_write(k->out, &row, sizeof row));
    return outfile_write(k->out, k->code, row_bytes(&k->header) - sizeof row);
}

static enum infer_status compare(struct kl *k, const float *logits, int32_t id, double log_z) {
    const unsigned char *at = k->base.data + sizeof k->header + k->n * row_bytes(&k->header);
    const uint16_t *code = (const uint16_t *)(const void *)(at + sizeof(struct kl_row));
    struct kl_row row;
    double sum = 0;
    uint32_t here = 0, there = 0;
    memcpy(&row, at, sizeof row);
    if (row.id != id || !isfinite(row.least) || !isfinite(row.step) || !isfinite(row.log_p))
        return err_set(INFER_E_INPUT,
                       "%s: token %zu was %d there and is %d here: of another text or vocabulary",
                       k->base.path, k->n, (int)row.id, (int)id);
    for (uint32_t i = 0; i < k->header.n_vocab; i++) {
        if (logits[i] > logits[here]) here = i;
        if (code[i] > code[there]) there = i;
        if (!code[i]) continue;
        double p = (double)row.least + (double)row.step * code[i];
        sum += exp(p) * (p - ((double)logits[i] - log_z));
    }
    const double change = exp((double)logits[id] - log_z) - exp((double)row.log_p);
    k->each[k->n++] = sum;
    k->sum += sum, k->sum2 += sum * sum;
    k->change += change, k->change2 += change * change;
    k->base_sum -= (double)row.log_p;
    k->same += here == there;
    return INFER_OK;
}

enum infer_status kl_token(struct kl *k, const float *logits, int32_t id, double surprise) {
    const double log_z = surprise + (double)logits[id];
    if (k->out) TRY(save(k, logits, id, log_z));
    return k->base.data ? compare(k, logits, id, log_z) : INFER_OK;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
double kl_quantile(struct kl *k, double share) {
    qsort(k->each, k->n, sizeof *k->each, by_value);
    const double at = share * (double)(k->n - 1);
    const size_t i = (size_t)at, next = i + 1 < k->n ? i + 1 : i;
    return k->each[i] + (at - (double)i) * (k->each[next] - k->each[i]);
}

enum infer_status kl_done(struct kl *k) {
    struct outfile *out = k->out;
    k->out = NULL;
    return out ? outfile_close(out) : INFER_OK;
}
void kl_close(struct kl *k) {
    outfile_abort(k->out);
    mapfile_close(&k->base);
    mem_free(k->code);
    mem_free(k->each);
}
