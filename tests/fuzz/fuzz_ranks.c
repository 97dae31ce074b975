/* Any bytes as what rank 0 asks of a rank in another process: what is accepted can be read to its end and names nothing that is not there. The
 * first byte is the kind of call. */
#include "join/rank_message.h"

#include <stdlib.h>
#include <string.h>

static volatile uint64_t sink; /* keeps the reads */

static const struct kv_store stores[] = {{0, 2, 8, 8, false, KV_F16, KV_F16, 0},
                                         {1, 1, 16, 8, true, KV_F16, KV_F16, 0}};
static const struct state_store states[] = {{40}, {6}};
static const struct rank_limits limits = {.n_vocab = 100,
                                          .n_input = 6,
                                          .n_ctx = 200,
                                          .n_slot = 3,
                                          .n_state_slot = 4,
                                          .max_rows = {8, 4},
                                          .max_out = {4, 4},
                                          .n_group = 2,
                                          .n_page = {9, 5},
                                          .max_pages = {4, 2},
                                          .n_store = 2,
                                          .store = stores,
                                          .n_state = 2,
                                          .n_adapter = 2,
                                          .state = states};

static void add(const void *p, size_t n) {
    for (size_t i = 0; i < n; i++) sink += ((const unsigned char *)p)[i];
}
static void expect(bool so) {
    if (!so) __builtin_trap();
}

static void read_step(const struct rank_call *c) {
    const struct step *s = c->step;
    expect(s->n_row >= 1 && s->n_row <= limits.max_rows[c->cls] && s->n_out <= limits.max_out[c->cls]);
    for (int t = 0; t < s->n_row; t++) {
        expect(s->id[t] >= STEP_LAST && s->id[t] < limits.n_vocab && s->slot[t] >= 0 &&
               s->slot[t] < limits.n_slot);
        expect(s->pos[t] >= 0 && s->pos[t] < limits.n_ctx);
        for (int g = 0; g < limits.n_group; g++)
            for (int i = 0; i < limits.max_pages[g]; i++) {
                const int32_t page = s->pages[g][s->slot[t] * limits.max_pages[g] + i];
                expect(page >= -1 && page < limits.n_page[g]);
            }
        for (int k = 0; k < 3; k++)
            if (s->axis[k]) sink += (uint32_t)s->axis[k][t];
        if (s->until) expect(s->until[t] >= 0 && s->until[t] < limits.n_ctx);
        if (s->input && s->input[t]) add(s->input[t], (size_t)limits.n_input * sizeof(float));
    }
    for (int i = 0; s->adapter && i < limits.n_slot; i++)
        if (s->adapter[i]) add(s->adapter[i], (size_t)limits.n_adapter * sizeof(float));
    for (int i = 0; i < s->n_out; i++) {
        expect(s->out_row[i] >= 0 && s->out_row[i] < s->n_row && (!i || s->out_row[i] > s->out_row[i - 1]));
        sink += s->want[i];
        const struct infer_draw *d = s->draw ? s->draw[i] : NULL;
        if (d) add(d->edit, (size_t)d->n_edit * sizeof *d->edit);
        if (d && d->mask) add(d->mask, 16);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct rank_inbox in;
    struct rank_call call;
    if (!size) return 0;
    const enum rank_ask ask = (enum rank_ask)(data[0] % (RANK_CLOSE + 1));
    unsigned char *copy = malloc(size - 1 + (size == 1)); /* exact, so that a read past the end is seen */
    memcpy(copy, data + 1, size - 1);
    expect(rank_inbox_new(&in, &limits) == INFER_OK);
    if (rank_message_get(&call, &in, &limits, ask, copy, size - 1) == INFER_OK) {
        const size_t n = rank_call_reads(&limits, &call);
        expect(n <= in.n_numbers);
        if (ask == RANK_RUN) read_step(&call);
        if (ask == RANK_KV_COPY) expect(call.from >= 0 && call.from < limits.n_page[call.store]);
        if (call.write && ask == RANK_STATE_READ)
            add(call.k, (size_t)states[call.store].n_elem * sizeof(float));
        if (call.write && ask == RANK_KV_PAGE) add(call.bytes, kv_page_bytes(&stores[call.store]));
    } else {
        expect(*err_message() != 0);
    }
    rank_inbox_free(&in);
    free(copy);
    return 0;
}
