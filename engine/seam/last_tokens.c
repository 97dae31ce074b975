#include "seam/last_tokens.h"

size_t last_tokens_bytes(int n_slot, int max_rows) {
    return ((size_t)n_slot + (size_t)max_rows) * sizeof(int32_t);
}

void last_tokens_open(struct last_tokens *l, void *memory, int n_slot) {
    l->token = memory;
    l->id = l->token + n_slot;
    for (int i = 0; i < n_slot; i++) l->token[i] = -1;
}

enum infer_status last_tokens_resolve(const struct last_tokens *l, struct step *s) {
    for (int t = 0; t < s->n_row; t++) {
        l->id[t] = s->id[t] == STEP_LAST ? l->token[s->slot[t]] : s->id[t];
        if (l->id[t] < 0) return last_tokens_missing();
    }
    s->id = l->id;
    return INFER_OK;
}

enum infer_status last_tokens_missing(void) {
    return err_set(INFER_E_INPUT, "a row asks for the last token of a sequence that has none");
}
