/* infer kvtune: which element types the cache may have, keys and values of each layer apart, so that the logits diverge from those with a
 * cache of f16 by no more than a bound; the cheapest of those that were measured lie beside the model then, for --kv-type auto.
 *
 * One part (a layer's keys, its values, what its positions are chosen by, its entries) in q4_0 and all others in f16 tells how sensitive it
 * is, all parts of a side in a type what that type costs; a part in a type is taken to cost the product. From all f16 on, the step is taken
 * that saves most bytes for its cost, and on that path the last point under the bound is searched by halving: what is kept was measured
 * whole, at the whole depth. Where all positions are chosen, nothing can be told of what they are chosen by, and it stays f16. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/mem.h"
#include "files/textfile.h"
#include "seam/store.h"
#include "tools/interrupt.h"
#include "tools/measure/kl.h"
#include "tools/session.h"
#include "tools/tool.h"

int cmd_kvtune(const struct options *o);

enum { DEPTH = 32768, COUNTED = 512, SENSED = 1024, STEP = 128, WORDS = 8192, CHOICES = 32 };
static const double least = 1e-9; /* a divergence below is noise */

/* Parts that are measured together. */
enum side { KEYS, VALUES, INDEX, ENTRIES, SIDES };
static const char *const kind_word[INFER_KV_KINDS] = {"", "index", "entries"};

/* Keys or values of a layer. */
struct part {
    int layer; /* of kvtune.layer */
    enum side side;
    enum kv_type type;
    double sense; /* divergence in q4_0 alone */
};
struct move {
    int part;
    enum kv_type to;
};
/* The first `depth` tokens of the text, of which the last `counted` are compared. */
struct reading {
    int depth, counted;
    char base[64]; /* what f16 said */
};
struct kvtune {
    const struct options *o;
    struct session s;
    int32_t *ids, bos;
    size_t n;
    struct infer_kv_layer *layer;
    int n_layer, n_part, n_move, n_blind; /* n_blind: index keys of which the depth tells nothing */
    struct part *part;
    struct move *move;
    double side[SIDES][KV_TYPES]; /* divergence with all parts of a side in a type */
    struct reading sensed, whole;
    struct infer_kv_choice choice[CHOICES];
    int n_choice, done, passes;
    char folder[32];
};

/* ---- types as words, and bytes ---- */

static enum side side_of(const struct infer_kv_layer *l, bool value) {
    return l->kind == INFER_KV_INDEX ? INDEX : l->kind == INFER_KV_ENTRIES ? ENTRIES : value ? VALUES : KEYS;
}
static enum kv_type type_of(const struct kvtune *t, int layer, bool value) {
    for (int i = 0; i < t->n_part; i++)
        if (t->part[i].layer == layer && (t->part[i].side == VALUES) == value) return t->part[i].type;
    return value ? type_of(t, layer, false) : KV_F16;
}
/* The next of kvtune.layer of a kind, from i on; n_layer: none. */
static int next_of(const struct kvtune *t, int i, int kind) {
    while (i < t->n_layer && (int)t->layer[i].kind != kind) i++;
    return i;
}
/* Runs of layers alike, as --kv-type takes them. */
static size_t words_of_kind(const struct kvtune *t, int kind, char out[WORDS], size_t n) {
    for (int i = next_of(t, 0, kind), end; i < t->n_layer; i = end) {
        const enum kv_type k = type_of(t, i, false), v = type_of(t, i, true);
        int last = i;
        for (end = i; end < t->n_layer && type_of(t, end, false) == k && type_of(t, end, true) == v;
             end = next_of(t, end + 1, kind))
            last = end;
        if (k == KV_F16 && v == KV_F16) continue;
        char to[16] = "";
        if (last > i) snprintf(to, sizeof to, "-%d", t->layer[last].layer);
        n += (size_t)snprintf(out + n, n < WORDS ? WORDS - n : 0, ",%s%s%d%s:%s/%s", kind_word[kind],
                              kind ? "." : "", t->layer[i].layer, to, kv_type_name(k), kv_type_name(v));
        if (n >= WORDS) n = WORDS - 1;
    }
    return n;
}
static const char *words_of(const struct kvtune *t, char out[WORDS]) {
    size_t n = (size_t)snprintf(out, WORDS, "f16");
    for (int kind = 0; kind < INFER_KV_KINDS; kind++) n = words_of_kind(t, kind, out, n);
    return out;
}
/* Of a part at the whole depth. */
static uint64_t bytes_of(const struct kvtune *t, const struct part *p, enum kv_type type) {
    const struct infer_kv_layer *l = &t->layer[p->layer];
    const int seen = l->window && l->window < t->whole.depth ? l->window : t->whole.depth;
    return (uint64_t)(seen / l->every) * (uint64_t)l->n_head *
           kv_row_bytes(type, p->side == VALUES ? l->dim_v : l->dim_k);
}
static uint64_t bytes_now(const struct kvtune *t) {
    uint64_t n = 0;
    for (int i = 0; i < t->n_part; i++) n += bytes_of(t, &t->part[i], t->part[i].type);
    return n;
}

/* ---- a pass ---- */

static enum infer_status read_all(struct kvtune *t, const struct reading *r, struct infer_engine *e,
                                  struct kl *kl) {
    struct infer_engine_info place;
    const int first = r->depth - r->counted;
    int seq;
    infer_engine_info(e, &place);
    TRY(infer_seq_open(e, &seq));
    for (int pos = 0, m; pos < r->depth - 1; pos += m) { /* the last token is predicted, not fed */
        struct infer_row rows[STEP];
        struct infer_output out;
        m = r->depth - 1 - pos < STEP ? r->depth - 1 - pos : STEP;
        if (m > place.n_batch) m = place.n_batch;
        for (int i = 0; i < m; i++)
            rows[i] = (struct infer_row){.id = pos + i == 0 && t->bos >= 0 ? t->bos : t->ids[pos + i],
                                         .pos = pos + i,
                                         .seq = seq,
                                         .want = pos + i >= first - 1 ? INFER_WANT_LOGITS : INFER_WANT_NONE};
        TRY(infer_step(e, rows, m, &out));
        const int from = pos > first - 1 ? pos : first - 1;
        for (int i = 0; i < out.n; i++) {
            const int32_t id = t->ids[from + i + 1];
            TRY(kl_token(kl, out.logits[i], id, kl_surprise(out.logits[i], t->s.info.n_vocab, id)));
        }
        progress_show(&t->s.progress, "kvtune", t->done + (double)pos / r->depth, t->passes, "passes");
    }
    return INFER_OK;
}

/* The mean divergence with these types; NULL: f16 is what others are compared with. */
static enum infer_status pass(struct kvtune *t, const struct reading *r, const char *words, double *mean) {
    struct infer_engine_options eo = session_engine_options(
        t->o, &(struct session_need){.slots = 1, .ctx = r->depth, .batch = STEP, .all_logits = true});
    struct infer_engine *e = NULL;
    struct kl kl = {0};
    struct kl_header h = {.n_vocab = (uint32_t)t->s.info.n_vocab,
                          .window = (uint32_t)r->depth,
                          .first = (uint32_t)(r->depth - r->counted),
                          .n_window = 1};
    eo.kv_type = words ? words : "f16";
    eo.ctx = r->depth, eo.slots = 1;
    if (!eo.device || !strcmp(eo.device, "auto")) eo.device = "cpu";
    enum infer_status st = words ? kl_open(&kl, r->base, &h) : kl_make(&kl, r->base, &h);
    if (!st) st = infer_engine_create(&e, t->s.model, &eo);
    if (!st) {
        interrupt_stops(e, NULL);
        st = read_all(t, r, e, &kl);
        interrupt_stops(NULL, NULL);
    }
    if (!st && !words) st = kl_done(&kl);
    if (!st && words) *mean = kl.sum / (double)kl.n;
    infer_engine_free(e);
    kl_close(&kl);
    t->done++;
    return !st && words && !isfinite(*mean)
               ? err_set(INFER_E_NAN, "the divergence with %.60s is not finite", words)
               : st;
}

/* At the whole depth, and kept. */
static enum infer_status pass_whole(struct kvtune *t, double *mean) {
    char words[WORDS];
    words_of(t, words);
    for (int i = 1; i < t->n_choice; i++)
        if (strcmp(t->choice[i].kv_type, words) == 0) {
            *mean = t->choice[i].kl;
            return INFER_OK;
        }
    TRY(pass(t, &t->whole, words, mean));
    if (t->n_choice == CHOICES) return INFER_OK;
    char *own = mem_strdup(words);
    if (!own) return err_set(INFER_E_MEMORY, "out of memory for a choice of types");
    t->choice[t->n_choice++] = (struct infer_kv_choice){fmax(*mean, 0), bytes_now(t), own};
    return INFER_OK;
}

static void set_all(struct kvtune *t, enum kv_type type) {
    for (int i = 0; i < t->n_part; i++) t->part[i].type = type;
}
/* All parts of a side in a type, others in f16; whether there are some. */
static bool set_side(struct kvtune *t, enum side side, enum kv_type type) {
    bool some = false;
    for (int i = 0; i < t->n_part; i++) {
        const bool on = t->part[i].side == side;
        t->part[i].type = on ? type : KV_F16;
        some = some || on;
    }
    return some;
}

/* ---- the search ---- */

static enum infer_status measure_parts(struct kvtune *t) {
    char words[WORDS];
    TRY(pass(t, &t->sensed, NULL, NULL));
    for (int type = KV_Q8_0; type < KV_TYPES; type++)
        for (int side = 0; side < SIDES; side++)
            if (set_side(t, (enum side)side, (enum kv_type)type))
                TRY(pass(t, &t->sensed, words_of(t, words), &t->side[side][type]));
    for (int i = 0; i < t->n_part; i++) {
        set_all(t, KV_F16);
        t->part[i].type = KV_Q4_0;
        TRY(pass(t, &t->sensed, words_of(t, words), &t->part[i].sense));
    }
    return INFER_OK;
}

/* What a part in a type is taken to cost. */
static double cost_of(const struct kvtune *t, const struct part *p, enum kv_type type) {
    const double *side = t->side[p->side];
    if (type == KV_F16) return 0;
    return fmax(p->sense, least) * fmax(side[type], least) / fmax(side[KV_Q4_0], least);
}

/* The steps from all f16 to all of the fewest bytes, that which saves most bytes for its cost first. */
static void find_path(struct kvtune *t) {
    set_all(t, KV_F16);
    for (t->n_move = 0;;) {
        double best = 0;
        struct move to = {-1, KV_F16};
        for (int i = 0; i < t->n_part; i++)
            for (int type = KV_Q8_0; type < KV_TYPES; type++) {
                const struct part *p = &t->part[i];
                const double saved =
                                 (double)bytes_of(t, p, p->type) - (double)bytes_of(t, p, (enum kv_type)type),
                             cost = cost_of(t, p, (enum kv_type)type) - cost_of(t, p, p->type);
                if (saved <= 0 || saved / fmax(cost, least) <= best) continue;
                best = saved / fmax(cost, least);
                to = (struct move){i, (enum kv_type)type};
            }
        if (to.part < 0) return;
        t->part[to.part].type = to.to;
        t->move[t->n_move++] = to;
    }
}
static void go_to(struct kvtune *t, int n) {
    set_all(t, KV_F16);
    for (int i = 0; i < n; i++) t->part[t->move[i].part].type = t->move[i].to;
}

/* Types alike for all, then the path by halving; near enough where it is within a part in 64 of it. */
static enum infer_status search(struct kvtune *t) {
    double kl;
    TRY(pass(t, &t->whole, NULL, NULL));
    for (int type = KV_Q8_0; type < KV_Q4_0; type++) {
        set_all(t, (enum kv_type)type);
        TRY(pass_whole(t, &kl));
    }
    int lo = 0, hi = t->n_move;
    go_to(t, hi);
    TRY(pass_whole(t, &kl));
    if (kl <= t->o->kl_bound) return INFER_OK;
    while (hi - lo > 1 + t->n_move / 64) {
        const int mid = lo + (hi - lo) / 2;
        go_to(t, mid);
        TRY(pass_whole(t, &kl));
        *(kl <= t->o->kl_bound ? &lo : &hi) = mid;
    }
    return INFER_OK;
}

/* ---- the text, and what is told ---- */

static enum infer_status tokenize(struct kvtune *t) {
    char *text;
    size_t n_text, n = 0;
    int32_t begin[8];
    TRY(text_read(&text, &n_text, t->o->file, TEXT_CORPUS));
    enum infer_status st = mem_new(&t->ids, (n_text + 16) * sizeof *t->ids, "token ids of the text");
    if (!st) st = infer_tokenize(t->s.model, text, NULL, n_text, 0, t->ids, n_text + 16, &t->n);
    mem_free(text);
    if (!st) st = infer_tokenize(t->s.model, "a", NULL, 1, INFER_TOK_ADD, begin, 8, &n);
    if (st) return st;
    t->bos = n && begin[0] == infer_bos(t->s.model) ? begin[0] : -1;
    int most = t->o->ctx > 0 ? t->o->ctx : DEPTH;
    if (t->o->ctx > t->s.info.n_ctx_train)
        return err_set(INFER_E_INPUT, "--ctx %d is beyond the %d positions that the model was trained for",
                       t->o->ctx, t->s.info.n_ctx_train);
    if (most > t->s.info.n_ctx_train) most = t->s.info.n_ctx_train;
    const int depth = t->n < (size_t)most ? (int)t->n : most;
    if (depth < 16)
        return err_set(INFER_E_INPUT, "%s has %zu tokens, 16 and more are needed", t->o->file, t->n);
    t->whole.depth = depth;
    return INFER_OK;
}

static enum infer_status find_layers(struct kvtune *t) {
    t->n_layer = infer_kv_layers(t->s.model, NULL, 0);
    if (!t->n_layer) return err_set(INFER_E_INPUT, "%s keeps no keys and values", t->s.path);
    TRY(mem_new(&t->layer, (size_t)t->n_layer * sizeof *t->layer, "layers"));
    TRY(mem_new(&t->part, 2 * (size_t)t->n_layer * sizeof *t->part, "layers"));
    TRY(mem_new(&t->move, 2 * (size_t)t->n_layer * KV_TYPES * sizeof *t->move, "layers"));
    infer_kv_layers(t->s.model, t->layer, t->n_layer);
    return INFER_OK;
}

/* What is measured, and at which depth: beyond what is chosen twice, so that a half of it is a choice. */
static void find_parts(struct kvtune *t) {
    int sensed = SENSED;
    for (int i = 0; i < t->n_layer; i++) {
        const struct infer_kv_layer *l = &t->layer[i];
        if (l->n_seen && l->n_seen >= t->whole.depth) {
            t->n_blind++;
            continue;
        }
        if (sensed / 2 < l->n_seen) sensed = l->n_seen < INT32_MAX / 2 ? 2 * l->n_seen : INT32_MAX;
        for (int value = 0; value < (l->dim_v ? 2 : 1); value++)
            t->part[t->n_part++] = (struct part){.layer = i, .side = side_of(l, value)};
    }
    t->sensed.depth = sensed < t->whole.depth ? sensed : t->whole.depth;
}

static enum infer_status prepare(struct kvtune *t) {
    const char *tmp = getenv("TMPDIR");
    TRY(tokenize(t));
    TRY(find_layers(t));
    find_parts(t);
    snprintf(t->folder, sizeof t->folder, "%.16s/kvtune.XXXXXX", tmp && strlen(tmp) <= 16 ? tmp : "/tmp");
    if (!mkdtemp(t->folder)) return err_set(INFER_E_IO, "%s: no folder for what f16 says", t->folder);
    struct reading *const both[] = {&t->sensed, &t->whole};
    for (int i = 0; i < 2; i++) {
        both[i]->counted = both[i]->depth / 2 < COUNTED ? both[i]->depth / 2 : COUNTED;
        snprintf(both[i]->base, sizeof both[i]->base, "%s/base%d", t->folder, i);
    }
    double moves = 4.0 * t->n_part;
    int sides = 0;
    for (int side = 0; side < SIDES; side++) sides += set_side(t, (enum side)side, KV_F16);
    t->passes = 1 + 4 * sides + t->n_part + 1 + 4 + (int)fmin(ceil(log2(moves)), 6);
    return INFER_OK;
}

static const struct infer_kv_choice *cheapest(const struct kvtune *t) {
    const struct infer_kv_choice *best = &t->choice[0]; /* f16 */
    for (int i = 1; i < t->n_choice; i++)
        if (t->choice[i].kl <= t->o->kl_bound && t->choice[i].bytes < best->bytes) best = &t->choice[i];
    return best;
}
static int by_bytes(const void *a, const void *b) {
    const struct infer_kv_choice *x = a, *y = b;
    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static void tell(struct kvtune *t) {
    printf("layer  window   keys q4_0   values q4_0   KL of %d tokens behind %d, alone\n", t->sensed.counted,
           t->sensed.depth - t->sensed.counted);
    for (int i = 0; i < t->n_part; i++) {
        const struct part *p = &t->part[i];
        const struct infer_kv_layer *l = &t->layer[p->layer];
        if (p->side != VALUES) printf("%5d  %6d  %10.6f", l->layer, l->window, p->sense);
        if (p->side == VALUES) printf("    %10.6f", p->sense);
        if (p->side > VALUES) printf("    %s", kind_word[l->kind]);
        if (i + 1 == t->n_part || p[1].side != VALUES) printf("\n");
    }
    if (t->n_blind)
        printf("index keys of %d layers stay f16: at %d positions all are chosen, whatever their type\n",
               t->n_blind, t->whole.depth);
    printf("\n bytes    MiB        KL   KL of %d tokens behind %d, measured whole\n", t->whole.counted,
           t->whole.depth - t->whole.counted);
    const struct infer_kv_choice best = *cheapest(t);
    const double all = (double)t->choice[0].bytes;
    qsort(t->choice, (size_t)t->n_choice, sizeof *t->choice, by_bytes);
    for (int i = 0; i < t->n_choice; i++) {
        const struct infer_kv_choice *c = &t->choice[i];
        printf("%5.1f%% %6.1f %9.6f   %s%s\n", 100 * (double)c->bytes / all, (double)c->bytes / (1 << 20),
               c->kl, c->kv_type, c->kv_type == best.kv_type ? "   TAKEN" : "");
    }
}

static enum infer_status tune(struct kvtune *t) {
    const struct options *o = t->o;
    const char *slash = strrchr(o->file, '/');
    if (options_given(o, "kv-type"))
        return err_set(INFER_E_INPUT, "kvtune chooses the types; --kv-type is for those who use them");
    TRY(session_open_model(&t->s, o));
    if (!t->s.info.has_tokenizer) return err_set(INFER_E_UNSUPPORTED, "%s has no tokenizer", t->s.path);
    if (o->output) TRY(tool_check_output(o, t->s.path, o->output));
    progress_start(&t->s.progress, o->quiet);
    TRY(prepare(t));
    set_all(t, KV_F16);
    char *f16 = mem_strdup("f16");
    if (!f16) return err_set(INFER_E_MEMORY, "out of memory for a choice of types");
    t->choice[t->n_choice++] = (struct infer_kv_choice){0, bytes_now(t), f16};
    TRY(measure_parts(t));
    find_path(t);
    TRY(search(t));
    progress_clear(&t->s.progress);
    interrupt_ends_at_once();
    tell(t);
    TRY(infer_kv_choices_save(t->s.model, o->output, o->kl_bound, slash ? slash + 1 : o->file, t->whole.depth,
                              t->whole.counted, t->choice, t->n_choice));
    printf("\nkept in %s%s: --kv-type auto\n", o->output ? o->output : t->s.path,
           o->output ? "" : ".kv.json");
    return tool_flush();
}

int cmd_kvtune(const struct options *o) {
    struct kvtune t = {.o = o};
    enum infer_status st = tune(&t);
    progress_clear(&t.s.progress);
    const int code = st ? tool_fail(o, st) : EXIT_DONE;
    if (*t.sensed.base) unlink(t.sensed.base);
    if (*t.whole.base) unlink(t.whole.base);
    if (*t.folder) rmdir(t.folder);
    for (int i = 0; i < t.n_choice; i++) mem_free((char *)t.choice[i].kv_type);
    mem_free(t.ids);
    mem_free(t.layer);
    mem_free(t.part);
    mem_free(t.move);
    session_close(&t.s);
    return code;
}
