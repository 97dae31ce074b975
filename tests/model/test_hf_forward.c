/* Folders of Hugging Face: tiny random models of every architecture (scripts/goldens) compute what transformers does, however the
 * prompt is cut, whoever is beside it in a step, and as the GGUF file that convert makes of them. One test a folder.
 * usage: test_hf_forward [PATTERN]    the folders whose names match, * for anything */
#include "tests/lib/test.h"
#include "tests/lib/pace.h"
#include "tests/lib/cuda_there.h"
#include "tests/lib/relative.h"
#include "tests/lib/folder.h"
#include "tests/lib/hf_folders.h"
#include "tests/lib/hf_golden.h"
#include "infer.h"
#include "files/tensorfile.h"
#include "tests/lib/tolerance.h"
#include "tools/file/quantize.h"

static bool have_cuda;
static bool
    only_card; /* INFER_ONLY_CARD=1: what runs on the processor alone is left out (scripts/gpu-check) */

/* ---- computing ---- */

/* The device of a name, or with a plus the device and the host, which has the experts; highest: F32 without TF32. */
static void place_on(struct infer_engine_options *o, const char *name) {
    static const char *const single[] = {"ref", "cpu", "cuda"};
    const char *plus = strchr(name, '+');
    for (int i = 0; i < 3; i++)
        if (strncmp(name, single[i], strcspn(name, "+,")) == 0) o->device = single[i];
    o->strict_fp32 = strstr(name, ", highest") != NULL;
    if (!plus) return;
    o->host_device = plus + 1;
    o->cpu_experts = 2;
}

/* Two sequences of n_ctx positions: some rotations depend on the length of the context. */
static enum infer_status start(struct infer_engine **e, const struct infer_model *m, const char *device,
                               int n_ctx, int threads) {
    struct infer_engine_options o = {.kv_type = "f32",
                                     .ctx = n_ctx,
                                     .slots = 2,
                                     .threads = threads,
                                     .gpu_layers = -1,
                                     .all_logits = true,
                                     .nan_guard = true};
    place_on(&o, device);
    TRY(infer_engine_create(e, m, &o));
    if (!o.host_device) return INFER_OK;
    struct infer_engine_info info;
    struct infer_model_info model;
    infer_engine_info(*e, &info);
    infer_model_info(m, &model);
    assert_int_equal(info.host_experts, 2);
    assert_int_equal(info.device_layers, model.n_layer);
    return INFER_OK;
}

/* Two prompts row by row beside each other in one step, or one behind the other where layers have states; the logits of the first into
 * out. */
static void compute_beside(struct infer_engine *e, const struct golden *g, const struct infer_prompt *a,
                           const struct infer_prompt *b, float *out) {
    struct infer_row rows[2 * MAX_TOKENS];
    struct infer_output o;
    struct infer_engine_info info;
    int seq[2], n = 0;
    infer_engine_info(e, &info);
    assert_ok(infer_seq_open(e, &seq[0]));
    assert_ok(infer_seq_open(e, &seq[1]));
    for (int i = 0; info.state_bytes && i < b->n; i++)
        rows[n++] = (struct infer_row){.id = b->ids[i], .pos = i, .seq = seq[1], .want = INFER_WANT_NONE};
    for (int i = 0; i < a->n || i < b->n; i++) {
        if (i < b->n && !info.state_bytes)
            rows[n++] = (struct infer_row){.id = b->ids[i], .pos = i, .seq = seq[1], .want = INFER_WANT_NONE};
        if (i < a->n)
            rows[n++] =
                (struct infer_row){.id = a->ids[i], .pos = i, .seq = seq[0], .want = INFER_WANT_LOGITS};
    }
    assert_ok(infer_step(e, rows, n, &o));
    assert_int_equal(o.n, a->n);
    for (int i = 0; i < a->n; i++)
        memcpy(out + (size_t)i * (size_t)g->n_vocab, o.logits[i], (size_t)g->n_vocab * 4);
    infer_seq_close(e, seq[0]);
    infer_seq_close(e, seq[1]);
}

/* Of the rows that are known, as standard deviations; *at: the first that is off by more than the tolerance, or -1. */
static double error_of(const struct golden *g, const struct infer_prompt *p, const float *got,
                       double tolerance, int *at) {
    double worst = 0;
    size_t v = (size_t)g->n_vocab;
    *at = -1;
    for (int i = 0; i < p->n_rows; i++) {
        double e = max_error(got + (size_t)p->rows[i] * v, p->logits + (size_t)i * v, v) / g->sd;
        if (!(e <= worst)) worst = e;
        if (!(e <= tolerance) && *at < 0) *at = p->rows[i];
    }
    return worst;
}

static void expect_bits(const struct golden *g, const char *device, const char *what,
                        const struct infer_prompt *p, const float *want, const float *got) {
    if (memcmp(want, got, elements(g, p) * 4) == 0) return;
    fail_msg("%s on %s: %s changes the logits, by %g of sd", g->name, device, what,
             max_error(want, got, elements(g, p)) / g->sd);
}

/* The longest prompt in steps of 1, 7 (unless only those on a grid count) and 64 rows, as decode rows, beside another one, on one thread. */
static void check_cuts(const struct golden *g, const struct infer_model *m, struct infer_engine *e,
                       const char *device, double tolerance, const struct infer_prompt *p,
                       const float *whole) {
    static const int steps[] = {1, 7, 64};
    float *got = malloc(elements(g, p) * 4);
    struct infer_engine *alone;
    struct infer_engine_info info;
    bool exact = strcmp(device, "ref") == 0;
    infer_engine_info(e, &info);
    for (int i = info.grid ? 2 : 0; i < 3; i++) {
        compute(e, g, p, steps[i], false, got);
        expect_bits(g, device, i == 0 ? "steps of 1" : i == 1 ? "steps of 7" : "steps of 64", p, whole, got);
    }
    compute_beside(e, g, p, &g->prompt[1], got);
    expect_bits(g, device, "a neighbour", p, whole, got);
    compute(e, g, p, 1, true, got);
    double err = max_error(got, whole, elements(g, p)) / g->sd;
    if (!(err <= (exact ? 0 : 2 * tolerance))) /* each of the two may be off by the tolerance */
        fail_msg("%s on %s: decode differs from prompt by %g of sd", g->name, device, err);
    if (strcmp(device, "cpu") == 0) {
        assert_ok(start(&alone, m, device, p->n, 1));
        compute(alone, g, p, p->n, false, got);
        expect_bits(g, device, "one thread", p, whole, got);
        infer_engine_free(alone);
    }
    free(got);
}

/* AMX multiplies BF16 with BF16: activations are rounded to 8 bits there, those of packed folders' prompts, too. */
static double tolerance_on(const struct infer_engine *e, const char *form, double tolerance) {
    struct infer_engine_info info;
    infer_engine_info(e, &info);
    if (!info.isa || !strstr(info.isa, "amx")) return tolerance;
    if (strcmp(form, "codes") == 0) return TOL_LOGITS_BF16;
    return tolerance == TOL_LOGITS_BF16 ? TOL_LOGITS_AMX : tolerance;
}

/* A device that has no kernel for an operation says so. */
static bool lacks_kernel(const struct golden *g, const struct infer_model *m, const char *device) {
    struct infer_engine *e = NULL;
    if (start(&e, m, device, g->prompt[0].n, 2) == INFER_OK || !strstr(infer_error(), "no kernel for")) {
        infer_engine_free(e);
        return false;
    }
    print_message("  %s\n", infer_error());
    return true;
}

/* Every prompt of a model on a device within the tolerance, then the cuts. keep: NULL, or where the logits of the three go. */
static void check_device(const struct golden *g, const struct infer_model *m, const char *device,
                         const char *form, double tolerance, float **keep) {
    if (lacks_kernel(g, m, device)) return;
    for (int i = 0; i < N_PROMPT; i++) {
        const struct infer_prompt *p = &g->prompt[i];
        float *got = malloc(elements(g, p) * 4);
        struct infer_engine *e;
        int at;
        assert_ok(start(&e, m, device, p->n, 2));
        tolerance = tolerance_on(e, form, tolerance);
        compute(e, g, p, p->n, false, got);
        double err = error_of(g, p, got, tolerance, &at);
        if (i == 0) print_message("  %s %s:", device, form);
        print_message(" %.1e", err);
        if (at >= 0)
            fail_msg("%s, %s on %s, %d tokens: error %g of sd, tolerance %g, first at position %d", g->name,
                     form, device, p->n, err, tolerance, at);
        if (i == N_PROMPT - 1) check_cuts(g, m, e, device, tolerance, p, got);
        infer_engine_free(e);
        if (keep)
            keep[i] = got;
        else
            free(got);
    }
    print_message("\n");
}

/* The file is as others write it: rows of q and k as GGUF has them for their architecture, experts in stacks. */
static void check_plain(const struct golden *g, const char *file) {
    struct tensorfile *f;
    assert_ok(tensorfile_open(&f, file, NULL));
    for (size_t i = 0; i < f->n_meta; i++) {
        const struct str key = f->meta[i].key;
        if (key.len > 10 && memcmp(key.data + key.len - 10, ".rope.neox", 10) == 0)
            fail_msg("%s: converted to GGUF it has the key %.*s", g->name, (int)key.len, key.data);
    }
    for (size_t i = 0; i < f->n_tensor; i++)
        if ((strstr(f->tensor[i].name, ".1.weight") && strncmp(f->tensor[i].name, "altup_", 6) != 0) ||
            strstr(f->tensor[i].name, "gate_up_exps.weight"))
            fail_msg("%s: converted to GGUF it has the tensor %s", g->name, f->tensor[i].name);
    tensorfile_close(f);
}

/* Every key that the folder was read into is one of the file, but for those that say how its rows stand. */
static void check_keys(const struct golden *g, const char *folder, const char *file) {
    static const char *const own[] = {".rope.neox", ".ssm.grouped_heads"};
    struct tensorfile *from, *to;
    assert_ok(tensorfile_open(&from, folder, NULL));
    assert_ok(tensorfile_open(&to, file, NULL));
    for (size_t i = 0; i < from->n_meta; i++) {
        const struct meta *m = &from->meta[i], *there;
        char key[160];
        bool other = false;
        snprintf(key, sizeof key, "%.*s", (int)m->key.len, m->key.data);
        for (int k = 0; k < 2; k++) other |= strstr(key, own[k]) != NULL;
        there = tensorfile_meta(to, key);
        bool same = there && there->type == m->type && there->n == m->n;
        if (same && m->raw)
            same = memcmp(there->raw, m->raw, (size_t)m->n * (m->elem == META_BOOL ? 1 : 4)) == 0;
        if (!other && !same) fail_msg("%s: converted to GGUF it has another %s, or none", g->name, key);
    }
    tensorfile_close(from);
    tensorfile_close(to);
}

/* The file that convert makes computes what the folder does; on every device, unless ref alone. */
static void check_converted(const struct golden *g, const char *path, const char *file, float *const *folder,
                            bool ref_alone) {
    struct quantize_report r;
    struct infer_model *m;
    assert_ok(quantize_file(&(struct quantize_options){.in = path, .out = file, .type = "f32"}, &r));
    check_plain(g, file);
    check_keys(g, path, file);
    assert_ok(infer_model_open(&m, file, NULL));
    for (int i = 0; i < N_PROMPT; i++) {
        const struct infer_prompt *p = &g->prompt[i];
        float *got = malloc(elements(g, p) * 4);
        struct infer_engine *e;
        assert_ok(start(&e, m, "ref", p->n, 2));
        compute(e, g, p, p->n, false, got);
        double err = max_error(got, folder[i], elements(g, p)) / g->sd;
        if (!(err <= TOL_LOGITS_CONVERTED))
            fail_msg("%s: converted to GGUF it differs from the folder by %g of sd", g->name, err);
        infer_engine_free(e);
        free(got);
    }
    if (!ref_alone && !only_card) check_device(g, m, "cpu", "f32", TOL_LOGITS_FAST, NULL);
    if (have_cuda && !ref_alone) {
        check_device(g, m, "cuda, highest", "f32", TOL_LOGITS_FAST, NULL);
        check_device(g, m, "cuda", "f32", golden_tolerance(g->name, TOL_LOGITS_TF32), NULL);
    }
    infer_model_close(m);
}

/* The keys of transformers 4 say the same. */
static void check_old_keys(const struct golden *g, const float *want) {
    struct folder d;
    struct infer_model *m = NULL;
    struct infer_engine *e = NULL;
    const struct infer_prompt *p = &g->prompt[N_PROMPT - 1];
    char command[2 * sizeof g->path];
    folder_make(&d);
    snprintf(command, sizeof command, "cp '%.400s/config-4.json' %s/config.json 2>/dev/null", g->path,
             d.path);
    bool there = system(command) == 0; /* models of this year have no others */
    snprintf(command, sizeof command, "cp '%.400s/model.safetensors' %s", g->path, d.path);
    assert_int_equal(system(command), 0);
    if (there) {
        float *got = malloc(elements(g, p) * 4);
        assert_ok(infer_model_open(&m, d.path, NULL));
        assert_ok(start(&e, m, "ref", p->n, 2));
        compute(e, g, p, p->n, false, got);
        expect_bits(g, "ref", "config-4.json", p, want, got);
        free(got);
    }
    infer_engine_free(e);
    infer_model_close(m);
    folder_remove(&d);
}

/* The experts of the first layers on another backend. */
static void check_host_experts(const struct golden *g, const struct infer_model *m) {
    struct infer_model_info info;
    char key[128];
    double n;
    infer_model_info(m, &info);
    snprintf(key, sizeof key, "%s.expert_count", info.arch);
    if (!infer_model_number(m, key, &n) || n == 0) return;
    static const char *const hosts[] = {"ref+cpu", "cpu+ref", "cpu+cpu"};
    for (int i = 0; i < 3 && !only_card; i++) check_device(g, m, hosts[i], "bf16", TOL_LOGITS_BF16, NULL);
    if (have_cuda) check_device(g, m, "cuda+cpu", "bf16", golden_tolerance(g->name, TOL_LOGITS_BF16), NULL);
}

static void computes_what_transformers_does(const struct golden *g) {
    struct infer_model *m;
    float *folder[N_PROMPT];
    struct folder d;
    char file[256];
    assert_ok(infer_model_open(&m, g->path, NULL));
    check_device(g, m, "ref", "bf16", TOL_LOGITS_REF, folder);
    if (!only_card) check_old_keys(g, folder[N_PROMPT - 1]);
    const bool packed = strncmp(g->name, "packed-", 7) == 0;
    folder_make(&d);
    check_converted(g, g->path, folder_file(&d, file, "converted.gguf"), folder,
                    packed &&
                        strcmp(g->name, "packed-ct-nvfp4") != 0); /* of llama's, one with factors will do */
    folder_remove(&d);
    const char *form = packed ? "codes" : "bf16";
    if (have_cuda)
        check_device(g, m, "cuda", form,
                     packed ? TOL_LOGITS_HALVES : golden_tolerance(g->name, TOL_LOGITS_BF16), NULL);
    if (!only_card) check_device(g, m, "cpu", form, packed ? TOL_LOGITS_FINE : TOL_LOGITS_BF16, NULL);
    if (!packed) check_host_experts(g, m); /* of one layer */
    for (int i = 0; i < N_PROMPT; i++) free(folder[i]);
    infer_model_close(m);
}

static void one_folder(void **state) {
    struct golden g;
    golden_read(&g, *state);
    computes_what_transformers_does(&g);
    golden_free(&g);
}

/* Latents whose rotated numbers are in halves, which GGUF cannot say: convert puts the rows of queries and keys where it has neighbours. */
static void latents_in_halves(void **state) {
    static const char *const names[] = {"deepseek_v2-lite", "deepseek_v3", "deepseek_v3-draft", "kimi_k2"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct golden g;
        struct folder d;
        struct infer_model *m;
        char command[1024], file[256];
        float *folder[N_PROMPT];
        golden_read(&g, names[i]);
        folder_make(&d);
        snprintf(
            command, sizeof command,
            "sed -e '/\"rope_interleave\"/d' -e 's/^{/{ \"rope_interleave\": false,/' '%.400s/config.json' > "
            "%s/config.json && cp '%.400s/model.safetensors' %s",
            g.path, d.path, g.path, d.path);
        assert_int_equal(system(command), 0);
        assert_ok(infer_model_open(&m, d.path, NULL));
        for (int p = 0, at; p < N_PROMPT; p++) {
            struct infer_engine *e;
            folder[p] = malloc(elements(&g, &g.prompt[p]) * 4);
            assert_ok(start(&e, m, "ref", g.prompt[p].n, 2));
            compute(e, &g, &g.prompt[p], g.prompt[p].n, false, folder[p]);
            if (error_of(&g, &g.prompt[p], folder[p], TOL_LOGITS_REF, &at) < 100 * TOL_LOGITS_REF && p == 0)
                fail_msg("%s: 'rope_interleave' is passed over", g.name);
            infer_engine_free(e);
        }
        infer_model_close(m);
        check_converted(&g, d.path, folder_file(&d, file, "converted.gguf"), folder, true);
        for (int p = 0; p < N_PROMPT; p++) free(folder[p]);
        folder_remove(&d);
        golden_free(&g);
    }
}

static int look_for_cuda(void **state) {
    (void)state;
    bool must;
    have_cuda = cuda_there(&must);
    const char *only = getenv("INFER_ONLY_CARD");
    only_card = have_cuda && only && *only == '1';
    return must && !have_cuda;
}

int main(int argc, char **argv) {
    static struct CMUnitTest tests[HF_FOLDERS_MAX + 1] = {cmocka_unit_test(latents_in_halves)};
    static const char *name[HF_FOLDERS_MAX];
    const int n_folder = hf_folders(name);
    int n = 1;
    for (int i = 0; i < n_folder; i += EVERY(2))
        tests[n++] = (struct CMUnitTest){name[i], one_folder, NULL, NULL, (void *)(uintptr_t)name[i]};
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return _cmocka_run_group_tests("folders", tests, (size_t)n, look_for_cuda, NULL);
}
