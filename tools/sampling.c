#include "tools/sampling.h"
#include "base/status.h"
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

/* The keys are llama.cpp's (gguf-py/gguf/constants.py, Keys.General); own: where the file has none of them. Small models loop without
 * the penalty: docs/program.md has the figures. */
static const struct {
    const char *option, *key, *own;
    size_t real, whole; /* where it is in struct infer_sample_params; 0: it is the other one */
} rows[] = {
#define REAL(field)  offsetof(struct infer_sample_params, field) + 1, 0
#define WHOLE(field) 0, offsetof(struct infer_sample_params, field) + 1
    {"temp", "general.sampling.temp", "0.5", REAL(temp)},
    {"top-k", "general.sampling.top_k", NULL, WHOLE(top_k)},
    {"top-p", "general.sampling.top_p", NULL, REAL(top_p)},
    {"min-p", "general.sampling.min_p", "0.1", REAL(min_p)},
    {"repeat-penalty", "general.sampling.penalty_repeat", "1.1", REAL(repeat_penalty)},
    {"repeat-last", "general.sampling.penalty_last_n", NULL, WHOLE(repeat_last)},
    {"xtc-probability", "general.sampling.xtc_probability", NULL, REAL(xtc_probability)},
    {"xtc-threshold", "general.sampling.xtc_threshold", NULL, REAL(xtc_threshold)},
};
enum { N_ROW = sizeof rows / sizeof *rows };

bool sampling_from_file(const struct infer_model *m) {
    double value;
    bool any = false;
    for (int i = 0; i < N_ROW; i++) any |= infer_model_number(m, rows[i].key, &value);
    return any;
}

static void value_of(const struct infer_model *m, bool any, int i, char text[32]) {
    double value;
    *text = 0;
    if (infer_model_number(m, rows[i].key, &value))
        snprintf(text, 32, "%g", value);
    else if (any && i == 0)
        snprintf(text, 32, "1"); /* generation_config.json leaves 1 out */
    else if (!any && rows[i].own)
        snprintf(text, 32, "%s", rows[i].own);
}

const char *sampling_setting(const struct infer_model *m, int i, char text[32]) {
    if (i >= N_ROW) return NULL;
    value_of(m, sampling_from_file(m), i, text);
    return rows[i].option;
}

struct infer_sample_params sampling_params(const struct infer_model *m) {
    struct infer_sample_params p = infer_sample_defaults();
    const bool any = sampling_from_file(m);
    for (int i = 0; i < N_ROW; i++) {
        char text[32];
        value_of(m, any, i, text);
        if (!*text) continue;
        const double x = strtod(text, NULL);
        if (rows[i].real) *(float *)(void *)((char *)&p + rows[i].real - 1) = (float)x;
        if (rows[i].whole) *(int *)(void *)((char *)&p + rows[i].whole - 1) = (int)x;
    }
    return infer_sample_check(&p) ? infer_sample_defaults() : p;
}

uint64_t sampling_seed(void) {
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed) infer_bug("no random numbers");
    return seed >> 11;
}
