/* Folders of PEFT: adapter_config.json and adapter_model.safetensors. Modules have the names of Hugging Face, behind "base_model.model.". */
#include "base/stbds.h"
#include "files/adapterfile.h"
#include "files/hf/hf_names.h"
#include "files/hf/safetensors.h"
#include "files/json.h"
#include "files/textfile.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char CONFIG[] = "adapter_config.json", WEIGHTS[] = "adapter_model.safetensors";

struct peft {
    struct adapterfile *f;
    const json_t *root;
    const char *path; /* of the configuration */
};

/* ---- the configuration ---- */

/* What a key asks for that is more than pairs; each is let through where it asks for nothing. */
static const struct {
    const char *key, *what;
} beyond[] = {{"use_dora", "DoRA (magnitudes of columns) is not applied"},
              {"use_qalora", "QA-LoRA (pooled inputs) is not applied"},
              {"modules_to_save", "whole modules beside the pairs are not applied"},
              {"lora_bias", "biases of pairs are not applied"},
              {"layer_replication", "repeated layers are not made"},
              {"target_parameters", "pairs of parameters are not applied, those of modules are"},
              {"trainable_token_indices", "tokens of their own are not applied"},
              {"alora_invocation_tokens", "it holds from some tokens on alone, which is not done here"},
              {"corda_config", "it belongs to a base that was changed with it"}};

static bool asks(const json_t *v) {
    if (!v || json_is_null(v) || json_is_false(v)) return false;
    if (json_is_array(v)) return json_array_size(v) != 0;
    if (json_is_object(v)) return json_object_size(v) != 0;
    return true;
}

/* Pairs that begin as parts of the base are of a base without these parts, unless they were converted. */
static enum infer_status check_start(const struct peft *p) {
    static const char *const changed[] = {"pissa", "olora", "corda", "loftq", "lora_ga"};
    const char *how = json_text_of(p->root, "init_lora_weights");
    for (size_t i = 0; i < sizeof changed / sizeof *changed; i++)
        if (strncmp(how, changed[i], strlen(changed[i])) == 0)
            return err_set(INFER_E_UNSUPPORTED,
                           "%s: init_lora_weights is '%.40s': it belongs to a base that was changed with it; "
                           "PEFT's save_pretrained converts it (path_initial_model_for_weight_conversion)",
                           p->path, how);
    return INFER_OK;
}

static enum infer_status check_config(const struct peft *p) {
    const char *type = json_text_of(p->root, "peft_type"), *bias = json_text_of(p->root, "bias");
    if (strcmp(type, "LORA") != 0)
        return err_set(INFER_E_UNSUPPORTED, "%s: peft_type is '%.40s': only LORA is applied", p->path, type);
    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++)
        if (asks(json_object_get(p->root, beyond[i].key)))
            return err_set(INFER_E_UNSUPPORTED, "%s: %s: %s", p->path, beyond[i].key, beyond[i].what);
    if (*bias && strcmp(bias, "none") != 0)
        return err_set(INFER_E_UNSUPPORTED, "%s: bias is '%.40s': only 'none' is applied", p->path, bias);
    if (!json_is_number(json_object_get(p->root, "lora_alpha")))
        return err_set(INFER_E_INPUT, "%s: lora_alpha is no number", p->path);
    return check_start(p);
}

/* alpha_pattern's keys are regular expressions; those that are ends of names, "layers.0.self_attn.q_proj", are read. source: PEFT,
 * get_pattern_key */
static enum infer_status alpha_of(const struct peft *p, const char *module, double *out) {
    const char *key;
    json_t *v, *pattern = json_object_get(p->root, "alpha_pattern");
    *out = json_number_value(json_object_get(p->root, "lora_alpha"));
    json_object_foreach(pattern, key, v) {
        const size_t n = strlen(module), m = strlen(key);
        for (const char *c = key; *c; c++)
            if (!isalnum((unsigned char)*c) && *c != '_' && *c != '.')
                return err_set(INFER_E_UNSUPPORTED,
                               "%s: alpha_pattern '%.80s' is an expression; ends of names are read", p->path,
                               key);
        if (n < m || strcmp(module + n - m, key) != 0 || (n > m && module[n - m - 1] != '.')) continue;
        *out = json_number_value(v);
        break;
    }
    return isfinite(*out) ? INFER_OK : err_set(INFER_E_INPUT, "%s: an alpha is %g", p->path, *out);
}

static enum infer_status scale_of(const struct peft *p, const char *module, int64_t r, float *out) {
    double alpha;
    TRY(alpha_of(p, module, &alpha));
    const bool root = json_is_true(json_object_get(p->root, "use_rslora"));
    *out = (float)(alpha / (root ? sqrt((double)r) : (double)r));
    return INFER_OK;
}

/* ---- tensors ---- */

/* "base_model.model.MODULE.lora_A.weight", or with the adapter's name in front of "weight" as older versions wrote it. */
static enum infer_status split_name(const struct peft *p, const char *name, char module[320], bool *is_b) {
    const char *begin = name, *at = strstr(name, ".lora_A."), *b = strstr(name, ".lora_B.");
    if (strstr(name, "lora_magnitude_vector"))
        return err_set(INFER_E_UNSUPPORTED, "%s: tensor %.200s: DoRA is not applied", p->f->path, name);
    if (!at) at = b;
    const char *end = at ? at + strlen(".lora_A.") : name;
    if (!at || (strcmp(end, "weight") != 0 && strcmp(end, "default.weight") != 0))
        return err_set(
            INFER_E_UNSUPPORTED,
            "%s: tensor %.200s is neither MODULE.lora_A.weight nor MODULE.lora_B.weight: only pairs of "
            "matrices are applied",
            p->f->path, name);
    if (strncmp(begin, "base_model.model.", strlen("base_model.model.")) == 0)
        begin += strlen("base_model.model.");
    *is_b = b != NULL;
    snprintf(module, 320, "%.*s", (int)(at - begin), begin);
    return INFER_OK;
}

/* "blk.0.ffn_gate.3.weight" is expert 3 of "blk.0.ffn_gate_exps.weight". */
static int expert_of(char name[320]) {
    int layer, expert = -1, used = 0;
    char part[64], whole[128];
    if (sscanf(name, "blk.%6d.%60[a-z_].%6d.weight%n", &layer, part, &expert, &used) != 3 || !used ||
        name[used])
        return -1;
    snprintf(whole, sizeof whole, "blk.%d.%s_exps.weight", layer, part);
    snprintf(name, 320, "%s", whole);
    return expert;
}

static enum infer_status take(const struct peft *p, struct strmap *index, const struct arch *a, int n_layer,
                              const struct tensor *t) {
    char module[320], name[360], target[320];
    struct hf_target to;
    bool is_b = false;
    TRY(split_name(p, t->name, module, &is_b));
    snprintf(name, sizeof name, "%s.weight", module);
    hf_target(&to, a, name, n_layer);
    if (!to.known || !*to.name)
        return err_set(INFER_E_UNSUPPORTED, "%s: tensor %.200s: %s has no such module", p->f->path, t->name,
                       a->name);
    if (to.op != HF_SAME && to.op != HF_PLAIN && to.op != HF_EXPERT && to.op != HF_TRANSPOSE)
        return err_set(INFER_E_UNSUPPORTED,
                       "%s: tensor %.200s: what it is added to is rearranged when it is read", p->f->path,
                       t->name);
    snprintf(target, sizeof target, "%s", to.name);
    const int expert = expert_of(target);
    struct adapter_pair *pair;
    TRY(adapterfile_put(p->f, index, target, expert, is_b, t, &pair));
    return scale_of(p, module, t->shape[is_b ? 3 : 2], &pair->scale); /* r: A's rows, B's columns */
}

static enum infer_status file_path(const struct adapterfile *f, const char *name, char *out, size_t n) {
    return snprintf(out, n, "%s/%s", f->path, name) < (int)n
               ? INFER_OK
               : err_set(INFER_E_INPUT, "%.200s..: the path is too long", f->path);
}

static enum infer_status read_weights(const struct peft *p, const struct arch *a, int n_layer) {
    struct adapterfile *f = p->f;
    struct strmap *index;
    char path[4096];
    TRY(file_path(f, WEIGHTS, path, sizeof path));
    if (mapfile_absent(path))
        return err_set(INFER_E_INPUT,
                       "%s: the folder holds no %s (adapter_model.bin is a pickle, which is not read)",
                       f->path, WEIGHTS);
    TRY(mapfile_open(&f->map, path, false));
    TRY(safetensors_read(&f->map, &f->arena, NULL, &f->tensor, &f->n_tensor));
    TRY(tensorfile_check_holes(&f->map, f->tensor, f->n_tensor, &(struct tensorfile_options){0}));
    f->pair = arena_alloc(&f->arena, (f->n_tensor + 1) * sizeof *f->pair);
    if (!f->pair) return err_set(INFER_E_MEMORY, "%s: out of memory", f->path);
    TRY(strmap_new(&index, &f->arena));
    for (size_t i = 0; i < f->n_tensor; i++) TRY(take(p, index, a, n_layer, &f->tensor[i]));
    return INFER_OK;
}

enum infer_status peft_read(struct adapterfile *f, const struct arch *a, int n_layer) {
    struct mapfile m;
    char path[4096];
    json_t *root;
    bool there;
    TRY(file_path(f, CONFIG, path, sizeof path));
    TRY(text_map(&m, path, TEXT_CONFIG, &there));
    if (!there) return err_set(INFER_E_INPUT, "%s: the folder holds no %s", f->path, CONFIG);
    enum infer_status s = json_read_python(&root, path, text_of_map(&m), m.size, JSON_REJECT_DUPLICATES);
    mapfile_close(&m);
    if (s) return s;
    const struct peft p = {f, root, path};
    s = check_config(&p);
    if (!s) s = read_weights(&p, a, n_layer);
    json_decref(root);
    return s;
}
