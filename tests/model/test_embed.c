/* Encoders: tiny random models (scripts/goldens/encoders.py) make the vectors and scores that sentence-transformers makes, from their folder
 * and from the GGUF file that convert makes of it, each text alone and beside others, on one thread and two.
 * usage: test_embed [PATTERN]    the folders whose names match, * for anything */
#include "tests/lib/test.h"
#include "tests/lib/folder.h"
#include "tests/lib/gguf_copy.h"
#include "infer_request.h"
#include "tools/file/quantize.h"
#include <dirent.h>
#include <jansson.h>
#include <math.h>

enum { MOST = 32, WIDTH = 256 };

struct expected {
    const char *name;
    char path[512];
    json_t *root;
    int n; /* of texts or pairs */
    bool scores;
    const char *task;    /* whose adapter the vectors are of; NULL: of none */
    const char *vectors; /* under which name they are */
};

static void expected_read(struct expected *g, const char *name) {
    char file[256], whole[600];
    *g = (struct expected){.name = name};
    snprintf(file, sizeof file, "golden/embed/%s", name);
    test_path(g->path, sizeof g->path, file);
    snprintf(whole, sizeof whole, "%s/expected.json", g->path);
    g->root = json_load_file(whole, 0, NULL);
    assert_non_null(g->root);
    g->scores = json_object_get(g->root, "pairs") != NULL;
    g->n = (int)json_array_size(json_object_get(g->root, g->scores ? "pairs" : "texts"));
    assert_in_range(g->n, 2, MOST);
    g->task = json_string_value(json_object_get(g->root, "task"));
    g->vectors = g->scores ? "scores" : "vectors";
}

static void text_of(const struct expected *g, const struct infer_model *m, int i, struct infer_text *t) {
    const json_t *text = json_array_get(json_object_get(g->root, g->scores ? "pairs" : "texts"), (size_t)i);
    struct infer_model_info info;
    infer_model_info(m, &info);
    struct infer_text_options o = {.most = info.n_text};
    o.a = json_string_value(g->scores ? json_array_get(text, 0) : text);
    o.b = g->scores ? json_string_value(json_array_get(text, 1)) : NULL;
    o.n_a = strlen(o.a), o.n_b = o.b ? strlen(o.b) : 0;
    assert_ok(infer_text_ids(m, &o, t));
}

/* Vectors of length 1, or scores, of all texts: out[n][width]. slots: how many side by side. */
static int compute(const struct expected *g, const struct infer_model *m, const char *device, int slots,
                   int threads, float *out) {
    struct infer_engine *e;
    struct infer_sched *s;
    struct infer_model_info info;
    struct infer_request *r[MOST];
    struct infer_text text[MOST];
    infer_model_info(m, &info);
    assert_true(info.encoder || info.no_head);
    const struct infer_engine_options o = {.device = device,
                                           .slots = slots,
                                           .threads = threads,
                                           .gpu_layers = -1,
                                           .hidden = info.no_head,
                                           .kv_type = info.no_head ? "f32" : NULL};
    assert_in_range(info.n_vector, 1, WIDTH);
    assert_ok(infer_engine_create(&e, m, &o));
    assert_ok(infer_sched_open(&s, e, m));
    for (int i = 0; i < g->n; i++) {
        struct infer_request_params p = infer_request_defaults();
        text_of(g, m, i, &text[i]);
        p.ids = text[i].ids, p.n_id = text[i].n, p.n_first = text[i].n_first;
        p.make = infer_model_makes(&info);
        assert_ok(infer_request_new(&r[i], s, &p));
    }
    while (infer_sched_step(s)) continue;
    for (int i = 0; i < g->n; i++) {
        int n;
        double sum = 0;
        assert_ok(infer_request_status(r[i]));
        const float *made = infer_request_made(r[i], &n);
        assert_int_equal(n, info.n_vector);
        for (int k = 0; k < n; k++) sum += (double)made[k] * (double)made[k];
        for (int k = 0; k < n; k++)
            out[i * n + k] = g->scores ? made[k] : (float)((double)made[k] / sqrt(sum));
        infer_request_free(r[i]);
        infer_text_free(&text[i]);
    }
    infer_sched_close(s);
    infer_engine_free(e);
    return info.n_vector;
}

static double error_of(const struct expected *g, const float *got, int width) {
    double worst = 0;
    for (int i = 0; i < g->n; i++)
        for (int k = 0; k < width; k++) {
            const json_t *want = json_array_get(json_object_get(g->root, g->vectors), (size_t)i);
            if (!g->scores) want = json_array_get(want, (size_t)k);
            const double e = fabs(json_number_value(want) - (double)got[i * width + k]);
            if (!(e <= worst)) worst = e;
        }
    return worst;
}

static void check(const struct expected *g, const struct infer_model *m, const char *form, const char *device,
                  double tolerance) {
    float side[MOST * WIDTH], alone[MOST * WIDTH];
    const int width = compute(g, m, device, 5, 2, side);
    const double error = error_of(g, side, width);
    print_message("  %s on %s: %.1e\n", form, device, error);
    if (!(error <= tolerance))
        fail_msg("%s, %s on %s: off by %g, tolerance %g", g->name, form, device, error, tolerance);
    compute(g, m, device, 1, 1, alone);
    if (memcmp(side, alone, (size_t)(g->n * width) * sizeof *side) != 0)
        fail_msg("%s, %s on %s: a text alone and on one thread has other bits", g->name, form, device);
}

/* The gate beside an up matrix; NULL: t is none, or has none. */
static const struct tensor *gate_of(const struct tensorfile *f, const struct tensor *t) {
    char name[64];
    int layer, used = 0;
    if (sscanf(t->name, "blk.%3d.ffn_up.weight%n", &layer, &used) != 1 || !used) return NULL;
    snprintf(name, sizeof name, "blk.%d.ffn_gate.weight", layer);
    return tensorfile_find(f, name);
}

/* The same with gate and up as one tensor, as llama.cpp's converter has them: of code up first. */
static void write_fused(const char *from, const char *to) {
    struct tensorfile *f;
    struct gguf_writer *w;
    assert_ok(tensorfile_open(&f, from, NULL));
    assert_ok(gguf_writer_open(&w, to));
    const bool up_first = tensorfile_find(f, "blk.0.attn_norm_2.weight");
    for (size_t i = 0; i < f->n_meta; i++) gguf_writer_meta(w, &f->meta[i]);
    for (size_t i = 0; i < f->n_tensor; i++) {
        struct tensor t = f->tensor[i];
        if (strstr(t.name, "ffn_gate.")) continue;
        if (gate_of(f, &t)) t.shape[2] *= 2;
        gguf_writer_tensor(w, t.name, t.type, t.n_dim, t.shape);
    }
    assert_ok(gguf_writer_begin(w));
    for (size_t i = 0; i < f->n_tensor; i++) {
        const struct tensor *t = &f->tensor[i], *gate = gate_of(f, t);
        if (strstr(t->name, "ffn_gate.")) continue;
        if (gate && !up_first) assert_ok(gguf_writer_data(w, gate->data, gate->bytes));
        assert_ok(gguf_writer_data(w, t->data, t->bytes));
        if (gate && up_first) assert_ok(gguf_writer_data(w, gate->data, gate->bytes));
    }
    assert_ok(gguf_writer_close(w));
    tensorfile_close(f);
}

static void check_forms(const struct expected *g) {
    const struct infer_model_options o = {.task = g->task};
    struct folder d;
    struct infer_model *m;
    struct quantize_report r;
    char file[256];
    assert_ok(infer_model_open(&m, g->path, &o));
    check(g, m, "folder", "ref", 5e-6);
    infer_model_close(m);
    folder_make(&d);
    const struct quantize_options to = {
        .in = g->path, .out = folder_file(&d, file, "f32.gguf"), .type = "f32", .task = g->task};
    assert_ok(quantize_file(&to, &r));
    assert_ok(infer_model_open(&m, file, NULL));
    check(g, m, "GGUF", "cpu", 2e-5);
    infer_model_close(m);
    if (strncmp(g->name, "jina-bert-v2", 12) == 0) {
        char fused[256];
        write_fused(file, folder_file(&d, fused, "fused.gguf"));
        assert_ok(infer_model_open(&m, fused, NULL));
        check(g, m, "GGUF with gate and up in one", "cpu", 2e-5);
        infer_model_close(m);
    }
    if (g->task) {
        assert_int_equal(infer_model_open(&m, file, &o), INFER_E_INPUT);
        assert_non_null(strstr(infer_error(), "a GGUF file has no adapters for tasks"));
    }
    folder_remove(&d);
}

static void check_folder(void **state) {
    const char *name = *state;
    struct expected g;
    expected_read(&g, name);
    check_forms(&g);
    if (g.task) {
        struct infer_model *m;
        assert_int_equal(infer_model_open(&m, g.path, &(struct infer_model_options){.task = "sorting"}),
                         INFER_E_INPUT);
        assert_non_null(strstr(infer_error(), "there are: retrieval.query, separation, text-matching"));
        g.task = NULL;
        g.vectors = "without";
        check_forms(&g);
    }
    json_decref(g.root);
}

static int is_folder(const struct dirent *d) { return !strchr(d->d_name, '.'); }

int main(int argc, char **argv) {
    struct dirent **list;
    char path[512];
    struct CMUnitTest test[64];
    const int n = scandir(test_path(path, sizeof path, "golden/embed"), &list, is_folder, alphasort);
    assert_in_range(n, 1, 64);
    for (int i = 0; i < n; i++)
        test[i] = (struct CMUnitTest){list[i]->d_name, check_folder, NULL, NULL, list[i]->d_name};
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const int failed = _cmocka_run_group_tests("embed", test, (size_t)n, NULL, NULL);
    for (int i = 0; i < n; i++) free(list[i]);
    free(list);
    return failed;
}
