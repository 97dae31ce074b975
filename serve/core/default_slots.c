#include "serve/core/default_slots.h"
#include <string.h>
#include "base/status.h"

enum { MOST = 256, LEAST = 32 };

/* The report for these options; what it points to is gone, its numbers stay. */
static enum infer_status look(const struct infer_model *m, const struct infer_engine_options *o,
                              const char *as, struct infer_plan_report *r) {
    TRY(infer_plan(m, o, as, r));
    struct infer_plan_report numbers = *r;
    infer_plan_free(r);
    *r = numbers;
    return INFER_OK;
}

/* Whether all layers are on the card, and nothing of them beside. */
static bool is_whole(const struct infer_model *m, const struct infer_plan_report *r) {
    struct infer_model_info info;
    infer_model_info(m, &info);
    return r->fits && r->size.device_layers == info.n_layer && !r->size.host_experts;
}

enum infer_status default_slots(const struct infer_model *m, const char *as, struct infer_engine_options *o) {
    struct infer_plan_report r;
    TRY(look(m, o, as, &r));
    if (strcmp(r.size.device, "cpu") == 0 || strcmp(r.size.device, "ref") == 0 || !is_whole(m, &r))
        return INFER_OK;
    const int share = r.size.n_ctx < SLOT_SHARE ? r.size.n_ctx : SLOT_SHARE, least = r.size.kv_tokens;
    for (int slots = MOST; slots >= LEAST; slots /= 2) {
        struct infer_engine_options more = *o;
        more.slots = slots;
        more.kv_tokens = slots * share > least ? slots * share : least;
        TRY(look(m, &more, as, &r));
        if (!is_whole(m, &r)) continue;
        *o = more;
        return INFER_OK;
    }
    return INFER_OK;
}
