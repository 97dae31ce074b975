/* Factors of Falcon-H1: numbers of config.json that GGUF has in the rows of matrices. source: modeling_falcon_h1 of transformers */
#include "arch/arch.h"
#include "files/hf_config.h"
#include "files/hf_factors.h"

#include <math.h>
#include <string.h>

enum factor {
    EMBEDDING,
    HEAD,
    ATTENTION_IN,
    ATTENTION_OUT,
    KEY,
    SSM_IN,
    SSM_OUT,
    N_NUMBER,
    MLP_GATE = N_NUMBER,
    MLP_DOWN,
    SSM_PART, /* of z, x, B, C and the step */
    N_FACTOR = SSM_PART + 5
};

static enum infer_status read_list(const struct config *c, const char *key, size_t n, float *out) {
    const json_t *list = json_object_get(c->root, key);
    if (!list || json_is_null(list)) return INFER_OK;
    if (!json_is_array(list) || json_array_size(list) != n)
        return config_wrong(c, key, "a list of its numbers");
    for (size_t i = 0; i < n; i++) TRY(config_f32(c, key, json_array_get(list, i), NAN, &out[i]));
    return INFER_OK;
}

enum infer_status config_factors(const struct config *c) {
    static const char *const key[N_NUMBER] = {
        "embedding_multiplier", "lm_head_multiplier", "attention_in_multiplier", "attention_out_multiplier",
        "key_multiplier",       "ssm_in_multiplier",  "ssm_out_multiplier"};
    if (!config_reads(c, "ssm_multipliers")) return INFER_OK;
    float *f = arena_alloc(c->keys->arena, N_FACTOR * sizeof *f);
    if (!f) return err_set(INFER_E_MEMORY, "out of memory: keys of a model");
    for (int i = 0; i < N_FACTOR; i++) f[i] = 1;
    for (int i = 0; i < N_NUMBER; i++) TRY(config_f32(c, key[i], json_object_get(c->root, key[i]), 1, &f[i]));
    TRY(read_list(c, "mlp_multipliers", 2, f + MLP_GATE));
    TRY(read_list(c, "ssm_multipliers", 5, f + SSM_PART));
    c->out->factor = f;
    return INFER_OK;
}

/* The factor of all rows of a tensor; 1: none. */
static float whole(const float *f, const char *name) {
    const struct {
        const char *part;
        float factor;
    } row[] = {{".attn_q.", f[ATTENTION_IN]},
               {".attn_k.", f[ATTENTION_IN] * f[KEY]},
               {".attn_v.", f[ATTENTION_IN]},
               {".attn_output.", f[ATTENTION_OUT]},
               {".ssm_in.", f[SSM_IN]},
               {".ssm_out.", f[SSM_OUT]},
               {".ffn_gate.", f[MLP_GATE]},
               {".ffn_down.", f[MLP_DOWN]},
               {"token_embd.weight", f[EMBEDDING]},
               {"output.weight", f[HEAD]}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const char *at = strstr(name, row[i].part);
        if (at && (*row[i].part == '.' || at == name)) return row[i].factor;
    }
    return 1;
}

enum infer_status hf_factor_rows(struct tensor *t, const float *f, const int *part, struct arena *arena) {
    const size_t rows = (size_t)t->shape[2];
    float all = whole(f, t->name);
    const bool in = strstr(t->name, ".ssm_in.") != NULL;
    bool any = all != 1;
    for (int i = 0; in && i < 5; i++) any |= f[SSM_PART + i] != 1;
    if (!any || t->n_dim != 2) return INFER_OK;
    float *factor = arena_alloc(arena, rows * sizeof *factor);
    if (!factor) return err_set(INFER_E_MEMORY, "out of memory for %s", t->name);
    for (size_t r = 0; r < rows; r++) factor[r] = all;
    for (size_t r = 0, i = 0, end = (size_t)part[0]; in && r < rows; r++) {
        while (r == end && i < 4) end += (size_t)part[++i];
        factor[r] = all * f[SSM_PART + i];
    }
    t->row_factor = factor;
    return INFER_OK;
}
