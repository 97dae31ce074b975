/* Types of the cache for each layer, keys and values apart: what a text of them means, the bytes that are planned and taken, and what is
 * kept of a measurement. */
#include "tests/lib/test.h"
#include "tests/lib/synth_model.h"
#include "engine_impl.h"
#include "infer.h"
#include "plan/kv_types.h"
#include "tests/lib/steps.h"

static struct infer_engine_options options_of(const char *device, const char *kv_type) {
    return (struct infer_engine_options){
        .device = device, .kv_type = kv_type, .ctx = 200, .slots = 2, .threads = 2, .gpu_layers = -1};
}

/* K and V of every layer, as "f16/q8_0 f16/f16". */
static const char *said(const struct infer_model *m, const char *text, char out[256]) {
    struct arena arena = {0};
    enum kv_type all;
    const struct kv_types *of;
    *out = 0;
    assert_ok(kv_types_read(&all, &of, &arena, m->m, text, KV_F16));
    assert_int_equal(all == KV_TYPES, of != NULL);
    for (int i = 0; i < m->m->n_store; i++) {
        const struct kv_types here = of ? of[i] : (struct kv_types){all, all};
        snprintf(out + strlen(out), 256 - strlen(out), "%s%s/%s", i ? " " : "", kv_type_name(here.k),
                 kv_type_name(here.v));
    }
    arena_free(&arena);
    return out;
}

static void texts(void **state) {
    (void)state;
    struct infer_model *m =
        synth_model(&(struct synth_options){.shape = "tiny-gemma4", .type = "q8_0", .seed = 3});
    static const struct {
        const char *text, *want;
    } cases[] = {
        {NULL, "f16"},
        {"q8_0", "q8_0"},
        {"Q8_0/q4_0", "q8_0/q4_0"},
        {"q5_0/q5_0,0-6:f8", "f8"},
    };
    char got[256], want[256];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        *want = 0;
        for (int k = 0; k < m->m->n_store; k++)
            snprintf(want + strlen(want), sizeof want - strlen(want),
                     strchr(cases[i].want, '/') ? "%s%s" : "%s%s/%s", k ? " " : "", cases[i].want,
                     cases[i].want);
        assert_string_equal(said(m, cases[i].text, got), want);
    }
    /* of kinds of layers, and of single ones, of which the last word counts */
    const struct layer *l = m->m->layer;
    int full = 0, window = 0;
    said(m, "full:q8_0,window:q4_0/f32,1:f32", got);
    for (int i = 0, at = 0; i < m->m->n_layer; i++) {
        if (l[i].attn.borrows) continue;
        const char *expected = i == 1 ? "f32/f32" : l[i].attn.window ? "q4_0/f32" : "q8_0/q8_0";
        assert_memory_equal(got + at, expected, strlen(expected));
        at += (int)strlen(expected) + 1;
        *(l[i].attn.window ? &window : &full) += 1;
    }
    assert_true(full > 0 && window > 0);
    infer_model_close(m);
}

/* What positions are chosen by, and entries, are named apart: layers' own words leave them, a type of all is theirs, too. */
static void index_and_entries(void **state) {
    (void)state;
    static const struct {
        const char *folder, *text, *want;
    } cases[] = {
        /* latents of four layers and, behind each but of the third, its index keys */
        {"glm_moe_dsa", "q8_0/q4_0,0:f32",
         "f32/f32 q8_0/q8_0 q8_0/q8_0 q8_0/q8_0 q8_0/q8_0 q8_0/q8_0 q8_0/q8_0"},
        {"glm_moe_dsa", "f16,index:q8_0,INDEX.3:f8",
         "f16/f16 q8_0/q8_0 f16/f16 q8_0/q8_0 f16/f16 f16/f16 f8/f8"},
        {"glm_moe_dsa", "index.1-3:q4_0,full:q8_0",
         "q8_0/q8_0 f16/f16 q8_0/q8_0 q4_0/q4_0 q8_0/q8_0 q8_0/q8_0 q4_0/q4_0"},
        {"glm_moe_dsa", "entries:q4_0,window:q4_0",
         "f16/f16 f16/f16 f16/f16 f16/f16 f16/f16 f16/f16 f16/f16"},
        {"qwen4_exp", "2:q5_0/q4_0,index.2:q8_0", "q5_0/q4_0 q8_0/q8_0"},
        {"minimax_m3", "index:f32", "f16/f16 f16/f16 f32/f32 f16/f16 f32/f32"},
    };
    char path[512], got[256];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct infer_model *m;
        char name[64];
        snprintf(name, sizeof name, "golden/hf/%s", cases[i].folder);
        assert_ok(infer_model_open(&m, test_path(path, sizeof path, name), NULL));
        assert_string_equal(said(m, cases[i].text, got), cases[i].want);
        infer_model_close(m);
    }
}

/* Stores of every kind are told once, and a text of one of them is of no other. */
static void what_layers_keep(void **state) {
    (void)state;
    static const char *const word[INFER_KV_KINDS] = {"", "index.", "entries."};
    struct infer_kv_layer l[32];
    char path[512], text[64], got[512];
    struct infer_model *m;
    int of[INFER_KV_KINDS] = {0};
    assert_ok(infer_model_open(&m, test_path(path, sizeof path, "golden/hf/deepseek_v4"), NULL));
    const int n = infer_kv_layers(m, l, 32);
    assert_int_equal(n, m->m->n_store);
    for (int i = 0; i < n; i++) {
        int changed = 0;
        snprintf(text, sizeof text, "%s%d:q8_0", word[l[i].kind], l[i].layer);
        said(m, text, got);
        for (const char *at = got; (at = strstr(at, "q8_0/q8_0")); at++) changed++;
        if (changed != 1) fail_msg("%s: %s", text, got);
        assert_true((l[i].kind == INFER_KV_INDEX) == (l[i].n_seen > 0));
        assert_true((l[i].kind == INFER_KV_HEADS) == (l[i].every == 1));
        of[l[i].kind]++;
    }
    for (int kind = 0; kind < INFER_KV_KINDS; kind++) assert_true(of[kind] > 0);
    infer_model_close(m);
}

/* Fewer bits of index keys change which positions are seen, so nothing where all are. */
static void index_keys_matter_beyond_a_choice(void **state) {
    (void)state;
    enum { N = 64, VOCAB = 61, SEEN = 12 };
    static const char *const types[] = {"f32", "f32,index:q4_0"}, *const devices[] = {"ref", "cpu"};
    static float logits[2][2][VOCAB]; /* of types, at SEEN and at N positions */
    char path[512];
    struct infer_model *m;
    assert_ok(infer_model_open(&m, test_path(path, sizeof path, "golden/hf/glm_moe_dsa"), NULL));
    for (int d = 0; d < 2; d++) {
        for (int k = 0; k < 2; k++) {
            struct infer_engine_options o = options_of(devices[d], types[k]);
            struct infer_engine *e;
            int seq;
            o.all_logits = true;
            assert_ok(infer_engine_create(&e, m, &o));
            assert_ok(infer_seq_open(e, &seq));
            compute_steps(e, seq, 0, SEEN, SEEN, false, VOCAB, logits[k][0]);
            compute_steps(e, seq, SEEN, N, N, false, VOCAB, logits[k][1]);
            infer_engine_free(e);
        }
        assert_memory_equal(logits[0][0], logits[1][0], sizeof logits[0][0]);
        if (memcmp(logits[0][1], logits[1][1], sizeof logits[0][1]) == 0)
            fail_msg("%s: index keys of q4_0 choose as those of f32", devices[d]);
    }
    infer_model_close(m);
}

static void what_is_no_type(void **state) {
    (void)state;
    struct infer_model *m = synth_model(&(struct synth_options){.shape = "tiny", .type = "q8_0", .seed = 3});
    static const char *const bad[] = {"",
                                      "q8_1",
                                      "q8_0/",
                                      "/q8_0",
                                      "q8_0/q8_0/q8_0",
                                      "q8_0,",
                                      "0-:f16",
                                      "2-1:f16",
                                      "-1:f16",
                                      "half:f16",
                                      "0:",
                                      "99:f16",
                                      "0-99:f16",
                                      "auto:",
                                      "auto:x",
                                      "auto:-1",
                                      "autof16",
                                      "1:auto",
                                      "index:q8_0/q4_0",
                                      "entries.0:f16/f32",
                                      "index.:f16",
                                      "index.full:f16",
                                      "index3:f16",
                                      "index.0-99:f16",
                                      "full.0:f16",
                                      "99999999999999999999:f16"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct infer_engine_options o = options_of("cpu", bad[i]);
        struct infer_engine *e;
        if (infer_engine_create(&e, m, &o) != INFER_E_INPUT)
            fail_msg("'%s' is a type: %s", bad[i], infer_error());
        if (!strstr(infer_error(), ".kv_type")) fail_msg("'%s': %s", bad[i], infer_error());
    }
    infer_model_close(m);
}

/* Pages of all layers, by hand, are what the plan says and what the engine has. */
static void bytes_planned_are_taken(void **state) {
    (void)state;
    static const char *const shapes[] = {"tiny", "tiny-gemma4", "tiny-latent", "tiny-delta"},
                             *const types[] = {"f16", "q8_0/q4_0", "f16,window:q8_0/q4_0",
                                               "q4_0/f32,0:f8/q5_0"},
                             *const devices[] = {"ref", "cpu"};
    for (int i = 0; i < 4 * 4 * 2; i++) {
        const char *text = types[i / 4 % 4];
        struct infer_model *m =
            synth_model(&(struct synth_options){.shape = shapes[i % 4], .type = "q8_0", .seed = 3});
        const struct infer_engine_options o = options_of(devices[i / 16], text);
        struct infer_plan_report r;
        struct infer_engine *e;
        struct infer_engine_info info;
        struct arena arena = {0};
        enum kv_type all;
        const struct kv_types *of;
        size_t want = 0;
        assert_ok(infer_plan(m, &o, NULL, &r));
        assert_ok(infer_engine_create(&e, m, &o));
        infer_engine_info(e, &info);
        assert_ok(kv_types_read(&all, &of, &arena, m->m, text, KV_F16));
        assert_string_equal(info.kv_type, of ? "mixed" : kv_type_name(all));
        for (int k = 0; k < m->m->n_store; k++) {
            const struct kv_store *s = &m->m->store[k];
            const size_t row = kv_row_bytes(of ? of[k].k : all, s->head_dim_k) +
                               kv_row_bytes(of ? of[k].v : all, s->v_in_k ? 0 : s->head_dim_v);
            want += (size_t)e->plan.kv_group[s->group].n_page * KV_PAGE * (size_t)s->n_kv_head * row;
        }
        for (int k = 0; k < m->m->n_state; k++)
            want += (size_t)last_part(e)->config.n_state_slot * (size_t)m->m->state[k].n_elem * sizeof(float);
        if (info.kv_bytes != want || r.size.kv_bytes != want)
            fail_msg("%s %s: %zu bytes by hand, %zu planned, %zu taken", shapes[i % 4], text, want,
                     (size_t)r.size.kv_bytes, (size_t)info.kv_bytes);
        arena_free(&arena);
        infer_plan_free(&r);
        infer_engine_free(e);
        infer_model_close(m);
    }
}

/* A file beside a model: the cheapest choice under a bound, and no other model's. */
static void auto_is_what_was_measured(void **state) {
    (void)state;
    static const struct infer_kv_choice choice[] = {{0, 1000, "f16"},
                                                    {0.001, 700, "q8_0/f16"},
                                                    {0.009, 400, "q8_0/q5_0"},
                                                    {0.02, 300, "q4_0"},
                                                    {0.3, 800, "f8"}};
    char path[SYNTH_PATH], file[KV_TUNED_PATH], got[256];
    struct infer_model *m, *other;
    struct infer_engine *e;
    synth_temporary(&(struct synth_options){.shape = "tiny", .type = "q8_0", .seed = 3}, path);
    assert_ok(infer_model_open(&m, path, NULL));
    struct infer_engine_options o = options_of("cpu", "auto");
    kv_tuned_path(file, m->m);
    assert_int_equal(infer_engine_create(&e, m, &o), INFER_E_IO);
    assert_non_null(strstr(infer_error(), "infer kvtune"));
    assert_non_null(strstr(infer_error(), file));
    assert_ok(infer_kv_choices_save(m, NULL, 0.01, "a text", 256, 128, choice, 5));
    static const struct {
        const char *text, *first;
    } cases[] = {{"auto", "q8_0/q5_0 "},
                 {"auto:0.02", "q4_0/q4_0 "},
                 {"AUTO:1", "q4_0/q4_0 "},
                 {"auto:0.001", "q8_0/f16 "},
                 {"auto:0", "f16/f16 "}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_memory_equal(said(m, cases[i].text, got), cases[i].first, strlen(cases[i].first));
    assert_ok(infer_engine_create(&e, m, &o));
    infer_engine_free(e);
    assert_ok(infer_kv_choices_save(m, NULL, 0.01, "a text", 256, 128, choice + 1, 1));
    o.kv_type = "auto:0.0001";
    assert_int_equal(infer_engine_create(&e, m, &o), INFER_E_INPUT);
    assert_non_null(strstr(infer_error(), "nearest has 0.001"));
    other = synth_model(&(struct synth_options){.shape = "tiny", .type = "q8_0", .seed = 4});
    assert_ok(infer_kv_choices_save(other, file, 0.01, "a text", 256, 128, choice, 5));
    o.kv_type = "auto";
    assert_int_equal(infer_engine_create(&e, m, &o), INFER_E_INPUT);
    assert_non_null(strstr(infer_error(), "of another file"));
    static const char *const broken[] = {"", "{", "[]", "{\"format\": 2, \"choices\": []}",
                                         "{\"format\": 1}"};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        FILE *f = fopen(file, "w");
        assert_non_null(f);
        fputs(broken[i], f);
        fclose(f);
        assert_int_equal(infer_engine_create(&e, m, &o), INFER_E_INPUT);
    }
    unlink(file);
    unlink(path);
    infer_model_close(other);
    infer_model_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts),
        cmocka_unit_test(index_and_entries),
        cmocka_unit_test(what_layers_keep),
        cmocka_unit_test(index_keys_matter_beyond_a_choice),
        cmocka_unit_test(what_is_no_type),
        cmocka_unit_test(bytes_planned_are_taken),
        cmocka_unit_test(auto_is_what_was_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
