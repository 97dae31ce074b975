/* The same bits from the CPU backend for 1 to 16 threads, every cut of a prompt into steps and every number of decode
 * rows, for each weight type on each instruction set: a model of the shape "tiny" in the type. The types share the
 * numbers of threads among them, since each is a kernel of its own under one way of sharing. */
#include "tests/lib/test.h"
#include "tests/lib/pace.h"
#include "tests/lib/synth_model.h"
#include "cpu/cpu_isa.h"
#include "base/host.h"
#include "infer.h"
#include "quant/quant.h"
#include "base/numa.h"

#include <omp.h>
#include <sched.h>

/* LLVM's OpenMP keeps what it took for teams of other sizes. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:libomp.so\n"; }

enum { MOST_THREADS = 16, MOST_TOKENS = 700, N_DECODE = 90 };

struct setting {
    const char *isa, *kv_type;
    int n_prompt, threads;
    int chunk; /* prompt rows of a step */
    int rows;  /* decode rows of a step */
    enum cpu_teams teams;
};

static struct infer_model *model(const char *shape, const char *type) {
    return synth_model(&(struct synth_options){.shape = shape, .type = type, .seed = 11});
}

/* Logits of the last prompt row and of N_DECODE decode rows: out[1 + N_DECODE][n_vocab]. */
static void compute(struct infer_model *m, struct setting s, float *out) {
    struct infer_engine_options o = {.device = "cpu",
                                     .all_logits = true,
                                     .isa = s.isa,
                                     .kv_type = s.kv_type,
                                     .threads = s.threads,
                                     .ctx = MOST_TOKENS,
                                     .batch = s.chunk,
                                     .decode_rows = s.rows,
                                     .gpu_layers = -1};
    struct infer_engine *e;
    struct infer_model_info info;
    struct infer_engine_info place;
    struct infer_row rows[MOST_TOKENS];
    struct infer_output got;
    int seq, end = s.n_prompt + N_DECODE;
    infer_model_info(m, &info);
    cpu_teams_pretend(s.teams);
    assert_ok(infer_engine_create(&e, m, &o));
    infer_engine_info(e, &place);
    assert_int_equal(place.n_thread, s.threads);
    assert_ok(infer_seq_open(e, &seq));
    for (int t = 0, n; t < end; t += n) {
        bool decode = t >= s.n_prompt;
        int left = (decode ? end : s.n_prompt) - t;
        n = decode ? s.rows : s.chunk;
        if (n > left) n = left;
        for (int i = 0; i < n; i++)
            rows[i] =
                (struct infer_row){.id = (t + i) * 37 % info.n_vocab,
                                   .pos = t + i,
                                   .seq = seq,
                                   .decode = decode,
                                   .want = t + i >= s.n_prompt - 1 ? INFER_WANT_LOGITS : INFER_WANT_NONE};
        assert_ok(infer_step(e, rows, n, &got));
        for (int i = 0; i < got.n; i++, out += info.n_vocab)
            memcpy(out, got.logits[i], sizeof *out * (size_t)info.n_vocab);
    }
    infer_engine_free(e);
}

/* One thread and whole steps against 1, 2 and more threads, each with steps of its own sizes. */
static void check(struct infer_model *m, const char *isa, const char *kv_type, int n_prompt,
                  const int chunk[3], int more) {
    struct infer_model_info info;
    infer_model_info(m, &info);
    size_t bytes = sizeof(float) * (1 + N_DECODE) * (size_t)info.n_vocab;
    float *want = malloc(bytes), *got = malloc(bytes);
    compute(m, (struct setting){isa, kv_type, n_prompt, 1, n_prompt, 1, CPU_TEAMS_WHOLE}, want);
    const struct setting others[] = {/* more rows than a tile has, steps enough for all copies */
                                     {isa, kv_type, n_prompt, 2, chunk[0], 18, CPU_TEAMS_WHOLE},
                                     {isa, kv_type, n_prompt, 1, chunk[0], 3, CPU_TEAMS_WHOLE},
                                     {isa, kv_type, n_prompt, 2, chunk[1], 8, CPU_TEAMS_WHOLE},
                                     {isa, kv_type, n_prompt, 3, chunk[1], 8, CPU_TEAMS_CHANGE},
                                     {isa, kv_type, n_prompt, more, chunk[2], more, CPU_TEAMS_WHOLE}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct setting s = others[i];
        memset(got, 0xff, bytes);
        compute(m, s, got);
        if (memcmp(want, got, bytes))
            fail_msg("%s on %s, cache %s: other bits with %d threads, chunks of %d, %d decode rows",
                     info.type_name, isa, kv_type ? kv_type : "f16", s.threads, s.chunk, s.rows);
    }
    free(want);
    free(got);
}

static bool get_mask(struct topology_set *set) {
    return sched_getaffinity(0, sizeof *set, (cpu_set_t *)set) == 0;
}

static const char *const isas[] = {"avx2", "avxvnni", "avx512", "amx"};
static bool absent(const char *isa) {
    enum cpu_isa got;
    return cpu_isa_pick(isa, &got) != INFER_OK;
}

static void every_weight_type(void **state) {
    (void)state;
    for (int type = 0; type < QUANT_COUNT; type++) {
        if (same_kernel((enum quant_type)type)) continue;
        struct infer_model *m = model("tiny", quant_info((enum quant_type)type)->name);
        for (int i = 0; i < 4; i++)
            if (!absent(isas[i]))
                check(m, isas[i], NULL, 70, (const int[]){1 + type, 17 + type, 48 + type},
                      3 + type % (MOST_THREADS - 2));
        infer_model_close(m);
    }
}

/* Mixtures of experts: one type of each family of kernels. */
static void experts(void **state) {
    (void)state;
    static const char *const types[] = {"f32", "bf16", "q8_0", "q4_k", "mxfp4"};
    for (int k = 0; k < 10; k++) {
        struct infer_model *m = model(k % 2 ? "tiny-oss" : "tiny-moe", types[k / 2]);
        for (int i = 0; i < 4; i++)
            if (!absent(isas[i])) check(m, isas[i], NULL, 70, (const int[]){1 + k, 17, 33}, 2 + k % 3);
        infer_model_close(m);
    }
}

/* Pages enough for every way of sharing a context, head counts that do not divide, each type of the cache. */
static void long_contexts(void **state) {
    (void)state;
    static const char *const kv_types[] = {"f32", "q4_0", "q8_0", "f16/q5_0,1:f8/q8_0"}; /* f16 elsewhere */
    for (int k = 0; k < 4; k++) {
        struct infer_model *m = model(k == 1 ? "tiny-odd" : "tiny", "q8_0");
        for (int i = 0; i < 4; i++)
            if (!absent(isas[i])) check(m, isas[i], kv_types[k], 600, (const int[]){130, 65, 33}, 5);
        infer_model_close(m);
    }
}

/* Two nodes of one hardware thread each: the threads are bound, the caller's is not any more after a step. */
static void bound_to_nodes(void **state) {
    (void)state;
    struct topology t;
    struct topology_set before, after, seen[4] = {{{0}}};
    topology_read(&t);
    if (t.n < 2) skip();
    t = (struct topology){
        .at = {{t.at[0].cpu, 0, 0}, {t.at[1].cpu, 1, 1}}, .n = 2, .n_core = 2, .n_node = 2, .here = true};
    assert_true(get_mask(&before));
    topology_pretend(&t);
    struct infer_model *m = model("tiny", "q4_k");
    check(m, "avx2", NULL, 70, (const int[]){70, 20, 33}, 4);
    infer_model_close(m);
    topology_pretend(NULL);
    assert_true(get_mask(&after));
    assert_memory_equal(&before, &after, sizeof before);
#pragma omp parallel num_threads(4)
    get_mask(&seen[omp_get_thread_num()]);
    for (int i = 1; i < 4; i++) { /* the last engine had 4 threads, 2 on each node */
        struct topology_set node;
        topology_node(&t, i / 2, &node);
        assert_memory_equal(&node, &seen[i], sizeof node);
    }
}

int main(void) {
    if (cpu_isa_best() == CPU_ISA_NONE) {
        print_message("skipped: this processor is below the floor of the CPU backend\n");
        return 77;
    }
    host_threads_pretend(MOST_THREADS);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_weight_type),
        cmocka_unit_test(experts),
        cmocka_unit_test(long_contexts),
        cmocka_unit_test(bound_to_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
