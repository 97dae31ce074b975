/* links.h: a list of a Llama as links, with and without an operation that no pattern takes, in the classes of rows and the forms
 * of weights. Needs no chip. */
#include "tests/lib/test.h"
#include "engine_options.h"
#include "infer.h"
#include "cuda/links/link_attend.h"
#include "cuda/plan/mla_plan.h"
#include "cuda/plan/kv_halves_plan.h"
#include "model/adapter.h"
#include "model/shard.h"
#include "plan/plan.h"
#include "seam/op_list.h"
#include "tests/lib/synth_model.h"
#include "vision/tower_impl.h"

#include <math.h>
#include <unistd.h>

/* ---- lists ---- */

struct lists {
    struct model *model;
    struct arena arena;
    struct plan plan;
    struct cuda_plan sizes;
    struct op_list own[ROW_CLASS_COUNT]; /* as the plan has them */
    int decode_rows;                     /* of a step; 0: one */
};

/* Of o->model; adapters NULL: none. */
static void plan_adapted(struct lists *o, const struct adapters *adapters) {
    struct plan_options po;
    struct infer_engine_options eo = {.device = "ref",
                                      .ctx = 64,
                                      .slots = 1,
                                      .batch = 8,
                                      .threads = 1,
                                      .gpu_layers = -1,
                                      .decode_rows = o->decode_rows};
    assert_ok(engine_options_read(&po, &eo));
    assert_ok(device_pick(&po.wish, &po.place));
    po.adapters = adapters;
    assert_ok(plan_make(&o->plan, &o->arena, o->model, &po));
    assert_ok(cuda_plan_make(&o->sizes, &o->plan.part[0].config));
    for (int c = 0; c < ROW_CLASS_COUNT; c++) o->own[c] = *o->plan.part[0].config.list[c];
}
static void plan_lists(struct lists *o) { plan_adapted(o, NULL); }
static void open_file(struct lists *o, const char *path) {
    memset(o, 0, sizeof *o);
    assert_ok(model_open(&o->model, path, &(struct tensorfile_options){0}));
    plan_lists(o);
}
static void open_lists(struct lists *o, const char *shape, const char *type) {
    char path[SYNTH_PATH];
    synth_temporary(&(struct synth_options){.shape = shape, .type = type}, path);
    open_file(o, path);
    unlink(path);
}
static void close_lists(struct lists *o) {
    cuda_plan_free(&o->sizes);
    arena_free(&o->arena);
    model_close(o->model);
}

/* What a chip and an engine of one row or several make of a list. */
struct chip {
    int sm;
    bool int8, only_mma;
};
static const struct chip h100 = {90, false, false};
static int make(const struct lists *o, const struct op_list *l, struct chip chip, struct cuda_link *link) {
    struct route_case route = {.sm = chip.sm, .only_mma = chip.only_mma, .shared_bytes = 227 << 10};
    struct link_case c = {.list = l,
                          .plan = &o->sizes,
                          .store = o->plan.part[0].config.store,
                          .route = &route,
                          .int8 = chip.int8 && l->cls == ROW_DECODE};
    return links_make(&c, link);
}

/* Links as text: a kind a letter, edges that are no rows as their form behind it. */
static const char *text_of(const struct cuda_link *link, int n) {
    static const char kind[LINK_KIND_COUNT] = {'.', 'E', '8', '9', 'F', 'M', 'G', 'N', 'R', 'A',
                                               'V', 'H', 'P', 'X', 'Q', 'S', 'D', 'B', 'C', 'W',
                                               'L', 'U', 'Y', 'K', 'J', 'O', 'T', 'Z'};
    static const char form[FORM_COUNT] = {0, 'h', 'c', 'b', 'i', 'j', 't', 'p'};
    static char text[4096];
    char *p = text;
    for (int i = 0; i < n; i++) {
        if (link[i].in.packets) *p++ = '-';
        *p++ = kind[link[i].kind];
        if (link[i].gives) *p++ = form[link[i].gives];
    }
    *p = 0;
    return text;
}

enum { MOST = 256 };

/* Of two ranks a projection with its sum is a link, in place of RESIDUAL, and so is the sum of what experts have left. */
static void sums_of_ranks_are_links(void **state) {
    static const struct {
        const char *shape, *type;
        struct chip chip;
        const char *decode, *prompt;
        enum experts_by by;
    } all[] = {{"tiny-moe",
                "q8_0",
                {90, false, false},
                "EcM-Ac-U.......YcM-Ac-U.......Y.M..",
                ".MAcU...Q.YMAcU...Q.Y.M..",
                EXPERTS_WHOLE},

               {"tiny-moe",
                "q8_0",
                {90, false, false},
                "EcM-Ac-UXYcM-Ac-UXY.M..",
                ".MAcU...Q.YMAcU...Q.Y.M..",
                EXPERTS_CUT},
               {"tiny",
                "q8_0",
                {90, true, false},
                "EiM-Ai-UiGj-UiM-Ai-UiGj-U.M..",
                ".MAcUGcUMAcUGcU.M..",
                EXPERTS_CUT},
               {"tiny",
                "f16",
                {90, false, false},
                "EhM-Ah-UhGh-UhM-Ah-UhGh-U.M..",
                ".MAhUGhUMAhUGhU.M..",
                EXPERTS_CUT}};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct lists o = {0};
        struct model *whole;
        struct cuda_link link[MOST];
        char path[SYNTH_PATH];
        synth_temporary(&(struct synth_options){.shape = all[i].shape, .type = all[i].type}, path);
        assert_ok(model_open(&whole, path, &(struct tensorfile_options){0}));
        unlink(path);
        assert_ok(model_shard_by(&o.model, whole, 0, 2, all[i].by));
        plan_lists(&o);
        for (int c = 0; c < ROW_CLASS_COUNT; c++)
            assert_string_equal(text_of(link, make(&o, &o.own[c], all[i].chip, link)),
                                c == ROW_DECODE ? all[i].decode : all[i].prompt);
        close_lists(&o);
        model_close(whole);
    }
}

/* Engines of many decode rows that are asked for FP8 products have links of their own for FP8 matrices, and rows between them; others and
 * what has another type (gate, up and down, in the last case) have not. */
static void fp8_products_are_links_of_many_rows(void **state) {
    static const struct {
        int rows, sm;
        bool asked, half, only_mma;
        const char *decode;
    } all[] = {{128, 90, true, false, false, "E8A9F8A9F8"},
               {127, 90, true, false, false, "EcM-Ac-RcGc-RcM-Ac-RcGc-RhH"},
               {128, 90, false, false, false, "EcM-Ac-RcGc-RcM-Ac-RcGc-RhH"},
               {128, 90, true, false, true, "EcM-Ac-RcGc-RcM-Ac-RcGc-RhH"},
               {128, 120, true, false, false, "EcM-Ac-RcGc-RcM-Ac-RcGc-RhH"},
               {128, 90, true, true, false, "E8A9Gh-R8A9Gh-R8"}};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct lists o = {.decode_rows = all[i].rows};
        struct cuda_link link[MOST];
        char path[SYNTH_PATH];
        synth_temporary(&(struct synth_options){.shape = "tiny", .type = "f16"}, path);
        assert_ok(model_open(&o.model, path, &(struct tensorfile_options){0}));
        unlink(path);
        for (int g = 0; g < o.model->n_group; g++)
            for (int k = 0; o.model->group[g] != &o.model->head && k < o.model->group[g]->n_member; k++) {
                struct weight *w = &((struct weight_group *)o.model->group[g])->member[k];
                const bool of_gate = strstr(w->name, "ffn") != NULL;
                if (!all[i].half || !of_gate) w->type = QUANT_F8_128;
            }
        plan_lists(&o);
        struct route_case route = {.sm = all[i].sm,
                                   .only_mma = all[i].only_mma,
                                   .block_scaled = all[i].asked,
                                   .shared_bytes = 227 << 10};
        struct link_case c = {.list = &o.own[ROW_DECODE],
                              .plan = &o.sizes,
                              .store = o.plan.part[0].config.store,
                              .route = &route};
        assert_string_equal(text_of(link, links_make(&c, link)), all[i].decode);
        close_lists(&o);
    }
}

/* With an adapter on all matrices norms stay with their products, and sums; gates, prompts and what the matrices of q, k and v have behind them
 * go on as rows, but for one row of codes, whose links are those without. What has no adapter is as it was. */
static void products_with_adapters_are_links(void **state) {
    static const struct {
        const char *shape, *type;
        struct chip chip;
        const char *decode, *prompt;
    } all[] = {{"tiny", "q8_0", {90, false, false}, "EcTAZcTZcTAZcTZcH", "..M.AZ.M..Z.M.AZ.M..Z.M."},
               {"tiny", "q8_0", {90, true, false}, "EiK-Ai-OiJj-OiK-Ai-OiJj-OiH", "..M.AZ.M..Z.M.AZ.M..Z.M."},
               {"tiny", "f16", {90, false, false}, "EhTAZhTZhTAZhTZhH", "..M.AZ.M..Z.M.AZ.M..Z.M."},
               {"tiny-moe",
                "q8_0",
                {90, false, false},
                "EcTAZ.........WcTAZ.........WcH",
                "..M.AZ.........S.M.AZ.........S.M."},
               {"tiny-latent-512",
                "q4_k",
                {90, false, false},
                "EcTTLZcTZcTTLZ.........T.TWcTTLZ.........T.TWcH",
                "..M..M........Z.M..Z.M..M........Z.........M..M.S.M..M........Z.........M..M.S.M."},
               {"tiny-delta-128",
                "q8_0",
                {90, false, false},
                "E.TTDZcTZ.TTDZcTZ.TTDZcTZ.TTA.ZcTZcH",
                "..M.M.DZ.M..Z.M.M.DZ.M..Z.M.M.DZ.M..Z.M.M.A.Z.M..Z.M."}};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char path[SYNTH_PATH], file[SYNTH_PATH] = "/tmp/infer-test-XXXXXX";
        struct lists o = {0};
        struct cuda_link link[MOST];
        struct adapter *a;
        uint64_t bytes;
        synth_temporary(&(struct synth_options){.shape = all[i].shape, .type = all[i].type}, path);
        const int fd = mkstemp(file);
        assert_true(fd >= 0);
        close(fd);
        assert_ok(synth_adapter(path, 4, 1, file, &bytes));
        assert_ok(model_open(&o.model, path, &(struct tensorfile_options){0}));
        assert_ok(adapter_open(&a, o.model, file, 0, 0));
        unlink(path), unlink(file);
        const struct adapter *one[1] = {a};
        plan_adapted(&o, &(struct adapters){.adapter = one, .n = 1});
        for (int c = 0; c < ROW_CLASS_COUNT; c++) {
            const char *want = c == ROW_DECODE ? all[i].decode : all[i].prompt;
            const char *got = text_of(link, make(&o, &o.own[c], all[i].chip, link));
            print_message("%s %s %s\n", all[i].shape, all[i].type, got);
            if (strcmp(got, want)) fail_msg("%s %s: %s", all[i].shape, all[i].type, got);
        }
        close_lists(&o);
        adapter_close(a);
    }
}

/* Seven layers. */
#define GEMMA(first, layer, last) first layer layer layer layer layer layer last
static void a_llama_is_five_links_a_layer(void **state) {
    (void)state;
    static const struct {
        const char *shape, *type;
        struct chip chip;
        const char *decode, *prompt;
    } all[] = {
        /* embed; q k v, attention, output, gate and up, down, twice; head */
        {"tiny", "q8_0", {90, false, false}, "EcM-Ac-RcGc-RcM-Ac-RcGc-RcH", ".MAcRGcRMAcRGcR.M."},
        {"tiny", "q8_0", {90, true, false}, "EiM-Ai-RiGj-RiM-Ai-RiGj-RiH", ".MAcRGcRMAcRGcR.M."},
        {"tiny", "f16", {90, false, false}, "EhM-Ah-RhGh-RhM-Ah-RhGh-RhH", ".MAhRGhRMAhRGhR.M."},
        {"tiny", "bf16", {120, false, true}, "EbM-Ab-RbGb-RbM-Ab-RbGb-RbH", ".MAhRGhRMAhRGhR.M."},
        {"tiny", "f32", {90, false, false}, NULL, ".MAtRGtRMAtRGtR.M."},
        /* norm and router, choice, experts, their sum; on another chip one by one */
        {"tiny-moe", "q4_k", {90, false, false}, NULL, ".MAcR...QSMAcR...QS.M."},
        {"tiny-oss", "mxfp4_moe", {90, false, false}, NULL, ".MAcR...QSMAcR...QSMAcR...QS.M."},
        {"tiny-moe", "f32", {90, false, false}, NULL, ".MAtR......SMAtR......S.M."},
        {"tiny-moe", "q4_k", {90, false, true}, NULL, ".MAcR......SMAcR......S.M."},
        {"tiny-256", "f16", {90, false, false}, "EhM-Ah-RhGh-RhM-Ah-RhGh-RhH", NULL},
        /* norms behind the projections, of values; the head's cap stands alone */
        {"tiny-gemma4",
         "f16",
         {90, false, false},
         GEMMA("Eh", "M-Ah-PhGh-Ph", "M-Ah-PhGh-P.M.."),
         GEMMA(".", "MAhPGhP", "MAhPGhP.M..")},
        {"tiny-gemma4", "q8_0", {90, true, false}, GEMMA("Ei", "M-Ai-PiGj-Pi", "M-Ai-PiGj-P.M.."), NULL},
        /* embed; q k v, attention, output, experts, twice; head */
        {"tiny-moe", "q4_k", {90, true, false}, "EiM-Ai-RXiM-Ai-RXiH", NULL},
        {"tiny-moe", "f16", {90, false, false}, "EhM-Ah-RXhM-Ah-RXhH", NULL},
        /* embed; queries and keys, queries again, attention by a latent, output; dense, then with experts */
        {"tiny-latent-512", "q4_k", {90, true, false}, "EiMMLiRiGj-RiMMLiRXiMMLiRXiH", NULL},
        {"tiny-latent-512",
         "q4_k",
         {90, false, false},
         "EcMMLcRcGc-RcMMLcRXcMMLcRXcH",
         ".MM.......RGcRMM.......R...QGcMSMM.......R...QGcMS.M."},
        {"tiny-latent", "q4_k", {90, false, false}, "EcMM.......RcGc-RcMM.......RXcMM.......RXcH", NULL},
        /* two matrices behind one norm, delta rule, output, gate and up, down, three times; a layer with attention, whose result has a gate */
        {"tiny-delta-128",
         "q8_0",
         {90, false, false},
         "EcMMDc-RcGc-RcMMDc-RcGc-RcMMDc-RcGc-RcMM-ARcGc-RcH",
         ".MMDcRGcRMMDcRGcRMMDcRGcRMMA.RGcR.M."},
        {"tiny-delta-128",
         "q8_0",
         {90, true, false},
         "EiMMDi-RiGj-RiMMDi-RiGj-RiMMDi-RiGj-RiMM-ARiGj-RiH",
         NULL},
        {"tiny-delta-moe-128",
         "q8_0",
         {90, true, false},
         "EiMMDi-RXiMMDi-RXiMMDi-RXiMM-ARXiH",
         ".MMDcR...QGcMMSMMDcR...QGcMMSMMDcR...QGcMMSMMA.R...QGcMMS.M."},
        /* projection, short convolution between its gates, output, gate and up, down; attention in the second layer */
        {"tiny-lfm2",
         "q8_0",
         {90, true, false},
         "EiMCi-RiGj-RiM-Ai-RiGj-RiMCi-RiGj-RiMCi-RiGj-RiH",
         ".M...RGcRMAcRGcRM...RGcRM...RGcR.M."},
        /* projection, Mamba-2, output; experts of one matrix and the part that all rows share; attention; again; again */
        {"tiny-nemotron-128",
         "q4_k",
         {90, true, false},
         "EiMBi-RXiM-Ai-RXiMBi-RXiH",
         ".MBcR...QMMSMAcR...QMMSMBcR...QMMS.M."},
        {"tiny-nemotron-128",
         "q4_k",
         {90, false, true},
         "EcMBc-RXcM-Ac-RXcMBc-RXcH",
         ".MBcR......MMSMAcR......MMSMBcR......MMS.M."},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct lists o;
        struct cuda_link link[MOST];
        open_lists(&o, all[i].shape, all[i].type);
        for (int c = 0; c < ROW_CLASS_COUNT; c++) {
            const char *want = c == ROW_DECODE ? all[i].decode : all[i].prompt;
            const char *got = text_of(link, make(&o, &o.own[c], all[i].chip, link));
            print_message("%s %s %s\n", all[i].shape, all[i].type, got);
            if (want && strcmp(got, want)) fail_msg("%s %s: %s", all[i].shape, all[i].type, got);
        }
        close_lists(&o);
    }
}

/* The list with one more operation of the residual stream in front of operation at, which no pattern takes there: a norm with a mean,
 * or a sum that no matmul is part of. */
static struct op_list with_one_more(const struct op_list *l, enum op_kind kind, int at, struct op *op,
                                    struct buf *buf) {
    struct op_list out = *l;
    struct view x = l->op[0].embed.out;
    memcpy(op, l->op, (size_t)at * sizeof *op);
    op[at] = (struct op){
        .kind = OP_NORM, .name = "more", .norm = {x, x, NORM_LAYER, x.width, 1e-5f, NULL, NULL, 0}};
    if (kind == OP_ADD) op[at] = (struct op){.kind = OP_ADD, .name = "more", .add = {x, x, x}};
    memcpy(op + at + 1, l->op + at, (size_t)(l->n_op - at) * sizeof *op);
    memcpy(buf, l->buf, (size_t)l->n_buf * sizeof *buf);
    out.op = op;
    out.n_op++;
    out.buf = buf;
    list_lives(&out);
    return out;
}
static bool around(const struct cuda_link *k, int at) { return k->first < at && at < k->first + k->n_op; }

/* Links that the operation is not in the middle of are as they were, and the edges between two such that still touch. */
static void others_are_unchanged(const struct cuda_link *was, int n_was, const struct cuda_link *now,
                                 int n_now, int at) {
    int op = 0, plain = 0;
    for (int i = 0; i < n_now; op += now[i++].n_op) {
        assert_int_equal(now[i].first, op); /* each operation once, in order */
        plain += now[i].kind == LINK_PLAIN && op == at;
    }
    assert_int_equal(plain, 1);
    for (int i = 0, j = 0; i < n_was; i++) {
        if (around(&was[i], at)) continue;
        const int shift = was[i].first >= at;
        while (j < n_now && now[j].first < was[i].first + shift) j++;
        const struct cuda_link *a = &was[i], *b = &now[j];
        if (j == n_now || b->first != a->first + shift || b->kind != a->kind || b->n_op != a->n_op)
            fail_msg("one more at %d: operations %d .. are another link", at, a->first);
        if (!i || around(&was[i - 1], at)) continue; /* the link in front is another one */
        if (a->first == at && b->in.form != FORM_ROWS)
            fail_msg("one more at %d: an edge that nobody gives", at);
        if (a->first != at &&
            (b->in.form != a->in.form || b->in.packets != a->in.packets || b->wants != a->wants))
            fail_msg("one more at %d: the edge to operation %d is another one", at, a->first);
    }
    assert_true(op > 0);
}

static void one_more_operation_leaves_the_other_links(void **state) {
    static const char *const models[][2] = {
        {"tiny", "q8_0"}, {"tiny", "f16"}, {"tiny", "f32"}, {"tiny-moe", "q8_0"}};
    (void)state;
    for (size_t t = 0; t < sizeof models / sizeof *models; t++) {
        struct lists o;
        static struct op op[MOST];
        static struct buf buf[MOST];
        open_lists(&o, models[t][0], models[t][1]);
        for (int c = 0; c < ROW_CLASS_COUNT; c++) {
            const struct op_list *l = &o.own[c];
            struct cuda_link was[MOST], now[MOST];
            const int n = make(&o, l, h100, was);
            for (int i = 2; i <= 2 * l->n_op + 1; i++) {
                const int at = i / 2;
                struct op_list more = with_one_more(l, i % 2 ? OP_ADD : OP_NORM, at, op, buf);
                others_are_unchanged(was, n, now, make(&o, &more, h100, now), at);
            }
        }
        close_lists(&o);
    }
}

/* Experts of which something is wanted beside what they add: as much of them as nobody else reads is one link. */
static void parts_of_experts_are_a_link(void **state) {
    static const struct {
        const char *wanted, *links; /* the operation whose result is, and the first layer's links then */
    } all[] = {{"ffn_norm", "EcM-Ac-R..XcM"},
               {"ffn_router", "EcM-Ac-R.......WcM"},
               {"ffn_choice", "EcM-Ac-R.......WcM"},
               {"ffn_experts", "EcM-Ac-R.......WcM"},
               {"ffn_experts_glu", "EcM-Ac-R.......WcM"},
               {"ffn_experts_down", "EcM-Ac-R.X.WcM"},
               {"ffn_mix", "EcM-Ac-RX..M"},
               {"ffn_add", "EcM-Ac-RX.M"}};
    (void)state;
    struct lists o;
    static struct op op[MOST];
    static struct buf buf[MOST];
    open_lists(&o, "tiny-moe", "q8_0");
    const struct op_list *l = &o.own[ROW_DECODE];
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct cuda_link link[MOST];
        int at = 0;
        while (strcmp(l->op[at].name, all[i].wanted) != 0) at++;
        struct op_list more = with_one_more(l, OP_ADD, at + 1, op, buf);
        const struct view wanted = op_uses(&l->op[at]).write[0];
        op[at + 1].add = (struct op_add){wanted, wanted, wanted};
        list_lives(&more);
        const char *text = text_of(link, make(&o, &more, h100, link));
        if (strncmp(text, all[i].links, strlen(all[i].links)) != 0)
            fail_msg("%s is wanted: %s", all[i].wanted, text);
    }
    close_lists(&o);
}

/* Changes an operation to what fused kernels have no part in: rotations back, entries, told experts, roots, chosen positions. */
static bool made_unknown(struct op *o, int how) {
    static const int32_t told[64];
    static struct router root;
    if (o->kind == OP_ROPE && how == (o[-1].kind == OP_ROPE)) {
        o->rope.back = true;
        return true;
    }
    if (o->kind == OP_ATTEND && (how == 2 || how == 5)) {
        *(how == 2 ? &o->attend.entries : &o->attend.by.n_top) = 1;
        return true;
    }
    if (o->kind != OP_ROUTE || how < 3 || how > 4) return false;
    root = *o->route.router;
    root.act = how == 3 ? root.act : ROUTE_ROOT;
    o->route.router = &root;
    o->route.told = how == 3 ? told : NULL;
    return true;
}
static void what_kernels_do_not_know_runs_alone(void **state) {
    (void)state;
    static struct op op[MOST];
    for (int how = 0; how < 6; how++)
        for (int cls = 0; cls < ROW_CLASS_COUNT; cls++) {
            struct lists o;
            struct cuda_link link[MOST];
            bool unknown[MOST] = {false};
            int n_unknown = 0;
            open_lists(&o, how < 3 ? "tiny" : "tiny-moe", "q8_0");
            struct op_list l = o.own[cls];
            memcpy(op, l.op, (size_t)l.n_op * sizeof *op);
            l.op = op;
            for (int k = 1; k < l.n_op; k++) n_unknown += unknown[k] = made_unknown(&op[k], how);
            assert_true(n_unknown > 0);
            const int n = make(&o, &l, h100, link);
            for (int i = 0; i < n; i++)
                for (int k = link[i].first; k < link[i].first + link[i].n_op; k++)
                    if (unknown[k] && link[i].kind != LINK_PLAIN)
                        fail_msg("%s, %d: in a link of kind %d", op[k].name, how, (int)link[i].kind);
            close_lists(&o);
        }
}

/* Tensor cores take latents of all positions alone. */
static void latents_that_are_chosen_run_alone(void **state) {
    (void)state;
    const struct kv_store s = {
        .n_kv_head = 1, .head_dim_k = LATENT_K, .head_dim_v = LATENT_V, .v_in_k = true};
    struct op_attend o = {.n_head = 16};
    assert_true(mla_has(&s, &o, SIZE_MAX));
    o.by.n_top = 2048;
    assert_false(mla_has(&s, &o, SIZE_MAX));
    o.by = (struct choice){.ends = true}, o.entries = 1;
    assert_false(mla_has(&s, &o, SIZE_MAX));
}

/* A card keeps a table of angles for each rotation: four, of layers without entries, of others, and of entries over two lengths; not one a layer. */
static void layers_share_rotations(void **state) {
    (void)state;
    const struct rope *seen[MOST];
    char path[512];
    struct lists o;
    int n = 0, n_op = 0;
    open_file(&o, test_path(path, sizeof path, "golden/hf/deepseek_v4"));
    const struct op_list *l = &o.own[ROW_PROMPT];
    for (int i = 0, k; i < l->n_op; i++) {
        if (l->op[i].kind != OP_ROPE) continue;
        for (k = 0; k < n && seen[k] != l->op[i].rope.rope;) k++;
        if (k == n) seen[n++] = l->op[i].rope.rope;
        n_op++;
    }
    assert_int_equal(n, 4);
    assert_true(n_op > 12);
    close_lists(&o);
}

/* Codes times codes: not where an operation wants what a gate has left as codes of 8 bits. */
static void int8_codes_are_no_rows(void **state) {
    (void)state;
    struct lists o;
    static struct op op[MOST];
    static struct buf buf[MOST];
    int none = 0;
    open_lists(&o, "tiny", "q8_0");
    const struct op_list *l = &o.own[ROW_DECODE];
    for (int at = 1; at <= l->n_op; at++) {
        struct cuda_link now[MOST];
        struct op_list more = with_one_more(l, OP_ADD, at, op, buf);
        const bool behind_gate = l->op[at - 1].kind == OP_GLU;
        assert_int_equal(make(&o, &more, (struct chip){90, true, false}, now) == 0, behind_gate);
        none += behind_gate;
    }
    assert_int_equal(none, 2);
    close_lists(&o);
}

/* What is between two links of a Llama's layer elsewhere: norms behind a projection, norms of values, factors, no rotation, a
 * temperature. Lists of the real architectures, whose weights are taken for halves; 'x' and what follows: of the last layer. */
static void blocks_of_other_models_are_links(void **state) {
    static const struct {
        const char *folder, *decode, *prompt;
    } all[] = {{"exaone4-full", "M-Ah-PhGh-PhH", "MAhPGhP.M."},
               {"granite", "M-Ah-PhGh-P.M.", "MAhPGhP.M."},
               {"olmo2", "M..Ah-PhGh-PhH", "M..AhPGhP.M."},
               {"llama", "M-Ah-RhGh-RhH", "MAhRGhR.M."}};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char name[64], path[512];
        struct lists o;
        struct cuda_link link[MOST];
        snprintf(name, sizeof name, "golden/hf/%s", all[i].folder);
        open_file(&o, test_path(path, sizeof path, name));
        for (int g = 0; g < o.sizes.n_group; g++)
            for (int r = 0; r < o.sizes.group[g].n_region; r++)
                o.sizes.group[g].region[r].layout = LAYOUT_F16;
        for (int c = 0; c < ROW_CLASS_COUNT; c++) {
            const char *want = c == ROW_DECODE ? all[i].decode : all[i].prompt,
                       *got = text_of(link, make(&o, &o.own[c], h100, link));
            const size_t n = strlen(got), m = strlen(want);
            print_message("%s %s\n", all[i].folder, got);
            if (n < m || strcmp(got + n - m, want)) fail_msg("%s: %s", all[i].folder, got);
        }
        close_lists(&o);
    }
}

/* Links of a kind in both lists. */
static int links_of(const struct lists *o, enum link_kind kind) {
    struct cuda_link link[MOST];
    int found = 0;
    for (int c = 0; c < ROW_CLASS_COUNT; c++)
        for (int i = 0, n = make(o, &o->own[c], h100, link); i < n; i++) found += link[i].kind == kind;
    return found;
}
/* Operations with a field that the fused kernels do not know run by themselves, whatever their neighbours are. */
static void fields_of_few_families_are_no_links(void **state) {
    (void)state;
    struct lists o;
    struct router near;
    open_lists(&o, "tiny-delta-128", "q8_0");
    const int deltas = links_of(&o, LINK_DELTA);
    assert_true(deltas > 0);
    for (int way = 0; way < 3; way++) {
        struct op_list was[ROW_CLASS_COUNT];
        for (int c = 0; c < ROW_CLASS_COUNT; c++) {
            struct op_list *l = &o.own[c];
            was[c] = *l;
            l->op = malloc((size_t)l->n_op * sizeof *l->op);
            memcpy(l->op, was[c].op, (size_t)l->n_op * sizeof *l->op);
            for (int i = 0; i < l->n_op; i++) {
                if (l->op[i].kind != OP_DELTA) continue;
                struct op_delta *d = &l->op[i].delta;
                if (way == 0) d->beta = 2;
                if (way == 1) d->a.width = d->n_value * d->dk;
                if (way == 2) l->op[i + 2].glu.gate.width = d->n_value;
            }
        }
        assert_int_equal(links_of(&o, LINK_DELTA), 0);
        for (int c = 0; c < ROW_CLASS_COUNT; c++) {
            free(o.own[c].op);
            o.own[c] = was[c];
        }
    }
    assert_int_equal(links_of(&o, LINK_DELTA), deltas);
    close_lists(&o);

    open_lists(&o, "tiny-moe", "q8_0");
    assert_true(links_of(&o, LINK_EXPERTS) > 0);
    for (int i = 0; i < o.own[ROW_DECODE].n_op; i++) {
        struct op *op = &o.own[ROW_DECODE].op[i];
        if (op->kind != OP_ROUTE) continue;
        near = *op->route.router;
        near.act = ROUTE_NEAR;
        op->route.router = &near;
    }
    assert_int_equal(links_of(&o, LINK_EXPERTS), 0);
    close_lists(&o);
}

/* Floats of eight bits are codes where codes become halves, and rows where they are multiplied by codes. */
static void eights_are_no_int8(void **state) {
    struct lists o;
    struct cuda_link link[MOST];
    (void)state;
    open_lists(&o, "tiny", "q8_0");
    for (int g = 0; g < o.sizes.n_group; g++) o.sizes.group[g].region[0].layout = LAYOUT_F8;
    const struct op_list *l = &o.own[ROW_DECODE];
    assert_string_equal(text_of(link, make(&o, l, h100, link)), "EcM-Ac-RcGc-RcM-Ac-RcGc-RcH");
    assert_null(strchr(text_of(link, make(&o, l, (struct chip){90, true, false}, link)), 'M'));
    close_lists(&o);
}

/* Factors of NVFP4 matrices lie in their weights, gate and up in turns although theirs differ; others are no links. */
/* A block of a tower: q k v, attention with its rotations, output, the products of the feed-forward part: nothing op by op. The first product
 * is in FP32 (both frames of a patch are one). */
static void blocks_of_towers_are_links(void **state) {
    static const struct {
        const char *type, *golden, *text;
        int sm;
    } all[] = {{"f16", NULL, ".M.MVhRNhRMVhRNhR..MM", 90},
               {"bf16", NULL, ".M.MVhRNhRMVhRNhR..MM", 90},
               {"bf16", NULL, ".M.MVhRMRMVhRMR..MM", 120},
               {"q8_0", NULL, ".M.MVcRMRMVcRMR..MM", 90},
               {NULL, "golden/tower/gemma4v", ".M.M...VhPM.PM...VhPM.P....M", 90},
               {NULL, "golden/tower/pixtral", ".M.MVhPM.PMVhPM.P...MMM", 90},
               /* windows in the first and third of four blocks */
               {NULL, "golden/tower/qwen2_5_vl", "..M...PM.PMVhPM.PM...PM.PMVhPM.P..MM", 90}};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char path[SYNTH_PATH < 512 ? 512 : SYNTH_PATH];
        struct tower *t;
        struct cuda_link link[MOST];
        struct cuda_plan sizes;
        if (all[i].type)
            synth_temporary(&(struct synth_options){.shape = "tiny-tower", .type = all[i].type}, path);
        else
            test_path(path, sizeof path, all[i].golden);
        assert_ok(tower_open(&t, path, &(struct tower_options){.plan = TOWER_PLAN_CARD}));
        if (all[i].type) unlink(path);
        assert_ok(cuda_plan_make(&sizes, &t->config));
        const struct route_case route = {.sm = all[i].sm, .shared_bytes = 227 << 10};
        const struct link_case c = {.list = t->config.list[ROW_PROMPT], .plan = &sizes, .route = &route};
        assert_string_equal(text_of(link, links_make(&c, link)), all[i].text);
        cuda_plan_free(&sizes);
        tower_close(t);
    }
}

static void factors_are_folded(void **state) {
    static const char *const types[] = {"nvfp4", "q8_0"};
    (void)state;
    for (int t = 0; t < 2; t++) {
        struct lists o;
        struct cuda_link link[MOST];
        open_lists(&o, "tiny", types[t]);
        struct model *m = o.model;
        cuda_plan_free(&o.sizes);
        for (int g = 0; g < m->n_group; g++)
            for (int k = 0; k < m->group[g]->n_member; k++)
                ((struct weight_group *)m->group[g])->member[k].factor = 0.01f + 0.1f * (float)k;
        assert_ok(cuda_plan_make(&o.sizes, &o.plan.part[0].config));
        const struct cuda_group *up = &o.sizes.group[m->layer[0].dense.gate_up.id];
        assert_int_equal(up->paired, t == 0);
        assert_int_equal(up->scaled, t == 1);
        assert_true(up->member[1].factor == (t ? 0.11f : 1));
        assert_true(up->member[1].folded == (t ? 0 : 0.11f));
        const char *text = text_of(link, make(&o, &o.own[ROW_DECODE], h100, link));
        if ((strstr(text, "M-Ac-RcGc-R") == NULL) != t) fail_msg("%s: %s", types[t], text);
        close_lists(&o);
    }
}

/* Attention of a link: the first row that the chip, the options and the heads fit. */
static void attention_has_a_route(void **state) {
    static const struct {
        int sm, only_mma, dk;
        enum row_class cls;
        const char *kernel; /* NULL: op by op */
    } all[] = {{90, 0, 128, ROW_PROMPT, "flash_wgmma"}, {90, 1, 128, ROW_PROMPT, "flash_mma"},
               {80, 0, 64, ROW_PROMPT, "flash_mma"},    {120, 1, 80, ROW_PROMPT, "flash_mma"},
               {90, 0, 256, ROW_PROMPT, "flash_wide"},  {90, 0, 256, ROW_DECODE, "attend_decode"},
               {90, 1, 256, ROW_PROMPT, NULL},          {90, 0, 512, ROW_DECODE, "attend_decode"},
               {90, 0, 520, ROW_DECODE, NULL},          {90, 0, 60, ROW_DECODE, NULL},
               {89, 0, 128, ROW_DECODE, NULL}};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const struct route_case c = {.sm = all[i].sm, .only_mma = all[i].only_mma};
        const struct link_route *r =
            link_route(&c, LINK_ATTEND, all[i].cls, attend_head(all[i].dk, all[i].dk));
        if (!r != !all[i].kernel || (r && !strstr(r->kernel, all[i].kernel)))
            fail_msg("sm_%d, heads of %d: %s", all[i].sm, all[i].dk, r ? r->kernel : "none");
    }
}

/* What `infer plan` counts, of the lists as an engine of one row has them. */
static void kernels_of_a_step_are_counted(void **state) {
    (void)state;
    static const struct {
        const char *shape, *type;
        int sm, kernels; /* 0: as many as operations */
    } all[] = {
        /* embed; q k v, attention, output, gate and up, down, twice; head and choice */
        {"tiny", "f16", 90, 1 + 2 * 5 + 2},
        {"tiny", "q8_0", 120, 1 + 2 * 5 + 2},
        /* q k v, attention, output, the experts' two */
        {"tiny-moe", "q4_k", 90, 1 + 2 * 5 + 2},
        /* output and down have a norm behind them; norm, rows, head, cap, choice */
        {"tiny-gemma4", "f16", 90, 1 + 7 * 7 + 5},
        {"tiny", "f32", 90, 0},
        {"tiny", "f16", 89, 0},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct lists o;
        int n;
        open_lists(&o, all[i].shape, all[i].type);
        struct backend_config c = o.plan.part[0].config;
        assert_ok(links_kernels(&n, &c, all[i].sm));
        const int want = all[i].kernels ? all[i].kernels : o.own[ROW_DECODE].n_op;
        if (n != want)
            fail_msg("%s %s on sm_%d: %d kernels, not %d", all[i].shape, all[i].type, all[i].sm, n, want);
        close_lists(&o);
    }
}

/* The arithmetic of `infer plan` against what was measured: a row is within 15% of what the share of all rows of its kind gives, and a card
 * is not faster than its bound. */
static void measured_models_are_predicted(void **state) {
    (void)state;
    int n;
    const struct plan_measured *all = plan_measured_table(&n);
    double worst = 0;
    for (int i = 0; i < n; i++) {
        const struct plan_measured *m = &all[i];
        const struct plan_reached r = plan_reached_by(m->card, m->experts, m->type);
        const double got = 1 / plan_token_s(m->gb * 1e9, m->gb_s, m->kernels, &r), off = got / m->tok_s - 1,
                     most = 1 / plan_token_s(m->gb * 1e9, m->gb_s, m->kernels, NULL);
        print_message("  %s on %s: %.4g tok/s, predicted %.4g (%+.1f%%), at most %.4g\n", m->model, m->on,
                      m->tok_s, got, 100 * off, most);
        if (!(fabs(off) <= 0.15))
            fail_msg("%s on %s: predicted %g, measured %g", m->model, m->on, got, m->tok_s);
        if (m->card && !(m->tok_s <= most)) fail_msg("%s on %s: above its bound %g", m->model, m->on, most);
        if (fabs(off) > worst) worst = fabs(off);
    }
    assert_in_range(n, 20, 1000);
    print_message("  the worst: %.1f%%\n", 100 * worst);
    /* a type that nobody measured has the share of the nearest; mixtures their own */
    assert_true(plan_reached_by(true, false, QUANT_BF16).share ==
                plan_reached_by(true, false, QUANT_F16).share);
    assert_true(plan_reached_by(true, true, QUANT_Q8_0).share <
                plan_reached_by(true, false, QUANT_Q8_0).share);
}

/* ---- memory ---- */

/* Halves for prompt rows are the pools of the largest store, keys and values, where the cache is of another type, and nothing else grows. */
static void halves_are_one_stores_pools(void **state) {
    struct lists o;
    (void)state;
    for (int latent = 0; latent < 2; latent++) {
        open_lists(&o, latent ? "tiny-latent-512" : "tiny-gemma4-256", "f16");
        struct backend_config c = o.plan.part[0].config;
        size_t k = 0, v = 0, workspace = 0;
        assert_true(c.n_store > 1);
        for (int i = 0; i < c.n_store; i++) {
            const struct kv_store *s = &c.store[i];
            const size_t rows =
                (size_t)c.kv_group[s->group].n_page * (size_t)s->n_kv_head * KV_PAGE * sizeof(uint16_t);
            if (rows * (size_t)s->head_dim_k > k) k = rows * (size_t)s->head_dim_k;
            if (rows * (size_t)kv_v_dim(s) > v) v = rows * (size_t)kv_v_dim(s);
        }
        assert_true(latent ? v == 0 : v > 0);
        for (int type = KV_F32; type < KV_TYPES; type++) {
            struct cuda_plan p;
            c.kv_type = (enum kv_type)type;
            const struct kv_halves_plan h = kv_halves_plan_of(&c);
            assert_int_equal(h.bytes, type == KV_F16 ? 0 : k + v);
            assert_int_equal(h.v, type == KV_F16 ? 0 : k);
            assert_ok(cuda_plan_make(&p, &c));
            if (type == KV_F32) workspace = p.workspace_bytes;
            assert_int_equal(p.workspace_bytes, workspace - (type == KV_F16 ? k + v : 0));
            cuda_plan_free(&p);
        }
        c.no_fuse = true;
        assert_int_equal(kv_halves_plan_of(&c).bytes, 0);
        close_lists(&o);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_with_adapters_are_links),
        cmocka_unit_test(a_llama_is_five_links_a_layer),
        cmocka_unit_test(sums_of_ranks_are_links),
        cmocka_unit_test(fp8_products_are_links_of_many_rows),
        cmocka_unit_test(one_more_operation_leaves_the_other_links),
        cmocka_unit_test(parts_of_experts_are_a_link),
        cmocka_unit_test(what_kernels_do_not_know_runs_alone),
        cmocka_unit_test(layers_share_rotations),
        cmocka_unit_test(latents_that_are_chosen_run_alone),
        cmocka_unit_test(int8_codes_are_no_rows),
        cmocka_unit_test(blocks_of_other_models_are_links),
        cmocka_unit_test(fields_of_few_families_are_no_links),
        cmocka_unit_test(blocks_of_towers_are_links),
        cmocka_unit_test(eights_are_no_int8),
        cmocka_unit_test(factors_are_folded),
        cmocka_unit_test(attention_has_a_route),
        cmocka_unit_test(halves_are_one_stores_pools),
        cmocka_unit_test(kernels_of_a_step_are_counted),
        cmocka_unit_test(measured_models_are_predicted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
