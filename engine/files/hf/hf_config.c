/* config.json -> the keys of GGUF. */
#include "models/registry.h"
#include "files/hf/hf_config.h"
#include "files/json.h"
#include "files/textfile.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- keys ---- */

void hf_put(struct hf_keys *k, const struct meta *m) {
    if (k->status) return;
    if (k->n == k->room) {
        size_t room = k->room ? 2 * k->room : 64;
        struct meta *grown = arena_alloc(k->arena, room * sizeof *grown);
        if (!grown) {
            k->status = err_set(INFER_E_MEMORY, "out of memory: keys of a model");
            return;
        }
        if (k->n) memcpy(grown, k->meta, k->n * sizeof *grown);
        k->meta = grown;
        k->room = room;
    }
    k->meta[k->n++] = *m;
}

/* "arch.name" or "name" with n bytes of value; elem: of an array, else type again. */
static void put_value(struct hf_keys *k, const char *arch, const char *name, enum meta_type type,
                      enum meta_type elem, const void *value, size_t n) {
    char key[160];
    int len = snprintf(key, sizeof key, "%s%s%s", arch ? arch : "", arch ? "." : "", name);
    char *copy = arena_strndup(k->arena, key, (size_t)len), *raw = arena_strndup(k->arena, value, n);
    struct str *s = arena_alloc(k->arena, sizeof *s);
    if (!copy || !raw || !s) {
        if (!k->status) k->status = err_set(INFER_E_MEMORY, "out of memory: keys of a model");
        return;
    }
    *s = (struct str){raw, n};
    hf_put(k, &(struct meta){.key = {copy, (size_t)len},
                             .type = type,
                             .elem = elem,
                             .n = type != META_ARRAY  ? 1
                                  : elem == META_BOOL ? n
                                  : elem == META_I64  ? n / 8
                                                      : n / 4,
                             .raw = type == META_STRING ? NULL : (unsigned char *)raw,
                             .strings = type == META_STRING ? s : NULL});
}
void hf_put_u32(struct hf_keys *k, const char *arch, const char *name, uint32_t value) {
    put_value(k, arch, name, META_U32, META_U32, &value, sizeof value);
}
void hf_put_i32(struct hf_keys *k, const char *arch, const char *name, int32_t value) {
    put_value(k, arch, name, META_I32, META_I32, &value, sizeof value);
}
void hf_put_f32(struct hf_keys *k, const char *arch, const char *name, float value) {
    put_value(k, arch, name, META_F32, META_F32, &value, sizeof value);
}
void hf_put_bool(struct hf_keys *k, const char *arch, const char *name, bool value) {
    put_value(k, arch, name, META_BOOL, META_BOOL, &(uint8_t){value}, 1);
}
void hf_put_bools(struct hf_keys *k, const char *arch, const char *name, const uint8_t *value, size_t n) {
    put_value(k, arch, name, META_ARRAY, META_BOOL, value, n);
}
void hf_put_u32s(struct hf_keys *k, const char *arch, const char *name, const uint32_t *value, size_t n) {
    put_value(k, arch, name, META_ARRAY, META_U32, value, n * sizeof *value);
}
void hf_put_i64s(struct hf_keys *k, const char *arch, const char *name, const int64_t *value, size_t n) {
    put_value(k, arch, name, META_ARRAY, META_I64, value, n * sizeof *value);
}
void hf_put_i32s(struct hf_keys *k, const char *arch, const char *name, const int32_t *value, size_t n) {
    put_value(k, arch, name, META_ARRAY, META_I32, value, n * sizeof *value);
}
void hf_put_f32s(struct hf_keys *k, const char *arch, const char *name, const float *value, size_t n) {
    put_value(k, arch, name, META_ARRAY, META_F32, value, n * sizeof *value);
}
void hf_put_str(struct hf_keys *k, const char *arch, const char *name, const char *value, size_t len) {
    put_value(k, arch, name, META_STRING, META_STRING, value, len);
}

/* ---- architecture ---- */

/* "QwenModel" of "QwenForCausalLM": the same without its head. */
static bool is_body(const char *name, const char *class) {
    static const char body[] = "Model", whole[] = "ForCausalLM";
    const size_t n = strlen(name), m = strlen(class);
    return n > sizeof body - 1 && m > sizeof whole - 1 && n - (sizeof body - 1) == m - (sizeof whole - 1) &&
           strcmp(name + n - (sizeof body - 1), body) == 0 &&
           strcmp(class + m - (sizeof whole - 1), whole) == 0 &&
           memcmp(name, class, n - (sizeof body - 1)) == 0;
}

/* The classes under 'architectures' compute what this architecture does, with its head. */
static enum infer_status check_classes(const struct config *c) {
    const struct arch_hf *first = c->out->table->hf.models;
    const json_t *list = json_object_get(c->root, "architectures");
    size_t i;
    json_t *v;
    if (!list || json_is_null(list)) return INFER_OK;
    if (!json_is_array(list)) return config_wrong(c, "architectures", "a list of names");
    json_array_foreach(list, i, v) {
        const char *name = json_string_value(v);
        bool known = false;
        if (!name) return config_wrong(c, "architectures", "a list of names");
        for (const struct arch_hf *hf = first; hf->model_type; hf++) {
            c->out->body |= is_body(name, hf->class);
            known |= c->out->body || strcmp(hf->class, name) == 0;
        }
        if (!known)
            return err_set(INFER_E_UNSUPPORTED,
                           "%s: 'architectures' says %.64s, which is no language model of this kind (%s is): "
                           "its head or its code is another",
                           c->path, name, first->class);
    }
    return INFER_OK;
}

/* modelopt's older folders say it in a file of its own. */
static enum infer_status check_beside(const struct config *c) {
    json_t *root;
    if (!c->quant->path) return INFER_OK;
    TRY(json_read(&root, c->quant->path, text_of_map(c->quant), c->quant->size, JSON_REJECT_DUPLICATES));
    enum infer_status s = hf_packing_read(&c->out->packing, root, c->quant->path, c->ignore);
    json_decref(root);
    return s;
}

static enum infer_status check_weights(const struct config *c) {
    const json_t *quant = json_object_get(c->root, "quantization_config"),
                 *mlx = json_object_get(c->root, "quantization");
    if (json_is_object(mlx) && json_object_get(mlx, "group_size")) return hf_packing_mlx(mlx, c->path);
    if (!quant || json_is_null(quant) || (json_is_object(quant) && !json_object_size(quant)))
        return check_beside(c);
    const char *method = json_string_value(json_object_get(quant, "quant_method"));
    if (method && strcmp(method, "mxfp4") == 0 && config_reads(c, "quantization_config")) return INFER_OK;
    return hf_packing_read(&c->out->packing, quant, c->path, c->ignore);
}

/* The activation is the architecture's. */
static enum infer_status check_act(struct config *c) {
    static const char *const names[] = {[ACT_SILU] = "silu|swish|swiglu",
                                        [ACT_GELU_TANH] = "gelu_pytorch_tanh|gelu_new|gelu_fast|gelu_tanh",
                                        [ACT_RELU2] = "relu2|squared_relu",
                                        [ACT_GELU_ERF] = "gelu|gelu_python",
                                        [ACT_SWIGLU_OAI] = "silu|swish|swigluoai",
                                        [ACT_XIELU] = "xielu",
                                        [ACT_SILU_CLAMP] = "silu|swish",
                                        [ACT_SILU_LIMIT] = "silu|swish"};
    static const struct { /* of families whose classes take either */
        enum act_kind kind, other;
        const char *says;
    } gelu[] = {{ACT_GELU_TANH, ACT_GELU_ERF, "gelu_erf"}, {ACT_GELU_ERF, ACT_GELU_TANH, "gelu_tanh"}};
    const json_t *act = get_json(c, K_ACT);
    if (!act) return c->status;
    const struct arch *a = c->out->table;
    const char *name = json_string_value(act), *want = names[a->act];
    if (!name) return key_wrong(c, K_ACT, "a name");
    if (key_names(want, name, strlen(name)) || (a->hf.gelu_is_tanh && strcmp(name, "gelu") == 0))
        return INFER_OK;
    const bool either = a->keys && key_names(a->keys, "activation", strlen("activation"));
    for (size_t i = 0; either && i < sizeof gelu / sizeof *gelu; i++) {
        if (a->act != gelu[i].kind || !key_names(names[gelu[i].other], name, strlen(name))) continue;
        hf_put_str(c->keys, a->name, "activation", gelu[i].says, strlen(gelu[i].says));
        return INFER_OK;
    }
    return err_set(INFER_E_UNSUPPORTED, "%s: '%s' is '%.32s'; %.*s is supported", c->path, key_name(c, K_ACT),
                   name, (int)strcspn(want, "|"), want);
}

/* What the tower gives beside embeddings, and whether rows of a picture see each other. */
static void put_pictures(const struct config *c, const json_t *text) {
    const struct arch *a = c->out->table;
    const json_t *vision = json_object_get(c->root, "vision_config");
    const size_t n = json_array_size(json_object_get(vision, "deepstack_visual_indexes"));
    const char *both = json_string_value(json_object_get(text, "use_bidirectional_attention"));
    if (a->keys && key_names(a->keys, "n_deepstack_layers", strlen("n_deepstack_layers")) && n)
        hf_put_u32(c->keys, a->name, "n_deepstack_layers", (uint32_t)n);
    if (a->attn.both == BOTH_WINDOWED && !(both && strcmp(both, "vision") == 0))
        hf_put_bool(c->keys, a->name, "attention.causal_images", true);
}

/* The text part of a model for images too, its keys in the place of the whole; numbers that such files leave out. */
static enum infer_status open_text_part(struct config *c, bool whole) {
    const struct arch_hf *hf = c->out->table->hf.models;
    const char *type = json_string_value(json_object_get(c->root, "model_type"));
    json_t *text = json_object_get(c->root, "text_config"),
           *tied = json_object_get(c->root, "tie_word_embeddings");
    const char *inner = json_string_value(json_object_get(text, "model_type"));
    while (hf->model_type && strcmp(hf->model_type, type) != 0) hf++;
    for (const struct arch_hf *of = hf; inner && of->model_type; of++) /* a text part has several names */
        if (strcmp(of->model_type, type) == 0 && of->inner && strcmp(of->inner, inner) == 0) hf = of;
    const bool flat = !text && json_object_get(c->root, "num_hidden_layers"); /* as Qwen2-VL once had it */
    if (flat) put_pictures(c, c->root);
    if (hf->model_type && hf->inner && !flat) {
        if (!json_is_object(text)) return config_wrong(c, "text_config", "there");
        if (!inner || strcmp(inner, hf->inner) != 0)
            return err_set(INFER_E_UNSUPPORTED, "%s: 'text_config' is of a '%.40s', not a '%s'", c->path,
                           inner ? inner : "?", hf->inner);
        if (whole) TRY(check_weights(c));
        if (whole) TRY(config_check_keys(c));
        put_pictures(c, text);
        if (tied) json_object_set(text, "tie_word_embeddings", tied);
        json_incref(text);
        json_decref(c->root);
        c->root = text;
        log_line(LOG_NOTE, "%s: the part for images is left out", c->path);
    }
    for (const struct arch_default *d = c->out->table->hf.defaults; d && d->key; d++) {
        const json_t *v = json_object_get(c->root, d->key);
        if (!v || json_is_null(v)) json_object_set_new(c->root, d->key, hf_default(d));
    }
    return INFER_OK;
}

static enum infer_status read_arch(const struct config *c, bool vocab_only, bool head) {
    const char *type = json_string_value(json_object_get(c->root, "model_type"));
    if (!type) return config_wrong(c, "model_type", "there");
    const json_t *text = json_object_get(c->root, "text_config");
    const struct arch *a =
        head ? &arch_eagle3
             : arch_find_hf(type, json_string_value(json_object_get(text, "model_type")),
                            json_string_value(json_array_get(json_object_get(c->root, "architectures"), 0)));
    c->out->table = a;
    if (!a && !vocab_only) return arch_unsupported(c->path, type, strlen(type));
    if (a && a->hf.both_ways && json_is_true(json_object_get(c->root, "use_bidirectional_attention")))
        a = arch_find(a->hf.both_ways, strlen(a->hf.both_ways));
    if (a && a->hf.sparse && config_sparse(c->root)) a = arch_find(a->hf.sparse, strlen(a->hf.sparse));
    if (a && a->hf.rotary && config_rotary(c->root)) a = arch_find(a->hf.rotary, strlen(a->hf.rotary));
    c->out->table = a;
    const char *arch = a ? a->name : type;
    if (strlen(arch) >= sizeof c->out->arch)
        return config_wrong(c, "model_type", "a name of fewer than 64 bytes");
    strcpy(c->out->arch, arch);
    hf_put_str(c->keys, NULL, "general.architecture", arch, strlen(arch));
    return a && !vocab_only ? check_classes(c) : INFER_OK;
}

/* MiniCPM-V's folders have the text model's keys beside those for images, and which one it is in a version. */
static void part_minicpmv(json_t *root) {
    static const struct {
        double version;
        const char *type;
    } known[] = {{2.6, "qwen2"}, {4, "llama"}, {4.5, "qwen3"}};
    static const char *const own[] = {
        "architectures", "auto_map",   "batch_vision_input", "drop_vision_last_layer", "image_size",
        "model_type",    "patch_size", "query_num",          "slice_config",           "slice_mode",
        "use_image_id",  "version",    "vision_config",      "vision_batch_size",      "batch_3d_resampler"};
    const char *type = json_string_value(json_object_get(root, "model_type"));
    if (!type || strcmp(type, "minicpmv") != 0 || json_object_get(root, "text_config")) return;
    const double version = json_real_of(json_object_get(root, "version"));
    json_t *text = json_copy(root);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) json_object_del(text, own[i]);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (fabs(version - known[i].version) < 1e-6)
            json_object_set_new(text, "model_type", json_string(known[i].type));
    json_t *whole = json_copy(root);
    json_object_clear(root);
    json_object_set_new(root, "text_config", text);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        const bool kept = strcmp(own[i], "architectures") == 0 || strcmp(own[i], "model_type") == 0 ||
                          strcmp(own[i], "vision_config") == 0;
        if (kept) json_object_set(root, own[i], json_object_get(whole, own[i]));
    }
    json_decref(whole);
}

enum infer_status hf_config(struct hf_config *out, struct hf_keys *keys, const char *path, const char *json,
                            size_t n, const struct mapfile *quant, const struct tensorfile_options *options) {
    struct config c = {.path = path,
                       .out = out,
                       .keys = keys,
                       .quant = quant,
                       .ignore = &options->ignore,
                       .for_gguf = options->for_gguf,
                       .task = options->task};
    uint32_t dim[2] = {0};
    bool whole = !options->vocab_only, head;
    *out = (struct hf_config){.task = -1};
    TRY(json_read_python(&c.root, path, json, n, JSON_REJECT_DUPLICATES));
    json_t *llm = json_object_get(c.root, "llm_config"); /* InternVL's own name for it */
    if (json_is_object(llm) && !json_object_get(c.root, "text_config")) {
        json_object_set(c.root, "text_config", llm);
        json_object_del(c.root, "llm_config");
    }
    part_minicpmv(c.root);
    config_bamba(c.root);
    enum infer_status s = config_head(&c, &head);
    if (!s) s = read_arch(&c, options->vocab_only, head);
    if (!s && out->table) s = open_text_part(&c, whole);
    if (!s && out->table)
        config_step(c.root), config_kimi(c.root), config_laguna(c.root), config_gemma3n(c.root),
            config_minimax(c.root), config_deepseek4(c.root), config_qwen4(c.root);
    if (!s && whole) s = check_weights(&c);
    if (!s && whole) s = check_act(&c);
    if (!s && whole) s = config_check_keys(&c);
    if (!s && out->table) s = config_windows(&c);
    if (!s && out->table) s = config_sizes(&c, dim);
    if (!s && out->table) s = config_mixers(&c);
    if (!s && out->table) s = config_experts(&c);
    if (!s && out->table) s = config_rope(&c, dim);
    if (!s && out->table) s = config_state(&c);
    if (!s && out->table) s = config_factors(&c);
    if (!s && out->table) s = config_limits(&c);
    if (!s && out->table) s = config_entries(&c);
    if (!s && out->table) s = config_gates(&c);
    if (!s && options->task && out->task < 0)
        s = err_set(INFER_E_INPUT, "%s: .task is '%.60s', and the folder has no adapters for tasks", path,
                    options->task);
    json_decref(c.root);
    return s ? s : keys->status;
}

/* ---- what config.json says of the tensors ---- */

/* The first layer that has a tensor; -1: none has. */
static int first_with(const struct tensorfile *f, const char *tensor, uint32_t n_layer) {
    char name[64];
    for (uint32_t i = 0; i < n_layer; i++) {
        snprintf(name, sizeof name, "blk.%u.%s", i, tensor);
        if (tensorfile_find(f, name)) return (int)i;
    }
    return -1;
}

/* A tensor of a layer is there as config.json says; layer -1: there is no such layer. */
static enum infer_status check_told(const struct tensorfile *f, int layer, const char *tensor,
                                    const struct hf_told *t) {
    char name[64];
    snprintf(name, sizeof name, "blk.%d.%s", layer, tensor);
    if (layer < 0 || t->says < 0 || (tensorfile_find(f, name) != NULL) == (t->says != 0)) return INFER_OK;
    return err_set(INFER_E_INPUT, "%s: '%s' of config.json is %s, but %s is %sthere", f->path, t->key,
                   t->says ? "true" : "false", name, t->says ? "not " : "");
}

/* Biases of layers with a state. */
static enum infer_status check_state(const struct hf_config *c, const struct tensorfile *f) {
    const bool conv = c->table->mixer.kind == MIX_CONV;
    const int first = first_with(f, conv ? "shortconv.in_proj.weight" : "ssm_in.weight", c->n_layer);
    if (c->table->mixer.kind != MIX_CONV && c->table->mixer.kind != MIX_SSM &&
        c->table->mixer.kind != MIX_BOTH)
        return INFER_OK;
    TRY(check_told(f, first, conv ? "shortconv.in_proj.bias" : "ssm_in.bias", &c->in_bias));
    TRY(check_told(f, first, conv ? "shortconv.out_proj.bias" : "ssm_out.bias", &c->in_bias));
    TRY(check_told(f, first, "ssm_norm.weight", &c->ssm_norm));
    return check_told(f, first, conv ? "shortconv.conv.bias" : "ssm_conv1d.bias", &c->conv_bias);
}

/* Where the first layer has a bias, every layer has. */
static enum infer_status check_bias(const struct hf_config *c, const struct tensorfile *f) {
    static const struct {
        const char *name;
        enum slot slot;
    } part[] = {{"attn_q.bias", SLOT_ATTN_Q_BIAS},        {"attn_k.bias", SLOT_ATTN_K_BIAS},
                {"attn_v.bias", SLOT_ATTN_V_BIAS},        {"attn_output.bias", SLOT_ATTN_OUTPUT_BIAS},
                {"attn_q_norm.weight", SLOT_ATTN_Q_NORM}, {"attn_k_norm.weight", SLOT_ATTN_K_NORM}};
    const bool fused =
        c->table->slot[SLOT_ATTN_QKV] == SLOT_MUST || first_with(f, "attn_qkv.weight", c->n_layer) >= 0;
    char name[64], path[64];
    const int layer =
        c->table->mixer.where == MIXER_NOWHERE ? 0 : first_with(f, "attn_output.weight", c->n_layer);
    TRY(check_state(c, f));
    TRY(check_told(f, first_with(f, "ffn_gate_inp.weight", c->n_layer), "exp_probs_b.bias", &c->choice_bias));
    TRY(check_told(f, layer, fused ? "attn_qkv.bias" : "attn_q.bias", &c->bias));
    TRY(check_told(f, layer, "attn_output.bias", &c->out_bias));
    TRY(check_told(f, first_with(f, "ffn_up.weight", c->n_layer), "ffn_up.bias", &c->ffn_bias));
    TRY(check_told(f, first_with(f, "ffn_down.weight", c->n_layer), "ffn_down.bias", &c->ffn_out_bias));
    TRY(check_told(f, layer, "attn_q_norm.weight", &c->qk_norm));
    for (size_t i = 0; !fused && i < sizeof part / sizeof *part; i++) {
        const size_t first = i < 3 ? 0 : i; /* biases of q, k and v go together */
        snprintf(name, sizeof name, "blk.0.%s", part[first].name);
        if (!tensorfile_find(f, name) || c->table->slot[part[i].slot] == SLOT_MUST)
            continue; /* one that must be there is missed when it is bound */
        for (int il = 0;; il++) {
            snprintf(path, sizeof path, "blk.%d.attn_output.weight", il);
            snprintf(name, sizeof name, "blk.%d.%s", il, part[i].name);
            if (!tensorfile_find(f, path)) break;
            if (!tensorfile_find(f, name))
                return err_set(INFER_E_INPUT, "%s: tensor %s is missing, which other layers have", f->path,
                               name);
        }
    }
    return INFER_OK;
}

enum infer_status hf_config_check(const struct hf_config *c, const struct tensorfile *f,
                                  const struct tensor *second_head) {
    const struct tensor *embd = tensorfile_find(f, "token_embd.weight"),
                        *head = tensorfile_find(f, "output.weight");
    if (!embd || c->table->drafts) return INFER_OK; /* said when the model is bound */
    if (embd->shape[2] != c->n_vocab)
        return err_set(INFER_E_INPUT, "%s: 'vocab_size' of config.json is %u, the embedding has %lld rows",
                       f->path, c->n_vocab, (long long)embd->shape[2]);
    if (!c->tied && !head)
        return err_set(INFER_E_INPUT,
                       "%s: lm_head.weight is missing and 'tie_word_embeddings' of config.json is not true: "
                       "a model without its head",
                       f->path);
    if (second_head && c->body)
        return err_set(
            INFER_E_UNSUPPORTED,
            "%s: lm_head.weight is there, but 'architectures' of config.json names a class without a head",
            f->path);
    if (second_head && (second_head->type != embd->type || second_head->bytes != embd->bytes ||
                        memcmp(second_head->data, embd->data, embd->bytes) != 0))
        return err_set(INFER_E_INPUT,
                       "%s: lm_head.weight differs from the embedding, but 'tie_word_embeddings' of "
                       "config.json is true",
                       f->path);
    const struct tensor *types = tensorfile_find(f, "token_types.weight");
    if (types && c->n_type && types->shape[2] != c->n_type)
        return err_set(INFER_E_INPUT, "%s: 'type_vocab_size' of config.json is %u, the tensor has %lld rows",
                       f->path, c->n_type, (long long)types->shape[2]);
    const bool biased = tensorfile_find(f, "output.bias");
    if (c->head_bias.says >= 0 && biased != (c->head_bias.says == 1))
        return err_set(INFER_E_INPUT, "%s: '%s' of config.json is %s, but lm_head.bias is %s", f->path,
                       c->head_bias.key, biased ? "false" : "true", biased ? "there" : "not there");
    return check_bias(c, f);
}
