/* config.json of published models, in their real sizes and without their weights: each opens, with no key to be ignored, and the numbers
 * that matter arrive in the model. The models are lines of tests/golden/published_configs.jsonl, two a model: what is known of it, and
 * its config.json.
 * usage: test_published [WORD]    the models in whose name it stands */
#include "tests/lib/test.h"
#include "base/stbds.h"
#include "files/hf/hf_config.h"
#include "files/textfile.h"
#include "model/model_impl.h"
#include "models/registry.h"
#include <jansson.h>
#include <math.h>

static const char *only = ""; /* the argument */

struct entry {
    json_t *head;
    char *config; /* its text, as published */
};
static struct entry *entry;
static size_t n_entry;

static const char *name_of(const struct entry *e) {
    return json_string_value(json_object_get(e->head, "model"));
}

static void read_entries(void) {
    char path[256], *line = NULL;
    size_t room = 0;
    ssize_t n;
    FILE *f = fopen(test_path(path, sizeof path, "golden/published_configs.jsonl"), "r");
    assert_non_null(f);
    for (int at = 0; (n = getline(&line, &room, f)) > 0; at++) {
        if (at % 2) {
            entry[n_entry++].config = strdup(line);
            continue;
        }
        json_error_t e;
        entry = realloc(entry, (n_entry + 1) * sizeof *entry);
        entry[n_entry].head = json_loadb(line, (size_t)n, 0, &e);
        if (!entry[n_entry].head) fail_msg("line %d: %s", at + 1, e.text);
    }
    free(line);
    fclose(f);
}

/* The config.json of an entry; one that is like another has that one's keys and its own. */
static char *text_of(const struct entry *e) {
    const char *like = json_string_value(json_object_get(e->head, "like"));
    json_error_t error;
    if (!like) return strdup(e->config);
    for (size_t i = 0; i < n_entry; i++) {
        if (strcmp(name_of(&entry[i]), like) != 0) continue;
        json_t *all = json_loads(entry[i].config, 0, &error), *own = json_loads(e->config, 0, &error);
        assert_non_null(all);
        assert_non_null(own);
        assert_int_equal(json_object_update(all, own), 0);
        char *text = json_dumps(all, 0);
        json_decref(all);
        json_decref(own);
        return text;
    }
    fail_msg("%s is like %s, which is not there", name_of(e), like);
    return NULL;
}

/* ---- a model of keys alone ---- */

struct opened {
    struct arena arena;
    struct hf_keys keys;
    struct hf_config config;
    struct tensorfile file;
    struct tensor embd;
    struct model model;
};

static enum infer_status index_file(struct opened *o) {
    struct strmap *meta, *tensor;
    int64_t old;
    TRY(o->keys.status);
    TRY(strmap_new(&meta, &o->arena));
    TRY(strmap_new(&tensor, &o->arena));
    for (size_t i = 0; i < o->keys.n; i++) {
        const struct str key = o->keys.meta[i].key;
        TRY(strmap_put(meta, key.data, key.len, (int64_t)i, &old));
    }
    o->embd = (struct tensor){.name = "token_embd.weight",
                              .type = QUANT_F16,
                              .n_dim = 2,
                              .shape = {1, 1, o->config.n_vocab, o->config.n_embd}};
    TRY(strmap_put(tensor, o->embd.name, strlen(o->embd.name), 0, &old));
    o->file = (struct tensorfile){.path = "config.json",
                                  .meta = o->keys.meta,
                                  .n_meta = o->keys.n,
                                  .tensor = &o->embd,
                                  .n_tensor = 1,
                                  .tensor_index = tensor,
                                  .meta_index = meta};
    return INFER_OK;
}

static void put_zeros(struct opened *o, const char *name) {
    float *zero = arena_alloc(&o->arena, (size_t)(o->config.n_layer + 1) * sizeof *zero);
    assert_non_null(zero);
    memset(zero, 0, o->config.n_layer * sizeof *zero);
    hf_put_f32s(&o->keys, NULL, name, zero, o->config.n_layer);
}

/* What hf.c and model.c do, but for tensors. */
static enum infer_status open_config(struct opened *o, const char *text, const char *quant,
                                     const char *generation) {
    const struct tensorfile_options options = {0};
    const struct mapfile beside = {.path = quant ? "hf_quant_config.json" : NULL,
                                   .data = (const unsigned char *)quant,
                                   .size = quant ? strlen(quant) : 0};
    const struct mapfile config = {.path = "config.json",
                                   .data = (const unsigned char *)text,
                                   .size = strlen(text)},
                         sampling = {.path = generation ? "generation_config.json" : NULL,
                                     .data = (const unsigned char *)generation,
                                     .size = generation ? strlen(generation) : 0};
    *o = (struct opened){0};
    o->keys.arena = &o->arena;
    TRY(hf_config(&o->config, &o->keys, "config.json", text, strlen(text), &beside, &options));
    hf_put_u32(&o->keys, o->config.arch, "block_count", o->config.n_layer);
    for (const struct hf_name *row = o->config.table->hf.layer; row && row->hf; row++)
        if (row->op == HF_KEY) put_zeros(o, row->gguf); /* which tensors say */
    TRY(hf_generation(&o->keys, &sampling, &config));
    TRY(index_file(o));
    o->model = (struct model){.file = &o->file, .arch = o->config.table};
    TRY(model_check_keys(&o->model, &options.ignore));
    TRY(model_read_hparams(&o->model));
    if (o->config.table->rope.kind == ROPE_NONE) return INFER_OK;
    return model_bind_rope(&o->model, &(struct rope_divisors){o->config.rope_divisor, o->config.rope_short,
                                                              o->config.rope_long});
}
static void close_config(struct opened *o) {
    arena_free(&o->model.arena);
    arena_free(&o->arena);
}

/* ---- what arrives ---- */

struct facts {
    const struct layer *attention, *dense, *experts, *state; /* the first of each; NULL: none */
    int n_windowed, n_state;
};
static struct facts look(const struct model *m) {
    struct facts f = {0};
    for (int i = m->n_layer - 1; i >= 0; i--) {
        const struct layer *l = &m->layer[i];
        const bool attends = l->mixer.kind == MIX_ATTENTION || l->mixer.kind == MIX_BOTH;
        if (attends && l->attn.n_kv_head) f.attention = l;
        if (l->dense.n_ff && (!l->moe.n_expert || m->arch->moe.beside)) f.dense = l;
        if (l->moe.n_expert) f.experts = l;
        if (l->mixer.kind == MIX_SSM || l->mixer.kind == MIX_BOTH) f.state = l;
        f.n_windowed += l->attn.window != 0;
        f.n_state += l->mixer.kind == MIX_SSM || l->mixer.kind == MIX_BOTH;
    }
    return f;
}

/* The number that a key of GGUF has; 0: absent. */
static double key_of(const struct opened *o, const char *name) {
    char key[128];
    float x = 0;
    bool there;
    assert_ok(meta_f32(&o->file, model_key(&o->model, key, sizeof key, name), &x, &there));
    return there ? (double)x : 0;
}

static int n_wrong; /* of the entry at hand */
static void same(const char *model, const char *what, double is, const json_t *want) {
    const double w = json_is_boolean(want) ? json_is_true(want) : json_number_value(want);
    if (!want || fabs(is - w) <= 1e-6 * fabs(w)) return;
    print_error("%s: %s is %.9g, must be %.9g\n", model, what, is, w);
    n_wrong++;
}

/* An array of numbers in the head. */
static void same_list(const char *model, const char *what, const double *is, const json_t *want) {
    for (size_t i = 0; i < json_array_size(want); i++) same(model, what, is[i], json_array_get(want, i));
}

static void compare(const struct opened *o, const char *model, const json_t *want) {
    const struct model *m = &o->model;
    const struct facts f = look(m);
    const struct layer none = {0}, *a = f.attention ? f.attention : &none, *d = f.dense ? f.dense : &none,
                       *e = f.experts ? f.experts : &none, *s = f.state ? f.state : &none;
    const char *arch = json_string_value(json_object_get(want, "arch")),
               *method = json_string_value(json_object_get(want, "method"));
    const bool turns = a->attn.rope && a->attn.rope->kind != ROPE_NONE;
    const double windows[] = {a->attn.window ? a->attn.window : m->layer[0].attn.window, f.n_windowed};
    const double state[] = {f.n_state, s->mixer.sizes.n_head, s->mixer.sizes.n_state, s->mixer.sizes.head_dim,
                            s->mixer.sizes.n_group};
    if (arch && strcmp(arch, m->arch->name) != 0) print_error("%s: %s\n", model, m->arch->name), n_wrong++;
    if (strcmp(method ? method : "", o->config.packing.name ? o->config.packing.name : "") != 0 &&
        !(method && strcmp(method, "mxfp4") == 0))
        print_error("%s: packed by %s\n", model, o->config.packing.name), n_wrong++;
    same(model, "layers", m->n_layer, json_object_get(want, "layers"));
    same(model, "heads", a->attn.n_head, json_object_get(want, "heads"));
    same(model, "kv heads", a->attn.n_kv_head, json_object_get(want, "kv"));
    same(model, "head size", a->attn.head_dim_k, json_object_get(want, "dim"));
    same(model, "ff", d->dense.n_ff, json_object_get(want, "ff"));
    same(model, "rotated", turns || m->rope[0].n_rot == 0 ? (turns ? m->rope[0].n_rot : 0) : 0,
         json_object_get(want, "rot"));
    if (m->arch->rope.kind != ROPE_NONE)
        same(model, "theta", key_of(o, "rope.freq_base"), json_object_get(want, "theta"));
    same(model, "eps", m->eps, json_object_get(want, "eps"));
    same(model, "tied", o->config.tied, json_object_get(want, "tied"));
    same(model, "experts", e->moe.n_expert, json_object_get(want, "experts"));
    same(model, "experts of a token", e->moe.n_used, json_object_get(want, "used"));
    same(model, "an expert's ff", e->moe.n_ff, json_object_get(want, "expert_ff"));
    same(model, "scale", m->attn_scale, json_object_get(want, "scale"));
    const struct meta *stops = tensorfile_meta(&o->file, "tokenizer.infer.stops");
    same(model, "tokens that end an answer", stops ? (double)stops->n : 0, json_object_get(want, "stops"));
    same_list(model, "window", windows, json_object_get(want, "window"));
    same_list(model, "state", state, json_object_get(want, "state"));
    if (json_object_get(want, "shared_ff")) {
        same(model, "shared ff", e->moe.n_ff_shared, json_object_get(want, "shared_ff"));
    }
}

static void published_configs_open(void **state) {
    int n_refused = 0, n = 0;
    (void)state;
    for (size_t i = 0; i < n_entry; i++) {
        struct opened o;
        const struct entry *e = &entry[i];
        if (!strstr(name_of(e), only)) continue;
        json_t *quant = json_object_get(e->head, "hf_quant_config"),
               *generation = json_object_get(e->head, "generation");
        char *text = text_of(e), *beside = quant ? json_dumps(quant, 0) : NULL,
             *sampling = generation ? json_dumps(generation, 0) : NULL;
        n++;
        n_wrong = 0;
        if (open_config(&o, text, beside, sampling)) {
            print_error("%s: %s\n", name_of(e), err_message());
            n_wrong++;
        } else
            compare(&o, name_of(e), json_object_get(e->head, "want"));
        n_refused += n_wrong != 0;
        close_config(&o);
        free(text);
        free(beside);
        free(sampling);
    }
    assert_true(*only || n > 100);
    if (n_refused) fail_msg("%d of %d published config.json are refused or misread", n_refused, n);
}

/* Every architecture is there, and every entry says where its facts are from. */
static void every_architecture_is_there(void **state) {
    (void)state;
    const struct arch *a;
    for (size_t i = 0; i < n_entry; i++)
        if (json_string_length(json_object_get(entry[i].head, "source")) < 3)
            fail_msg("%s: no source", name_of(&entry[i]));
    for (int at = 0; (a = arch_at(at)); at++) {
        bool there = false;
        for (size_t i = 0; i < n_entry; i++) {
            const char *arch =
                json_string_value(json_object_get(json_object_get(entry[i].head, "want"), "arch"));
            there |= arch && strcmp(arch, a->name) == 0;
        }
        if (!there) fail_msg("%s: no published config.json", a->name);
    }
}

/* What a table lists of config.json's keys is read: it has a row of hf_keys.def. */
static void every_key_of_a_table_has_a_row(void **state) {
    (void)state;
    const struct arch *a;
    for (int at = 0; (a = arch_at(at)); at++)
        for (const char *p = a->hf.keys ? a->hf.keys : ""; *p; p += strspn(p, "|")) {
            char key[64];
            snprintf(key, sizeof key, "%.*s", (int)strcspn(p, "|"), p);
            p += strlen(key);
            if (!config_has_row(key)) fail_msg("%s: '%s' is in no row of hf_keys.def", a->name, key);
        }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(published_configs_open),
                                       cmocka_unit_test(every_architecture_is_there),
                                       cmocka_unit_test(every_key_of_a_table_has_a_row)};
    if (argc > 1) only = argv[1];
    read_entries();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
