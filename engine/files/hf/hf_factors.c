/* Factors of Falcon-H1: numbers of config.json that GGUF has in the rows of matrices. source: modeling_falcon_h1 of transformers */
#include "arch/arch.h"
#include "files/hf/hf_config.h"
#include "files/hf/hf_factors.h"

#include <math.h>
#include <string.h>

/* In the order of hf_keys.def from HEAD_FACTOR on, but for the first. */
enum factor {
    EMBEDDING,
    HEAD,
    ATTENTION_IN,
    ATTENTION_OUT,
    KEY,
    SSM_IN,
    SSM_OUT,
    MLP_GATE,
    MLP_DOWN,
    SSM_PART, /* of z, x, B, C and the step */
    N_FACTOR = SSM_PART + 5
};

static void read_list(struct config *c, enum hf_key k, size_t n, float *out) {
    const json_t *list = get_json(c, k);
    if (list && (!json_is_array(list) || json_array_size(list) != n))
        key_wrong(c, k, "a list of its numbers");
    for (size_t i = 0; i < n; i++) {
        out[i] = 1;
        if (list && !c->status)
            c->status = config_f32(c, key_name(c, k), json_array_get(list, i), NAN, &out[i]);
    }
}

enum infer_status config_factors(struct config *c) {
    if (!key_reads(c, K_SSM_FACTORS)) return INFER_OK;
    float *f = get_room(c, N_FACTOR * sizeof *f);
    TRY(c->status);
    f[EMBEDDING] = get_f32(c, K_EMBD_FACTOR);
    for (int i = HEAD; i <= SSM_OUT; i++) f[i] = get_f32(c, K_HEAD_FACTOR + (enum hf_key)(i - HEAD));
    read_list(c, K_MLP_FACTORS, 2, f + MLP_GATE);
    read_list(c, K_SSM_FACTORS, 5, f + SSM_PART);
    c->out->factor = f;
    return c->status;
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
