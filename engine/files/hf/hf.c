/* A folder of Hugging Face: which files, whose tensors, under which names. */
#include "files/hf/hf.h"
#include "files/hf/hf_factors.h"
#include "files/hf/hf_names.h"
#include "files/hf/hf_ops.h"
#include "files/hf/hf_sentence.h"
#include "files/hf/hf_task.h"
#include "files/hf/hf_tower.h"
#include "files/json.h"
#include "files/hf/safetensors.h"
#include "base/stbds.h"
#include "files/textfile.h"
#include "files/vocab_json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct folder {
    struct tensorfile *f;
    const struct tensorfile_options *options;
    struct hf_keys keys;
    struct hf_config config;
    bool has_config;
    struct hf_sentence sentence;
    struct tensor second_head; /* lm_head.weight beside a tied embedding; data NULL: none */
    struct hf_list *list;      /* list[f->n_part] */
};

static enum infer_status no_memory(const struct folder *d) {
    return err_set(INFER_E_MEMORY, "%s: out of memory", d->f->path);
}

/* ---- names ---- */

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

/* Without a type of ours: bytes that hf_turns.c reads. Or nothing to compute with, without elements, or one integer that counts something; and no weight. */
static bool unused(const char *name, const char *dtype, size_t n) {
    struct hf_target to;
    bool counts = n == 1 && (*dtype == 'I' || *dtype == 'U' || strcmp(dtype, "BOOL") == 0);
    hf_target(&to, NULL, name, 0);
    if (hf_whole_numbers(name)) return true;
    if (strcmp(name, "d2t") == 0 || strcmp(name, "t2d") == 0) return true; /* of heads that draft */
    if (strcmp(dtype, "U8") == 0 && (ends_with(name, "_blocks") || ends_with(name, "_scales"))) return true;
    return !*to.name || ((n == 0 || counts) && !to.known);
}

/* The same where a method has quantised weights: hf_unpack says what is of no use. */
static bool unused_packed(const char *name, const char *dtype, size_t n) {
    return strchr("IU", *dtype) || strncmp(dtype, "F8_", 3) == 0 || unused(name, dtype, n);
}

/* ---- files ---- */

static enum infer_status file_path(const struct folder *d, const char *name, char **out) {
    size_t a = strlen(d->f->path), b = strlen(name);
    *out = arena_alloc(&d->f->arena, a + b + 2);
    if (!*out) return no_memory(d);
    memcpy(*out, d->f->path, a);
    (*out)[a] = '/';
    memcpy(*out + a + 1, name, b);
    return INFER_OK;
}

/* A file of the folder, mapped. The caller closes it, also where there is none. */
static enum infer_status open_text(const struct folder *d, const char *name, enum text_kind kind,
                                   struct mapfile *m, bool *there) {
    char *path;
    TRY(file_path(d, name, &path));
    return text_map(m, path, kind, there);
}

/* Opens one file of tensors as the next part. f->part has room. */
static enum infer_status open_part(struct folder *d, const char *name) {
    struct tensorfile *f = d->f;
    struct mapfile *m = &f->part[f->n_part];
    struct hf_list *l = &d->list[f->n_part];
    char *path;
    TRY(file_path(d, name, &path));
    TRY(mapfile_open(m, path, d->options->no_mmap));
    f->n_part++;
    f->file_bytes += m->size;
    TRY(safetensors_read(m, &f->arena, d->config.packing.method ? unused_packed : unused, &l->tensor, &l->n));
    return tensorfile_check_holes(m, l->tensor, l->n, d->options);
}

static enum infer_status room_for_parts(struct folder *d, size_t n) {
    size_t bytes;
    n += (size_t)d->sentence.n_dense;
    if (n > INT32_MAX || !size_mul(n, sizeof(struct mapfile), &bytes)) return no_memory(d);
    d->f->part = arena_alloc(&d->f->arena, bytes);
    d->list = arena_alloc(&d->f->arena, n * sizeof *d->list);
    return d->f->part && d->list ? INFER_OK : no_memory(d);
}

/* ---- the index: {"weight_map": {tensor: file}} ---- */

/* A file name that stays in the folder. */
static bool plain_name(const char *name) {
    static const char suffix[] = ".safetensors";
    size_t n = strlen(name);
    return n > sizeof suffix - 1 && n < 256 && name[0] != '.' && !strchr(name, '/') && !strchr(name, '\\') &&
           strcmp(name + n - (sizeof suffix - 1), suffix) == 0;
}

/* Every tensor that the index names is in the file that it names. */
static enum infer_status check_index(struct folder *d, json_t *map, struct strmap *files) {
    const char *name;
    json_t *file;
    struct strmap *have; /* tensor name -> part */
    int64_t old;
    TRY(strmap_new(&have, &d->f->arena));
    for (int p = 0; p < d->f->n_part; p++)
        for (size_t i = 0; i < d->list[p].n; i++) {
            const char *s = d->list[p].tensor[i].name;
            TRY(strmap_put(have, s, strlen(s), p, &old));
            if (old >= 0)
                return err_set(INFER_E_INPUT, "%s: tensor '%.100s' is also in %s", d->f->part[p].path, s,
                               d->f->part[old].path);
        }
    json_object_foreach(map, name, file) {
        int64_t part = strmap_get(files, json_string_value(file), json_string_length(file));
        if (strmap_get(have, name, strlen(name)) != part)
            return err_set(INFER_E_INPUT, "%s: tensor '%.100s' is not in it, but the index says so",
                           d->f->part[part].path, name);
    }
    return INFER_OK;
}

static enum infer_status read_weight_map(struct folder *d, json_t *map, const char *path) {
    const char *name;
    json_t *file;
    struct strmap *files;
    int64_t old;
    TRY(strmap_new(&files, &d->f->arena));
    if (!json_is_object(map)) return err_set(INFER_E_INPUT, "%s: no 'weight_map'", path);
    json_object_foreach(map, name, file) {
        const char *s = json_string_value(file);
        if (!s || !plain_name(s))
            return err_set(INFER_E_INPUT,
                           "%s: 'weight_map' of '%.100s' is not a plain name of a .safetensors file", path,
                           name);
        TRY(strmap_put(files, s, strlen(s), (int64_t)strmap_count(files), &old));
    }
    size_t n = strmap_count(files);
    if (n == 0) return err_set(INFER_E_INPUT, "%s: 'weight_map' is empty", path);
    TRY(room_for_parts(d, n));
    json_object_foreach(map, name, file) {
        const char *s = json_string_value(file);
        if (strmap_get(files, s, strlen(s)) == d->f->n_part) TRY(open_part(d, s));
    }
    return check_index(d, map, files);
}

static enum infer_status read_index(struct folder *d, const struct mapfile *m) {
    json_t *root;
    TRY(json_read(&root, m->path, text_of_map(m), m->size, JSON_REJECT_DUPLICATES));
    enum infer_status s = read_weight_map(d, json_object_get(root, "weight_map"), m->path);
    json_decref(root);
    return s;
}

static enum infer_status read_weights(struct folder *d) {
    struct mapfile m;
    bool there;
    char *path;
    TRY(open_text(d, "model.safetensors.index.json", TEXT_INDEX, &m, &there));
    if (there) {
        enum infer_status s = read_index(d, &m);
        mapfile_close(&m);
        return s;
    }
    TRY(file_path(d, "model.safetensors", &path));
    if (!mapfile_absent(path)) {
        TRY(room_for_parts(d, 1));
        return open_part(d, "model.safetensors");
    }
    if (d->options->vocab_only) return INFER_OK;
    return err_set(INFER_E_INPUT,
                   "%s: the folder holds no model.safetensors and no model.safetensors.index.json",
                   d->f->path);
}

/* Products behind the pooling, of which each has a file of its own: "linear.weight" of the i-th becomes "dense_2.weight" and on. */
static enum infer_status read_dense(struct folder *d) {
    for (int i = 0; i < d->sentence.n_dense && !d->options->vocab_only; i++) {
        char name[300], own[64];
        snprintf(name, sizeof name, "%s/model.safetensors", d->sentence.dense[i]);
        TRY(open_part(d, name));
        struct hf_list *l = &d->list[d->f->n_part - 1];
        for (size_t k = 0; k < l->n; k++) {
            const char *is = l->tensor[k].name;
            const bool known = strncmp(is, "linear.", 7) == 0 && strlen(is) < 32;
            if (!known)
                return err_set(INFER_E_UNSUPPORTED,
                               "%s: tensor %.80s; linear.weight and linear.bias are known",
                               d->f->part[d->f->n_part - 1].path, is);
            const int n = snprintf(own, sizeof own, "dense_%d.%s", i + 2, is + 7);
            if (!(l->tensor[k].name = arena_strndup(&d->f->arena, own, (size_t)n))) return no_memory(d);
        }
    }
    return INFER_OK;
}

/* ---- tensors ---- */

/* *t, with its data, is the next of f->tensor under that name. */
static enum infer_status put_tensor(struct folder *d, struct strmap *index, const struct tensor *t,
                                    const char *name) {
    struct tensorfile *f = d->f;
    struct tensor *to = &f->tensor[f->n_tensor];
    int64_t old;
    *to = *t;
    to->name = arena_strndup(&f->arena, name, strlen(name));
    if (!to->name) return no_memory(d);
    TRY(strmap_put(index, to->name, strlen(to->name), (int64_t)f->n_tensor, &old));
    if (old >= 0)
        return err_set(INFER_E_INPUT, "%s: two tensors stand for %.100s", f->part[t->part].path, to->name);
    f->n_tensor++;
    return INFER_OK;
}

/* The scales beside "X_blocks", in whichever file; NULL: none. */
static const struct tensor *scales_of(const struct folder *d, const char *blocks) {
    size_t n = strlen(blocks) - strlen("_blocks");
    for (int p = 0; ends_with(blocks, "_blocks") && p < d->f->n_part; p++)
        for (size_t i = 0; i < d->list[p].n; i++) {
            const char *s = d->list[p].tensor[i].name;
            if (strncmp(s, blocks, n) == 0 && strcmp(s + n, "_scales") == 0) return &d->list[p].tensor[i];
        }
    return NULL;
}

/* What makes the tensors of an operation; NULL: nothing is to be done. Those that one tensor stands for have names of their own: that of the
 * first stands in the name. */
static const struct {
    hf_op_fn *make;
    const char *first, *second;
} ops[] = {[HF_PLUS_ONE] = {.make = hf_plus_one},
           [HF_TRANSPOSE] = {.make = hf_transpose},
           [HF_EXPERT_ROWS] = {.make = hf_by_expert},
           [HF_EXPERT_TURNED] = {.make = hf_by_expert},
           [HF_QKV_HEADS] = {.make = hf_qkv_heads},
           [HF_TURNS] = {hf_turns, "ffn_gate", "ffn_up"},
           [HF_HALVES] = {hf_halves, "ffn_gate", "ffn_up"},
           [HF_UP_GATE] = {hf_halves, "ffn_up", "ffn_gate"},
           [HF_COLUMNS] = {hf_columns, "ffn_gate", "ffn_up"},
           [HF_BLOCKS] = {.make = hf_blocks},
           [HF_LATENT] = {hf_latent, "attn_k_b", "attn_v_b"},
           [HF_INDEX_QK] = {hf_index_qk, "q_proj", "k_proj"},
           [HF_HEADS_QKVZ] = {hf_qkvz, "attn_qkv", "attn_gate"},
           [HF_VALUE_ROWS] = {.make = hf_by_value},
           [HF_VALUE_TAIL] = {.make = hf_by_value},
           [HF_VALUE_COLUMNS] = {.make = hf_by_value},
           [HF_VALUE_DECAYS] = {.make = hf_by_value},
           [HF_VALUE_TAPS] = {.make = hf_by_value},
           [HF_SQUEEZE] = {.make = hf_squeeze},
           [HF_NEG_EXP] = {.make = hf_reshape},
           [HF_COLUMN] = {.make = hf_reshape},
           [HF_GROUPS] = {.make = hf_reshape},
           [HF_IDS] = {.make = hf_ids},
           [HF_POSITIONS] = {.make = hf_positions},
           [HF_SKIP] = {.make = NULL}};

/* Without experts, what else all rows share is the feed-forward part. */
static void whole_part(char *name) {
    char *at = strstr(name, "_shexp.");
    if (at) memmove(at, at + strlen("_shexp"), strlen(at + strlen("_shexp")) + 1);
}

/* A tensor of part p becomes the next of f->tensor under its name in GGUF; one of a stack goes into its matrix. */
static enum infer_status take_tensor(struct folder *d, struct strmap *index, const struct tensor *from,
                                     int p) {
    struct tensorfile *f = d->f;
    struct hf_target to;
    if (d->config.table && d->config.table->drafts && strcmp(from->name, "d2t") == 0)
        return hf_target_ids(f, from);
    hf_target(&to, d->config.table, from->name, (int)d->config.n_layer);
    if (to.other || to.drafts) {
        struct left_out *l = to.other ? &f->senses : &f->drafts;
        l->n++, l->bytes += from->bytes;
    }
    if (!*to.name || to.op == HF_KEY) return INFER_OK;
    if (to.op == HF_HASH) return hf_hash_check(&d->config, from, to.name, f->part[p].path);
    if (!d->config.n_expert) whole_part(to.name);
    const bool bytes =
        to.op == HF_TURNS || to.op == HF_BLOCKS || to.op == HF_IDS; /* which have no type of their own */
    if (!from->n_dim && !bytes) return INFER_OK;
    if (d->config.tied && strcmp(to.name, "output.weight") == 0) { /* a copy of the embedding */
        d->second_head = *from;
        return INFER_OK;
    }
    const struct hf_make make = {.config = &d->config,
                                 .op = to.op,
                                 .from = from,
                                 .scales = bytes && to.op != HF_IDS ? scales_of(d, from->name) : NULL,
                                 .arena = &f->arena,
                                 .path = f->part[p].path};
    struct tensor t[2] = {*from, *from};
    if (to.op == HF_STACK) {
        const int64_t old = strmap_get(index, to.name, strlen(to.name));
        if (old >= 0) return hf_stack(&f->tensor[old], from, to.index, &make);
        t[0].n_dim = 0;
        TRY(hf_stack(t, from, to.index, &make));
    }
    if (ops[to.op].make) TRY(ops[to.op].make(t, &make));
    t[0].part = t[1].part = p;
    TRY(put_tensor(d, index, &t[0], to.name));
    if (!ops[to.op].second) return INFER_OK;
    char second[sizeof to.name];
    const char *first = ops[to.op].first, *at = strstr(to.name, first);
    snprintf(second, sizeof second, "%.*s%s%s", (int)(at - to.name), to.name, ops[to.op].second,
             at + strlen(first));
    return put_tensor(d, index, &t[1], second);
}

/* A vector that config.json says and GGUF has as a tensor; data NULL: nothing. */
static enum infer_status add_vector(struct folder *d, struct strmap *index, const char *name,
                                    const float *data, int n) {
    struct tensorfile *f = d->f;
    struct tensor *t = &f->tensor[f->n_tensor];
    int64_t old;
    if (!data) return INFER_OK;
    *t = (struct tensor){.name = name, .type = QUANT_F32, .n_dim = 1, .shape = {1, 1, 1, n}, .data = data};
    t->bytes = (size_t)n * sizeof(float);
    TRY(strmap_put(index, name, strlen(name), (int64_t)f->n_tensor, &old));
    if (old < 0) f->n_tensor++;
    return INFER_OK;
}

/* What rows are times; a head that has the embedding's bytes but another factor is a tensor of its own. */
static enum infer_status put_factors(struct folder *d, struct strmap *index) {
    struct tensorfile *f = d->f;
    const struct hf_config *c = &d->config;
    const struct tensor *embd = tensorfile_find(f, "token_embd.weight");
    if (!c->factor) return INFER_OK;
    if (c->tied && embd) {
        struct tensor head = *embd;
        TRY(put_tensor(d, index, &head, "output.weight"));
    }
    for (size_t i = 0; i < f->n_tensor; i++)
        TRY(hf_factor_rows(&f->tensor[i], c->factor, c->state_part, &f->arena));
    return INFER_OK;
}

/* Norms of q and k whose weights are numbers. */
static enum infer_status add_qk_norms(struct folder *d, struct strmap *index) {
    const struct hf_config *c = &d->config;
    const size_t n = (size_t)c->head_dim;
    float *w = c->q_norm > 0 ? arena_alloc(&d->f->arena, 2 * n * sizeof *w) : NULL;
    if (!(c->q_norm > 0)) return INFER_OK;
    if (!w) return no_memory(d);
    for (size_t i = 0; i < n; i++) w[i] = c->q_norm, w[n + i] = 1;
    for (uint32_t il = 0; il < c->n_layer; il++)
        for (int k = 0; k < 2; k++) {
            char name[48];
            snprintf(name, sizeof name, "blk.%u.attn_%c_norm.weight", il, "qk"[k]);
            const char *own = arena_strndup(&d->f->arena, name, strlen(name));
            if (!own) return no_memory(d);
            TRY(add_vector(d, index, own, w + (size_t)k * n, (int)n));
        }
    return INFER_OK;
}

/* All lists -> f->tensor under GGUF's names, divisors of frequencies, and norms. */
static enum infer_status name_tensors(struct folder *d) {
    struct tensorfile *f = d->f;
    const struct hf_config *c = &d->config;
    struct strmap *index;
    size_t n = 4 + 2 * (size_t)c->n_layer, bytes;
    for (int p = 0; p < f->n_part; p++)
        n += 2 * d->list[p].n; /* each is bounded by the bytes of its header */
    if (size_mul(n, sizeof *f->tensor, &bytes)) f->tensor = arena_alloc(&f->arena, bytes);
    if (!f->tensor) return no_memory(d);
    TRY(strmap_new(&index, &f->arena));
    f->tensor_index = index;
    for (int p = 0; p < f->n_part; p++)
        for (size_t i = 0; i < d->list[p].n; i++) TRY(take_tensor(d, index, &d->list[p].tensor[i], p));
    TRY(put_factors(d, index));
    TRY(add_qk_norms(d, index));
    TRY(add_vector(d, index, "rope_freqs.weight", c->rope_divisor, c->n_divisor));
    TRY(add_vector(d, index, "rope_factors_long.weight", c->rope_long, c->n_rot / 2));
    return add_vector(d, index, "rope_factors_short.weight", c->rope_short, c->n_rot / 2);
}

/* ---- numbers that are tensors in folders and keys of GGUF ---- */

/* One key: a number for each layer. */
struct layer_key {
    const char *name;
    float *value; /* value[n_layer], NAN: none yet */
};
enum { LAYER_KEYS = 8 };

static enum infer_status layer_key_of(const struct folder *d, struct layer_key *all, const char *name,
                                      struct layer_key **out) {
    struct layer_key *k = all;
    while (k->name && strcmp(k->name, name) != 0) k++;
    *out = k;
    if (k->name) return INFER_OK;
    if (k == all + LAYER_KEYS) infer_bug("more than %d keys of tensors", LAYER_KEYS);
    k->name = arena_strndup(&d->f->arena, name, strlen(name));
    k->value = arena_alloc(&d->f->arena, ((size_t)d->config.n_layer + 1) * sizeof *k->value);
    if (!k->name || !k->value) return no_memory(d);
    for (uint32_t i = 0; i < d->config.n_layer; i++) k->value[i] = NAN;
    return INFER_OK;
}

static enum infer_status take_layer_key(const struct folder *d, struct layer_key *all, const struct tensor *t,
                                        const char *path) {
    struct hf_target to;
    struct layer_key *k;
    hf_target(&to, d->config.table, t->name, (int)d->config.n_layer);
    if (to.op != HF_KEY || !*to.name) return INFER_OK;
    TRY(layer_key_of(d, all, to.name, &k));
    const struct quant_info *q = quant_info(t->type);
    if ((uint32_t)to.index >= d->config.n_layer || t->bytes != q->bytes || q->elems != 1)
        return err_set(INFER_E_INPUT, "%s: tensor %.100s is not one number of a layer", path, t->name);
    if (!isnan(k->value[to.index]))
        return err_set(INFER_E_INPUT, "%s: two tensors stand for %s of layer %d", path, k->name, to.index);
    q->decode(&k->value[to.index], t->data, 1);
    if (!isfinite(k->value[to.index]))
        return err_set(INFER_E_INPUT, "%s: tensor %.100s is %g", path, t->name, (double)k->value[to.index]);
    return INFER_OK;
}

static enum infer_status put_layer_keys(struct folder *d) {
    struct layer_key all[LAYER_KEYS + 1] = {0};
    for (int p = 0; p < d->f->n_part; p++)
        for (size_t i = 0; i < d->list[p].n; i++)
            TRY(take_layer_key(d, all, &d->list[p].tensor[i], d->f->part[p].path));
    for (const struct layer_key *k = all; k->name; k++) {
        for (uint32_t i = 0; i < d->config.n_layer; i++)
            if (isnan(k->value[i]))
                return err_set(INFER_E_INPUT, "%s: layer %u has no %s, which other layers have", d->f->path,
                               i, k->name);
        hf_put_f32s(&d->keys, NULL, k->name, k->value, d->config.n_layer);
    }
    return INFER_OK;
}

/* Layers behind the last one draft, as far as the folder has them: published folders have, others only say so. */
static enum infer_status put_layers(struct folder *d) {
    struct hf_config *c = &d->config;
    const int first = (int)c->n_layer, end = (int)(c->n_layer + c->n_draft);
    struct hf_target to;
    if (!c->table) return INFER_OK;
    c->n_draft = 0;
    for (int p = 0; p < d->f->n_part; p++)
        for (size_t i = 0; i < d->list[p].n; i++) {
            hf_target(&to, c->table, d->list[p].tensor[i].name, first);
            const bool draft = to.layer < end || strncmp(d->list[p].tensor[i].name, "mtp.", 4) == 0;
            if (*to.name && to.layer >= first && draft && to.layer - first >= (int)c->n_draft)
                c->n_draft = (uint32_t)(to.layer - first) + 1;
        }
    hf_put_u32(&d->keys, c->arch, "block_count", c->n_layer + c->n_draft);
    if (c->n_draft) hf_put_u32(&d->keys, c->arch, "nextn_predict_layers", c->n_draft);
    return d->keys.status;
}

/* ---- keys ---- */

static enum infer_status read_config(struct folder *d) {
    struct mapfile m, quant = {0};
    bool more;
    TRY(open_text(d, "config.json", TEXT_CONFIG, &m, &d->has_config));
    if (!d->has_config) {
        if (d->options->vocab_only) return INFER_OK;
        return err_set(INFER_E_INPUT,
                       "%s: the folder holds no config.json (a GGUF file in it is named itself)", d->f->path);
    }
    enum infer_status s = open_text(d, "hf_quant_config.json", TEXT_CONFIG, &quant, &more);
    if (!s) s = hf_config(&d->config, &d->keys, m.path, text_of_map(&m), m.size, &quant, d->options);
    mapfile_close(&m);
    mapfile_close(&quant);
    return s;
}

static bool key_is(const struct meta *m, const char *key) {
    return m->key.len == strlen(key) && memcmp(m->key.data, key, m->key.len) == 0;
}

/* The keys of tokenizer.json or tokenizer.model; its own template only when the folder has none as a file. */
static enum infer_status put_tokenizer(struct folder *d, const struct mapfile *json,
                                       const struct mapfile *config, const struct mapfile *template) {
    static const char template_key[] = "tokenizer.chat_template";
    struct meta *m;
    size_t n;
    enum infer_status s = tok_vocab_meta(&m, &n, &d->f->arena, (const char *)json->data, json->size,
                                         text_of_map(config), config->size);
    if (s) return err_prefix(s, "%s", json->path);
    for (size_t i = 0; i < n; i++)
        if (!template->size || !key_is(&m[i], template_key)) hf_put(&d->keys, &m[i]);
    if (template->size)
        hf_put_str(&d->keys, NULL, template_key, (const char *)template->data, template->size);
    return d->keys.status;
}

static enum infer_status read_tokenizer(struct folder *d) {
    struct mapfile json, config = {0}, template = {0};
    bool there, more;
    TRY(open_text(d, "tokenizer.json", TEXT_TOKENIZER, &json, &there));
    if (!there) TRY(open_text(d, "tokenizer.model", TEXT_TOKENIZER, &json, &there));
    if (!there && d->options->vocab_only)
        return err_set(INFER_E_INPUT, "%s: the folder holds no tokenizer.json and no tokenizer.model",
                       d->f->path);
    if (!there) return INFER_OK; /* a model without text */
    enum infer_status s = open_text(d, "tokenizer_config.json", TEXT_CONFIG, &config, &more);
    if (!s) s = open_text(d, "chat_template.jinja", TEXT_TEMPLATE, &template, &more);
    if (!s) s = put_tokenizer(d, &json, &config, &template);
    mapfile_close(&json);
    mapfile_close(&config);
    mapfile_close(&template);
    return s;
}

static enum infer_status read_generation(struct folder *d) {
    struct mapfile generation, config = {0};
    bool there;
    TRY(open_text(d, "generation_config.json", TEXT_CONFIG, &generation, &there));
    enum infer_status s = open_text(d, "config.json", TEXT_CONFIG, &config, &there);
    if (!s) s = hf_generation(&d->keys, &generation, &config);
    mapfile_close(&generation);
    mapfile_close(&config);
    return s;
}

static uint32_t context_of(const struct folder *d) {
    char key[96];
    uint32_t n = 0;
    snprintf(key, sizeof key, "%s.context_length", d->config.arch);
    for (size_t i = 0; i < d->keys.n; i++)
        if (key_is(&d->keys.meta[i], key)) memcpy(&n, d->keys.meta[i].raw, sizeof n);
    return n;
}

/* How texts become vectors. Without modules the mean of all rows is what sentence-transformers takes of an encoder. */
static enum infer_status put_sentence(struct folder *d) {
    const struct hf_config *c = &d->config;
    struct hf_sentence *s = &d->sentence;
    const char *arch = c->arch;
    if (!c->table) return INFER_OK;
    TRY(hf_sentence_read(s, d->f->path, &d->f->arena));
    const bool encoder = c->table->encoder.on;
    if (encoder && c->scores)
        hf_put_u32(&d->keys, arch, "pooling_type", c->mean ? POOL_MEAN : POOL_RANK);
    else if (encoder || s->pooling >= 0)
        hf_put_u32(&d->keys, arch, "pooling_type", (uint32_t)(s->pooling >= 0 ? s->pooling : POOL_MEAN));
    if (encoder && c->n_type) hf_put_u32(&d->keys, "tokenizer.ggml", "token_type_count", c->n_type);
    const uint32_t most = encoder ? c->n_ctx : s->pooling >= 0 ? context_of(d) : 0;
    if (s->n_text && s->n_text < most) hf_put_u32(&d->keys, arch, "text_length", s->n_text);
    return d->keys.status;
}

/* The last part of the path, as the model's name. */
static void put_name(struct folder *d) {
    const char *path = d->f->path;
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/') begin--;
    hf_put_str(&d->keys, NULL, "general.name", path + begin, end - begin);
}

static enum infer_status index_keys(struct folder *d) {
    struct tensorfile *f = d->f;
    struct strmap *index;
    int64_t old;
    TRY(d->keys.status);
    f->meta = d->keys.meta;
    f->n_meta = d->keys.n;
    TRY(strmap_new(&index, &f->arena));
    f->meta_index = index;
    for (size_t i = 0; i < f->n_meta; i++)
        TRY(strmap_put(index, f->meta[i].key.data, f->meta[i].key.len, (int64_t)i, &old));
    return INFER_OK;
}

/* ---- what a folder has for images ---- */

static enum infer_status read_tower_keys(struct folder *d, struct hf_tower *h) {
    struct mapfile m, more = {0};
    bool there;
    TRY(open_text(d, "config.json", TEXT_CONFIG, &m, &there));
    if (!there) return err_set(INFER_E_INPUT, "%s: the folder holds no config.json", d->f->path);
    enum infer_status s = open_text(d, "preprocessor_config.json", TEXT_CONFIG, &more, &there);
    if (!s && !there) s = open_text(d, "processor_config.json", TEXT_CONFIG, &more, &there);
    if (!s)
        s = hf_tower_keys(h, &d->keys, m.path, text_of_map(&m), m.size, text_of_map(&more), more.size,
                          d->options);
    h->path = d->f->path;
    mapfile_close(&m);
    mapfile_close(&more);
    return s;
}

static enum infer_status name_tower_tensors(struct folder *d, const struct hf_tower *h) {
    struct tensorfile *f = d->f;
    struct strmap *index;
    size_t n = 1, bytes;
    for (int p = 0; p < f->n_part; p++) n += TOWER_PARTS * d->list[p].n;
    if (size_mul(n, sizeof *f->tensor, &bytes)) f->tensor = arena_alloc(&f->arena, bytes);
    if (!f->tensor) return no_memory(d);
    TRY(strmap_new(&index, &f->arena));
    f->tensor_index = index;
    for (int p = 0; p < f->n_part; p++)
        for (size_t i = 0; i < d->list[p].n; i++) {
            struct tensor t[TOWER_PARTS];
            int made;
            TRY(hf_tower_tensor(h, &d->list[p].tensor[i], t, &made));
            for (int k = 0; k < made; k++) {
                t[k].part = p;
                TRY(put_tensor(d, index, &t[k], t[k].name));
            }
        }
    return INFER_OK;
}

static enum infer_status read_tower(struct folder *d) {
    struct hf_tower h = {0};
    TRY(read_tower_keys(d, &h));
    put_name(d);
    if (!d->options->vocab_only) TRY(read_weights(d));
    TRY(index_keys(d));
    return d->options->vocab_only ? INFER_OK : name_tower_tensors(d, &h);
}

static enum infer_status take_tasks(const struct folder *d) {
    const struct hf_config *c = &d->config;
    if (!c->n_task) return INFER_OK;
    return hf_tasks_take(&(struct hf_tasks){.list = d->list,
                                            .n_list = d->f->n_part,
                                            .n = c->n_task,
                                            .task = c->task,
                                            .alpha = c->task_alpha,
                                            .arena = &d->f->arena,
                                            .path = d->f->path});
}

enum infer_status hf_read(struct tensorfile *f, const struct tensorfile_options *options) {
    struct folder d = {.f = f, .options = options, .keys = {.arena = &f->arena}};
    f->format = "safetensors";
    f->alignment = 1;
    if (options->tower) return read_tower(&d);
    TRY(read_config(&d));
    put_name(&d);
    TRY(read_tokenizer(&d));
    TRY(read_generation(&d));
    TRY(put_sentence(&d));
    TRY(read_weights(&d));
    TRY(take_tasks(&d));
    TRY(read_dense(&d));
    TRY(hf_unpack(&d.config.packing, d.list, f->n_part, f->part, !options->for_gguf, &f->arena,
                  &f->made_bytes));
    TRY(put_layer_keys(&d));
    TRY(put_layers(&d));
    TRY(index_keys(&d));
    TRY(name_tensors(&d));
    for (size_t i = 0; i < f->n_tensor; i++) f->tensor[i].fine = true;
    return options->vocab_only ? INFER_OK
                               : hf_config_check(&d.config, f, d.second_head.data ? &d.second_head : NULL);
}
