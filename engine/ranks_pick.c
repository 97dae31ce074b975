/* How the cards of this machine share a model where the options leave that open: by the way that is predicted to be the fastest. */
#include "engine_impl.h"
#include "plan/several.h"

#include <string.h>

/* What a card computes of the ways that are compared. */
enum { ON_CARDS = 1 << WAY_TENSOR | 1 << WAY_PIPELINE | 1 << WAY_ONE };

static void say_lines(const char *text) {
    for (size_t n; *text; text += n + (text[n] == '\n')) {
        n = strcspn(text, "\n");
        log_line(LOG_WARN, "%.*s", (int)n, text);
    }
}

static enum infer_status take_way(struct plan_options *po, const struct plan_several *s, const int *no) {
    const struct plan_way *w = s->taken < 0 ? NULL : &s->way[s->taken];
    if (s->taken == WAY_TENSOR || s->taken == WAY_EXPERTS) {
        po->ranks = s->n;
        po->ep = s->taken == WAY_EXPERTS;
        return INFER_OK;
    }
    if (s->taken == WAY_PIPELINE) {
        po->stages = s->n;
        return INFER_OK;
    }
    po->ranks = po->wish.n_rank_card = 0;
    if (w) po->wish.card = no[w->card[0].no] + 1; /* else the one that has most memory, and the host */
    return device_pick(&po->wish, &po->place);
}

static enum infer_status compare(const struct model *m, struct plan_options *po) {
    struct card card[RANKS_MAX];
    int no[RANKS_MAX], n;
    char text[8192];
    TRY(device_cards(&po->wish, card, no, &n));
    struct plan_several *s;
    TRY(mem_new(&s, sizeof *s, "ways to share a model"));
    *s = (struct plan_several){.n = n, .taken = WAY_ONE};
    enum infer_status st = INFER_OK;
    if (n > 1) {
        st = plan_several(s, m, po, card, n);
        if (st == INFER_OK) plan_several_take(s, po->ep ? 1 << WAY_EXPERTS : ON_CARDS);
        if (st == INFER_OK) plan_several_write(s, m, card, text, sizeof text);
        if (st == INFER_OK) say_lines(text);
    }
    if (st == INFER_OK) st = take_way(po, s, no);
    mem_free(s);
    return st;
}

enum infer_status engine_ranks_pick(const struct model *m, struct plan_options *po) {
    const bool named = po->wish.n_rank_card && !po->ranks && po->stages < 2;
    if (po->ranks >= 0 && !named) return INFER_OK;
    const bool card = po->place.memory.total_bytes > 0;
    if (named && !card) return err_set(INFER_E_INPUT, ".devices are cards of ranks; no card is used");
    po->ranks = 0;
    /* one that is named, or that shares with the host; what drafts is small */
    const bool one = po->wish.card || po->wish.n_layer >= 0 || po->wish.n_cpu_experts > 0 || po->stages > 1;
    if (model_drafts(m)) po->wish.n_rank_card = 0;
    return !card || one || po->tap || model_drafts(m) ? INFER_OK : compare(m, po);
}
