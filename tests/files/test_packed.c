/* Folders that a method has quantised, damaged: each damage is found before anything is computed, and the message names the tensor. What
 * whole ones compute: test_hf_forward. */
#include "tests/lib/test.h"
#include "files/tensorfile.h"
#include "tests/lib/folder.h"
#include <math.h>
#include "model/model.h"
#include "seam/tap.h"

#define STACK "model.layers.0.mlp.experts."

/* Damages that leave the header's length: another name, the first two sizes of a shape in turns, another type, all bytes ff or 0. */
enum damage { RENAMED, TURNED, RETYPED, FILLED, ZEROED };
static const struct {
    const char *folder, *tensor; /* behind model.layers.0.self_attn.q_proj., or the whole name */
    enum damage damage;
    const char *says; /* beside the tensor's name */
} cases[] = {
    {"gptq", "scales", RENAMED, "q_proj.scales is missing"},
    {"gptq", "qzeros", RENAMED, "q_proj.qzeros is missing"},
    {"gptq", "scales", TURNED, "which is not of groups"},
    {"gptq", "qzeros", TURNED, "which is not [2][8]"},
    {"gptq", "qweight", TURNED, "which is not"},
    {"gptq", "scales", RETYPED, "is I16, not floats"},
    {"gptq", "g_idx", FILLED, "is in group -1 of 2"},
    {"gptq", "scales", FILLED, "holds"},
    {"gptq-order-shared", "g_idx", FILLED, "is in group -1 of 2"},
    {"ct-w4-order", "weight_g_idx", FILLED, "is in group -1 of 2"},
    {"gptq-8", "qzeros", TURNED, "which is not [2][16]"},
    {"awq", "qzeros", RENAMED, "q_proj.qzeros is missing"},
    {"awq", "scales", TURNED, "which is not of groups"},
    {"ct-w4", "weight_scale", RENAMED, "q_proj.weight_scale is missing"},
    {"ct-w4", "weight_shape", RENAMED, "q_proj.weight_shape is missing"},
    {"ct-w4", "weight_shape", FILLED, "what weight_shape says"},
    {"ct-w4", "weight_scale", TURNED, "which is not of groups of each row"},
    {"ct-w4", "weight_zero_point", TURNED, "which is not [8][2]"},
    {"ct-int8", "weight_scale", RENAMED, "q_proj.weight_scale is missing"},
    {"ct-int8", "weight_scale", TURNED, "which is not a scale of each row"},
    {"ct-nvfp4", "weight_scale", TURNED, "which is not [64][4]"},
    {"ct-nvfp4", "weight_scale", FILLED, "negative or no number"},
    {"ct-nvfp4", "weight_global_scale", RENAMED, "q_proj.weight_global_scale is missing"},
    {"ct-nvfp4", "weight_global_scale", FILLED, "nan"},
    {"fp8-blocks", "weight_scale_inv", RENAMED, "q_proj.weight_scale_inv is missing"},
    {"fp8-blocks", "weight_scale_inv", RETYPED, "is I32, not floats"},
    {"modelopt-fp8", "weight_scale", RENAMED, "q_proj.weight_scale is missing"},
    {"modelopt-nvfp4", "weight_scale_2", RENAMED, "q_proj.weight_scale_2 is missing"},
    {"bnb-nf4", "weight.absmax", RENAMED, "q_proj.weight.absmax is missing"},
    {"bnb-nf4", "weight.nested_absmax", RENAMED, "q_proj.weight.nested_absmax is missing"},
    {"bnb-nf4", "weight.quant_map", FILLED, "its levels are not those of NF4"},
    {"bnb-nf4", "weight.quant_state.bitsandbytes__nf4", FILLED, "quant_state.bitsandbytes__nf4"},
    {"bnb-nf4", "weight.quant_state.bitsandbytes__nf4", RENAMED, "quant_state.bitsandbytes__nf4 is missing"},
    {"bnb-nf4", "weight.nested_absmax", FILLED, "absmax: number 0 is"},
    {"bnb-fp4", "weight.quant_map", RENAMED, "q_proj.weight.quant_map is missing"},
    {"bnb-int8", "SCB", RENAMED, "q_proj.SCB is missing"},
    {"bnb-int8", "SCB", RETYPED, "is I32, not floats"},
    {"auto-round", "scales", RENAMED, "q_proj.scales is missing"},
    {"auto-round", "qzeros", TURNED, "which is not [2][8]"},
    {"auto-round-own", "qweight", TURNED, "which is not"},
    {"auto-round-own", "scales", FILLED, "holds"},
    {"auto-round-awq", "qzeros", RENAMED, "q_proj.qzeros is missing"},
    {"auto-round-awq", "scales", TURNED, "which is not of groups"},
    {"ct-mxfp4", "weight_scale", RENAMED, "q_proj.weight_scale is missing"},
    {"ct-mxfp4", "weight_scale", TURNED, "which is not [64][2]"},
    {"ct-mxfp4", "weight_scale", RETYPED, "is I8, not U8"},
    {"ct-mxfp4", "weight_scale", FILLED, "holds the scale 2^128, which is too large or no number"},
    {"ct-mxfp8", "weight_scale", RENAMED, "q_proj.weight_scale is missing"},
    {"ct-mxfp8", "weight_scale", TURNED, "which is not [64][2]"},
    {"ct-mxfp8", "weight_scale", RETYPED, "is I8, not floats"},
    {"ct-mxfp8", "weight_scale", FILLED, "holds the scale 2^128, which is too large or no number"},
    {"fp8-powers", "weight_scale_inv", FILLED, "holds the scale 2^128, which is too large or no number"},
    {"fp8-stacked", STACK "down_proj_scale_inv", RENAMED, "experts.down_proj_scale_inv is missing"},
    {"fp8-stacked", STACK "down_proj_scale_inv", RETYPED, "is I32, not floats"},
    {"fp8-stacked", STACK "down_proj_scale_inv", FILLED, "experts.down_proj_scale_inv holds"},
    {"fp8-stacked", STACK "gate_up_proj", TURNED, "which is not scales of every expert"},
};

/* packed: of a folder packed-FOLDER. */
static char *read_golden(bool packed, const char *folder, const char *name, size_t *n) {
    char path[512], file[160];
    snprintf(file, sizeof file, "golden/hf/%s%s/%s", packed ? "packed-" : "", folder, name);
    char *data = read_file(test_path(path, sizeof path, file), n);
    if (!data) fail_msg("%s cannot be opened", path);
    return data;
}

static char *read_packed(const char *folder, const char *name, size_t *n) {
    return read_golden(true, folder, name, n);
}

/* The config.json of packed-gptq with another entry for its quantization_config. */
static char *with_config(const char *own, size_t *n) {
    char *config = read_packed("gptq", "config.json", n), *out = malloc(*n + 512);
    char *at = strstr(config, "\"quantization_config\""), *end = strchr(at, '}');
    *n = (size_t)sprintf(out, "%.*s%s%s", (int)(at - config), config, own, end + 1);
    free(config);
    return out;
}

static void damage(char *data, const char *tensor, enum damage how) {
    char name[128];
    uint64_t header;
    long long a, b, begin, end;
    memcpy(&header, data, 8);
    snprintf(name, sizeof name, "\"%s%s\"",
             strncmp(tensor, "model.", 6) == 0 ? "" : "model.layers.0.self_attn.q_proj.", tensor);
    char *entry = strstr(data + 8, name), *shape, *type, *at;
    if (!entry || entry > data + 8 + header) fail_msg("%s is not there", name);
    shape = strstr(entry, "\"shape\":["), type = strstr(entry, "\"dtype\":\""),
    at = strstr(entry, "\"data_offsets\":[");
    assert_true(shape && type && at);
    if (how == RENAMED) entry[strlen(name) - 2] = '~';
    if (how == RETYPED) {
        char *t = type + strlen("\"dtype\":\"");
        *t = 'I';
        assert_true(t[1] == '3' || t[1] == '1' || t[1] == '8'); /* F32 -> I32, F16 -> I16, U8 -> I8 */
    }
    if (how == TURNED) {
        assert_int_equal(sscanf(shape, "\"shape\":[%lld,%lld", &a, &b), 2);
        char text[64];
        int n = snprintf(text, sizeof text, "\"shape\":[%lld,%lld", b, a);
        memcpy(shape, text, (size_t)n);
    }
    if (how != FILLED && how != ZEROED) return;
    assert_int_equal(sscanf(at, "\"data_offsets\":[%lld,%lld]", &begin, &end), 2);
    memset(data + 8 + header + begin, how == FILLED ? 0xff : 0, (size_t)(end - begin));
}

static void damaged_side_tensors(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n, n_config;
        struct folder d;
        struct tensorfile *f = NULL;
        char *data = read_packed(cases[i].folder, "model.safetensors", &n),
             *config = read_packed(cases[i].folder, "config.json", &n_config);
        damage(data, cases[i].tensor, cases[i].damage);
        folder_make(&d);
        folder_put(&d, "model.safetensors", data, n);
        folder_put(&d, "config.json", config, n_config);
        enum infer_status s = tensorfile_open(&f, d.path, &(struct tensorfile_options){0});
        const char *why = s ? err_message() : "";
        if ((s != INFER_E_INPUT && s != INFER_E_UNSUPPORTED) || !strstr(why, cases[i].says) ||
            !(strstr(why, "q_proj.") || strstr(why, "experts.")) || strchr(why, '\n'))
            fail_msg("packed-%s, %s, damage %d: status %d: %s", cases[i].folder, cases[i].tensor,
                     (int)cases[i].damage, (int)s, why);
        if (!s) tensorfile_close(f);
        folder_remove(&d);
        free(data), free(config);
    }
}

/* Methods that nobody reads here, and variants of others: refused by name with what would help, before any tensor is looked at. */
static void refused_methods(void **state) {
    (void)state;
    static const char *const methods[] = {
        "torchao", "quanto", "optimum-quanto", "eetq",   "hqq",     "sinq",       "aqlm",
        "vptq",    "quip",   "quip#",          "qtip",   "spqr",    "higgs",      "exl2",
        "exl3",    "bitnet", "quark",          "nvfp4",  "mxfp8",   "fp_quant",   "fouroversix",
        "metal",   "mxfp4",  "gguf",           "marlin", "bitblas", "squeezellm", "some-method"};
    static const struct {
        const char *config, *says;
    } variants[] = {
        {"'quantization_config': {'group_size': 64, 'bits': 4}",
         "'mlx' are not supported; take the model in BF16"},
        {"'quantization': {'group_size': 64, 'bits': 4, 'mode': 'affine'}",
         "'quantization': weights quantised by 'mlx' are not supported; take the model in BF16"},
        {"'quantization_config': {'quant_method': 'auto-round', 'bits': 2, 'packing_format': "
         "'auto_round:auto_gptq'}",
         "'bits' of quantization_config is not 4"},
        {"'quantization_config': {'quant_method': 'auto-round', 'bits': 8, 'packing_format': "
         "'auto_round:auto_awq'}",
         "'bits' of quantization_config is not 4"},
        {"'quantization_config': {'quant_method': 'intel/auto-round', 'bits': 4, 'packing_format': "
         "'auto_round:llm_compressor'}",
         "'packing_format' of quantization_config is not 'auto_round'"},
        {"'quantization_config': {'quant_method': 'auto-round', 'bits': 4, 'backend': 'ark'}",
         "'backend' of quantization_config is not"},
        {"'quantization_config': {'quant_method': 'auto-round', 'bits': 4, 'data_type': 'mx_fp'}",
         "'data_type' of quantization_config is not 'int'"},
        {"'quantization_config': {'quant_method': 'auto-round', 'bits': 4, 'rotation_config': {'a': 1}}",
         "'quantization_config.rotation_config'"},
        {"'quantization_config': {'quant_method': 'auto-round', 'bits': 4, 'extra_config': {'x.y': {'bits': "
         "2}}}",
         "'extra_config: x.y: bits' of quantization_config is not 4, 8 or 16"},
        {"'quantization_config': {'quant_method': 'gptq', 'bits': 4, 'dynamic': {'+:x': {'bits': 3}}}",
         "'dynamic: +:x: bits' of quantization_config is not 4, 8 or 16"},
        {"'quantization_config': {'quant_method': 'gptq', 'bits': 4, 'desc_act': 'false'}",
         "'desc_act' of quantization_config is not true or false"},
        {"'quantization_config': {'quant_method': 'gptq', 'bits': '4'}",
         "'bits' of quantization_config is not an integer"},
        {"'quantization_config': {'quant_method': 'gptq', 'bits': 4, 'checkpoint_format': 2}",
         "'checkpoint_format' of quantization_config is not a name"},
        {"'quantization_config': {'quant_method': 'fp8', 'weight_block_size': 128}",
         "'weight_block_size' of quantization_config is not a list"},
        {"'quantization_config': {'quant_method': 'compressed-tensors', 'format': 'pack-quantized', "
         "'config_groups': {'g': {'weights': "
         "{'num_bits': 4, 'symmetric': 'no'}}}}",
         "'symmetric' of quantization_config is not true or false"},
        {"'quantization_config': {'quant_method': 'compressed-tensors', 'format': 'mxfp6-quantized'}",
         "'format' of quantization_config is not pack-quantized"}};
    const size_t n_method = sizeof methods / sizeof *methods, n_variant = sizeof variants / sizeof *variants;
    for (size_t i = 0; i < n_method + n_variant; i++) {
        char name[64] = "", own[256], *config;
        size_t n_config;
        struct folder d;
        struct tensorfile *f = NULL;
        if (i < n_method) snprintf(name, sizeof name, "'%s' are not supported; take ", methods[i]);
        if (i < n_method)
            snprintf(own, sizeof own, "'quantization_config': {'quant_method': '%s'}", methods[i]);
        else
            snprintf(own, sizeof own, "%s", variants[i - n_method].config);
        for (char *c = own; *c; c++)
            if (*c == '\'') *c = '"';
        config = with_config(own, &n_config);
        folder_make(&d);
        folder_put(&d, "config.json", config, n_config);
        assert_int_equal(tensorfile_open(&f, d.path, &(struct tensorfile_options){0}), INFER_E_UNSUPPORTED);
        const char *want = i < n_method ? name : variants[i - n_method].says;
        if (!strstr(err_message(), want) || strchr(err_message(), '\n'))
            fail_msg("%s: %s", own, err_message());
        folder_remove(&d);
        free(config);
    }
}

/* Where bits and groups differ from module to module, the tensors count, not what config.json says first. */
static void modules_differ(void **state) {
    (void)state;
    static const struct {
        const char *folder, *at, *own; /* own stands behind the first at */
    } all[] = {{"gptq", "\"quantization_config\": {",
                "\"dynamic\": {\"+:.*down_proj\": {\"bits\": 8, \"group_size\": 64}, \"-:lm_head\": {}},"},
               {"ct-w4", "\"config_groups\": {",
                "\"group_9\": {\"targets\": [\"Linear\"], \"format\": \"pack-quantized\", \"weights\": "
                "{\"num_bits\": "
                "8, \"group_size\": 64}},"},
               {"ct-mxfp4", "\"config_groups\": {",
                "\"group_9\": {\"targets\": [\"Linear\"], \"format\": \"mxfp8-quantized\", \"weights\": "
                "{\"num_bits\": "
                "8, \"group_size\": 32}},"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        size_t n, n_config;
        struct folder d;
        struct tensorfile *f;
        char *data = read_packed(all[i].folder, "model.safetensors", &n),
             *config = read_packed(all[i].folder, "config.json", &n_config), *mixed = malloc(n_config + 512);
        const char *behind = strstr(config, all[i].at) + strlen(all[i].at);
        n_config = (size_t)sprintf(mixed, "%.*s%s%s", (int)(behind - config), config, all[i].own, behind);
        char *format = strstr(mixed, "\"format\": \"mxfp4-pack-quantized\"");
        if (format) memcpy(format, "\"format\": \"mixed-precision\"     ", 32);
        folder_make(&d);
        folder_put(&d, "model.safetensors", data, n);
        folder_put(&d, "config.json", mixed, n_config);
        assert_ok(tensorfile_open(&f, d.path, &(struct tensorfile_options){0}));
        assert_int_equal(tensorfile_find(f, "blk.0.attn_q.weight")->type, i == 2 ? QUANT_MXFP4 : QUANT_Z4);
        tensorfile_close(f);
        folder_remove(&d);
        free(data), free(config), free(mixed);
    }
}

/* MXFP8 whose products are too small for BF16 becomes F32, and is then what it says: bytes times 2^-127. */
static void small_powers(void **state) {
    (void)state;
    size_t n, n_config;
    struct folder d;
    struct tensorfile *f, *whole;
    char path[512], *data = read_packed("ct-mxfp8", "model.safetensors", &n),
                    *config = read_packed("ct-mxfp8", "config.json", &n_config);
    damage(data, "weight_scale", ZEROED);
    folder_make(&d);
    folder_put(&d, "model.safetensors", data, n);
    folder_put(&d, "config.json", config, n_config);
    assert_ok(tensorfile_open(&f, d.path, &(struct tensorfile_options){0}));
    assert_ok(tensorfile_open(&whole, test_path(path, sizeof path, "golden/hf/packed-ct-mxfp8"),
                              &(struct tensorfile_options){0}));
    const struct tensor *small = tensorfile_find(f, "blk.0.attn_q.weight"),
                        *was = tensorfile_find(whole, "blk.0.attn_q.weight");
    assert_true(small->type == QUANT_F32 && was->type == QUANT_BF16);
    for (size_t i = 0; i < 64 * 64; i++) { /* the same byte: equal but for a power of two */
        const float a = ((const float *)small->data)[i], b = bf16_to_f32(((const uint16_t *)was->data)[i]);
        int ea, eb;
        assert_true(frexpf(a, &ea) == frexpf(b, &eb) && fabsf(a) <= 448 * 0x1p-127f);
    }
    tensorfile_close(f), tensorfile_close(whole);
    folder_remove(&d);
    free(data), free(config);
}

/* Stacks of experts in one tensor of bytes stay bytes, also where their columns are stored as rows. */
static void stacks_of_bytes(void **state) {
    (void)state;
    static const char *const folders[] = {"fp8-stacked", "fp8-columns"};
    for (size_t i = 0; i < 2; i++) {
        char path[512], name[128];
        struct tensorfile *f;
        snprintf(name, sizeof name, "golden/hf/packed-%s", folders[i]);
        assert_ok(tensorfile_open(&f, test_path(path, sizeof path, name), &(struct tensorfile_options){0}));
        const struct tensor *up = tensorfile_find(f, "blk.0.ffn_gate_up_exps.weight"),
                            *down = tensorfile_find(f, "blk.0.ffn_down_exps.weight");
        assert_true(up && down && up->type == QUANT_F8_128 && down->type == QUANT_F8_128);
        assert_int_equal(up->shape[1], 3);
        assert_int_equal(up->shape[3], 128);
        assert_int_equal(up->shape[2], 2 * down->shape[3]);
        tensorfile_close(f);
    }
}

/* Groups that config.json contradicts, and a file that is cut. */
static void contradictions(void **state) {
    (void)state;
    size_t n, n_config;
    struct folder d;
    struct tensorfile *f;
    char *data = read_packed("gptq", "model.safetensors", &n),
         *config = read_packed("gptq", "config.json", &n_config);
    folder_make(&d);
    memcpy(strstr(config, "\"group_size\": 32") + strlen("\"group_size\": "), "64", 2);
    folder_put(&d, "model.safetensors", data, n);
    folder_put(&d, "config.json", config, n_config);
    assert_int_equal(tensorfile_open(&f, d.path, &(struct tensorfile_options){0}), INFER_E_INPUT);
    assert_non_null(strstr(err_message(), "groups of 32 columns, but 'group_size' is 64"));
    folder_put(&d, "model.safetensors", data, n - 1);
    assert_int_equal(tensorfile_open(&f, d.path, &(struct tensorfile_options){0}), INFER_E_INPUT);
    assert_non_null(strstr(err_message(), "was the file cut?"));
    folder_remove(&d);
    free(data), free(config);
}

/* Bytes of the orders of columns that matrices of the file have, of which there are so many. */
static size_t orders_bytes(const struct tensorfile *f, int many) {
    size_t bytes = 0;
    for (size_t t = 0; t < f->n_tensor; t++) {
        const struct tensor *w = &f->tensor[t];
        size_t before = 0;
        while (before < t && f->tensor[before].columns != w->columns) before++;
        if (!w->columns || before < t) continue;
        bytes += (size_t)w->shape[3] * sizeof *w->columns;
        many--;
    }
    assert_int_equal(many, 0);
    return bytes;
}

/* Whether its bytes are those of the file. */
static bool is_kept(const struct tensorfile *f, size_t t) {
    const char *data = f->tensor[t].data;
    bool kept = false;
    for (int p = 0; p < f->n_part; p++)
        kept |=
            data >= (const char *)f->part[p].data && data < (const char *)f->part[p].data + f->part[p].size;
    return kept;
}

/* The types that hold each method's numbers: none larger than it must be, and all of them counted. */
static void types_of_matrices(void **state) {
    (void)state;
    static const struct {
        const char *folder;
        enum quant_type type, down; /* down: of ffn_down or attn_output, whose rows are others */
        int orders;                 /* of columns, all told */
    } want[] = {{"gptq", QUANT_Z4, QUANT_Z4, 0},
                {"gptq-sym", QUANT_Q4_0, QUANT_Q4_0, 0},
                {"auto-round", QUANT_Z4, QUANT_BF16, 0},
                {"auto-round-own", QUANT_Z4, QUANT_Z4, 0},
                {"auto-round-awq", QUANT_Z4, QUANT_Z4, 0},
                {"ct-mxfp4", QUANT_MXFP4, QUANT_MXFP4, 0},
                {"ct-mxfp8", QUANT_BF16, QUANT_BF16, 0},
                {"fp8-stacked", QUANT_F8_128, QUANT_F32, 0},
                {"fp8-columns", QUANT_F8_128, QUANT_F32, 0},
                {"fp8-powers", QUANT_F8_128, QUANT_F32, 0},
                {"gptq-order", QUANT_Z4, QUANT_Z4, 7},
                {"gptq-order-shared", QUANT_Q8_0, QUANT_Q8_0, 5},
                {"ct-w4-order", QUANT_Z4, QUANT_Z4, 5},
                {"gptq-8", QUANT_Q8_0, QUANT_Q8_0, 0},
                {"awq", QUANT_Z4, QUANT_Z4, 0},
                {"ct-w4", QUANT_Z4, QUANT_Z4, 0},
                {"ct-w8", QUANT_Q8_0, QUANT_Q8_0, 0},
                {"ct-int8", QUANT_I8_128, QUANT_F32, 0},
                {"ct-fp8", QUANT_F8_128, QUANT_F32, 0},
                {"fp8-blocks", QUANT_F8_128, QUANT_F32, 0},
                {"ct-nvfp4", QUANT_NVFP4, QUANT_NVFP4, 0},
                {"modelopt-nvfp4", QUANT_NVFP4, QUANT_NVFP4, 0},
                {"bnb-nf4", QUANT_NF4, QUANT_NF4, 0},
                {"bnb-fp4", QUANT_FP4, QUANT_FP4, 0},
                {"bnb-int8", QUANT_I8_128, QUANT_F32, 0}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        char path[512], name[128];
        struct tensorfile *f;
        snprintf(name, sizeof name, "golden/hf/packed-%s", want[i].folder);
        assert_ok(tensorfile_open(&f, test_path(path, sizeof path, name), &(struct tensorfile_options){0}));
        const struct tensor *q = tensorfile_find(f, "blk.0.attn_q.weight"),
                            *o = tensorfile_find(f, "blk.0.attn_output.weight");
        assert_true(q && o);
        if (q->type != want[i].type || o->type != want[i].down)
            fail_msg("packed-%s: %s and %s", want[i].folder, quant_info(q->type)->name,
                     quant_info(o->type)->name);
        size_t made = 0;
        for (size_t t = 0; t < f->n_tensor; t++)
            if (strstr(f->tensor[t].name, "blk.") && f->tensor[t].n_dim >= 2 && !is_kept(f, t))
                made += f->tensor[t].bytes;
        made += orders_bytes(f, want[i].orders);
        assert_int_equal(f->made_bytes, made);
        tensorfile_close(f);
    }
}

/* Layers that draft, which published folders have and nothing here reads: passed over, and said to who asks for them. */
static void layers_that_draft(void **state) {
    (void)state;
    static const struct {
        const char *folder, *says;
        size_t n;
    } want[] = {
        {"qwen4_exp-fp8", "59 tensors of layers that draft are not read of a qwen4exp", 59},
        {"deepseek_v4-packed", "43 tensors of layers that draft are not read of a deepseek4", 43},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        char path[512], name[128];
        struct model *m, *draft;
        snprintf(name, sizeof name, "golden/hf/%s", want[i].folder);
        assert_ok(model_open(&m, test_path(path, sizeof path, name), NULL));
        assert_int_equal(m->file->drafts.n, want[i].n);
        assert_int_equal(model_open_draft(&draft, m), INFER_E_UNSUPPORTED);
        assert_non_null(strstr(err_message(), want[i].says));
        model_close(m);
    }
}

#define TABLE "model.language_model.layers.0.ple.ple_embedding.ngram_embedding."

/* A table in parts with one scale, as Qwen3.8-Flash-Next-FP8 has it: BF16 and a factor. */
static void a_table_with_one_scale(void **state) {
    (void)state;
    static const struct {
        const char *tensor;
        enum damage damage;
        const char *says;
    } bad[] = {{TABLE "weight_scale", RENAMED, "ngram_embedding.weight_scale is missing"},
               {TABLE "weight_scale", FILLED, "ngram_embedding.weight_scale is -nan"},
               {TABLE "weight_scale", ZEROED, "ngram_embedding.weight_scale is 0"}};
    char path[512], *config;
    size_t n_config;
    struct model *m;
    assert_ok(model_open(&m, test_path(path, sizeof path, "golden/hf/qwen4_exp-fp8"), NULL));
    const struct tensor *part = tensorfile_find(m->file, "per_layer_token_embd.3.weight"),
                        *scale = tensorfile_find(m->file, "per_layer_token_embd.scale");
    assert_true(part && part->type == QUANT_BF16 && scale && m->ngram_table.member[0].n_stack == 4);
    assert_true(m->ngram_table.member[0].factor == *(const float *)scale->data &&
                *(const float *)scale->data < 1);
    model_close(m);
    config = read_golden(false, "qwen4_exp-fp8", "config.json", &n_config);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        size_t n;
        struct folder d;
        struct tensorfile *f = NULL;
        char *data = read_golden(false, "qwen4_exp-fp8", "model.safetensors", &n);
        damage(data, bad[i].tensor, bad[i].damage);
        folder_make(&d);
        folder_put(&d, "model.safetensors", data, n);
        folder_put(&d, "config.json", config, n_config);
        assert_int_equal(tensorfile_open(&f, d.path, &(struct tensorfile_options){0}), INFER_E_INPUT);
        if (!strstr(err_message(), bad[i].says)) fail_msg("%s", err_message());
        folder_remove(&d);
        free(data);
    }
    free(config);
}

/* What looks at inputs sees columns as the file counts them. */
struct seen {
    const float *x;
    float row[4];
};
static const float *read_x(void *from, struct view v, int t) {
    return (const float *)((struct seen *)from)->x + v.col + t;
}
static void see(void *user, const char *name, int n, int e, const float *x, int k) {
    assert_true(strcmp(name, "w") == 0 && n == 1 && e == 0 && k == 4);
    memcpy(((struct seen *)user)->row, x, sizeof(float[4]));
}
static void taps_see_columns_of_the_file(void **state) {
    (void)state;
    static const int32_t columns[4] = {2, 0, 3, 1};
    const float in_file[4] = {10, 11, 12, 13}, x[4] = {12, 10, 13, 11};
    struct weight_group g = {.n_member = 1, .n = 1, .k = 4};
    g.member[0] = (struct weight){.name = "w", .n = 1, .k = 4, .n_stack = 1, .columns = columns};
    struct seen seen = {.x = x};
    const struct op op = {.kind = OP_MATMUL, .matmul = {{0, 0, 4}, {1, 0, 1}, &g, false}};
    tap_op(&(struct tap){.row = see, .user = &seen}, &op, 1, read_x, &seen);
    assert_memory_equal(seen.row, in_file, sizeof in_file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_side_tensors),   cmocka_unit_test(refused_methods),
        cmocka_unit_test(modules_differ),         cmocka_unit_test(small_powers),
        cmocka_unit_test(stacks_of_bytes),        cmocka_unit_test(contradictions),
        cmocka_unit_test(types_of_matrices),      cmocka_unit_test(taps_see_columns_of_the_file),
        cmocka_unit_test(a_table_with_one_scale), cmocka_unit_test(layers_that_draft),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
