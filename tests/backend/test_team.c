/* The CPU backend's team: the same bits from 1, 2 and 3 threads where threads are late at random (cpu_delays_pretend), so that one is at the
 * end of a run of operations while another is at its beginning: the folders of every architecture, and shapes of real widths cut to some layers.
 * Built with INFER_TSAN (CMake) the folders run without delays, and ThreadSanitizer looks on. */
#include "tests/lib/test.h"
#include "cpu/cpu_isa.h"
#include "base/host.h"
#include "infer.h"
#include "tests/lib/hf_folders.h"
#include "tests/lib/synth_model.h"

#ifdef __SANITIZE_THREAD__
#define WATCHED 1
#else
#define WATCHED 0
#endif

enum { DECODE = 6, MOST_ROWS = 128, MOST_THREADS = 3 };

struct setting {
    const char *isa;       /* NULL: the best */
    const char *host;      /* who has the experts of the first layers; NULL: the device */
    int n_prompt, threads; /* rows of the prompt, in one step */
    int rows;              /* decode rows of a step */
    uint32_t delays;
};

/* Logits of all rows of a prompt and of DECODE rows behind it: out[n_prompt + DECODE][n_vocab]. */
static void compute(struct infer_model *m, struct setting s, float *out) {
    struct infer_engine_options o = {.device = "cpu",
                                     .host_device = s.host,
                                     .cpu_experts = s.host ? 1000 : 0,
                                     .all_logits = true,
                                     .isa = s.isa,
                                     .threads = s.threads,
                                     .ctx = MOST_ROWS,
                                     .batch = s.n_prompt,
                                     .decode_rows = s.rows,
                                     .gpu_layers = -1};
    struct infer_engine *e;
    struct infer_model_info info;
    struct infer_row rows[MOST_ROWS];
    struct infer_output got;
    int seq, end = s.n_prompt + DECODE;
    assert_true(end <= MOST_ROWS);
    infer_model_info(m, &info);
    assert_ok(infer_engine_create(&e, m, &o));
    assert_ok(infer_seq_open(e, &seq));
    cpu_delays_pretend(s.delays);
    for (int t = 0, n; t < end; t += n) {
        bool decode = t >= s.n_prompt;
        n = decode ? s.rows : s.n_prompt;
        if (n > end - t) n = end - t;
        for (int i = 0; i < n; i++)
            rows[i] = (struct infer_row){.id = (t + i) * 37 % info.n_vocab,
                                         .pos = t + i,
                                         .seq = seq,
                                         .decode = decode,
                                         .want = INFER_WANT_LOGITS | INFER_WANT_TOKEN};
        assert_ok(infer_step(e, rows, n, &got));
        for (int i = 0; i < got.n; i++, out += info.n_vocab)
            memcpy(out, got.logits[i], sizeof *out * (size_t)info.n_vocab);
    }
    cpu_delays_pretend(0);
    infer_engine_free(e);
}

/* One thread against two and three, times over: which thread is late differs. */
static void check(const char *name, struct infer_model *m, const char *isa, const char *host, int n_prompt,
                  int times) {
    struct infer_model_info info;
    infer_model_info(m, &info);
    size_t bytes = sizeof(float) * (size_t)(n_prompt + DECODE) * (size_t)info.n_vocab;
    float *want = malloc(bytes), *got = malloc(bytes);
    compute(m, (struct setting){isa, host, n_prompt, 1, 1, 0}, want);
    for (int i = 0; i < times; i++)
        for (int threads = 2; threads <= MOST_THREADS; threads++) {
            struct setting s = {
                isa, host, n_prompt, threads, 1 + (threads + i) % 3, WATCHED ? 0 : (uint32_t)i + 1};
            memset(got, 0xff, bytes);
            compute(m, s, got);
            if (memcmp(want, got, bytes))
                fail_msg("%s%s%s: other bits with %d threads, %d prompt rows, %d decode rows, delays %u",
                         name, host ? ", experts on " : "", host ? host : "", threads, n_prompt, s.rows,
                         (unsigned)s.delays);
        }
    free(want);
    free(got);
}

static bool has_experts(const struct infer_model *m) {
    struct infer_model_info info;
    char key[128];
    double n;
    infer_model_info(m, &info);
    snprintf(key, sizeof key, "%s.expert_count", info.arch);
    return infer_model_number(m, key, &n) && n > 0;
}

static void every_folder(void **state) {
    (void)state;
    const char *folders[HF_FOLDERS_MAX];
    const int n = hf_folders(folders);
    for (int i = 0; i < n; i++) {
        char name[128], path[512];
        struct infer_model *m;
        snprintf(name, sizeof name, "golden/hf/%s", folders[i]);
        assert_ok(infer_model_open(&m, test_path(path, sizeof path, name), NULL));
        check(folders[i], m, NULL, NULL, 23, WATCHED ? 1 : 3);
        if (has_experts(m)) check(folders[i], m, NULL, "cpu", 23, 1);
        infer_model_close(m);
    }
}

/* Layers of real models, with a small vocabulary and few experts. */
static void real_widths(void **state) {
    (void)state;
    static const struct {
        const char *shape;
        int layers, experts;
    } all[] = {{"gemma3-4b", 2, 0}, {"gemma4-26b-a4b", 2, 9}, {"llama-135m", 2, 0}, {"lfm2-1.2b", 1, 0}};
    if (WATCHED) skip(); /* the same operations as of the folders, a hundred times as large */
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct infer_model *m = synth_model(&(struct synth_options){.shape = all[i].shape,
                                                                    .type = "q4_0",
                                                                    .seed = 7,
                                                                    .layers = all[i].layers,
                                                                    .vocab = 512,
                                                                    .experts = all[i].experts});
        check(all[i].shape, m, NULL, NULL, 9, 3);
        check(all[i].shape, m, NULL, NULL, 33, 2);
        infer_model_close(m);
    }
}

int main(void) {
    if (cpu_isa_best() == CPU_ISA_NONE) {
        print_message("skipped: this processor is below the floor of the CPU backend\n");
        return 77;
    }
    host_threads_pretend(MOST_THREADS);
    cpu_teams_pretend(CPU_TEAMS_WHOLE);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_folder),
        cmocka_unit_test(real_widths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
