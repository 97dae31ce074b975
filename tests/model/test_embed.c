/* Encoders: tiny random models (scripts/goldens/encoders.py) make the vectors and scores that sentence-transformers makes, from their folder
 * and from the GGUF file that convert makes of it, each text alone and beside others, on one thread and two.
 * usage: test_embed [PATTERN]    the folders whose names match, * for anything */
#include "tests/lib/test.h"
#include "tests/lib/folder.h"
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
    const struct infer_engine_options o = {
        .device = device, .slots = slots, .threads = threads, .gpu_layers = -1};
    struct infer_engine *e;
    struct infer_sched *s;
    struct infer_model_info info;
    struct infer_request *r[MOST];
    struct infer_text text[MOST];
    infer_model_info(m, &info);
    assert_true(info.encoder);
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
            const json_t *want =
                json_array_get(json_object_get(g->root, g->scores ? "scores" : "vectors"), (size_t)i);
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

static void check_folder(void **state) {
    const char *name = *state;
    struct expected g;
    struct folder d;
    struct infer_model *m;
    struct quantize_report r;
    char file[256];
    expected_read(&g, name);
    assert_ok(infer_model_open(&m, g.path, NULL));
    check(&g, m, "folder", "ref", 5e-6);
    infer_model_close(m);
    folder_make(&d);
    assert_ok(quantize_file(
        &(struct quantize_options){.in = g.path, .out = folder_file(&d, file, "f32.gguf"), .type = "f32"},
        &r));
    assert_ok(infer_model_open(&m, file, NULL));
    check(&g, m, "GGUF", "cpu", 2e-5);
    infer_model_close(m);
    folder_remove(&d);
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
