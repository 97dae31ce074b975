/* Folders that a method has quantised, damaged: each damage is found before anything is computed, and the message names the tensor. What
 * whole ones compute: test_hf_forward. */
#include "test.h"
#include "files/tensorfile.h"
#include "folder.h"
#include "seam/tap.h"

/* Damages that leave the header's length: another name, the two sizes of a shape in turns, another type, all bytes ff. */
enum damage { RENAMED, TURNED, RETYPED, FILLED };
static const struct {
    const char *folder, *tensor; /* behind model.layers.0.self_attn.q_proj. */
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
    {"ct-int8", "weight_scale", TURNED, "one scale, one of each row"},
    {"ct-nvfp4", "weight_scale", TURNED, "which is not [64][4]"},
    {"ct-nvfp4", "weight_scale", FILLED, "negative or no number"},
    {"ct-nvfp4", "weight_global_scale", RENAMED, "q_proj.weight_global_scale is missing"},
    {"ct-nvfp4", "weight_global_scale", FILLED, "nan"},
    {"fp8-blocks", "weight_scale_inv", RENAMED, "q_proj.weight_scale is missing"},
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
};

static char *read_file(const char *folder, const char *name, size_t *n) {
    char path[512], file[160];
    snprintf(file, sizeof file, "golden/hf/packed-%s/%s", folder, name);
    FILE *f = fopen(test_path(path, sizeof path, file), "rb");
    if (!f) fail_msg("%s cannot be opened", path);
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    char *data = malloc(*n + 1);
    assert_int_equal(fread(data, 1, *n, f), *n);
    data[*n] = 0;
    fclose(f);
    return data;
}

static void damage(char *data, const char *tensor, enum damage how) {
    char name[128];
    uint64_t header;
    long long a, b, begin, end;
    memcpy(&header, data, 8);
    snprintf(name, sizeof name, "\"model.layers.0.self_attn.q_proj.%s\"", tensor);
    char *entry = strstr(data + 8, name), *shape, *type, *at;
    if (!entry || entry > data + 8 + header) fail_msg("%s is not there", name);
    shape = strstr(entry, "\"shape\":["), type = strstr(entry, "\"dtype\":\""),
    at = strstr(entry, "\"data_offsets\":[");
    assert_true(shape && type && at);
    if (how == RENAMED) entry[strlen(name) - 2] = '~';
    if (how == RETYPED) {
        char *t = type + strlen("\"dtype\":\"");
        *t = 'I';
        assert_true(t[1] == '3' || t[1] == '1'); /* F32 -> I32, F16 -> I16 */
    }
    if (how == TURNED) {
        assert_int_equal(sscanf(shape, "\"shape\":[%lld,%lld]", &a, &b), 2);
        char text[64];
        int n = snprintf(text, sizeof text, "\"shape\":[%lld,%lld]", b, a);
        memcpy(shape, text, (size_t)n);
    }
    if (how != FILLED) return;
    assert_int_equal(sscanf(at, "\"data_offsets\":[%lld,%lld]", &begin, &end), 2);
    memset(data + 8 + header + begin, 0xff, (size_t)(end - begin));
}

static void damaged_side_tensors(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n, n_config;
        struct folder d;
        struct tensorfile *f = NULL;
        char *data = read_file(cases[i].folder, "model.safetensors", &n),
             *config = read_file(cases[i].folder, "config.json", &n_config);
        damage(data, cases[i].tensor, cases[i].damage);
        folder_make(&d);
        folder_put(&d, "model.safetensors", data, n);
        folder_put(&d, "config.json", config, n_config);
        enum infer_status s = tensorfile_open(&f, d.path, &(struct tensorfile_options){0});
        const char *why = s ? err_message() : "";
        if ((s != INFER_E_INPUT && s != INFER_E_UNSUPPORTED) || !strstr(why, cases[i].says) ||
            !strstr(why, "q_proj.") || strchr(why, '\n'))
            fail_msg("packed-%s, %s, damage %d: status %d: %s", cases[i].folder, cases[i].tensor,
                     (int)cases[i].damage, (int)s, why);
        if (!s) tensorfile_close(f);
        folder_remove(&d);
        free(data), free(config);
    }
}

/* Groups that config.json contradicts, and a file that is cut. */
static void contradictions(void **state) {
    (void)state;
    size_t n, n_config;
    struct folder d;
    struct tensorfile *f;
    char *data = read_file("gptq", "model.safetensors", &n),
         *config = read_file("gptq", "config.json", &n_config);
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

/* The types that hold each method's numbers: none larger than it must be, and all of them counted. */
static void types_of_matrices(void **state) {
    (void)state;
    static const struct {
        const char *folder;
        enum quant_type type, down; /* down: of ffn_down or attn_output, whose rows are others */
        int orders;                 /* of columns, all told */
    } want[] = {{"gptq", QUANT_Z4, QUANT_Z4, 0},
                {"gptq-sym", QUANT_Q4_0, QUANT_Q4_0, 0},
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
            if (strstr(f->tensor[t].name, "blk.") && f->tensor[t].n_dim == 2) made += f->tensor[t].bytes;
        made += orders_bytes(f, want[i].orders);
        assert_int_equal(f->made_bytes, made);
        tensorfile_close(f);
    }
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
        cmocka_unit_test(damaged_side_tensors),
        cmocka_unit_test(contradictions),
        cmocka_unit_test(types_of_matrices),
        cmocka_unit_test(taps_see_columns_of_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
