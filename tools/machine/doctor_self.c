#include "tools/machine/doctor_self.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/host.h"
#include "base/mem.h"
#include "infer.h"
#include "tools/file/synth.h"

enum { PROMPT = 33, DECODED = 4, ROWS = 1 + DECODED, CTX = 64 };
/* Products of whole numbers have an error of some hundredths; what is wrong in a kernel is off by tenths at least. */
static const double APART = 0.05;
static const struct {
    const char *shape, *type;
} models[] = {{"tiny", "q4_k_m"}, {"tiny-moe", "q8_0"}, {"tiny-delta", "f16"}};
enum { N_MODEL = sizeof models / sizeof *models };

double self_apart(const float *ref, const float *got, int n_row, int n_vocab, int *at) {
    double most = 0;
    *at = 0;
    for (int t = 0; t < n_row; t++) {
        const float *a = ref + (size_t)t * (size_t)n_vocab, *b = got + (size_t)t * (size_t)n_vocab;
        double mean = 0, var = 0, err = 0;
        for (int i = 0; i < n_vocab; i++) mean += (double)a[i] / n_vocab;
        for (int i = 0; i < n_vocab; i++) var += ((double)a[i] - mean) * ((double)a[i] - mean);
        for (int i = 0; i < n_vocab; i++)
            err += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        const double apart = isfinite(err) ? sqrt(err / var) : INFINITY;
        if (apart > most) most = apart, *at = t;
    }
    return most;
}

enum infer_status self_compare(const float *ref, const float *got, int n_row, int n_vocab, const char *arch,
                               double *apart) {
    int at;
    *apart = self_apart(ref, got, n_row, n_vocab, &at);
    if (*apart <= APART) return INFER_OK;
    return err_set(
        INFER_E_DEVICE,
        "logits of a tiny %s are %.2g standard deviations from the reference's, %d tokens behind a prompt of %d",
        arch, *apart, at, PROMPT);
}

/* Logits of the prompt's last row and of rows decoded behind it: out[ROWS][n_vocab], which the caller frees. */
static enum infer_status logits_of(const struct infer_model *m, int n_vocab, const char *device,
                                   float **out) {
    const struct infer_engine_options o = {.device = device, .ctx = CTX, .gpu_layers = -1, .cpu_experts = -1};
    struct infer_row row[PROMPT];
    struct infer_output got;
    struct infer_engine *e = NULL;
    int seq;
    *out = mem_alloc(ROWS * (size_t)n_vocab * sizeof **out);
    if (!*out) return err_set(INFER_E_MEMORY, "out of memory for logits");
    enum infer_status st = infer_engine_create(&e, m, &o);
    if (!st) st = infer_seq_open(e, &seq);
    for (int t = 0; t < ROWS && !st; t++) {
        const int n = t ? 1 : PROMPT, from = t ? PROMPT + t - 1 : 0;
        for (int i = 0; i < n; i++)
            row[i] = (struct infer_row){.id = (from + i) * 7 % n_vocab,
                                        .pos = from + i,
                                        .seq = seq,
                                        .decode = t > 0,
                                        .want = i + 1 == n ? INFER_WANT_LOGITS : INFER_WANT_NONE};
        st = infer_step(e, row, n, &got);
        if (!st) memcpy(*out + (size_t)t * (size_t)n_vocab, got.logits[0], (size_t)n_vocab * sizeof **out);
    }
    infer_engine_free(e);
    return st;
}

/* A model in a file that is gone when it is open. */
static enum infer_status open_tiny(int which, struct infer_model **out) {
    const char *tmp = getenv("TMPDIR");
    char path[4096];
    struct synth_report report;
    *out = NULL;
    snprintf(path, sizeof path, "%s/infer-doctor-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    const int fd = mkstemp(path);
    if (fd < 0) return err_set(INFER_E_IO, "%s cannot be written", path);
    close(fd);
    enum infer_status st = synth_write(
        &(struct synth_options){.shape = models[which].shape, .type = models[which].type, .path = path},
        &report);
    if (!st) st = infer_model_open(out, path, NULL);
    unlink(path);
    return st;
}

/* The largest distance of a device on one model; ref: the reference's logits, made where *ref is NULL. */
static enum infer_status apart_on(const struct infer_model *m, const char *device, float **ref,
                                  double *apart) {
    struct infer_model_info info;
    float *got = NULL;
    infer_model_info(m, &info);
    enum infer_status st = *ref ? INFER_OK : logits_of(m, info.n_vocab, "ref", ref);
    if (!st) st = logits_of(m, info.n_vocab, device, &got);
    if (!st) st = self_compare(*ref, got, ROWS, info.n_vocab, info.arch, apart);
    mem_free(got);
    return st;
}

static json_t *one_device(const char *device, struct infer_model *const *m, float **ref) {
    const double begin = host_seconds();
    double most = 0, apart = 0;
    enum infer_status st = INFER_OK;
    for (int i = 0; i < N_MODEL && !st; i++) {
        st = m[i] ? apart_on(m[i], device, &ref[i], &apart) : INFER_OK;
        if (apart > most) most = apart;
    }
    return json_pack("{s:b, s:f, s:f, s:s}", "well", !st, "apart", isfinite(most) ? most : -1, "seconds",
                     host_seconds() - begin, "problem", st ? err_message() : "");
}

json_t *doctor_self(const json_t *devices) {
    struct infer_model *m[N_MODEL] = {0};
    float *ref[N_MODEL] = {0};
    json_t *j = json_object(), *v;
    const char *name;
    enum infer_status st = INFER_OK;
    for (int i = 0; i < N_MODEL && !st; i++) st = open_tiny(i, &m[i]);
    json_object_foreach((json_t *)devices, name, v) {
        if (!json_is_true(json_object_get(v, "usable"))) continue;
        json_object_set_new(j, name,
                            st ? json_pack("{s:n, s:s}", "well", "problem", err_message())
                               : one_device(name, m, ref));
    }
    for (int i = 0; i < N_MODEL; i++) mem_free(ref[i]), infer_model_close(m[i]);
    return j;
}

void print_self(const json_t *self) {
    const char *name, *begin = "self test ";
    json_t *v;
    json_object_foreach((json_t *)self, name, v) {
        const char *problem = json_string_value(json_object_get(v, "problem"));
        if (json_is_true(json_object_get(v, "well")))
            printf(
                "%s %s computes what the reference does: %d models, at most %.4f of a standard deviation apart, %.2f s\n",
                begin, name, N_MODEL, json_number_value(json_object_get(v, "apart")),
                json_number_value(json_object_get(v, "seconds")));
        else if (json_is_null(json_object_get(v, "well")))
            printf("%s of %s: not made: %s\n", begin, name, problem);
        else
            printf("%s %s is WRONG: %s; choose another --device, and tell the maintainers what doctor says\n",
                   begin, name, problem);
        begin = "          ";
    }
}

int doctor_self_failed(const json_t *self) {
    const char *name;
    json_t *v;
    int n = 0;
    json_object_foreach((json_t *)self, name, v) n += json_is_false(json_object_get(v, "well"));
    return n;
}
