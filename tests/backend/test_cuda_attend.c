/* The CUDA backend's attention beside ref: decode rows, in lists of a model with other windows, caps and sinks put in, and every kernel of
 * prompt rows alone. Skipped with a printed reason where there is no usable card, unless INFER_REQUIRE_CUDA=1. */
#include "tests/lib/cuda_there.h"
#include "tests/lib/seam_step.h"
#ifdef INFER_CUDA
#include "cuda/bench/cuda_bench.h"
#include "cuda/run/decode_profile.h"
#include "engine_options.h"
#include "plan/plan.h"
#include "tests/lib/relative.h"
#include "seam/op_list.h"
#include "tests/lib/synth_model.h"
#include "tests/lib/tolerance.h"

/* Steps; the last ones' logits are compared. */
enum { MOST_STEPS = 290, FEW_STEPS = 100, N_KEEP = 4, MAX_ROWS = 3, AT_ONCE = 32 };
static int n_steps(void) { return few_steps() ? FEW_STEPS : MOST_STEPS; }

static const char *kernels; /* NULL: all; "mma": those that every chip has */

/* ---- decode rows ---- */

static int n_plain;
static void count_plain(const char *name, float alone, float without, int n) {
    (void)alone, (void)without;
    if (!strcmp(name, "kv_put")) n_plain += n;
}

struct attention {
    const char *shape, *kv;
    int window;
    float softcap;
    bool sinks;
    double tolerance;
    enum { AS_IT_IS, NOT_ROTATED, NORMED_LATE } edit;
    float temp;
};
/* The rotation taken out of a list, or brought in front of the norms of q and k. */
static void edit_list(struct op_list *l, int edit) {
    int n = 0;
    for (int i = 0; i < l->n_op; i++) {
        if (edit == NOT_ROTATED && l->op[i].kind == OP_ROPE) continue;
        l->op[n++] = l->op[i];
        if (edit != NORMED_LATE || n < 4 || l->op[n - 1].kind != OP_ROPE || l->op[n - 2].kind != OP_ROPE)
            continue;
        for (int k = n - 4; k < n - 2; k++) {
            const struct op norm = l->op[k];
            assert_int_equal(norm.kind, OP_NORM);
            l->op[k] = l->op[k + 2];
            l->op[k + 2] = norm;
        }
    }
    l->n_op = n;
    list_lives(l);
}
/* The first n tokens of one sequence as rows of a prompt, which give ref the same bits as decode rows, in less time. */
static void read_on(struct backend *b, const struct backend_type *type, const struct model *m,
                    const int32_t *const *tables, int n) {
    for (int p = 0; p < n; p += AT_ONCE) {
        int32_t id[AT_ONCE], pos[AT_ONCE], slot[AT_ONCE] = {0}, last = 0;
        const uint8_t want = INFER_WANT_TOKEN;
        struct step_result res;
        const int rows = n - p < AT_ONCE ? n - p : AT_ONCE;
        for (int i = 0; i < rows; i++) {
            pos[i] = p + i;
            id[i] = (pos[i] * 37 + pos[i] / 7 + 3) % m->n_vocab;
        }
        const struct step step = seam_step(rows, 1, id, pos, slot, &last, &want, tables);
        assert_ok(type->run(b, ROW_PROMPT, &step));
        assert_ok(type->wait(b, &res));
    }
}

/* Decodes n_steps() tokens of n_row sequences, all of different lengths but the first; out[N_KEEP][n_vocab]: the first's. */
static void decode(const struct attention *a, const struct model *m, const struct backend_type *type,
                   bool plain, int n_row, float *out) {
    static float sinks[64];
    struct infer_engine_options o = {.device = type->name,
                                     .kv_type = a->kv,
                                     .kernels = kernels,
                                     .sm_emulate = kernels ? 120 : 0,
                                     .no_fuse = plain,
                                     .ctx = MOST_STEPS + 8,
                                     .slots = n_row,
                                     .batch = type == &backend_ref ? AT_ONCE : 8,
                                     .decode_rows = n_row,
                                     .threads = 2,
                                     .gpu_layers = -1};
    struct arena arena = {0};
    struct plan plan;
    struct backend *b;
    int32_t *pages, id[MAX_ROWS], pos[MAX_ROWS], row[] = {0, 1, 2};
    uint8_t want[MAX_ROWS];
    for (int i = 0; i < 64; i++) sinks[i] = (float)(i % 5) - 2;
    struct plan_options po;
    assert_ok(engine_options_read(&po, &o));
    assert_ok(device_pick(&po.wish, &po.place));
    assert_ok(plan_make(&plan, &arena, m, &po));
    struct plan_part *part = &plan.part[0];
    for (int c = 0; c < ROW_CLASS_COUNT; c++)
        for (int i = 0; i < part->list[c].n_op; i++) {
            struct op *op = &part->list[c].op[i];
            if (op->kind != OP_ATTEND) continue;
            if (a->window >= 0) op->attend.window = a->window;
            op->attend.softcap = a->softcap;
            op->attend.sinks = a->sinks ? sinks : NULL;
            op->attend.temp_beta = a->temp;
            op->attend.temp_len = 50;
            op->attend.temp_offset = 1;
        }
    for (int c = 0; a->edit && c < ROW_CLASS_COUNT; c++) edit_list(&part->list[c], a->edit);
    assert_ok(type->open(&b, &part->config));
    if (type->upload) assert_ok(type->upload(b));
    for (int c = 0; c < ROW_CLASS_COUNT; c++) assert_ok(type->compile(b, (enum row_class)c));
    int max = plan.kv_group[0].max_pages;
    pages = arena_alloc(&arena, (size_t)(n_row * max) * 4);
    for (int i = 0; i < n_row * max; i++) pages[i] = n_row * max - 1 - i;
    const int32_t *const tables[] = {pages, pages}; /* groups with a window and without */
    const int n_step = n_steps(), begin = type == &backend_ref ? n_step - N_KEEP : 0;
    read_on(b, type, m, tables, begin);
    for (int p = begin; p < n_step; p++) {
        struct step_result res;
        for (int r = 0; r < n_row; r++) {
            id[r] = (p * 37 + p / 7 + 3 + 11 * r) % m->n_vocab;
            pos[r] = r ? p % (100 * r) : p;
            want[r] = (uint8_t)(p < n_step - N_KEEP ? INFER_WANT_TOKEN : INFER_WANT_LOGITS);
        }
        const struct step step = seam_step(n_row, n_row, id, pos, row, row, want, tables);
        assert_ok(type->run(b, ROW_DECODE, &step));
        assert_ok(type->wait(b, &res));
        if (p >= n_step - N_KEEP)
            memcpy(out + (p - n_step + N_KEEP) * m->n_vocab, res.logits, (size_t)m->n_vocab * 4);
    }
    if (type == &backend_cuda && !plain) {
        n_plain = 0;
        assert_ok(decode_profile(b, n_row, count_plain)); /* it is fused, */
        assert_int_equal(n_plain, 0);                     /* and so is all attention */
        if (n_row > 1) assert_int_equal(decode_profile(b, n_row - 1, count_plain), INFER_E_INPUT);
    }
    type->close(b);
    arena_free(&arena);
}

static void check_attention(const struct attention *a) {
    char path[SYNTH_PATH];
    struct model *m;
    synth_temporary(&(struct synth_options){.shape = a->shape, .type = "f16", .seed = 7}, path);
    assert_ok(model_open(&m, path, &(struct tensorfile_options){0}));
    unlink(path);
    size_t n = (size_t)N_KEEP * (size_t)m->n_vocab;
    float *want = malloc(n * 4), *got = malloc(n * 4);
    decode(a, m, &backend_ref, false, 1, want);
    decode(a, m, &backend_cuda, false, 1, got);
    double e = relative(got, want, n);
    print_message("%-9s %-4s window %-3d cap %-2g sinks %d edit %d temp %g %-4s %.1e of the norm\n", a->shape,
                  a->kv, a->window, (double)a->softcap, a->sinks, a->edit, (double)a->temp,
                  kernels ? kernels : "all", e);
    if (!(e <= a->tolerance)) fail_msg("%s %s: %g (tolerance %g)", a->shape, a->kv, e, a->tolerance);
    decode(a, m, &backend_cuda, false, MAX_ROWS, want);
    if (memcmp(want, got, n * 4)) fail_msg("%s %s: other bits beside neighbours", a->shape, a->kv);
    model_close(m);
    free(want);
    free(got);
}

static const char *const caches[] = {"f16", "q8_0", "f32", "f8", "q5_0", "q4_0"};
enum { N_CACHES = sizeof caches / sizeof *caches };
static double cache_tolerance(int cache) {
    return caches[cache][0] == 'q' || !strcmp(caches[cache], "f8") ? TOL_CUDA_ATTEND_Q8 : TOL_CUDA_ATTEND;
}
static void attention_agrees_with_ref(void **state) {
    static const char *const shapes[] = {"tiny", "tiny-72", "tiny-80", "tiny-128", "tiny-256", "tiny-mqa"};
    (void)state;
    for (int k = 0; k < 2; k++) {
        kernels = k ? "mma" : NULL;
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            for (int c = 0; c < (k ? 1 : N_CACHES); c++) {
                double tolerance = cache_tolerance(c);
                check_attention(&(struct attention){shapes[i], caches[c], 0, 0, false, tolerance, 0, 0});
                if (i == 3) {
                    check_attention(
                        &(struct attention){shapes[i], caches[c], 270, 0, false, tolerance, 0, 0});
                    check_attention(&(struct attention){shapes[i], caches[c], 0, 1, true, tolerance, 0, 0});
                    check_attention(&(struct attention){shapes[i], caches[c], 77, 2, true, tolerance, 0, 0});
                }
            }
    }
    kernels = NULL;
}
/* What a plain Llama's attention does not have: heads of 256 and 512 in turns, norms of values and behind the rotation, none, and a
 * temperature of scores. */
struct more_attention {
    const char *shape;
    int window, edit;
    float softcap, temp;
    bool sinks;
};
/* Gemma 4's norms behind the projections magnify what a code that differs by one changes, the more the coarser codes are: its shapes
 * have 1.6e-2 and 4.8e-2 of the norm by Q8_0 and 5.4e-2 and 0.16 by FP8. 0: not computed, its bound would say nothing. */
static double magnified(const char *shape, int cache) {
    const bool large = !strcmp(shape, "tiny-gemma4-256");
    if (strncmp(shape, "tiny-gemma4", 11) != 0 || cache < 3) return large ? 4 : 1;
    const double steps[] = {5, 8, 16}; /* of FP8, Q5_0, Q4_0, beside Q8_0's */
    return large && cache > 3 ? 0 : (large ? 4 : 1) * steps[cache - 3];
}
static void check_more(const struct more_attention *all, size_t n) {
    for (size_t i = 0; i < n; i++)
        for (int c = 0; c < N_CACHES; c++) {
            /* scores of Gemma 4's large heads, see test_cuda_links */
            const double more = magnified(all[i].shape, c) * (few_steps() ? 1.5 : 1);
            if (more > 0)
                check_attention(&(struct attention){all[i].shape, caches[c], all[i].window, all[i].softcap,
                                                    all[i].sinks, more * cache_tolerance(c), all[i].edit,
                                                    all[i].temp});
        }
}
static void more_attention_agrees_with_ref(void **state) {
    static const struct more_attention all[] = {
        {"tiny-128", 0, NOT_ROTATED, 0, 0, false}, {"tiny-128", 270, AS_IT_IS, 0, 0.1f, true},
        {"tiny-moe", 0, NORMED_LATE, 0, 0, false}, {"tiny-moe", 100, NOT_ROTATED, 0, 0.2f, false},
        {"tiny-256", 0, AS_IT_IS, 2, 0.1f, true},  {"tiny-gemma4", -1, AS_IT_IS, 0, 0, false}};
    (void)state;
    check_more(all, sizeof all / sizeof *all);
}
static void large_heads_agree_with_ref(void **state) {
    static const struct more_attention all[] = {{"tiny-gemma4-256", -1, AS_IT_IS, 0, 0, false},
                                                {"tiny-gemma4-256", 77, AS_IT_IS, 2, 0, true},
                                                {"tiny-gemma4-256", 0, NOT_ROTATED, 0, 0.1f, false}};
    (void)state;
    check_more(all, sizeof all / sizeof *all);
}
/* ---- prompt rows ---- */

/* Rows that the card codes may be read by the processor, and the other way round: pages that were written to a disk. */
static void rows_of_turned_caches_have_the_processors_bytes(void **state) {
    static const int dims[] = {8, 12, 40, 64, 72, 80, 128, 136, 256, 512, 576};
    (void)state;
    for (int type = KV_F8; type < KV_TYPES; type++)
        for (size_t d = 0; d < sizeof dims / sizeof *dims; d++) assert_ok(cuda_kv_rows_check(type, dims[d]));
}

/* Every kernel of prompt rows' attention alone, on pools and tables that end where the rows do: under compute-sanitizer
 * (scripts/gpu-check) a read beyond them is an error, without it the NaN there shows in the result. */
static void attention_of_prompt_rows_agrees_with_float64(void **state) {
    static const int dims[] = {8, 40, 64, 72, 80, 96, 112, 128, 136, 256, 264, 512},
                     rows[] = {1, 63, 64, 129, 300}, windows[] = {0, 1, 100}, depths[] = {0, 5, 64, 700},
                     pictures[] = {0, 70, 0, 3, 200};
    enum { MOST = 12 * 5 * 3 * KV_TYPES * 3 };
    static struct cuda_attention all[MOST];
    int n = 0;
    (void)state;
    for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
            for (size_t w = 0; w < sizeof windows / sizeof *windows; w++)
                for (int type = KV_F32; type < KV_TYPES; type++) {
                    if (type != KV_F16 && (d + r + (size_t)type) % 3 != w)
                        continue; /* made of halves first */
                    for (int k = CUDA_ATTEND_WGMMA; k <= CUDA_ATTEND_PLAIN; k++, n++)
                        all[n] = (struct cuda_attention){.dk = dims[d],
                                                         .dv = n % 7 == 3 ? 64 : dims[d],
                                                         .n_head = n % 2 ? 6 : 4,
                                                         .n_kv_head = 2,
                                                         .n_row = rows[r],
                                                         .n_seq = n % 4 == 3 && rows[r] > 2 ? 3 : 1,
                                                         .depth = depths[n / 3 % 4],
                                                         .window = windows[w],
                                                         .kv_type = type,
                                                         .kernel = (enum cuda_attend_kernel)k,
                                                         .softcap = n % 5 == 1 ? 2 : 0,
                                                         .sinks = n % 5 == 2,
                                                         .picture = pictures[n / 3 % 5]};
                }
    double worst;
    assert_int_equal(n, MOST * 8 / (3 * KV_TYPES)); /* five types in a third of the cases each */
    assert_ok(cuda_attention_check(all, n, &worst));
    print_message("%d cases, at most %.1e of the norm\n", n, worst);
}

/* Attention without a store: heads of all sizes that kernels have, and between them, beside the plain kernel. */
static void attention_without_a_mask_agrees(void **state) {
    static const int dims[] = {8, 16, 64, 72, 80, 88, 96, 104, 128},
                     rows[] = {1, 63, 64, 65, 128, 191, 193, 700, 2049};
    enum { MOST = 9 * 9 * 2 };
    static struct cuda_encode all[MOST];
    int n = 0;
    (void)state;
    for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
            for (int mma = 0; mma < 2; mma++, n++)
                all[n] = (struct cuda_encode){.dim = dims[d],
                                              .n_head = 4,
                                              .n_kv_head = n / 2 % 3 ? 4 : 2,
                                              .n_row = rows[r],
                                              .mma = mma,
                                              .turned = n / 2 % 2};
    double worst;
    assert_int_equal(n, MOST);
    assert_ok(cuda_encode_check(all, n, &worst));
    print_message("%d cases, at most %.1e of the norm\n", n, worst);
}
#endif

int main(int argc, char **argv) {
    bool must;
    if (argc > 1) cmocka_set_test_filter(argv[1]); /* a name, or a pattern like attention* */
    if (!cuda_there(&must)) return must ? 1 : 77;
#ifdef INFER_CUDA
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_turned_caches_have_the_processors_bytes),
        cmocka_unit_test(attention_of_prompt_rows_agrees_with_float64),
        cmocka_unit_test(attention_without_a_mask_agrees),
        cmocka_unit_test(attention_agrees_with_ref),
        cmocka_unit_test(more_attention_agrees_with_ref),
        cmocka_unit_test(large_heads_agree_with_ref),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
#endif
}
