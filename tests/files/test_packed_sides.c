/* Every tensor that a packed matrix is made of, in every folder of tests/golden/hf that has one, broken in turn: left out, longer, shorter, turned, in
 * one dimension more, of another type of as many bytes, and where it is scales, holding NaN or less than 0. Each is refused before anything is computed, by
 * the name of the tensor or of its module.
 * usage: test_packed_sides [PATTERN]    the folders whose names match */
#include "tests/lib/test.h"
#include "tests/lib/pace.h"
#include "infer.h"
#include "tests/lib/folder.h"
#include "tests/lib/hf_folders.h"
#include <jansson.h>

/* model.safetensors, apart. */
struct weights {
    json_t *header;
    char *data;
    size_t n;
};

static void weights_read(struct weights *w, const char *path) {
    uint64_t header;
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("%s cannot be opened", path);
    assert_int_equal(fread(&header, 8, 1, f), 1);
    char *text = malloc(header + 1);
    assert_int_equal(fread(text, 1, header, f), header);
    w->header = json_loadb(text, header, 0, NULL);
    assert_non_null(w->header);
    free(text);
    const long at = ftell(f);
    fseek(f, 0, SEEK_END);
    w->n = (size_t)(ftell(f) - at);
    fseek(f, at, SEEK_SET);
    w->data = malloc(w->n);
    assert_int_equal(fread(w->data, 1, w->n, f), w->n);
    fclose(f);
}

/* One tensor of a file that is written anew; data[n]. */
struct other {
    const char *name, *dtype;
    json_t *shape; /* NULL: the tensor is left out */
    const char *data;
    size_t n;
};

static void put(FILE *f, json_t *header, size_t *at, const char *name, const char *dtype, json_t *shape,
                const char *data, size_t n) {
    assert_int_equal(fwrite(data, 1, n, f), n);
    json_object_set_new(header, name,
                        json_pack("{s:s, s:O, s:[I, I]}", "dtype", dtype, "shape", shape, "data_offsets",
                                  (json_int_t)*at, (json_int_t)(*at + n)));
    *at += n;
}
/* The weights with one tensor as another, or one more. */
static void weights_write(const struct weights *w, const struct folder *d, const struct other *o) {
    json_t *header = json_object(), *v;
    const char *name;
    char path[256];
    size_t at = 0;
    FILE *f = fopen(folder_file(d, path, "data"), "wb");
    assert_non_null(f);
    if (o->shape) put(f, header, &at, o->name, o->dtype, o->shape, o->data, o->n);
    json_object_foreach(w->header, name, v) {
        if (strcmp(name, "__metadata__") == 0 || strcmp(name, o->name) == 0) continue;
        const json_t *offsets = json_object_get(v, "data_offsets");
        const size_t begin = (size_t)json_integer_value(json_array_get(offsets, 0)),
                     end = (size_t)json_integer_value(json_array_get(offsets, 1));
        put(f, header, &at, name, json_string_value(json_object_get(v, "dtype")), json_object_get(v, "shape"),
            w->data + begin, end - begin);
    }
    fclose(f);
    char *text = json_dumps(header, JSON_COMPACT), command[600];
    const uint64_t n = strlen(text);
    f = fopen(folder_file(d, path, "model.safetensors"), "wb");
    assert_int_equal(fwrite(&n, 8, 1, f) + fwrite(text, 1, n, f), 1 + n);
    fclose(f);
    snprintf(command, sizeof command, "cat %s/data >> %s/model.safetensors", d->path, d->path);
    assert_int_equal(system(command), 0);
    free(text);
    json_decref(header);
}

/* ---- damages ---- */

enum damage { MISSING, LONGER, SHORTER, TURNED, DEEPER, RETYPED, NO_NUMBER, NEGATIVE, N_DAMAGE };
static const char *const damage_name[] = {"left out", "longer",          "shorter", "turned",
                                          "deeper",   "of another type", "NaN",     "negative"};

static const char *retyped(const char *dtype) {
    static const char *const pairs[][2] = {{"F32", "I32"},         {"I32", "F32"}, {"F16", "I16"},
                                           {"BF16", "I16"},        {"U8", "I8"},   {"I8", "F8_E4M3"},
                                           {"F8_E4M3", "F8_E5M2"}, {"I64", "U64"}, {"F8_E8M0", "I8"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (strcmp(dtype, pairs[i][0]) == 0) return pairs[i][1];
    fail_msg("%s has no other type", dtype);
    return NULL;
}

/* Fills n bytes with a float of the type; false: it has none like it. */
static bool fill(char *data, size_t n, const char *dtype, bool nan) {
    const uint32_t f32 = nan ? 0x7fc00000 : 0xbf800000;
    const uint16_t bf16 = nan ? 0x7fc0 : 0xbf80, f16 = nan ? 0x7e00 : 0xbc00;
    const uint8_t e4m3 = nan ? 0x7f : 0xb8, e8m0 = 0xff;
    const void *v = strcmp(dtype, "F32") == 0       ? &f32
                    : strcmp(dtype, "BF16") == 0    ? (const void *)&bf16
                    : strcmp(dtype, "F16") == 0     ? (const void *)&f16
                    : strcmp(dtype, "F8_E4M3") == 0 ? (const void *)&e4m3
                    : nan                           ? (const void *)&e8m0
                                                    : NULL;
    const size_t size = strcmp(dtype, "F32") == 0 ? 4 : strstr(dtype, "F16") ? 2 : 1;
    for (size_t i = 0; v && i < n; i += size) memcpy(data + i, v, size);
    return v != NULL;
}

static bool ends_with(const char *s, const char *end) {
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}
/* What the matrix itself is in: of it, messages may say the name in GGUF. */
static bool is_codes(const char *name) {
    return ends_with(name, "weight") || ends_with(name, "weight_packed") || ends_with(name, "_blocks") ||
           ends_with(name, "_proj") || ends_with(name, "qweight");
}
/* What a folder can do without: groups that follow each other; another shape of one row of bytes. */
static bool is_idle(const char *model, const char *name, enum damage how) {
    if (how == MISSING) return ends_with(name, "g_idx") && !strstr(model, "-order");
    return how == TURNED && strstr(model, "packed-bnb-") && !strstr(model, "int8") &&
           ends_with(name, ".weight");
}
/* Those of words may be below 0: AutoRound's are. An exponent cannot be. */
static bool is_scale(const char *name, const char *dtype, bool negative) {
    const bool words =
        ends_with(name, ".scales") || (ends_with(name, "weight_scale") && dtype[1] != '3' && dtype[1] != '8');
    if (ends_with(name, "quant_map") || ends_with(name, "nested_absmax")) return !negative;
    if (negative && (words || strcmp(dtype, "U8") == 0)) return false;
    if (ends_with(name, ".absmax") && strcmp(dtype, "U8") == 0) return false; /* codes */
    return strstr(name, "scale") || ends_with(name, "absmax") || ends_with(name, "SCB");
}

/* The tensor damaged; false: that damage says nothing of it. Free o->shape and data. */
static bool break_it(struct other *o, const char *name, const json_t *entry, const char *data,
                     enum damage how) {
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    const size_t begin = (size_t)json_integer_value(json_array_get(offsets, 0)),
                 n = (size_t)json_integer_value(json_array_get(offsets, 1)) - begin;
    json_t *shape = json_deep_copy(json_object_get(entry, "shape"));
    const json_int_t first = json_integer_value(json_array_get(shape, 0)),
                     second = json_integer_value(json_array_get(shape, 1));
    const size_t row = first ? n / (size_t)first : n;
    char *copy = malloc(2 * n + 1);
    memcpy(copy, data + begin, n), memcpy(copy + n, data + begin, n);
    *o = (struct other){.name = name, .dtype = dtype, .shape = shape, .data = copy, .n = n};
    bool good = true;
    if (how == MISSING) json_decref(shape), o->shape = NULL;
    if (how == LONGER && (good = first > 0))
        json_array_set_new(shape, 0, json_integer(first + 1)), o->n = n + row;
    if (how == SHORTER && (good = first > 1))
        json_array_set_new(shape, 0, json_integer(first - 1)), o->n = n - row;
    if (how == TURNED && (good = second > 0 && first != second)) {
        json_array_set_new(shape, 0, json_integer(second));
        json_array_set_new(shape, 1, json_integer(first));
    }
    if (how == DEEPER && (good = json_array_size(shape) == 1 || json_array_size(shape) == 2)) {
        while (json_array_size(shape) < 2) json_array_insert_new(shape, 0, json_integer(1));
        json_array_insert_new(shape, 0, json_integer(2)), o->n = 2 * n;
    }
    if (how == RETYPED) o->dtype = retyped(dtype);
    if (how >= NO_NUMBER)
        good = is_scale(name, dtype, how == NEGATIVE) && fill(copy, n, dtype, how == NO_NUMBER);
    if (!good && o->shape) json_decref(shape), o->shape = NULL;
    if (!good) free(copy);
    return good;
}

/* ---- folders ---- */

/* Of what is packed: side tensors and codes of a few modules, those of activations apart; *module: how long the name of the module is. */
static bool is_side(const char *name, const char *dtype, size_t *module) {
    static const char *const modules[] = {"layers.0.self_attn.q_proj", "layers.0.mlp.down_proj",
                                          "layers.0.mlp.experts.gate_up_proj",
                                          "layers.0.mlp.experts.down_proj"};
    static const char *const ends[] = {"qweight",   "weight_packed", "_blocks",      "qzeros",     "scales",
                                       "g_idx",     "shape",         "weight_scale", "zero_point", "SCB",
                                       "absmax",    "quant_map",     "nf4",          "fp4",        "scale_2",
                                       "scale_inv", "_global_scale"};
    bool known = false, one = false;
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
        const char *at = strstr(name, modules[i]);
        if (at) one = true, *module = (size_t)(at - name) + strlen(modules[i]);
    }
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) known |= ends_with(name, ends[i]);
    if (ends_with(name, "weight_format")) return false;
    if (strstr(name, "input_") || strstr(name, "activation_scale")) return false;
    return one && (known || (*dtype != 'F' && *dtype != 'B') || strncmp(dtype, "F8", 2) == 0);
}

static void expect_refusal(const struct folder *d, const char *model, const struct other *o, size_t module,
                           enum damage how) {
    struct infer_model *m = NULL;
    char part[256];
    snprintf(part, sizeof part, "%.*s", (int)module, o->name);
    const enum infer_status s = infer_model_open(&m, d->path, NULL);
    const char *why = s ? infer_error() : "it is taken";
    const bool named = strstr(why, part) || (is_codes(o->name) && strstr(why, ": tensor blk.0."));
    if ((s != INFER_E_INPUT && s != INFER_E_UNSUPPORTED) || !named || strchr(why, '\n'))
        fail_msg("%s: %s %s: status %d: %s", model, o->name, damage_name[how], (int)s, why);
    infer_model_close(m);
}

/* The weights and the config.json of a golden folder, in one of its own that opens. */
static void folder_of(const char *model, struct folder *d, struct weights *w) {
    char path[512], file[160], command[700];
    struct infer_model *m;
    snprintf(file, sizeof file, "golden/hf/%s/model.safetensors", model);
    weights_read(w, test_path(path, sizeof path, file));
    folder_make(d);
    snprintf(file, sizeof file, "golden/hf/%s/config.json", model);
    test_path(path, sizeof path, file);
    *strrchr(path, '/') = 0; /* with hf_quant_config.json, where it has one */
    snprintf(command, sizeof command, "cp '%s'/*config.json %s", path, d->path);
    assert_int_equal(system(command), 0);
    weights_write(w, d, &(struct other){.name = ""});
    assert_ok(infer_model_open(&m, d->path, NULL));
    infer_model_close(m);
}

static void every_side_tensor_counts(void **state) {
    const char *model = *state, *name;
    struct folder d;
    struct weights w;
    struct other o;
    json_t *v;
    int n = 0;
    folder_of(model, &d, &w);
    json_object_foreach(w.header, name, v) {
        size_t module = 0;
        if (!json_object_get(v, "dtype") ||
            !is_side(name, json_string_value(json_object_get(v, "dtype")), &module))
            continue;
        for (int how = 0; how < N_DAMAGE; how++) {
            if (is_idle(model, name, (enum damage)how) || !break_it(&o, name, v, w.data, (enum damage)how))
                continue;
            weights_write(&w, &d, &o);
            expect_refusal(&d, model, &o, module, (enum damage)how);
            if (o.shape) json_decref(o.shape);
            free((char *)(uintptr_t)o.data);
            n++;
        }
    }
    assert_in_range(n, 8, 200);
    json_decref(w.header);
    free(w.data);
    folder_remove(&d);
}

/* A tensor put into a folder, and what is said of it; NULL: it is taken. */
static void put_and_expect(const char *model, const struct other *o, const char *says) {
    struct folder d;
    struct weights w;
    struct infer_model *m = NULL;
    folder_of(model, &d, &w);
    weights_write(&w, &d, o);
    const enum infer_status s = infer_model_open(&m, d.path, NULL);
    if ((says != NULL) != (s != INFER_OK) ||
        (s && (!strstr(infer_error(), says) ||
               !(strstr(infer_error(), o->name) || strstr(infer_error(), "tensor blk.0.attn_q.")))))
        fail_msg("%s with %s: status %d: %s", model, o->name, (int)s, s ? infer_error() : "it is taken");
    infer_model_close(m);
    json_decref(o->shape);
    json_decref(w.header);
    free(w.data);
    folder_remove(&d);
}

/* Scales of rows where config.json says blocks, and the other way round; zero points of bytes, which are not read. */
static void scales_as_config_says(void **state) {
    (void)state;
    static const char q[] = "model.layers.0.self_attn.q_proj.weight_scale_inv",
                      c[] = "model.layers.0.self_attn.q_proj.weight_scale",
                      zero[] = "model.layers.0.self_attn.q_proj.weight_zero_point";
    static float ones[64];
    static signed char codes[64];
    for (int i = 0; i < 64; i++) ones[i] = 1;
    put_and_expect("packed-fp8-blocks", &(struct other){q, "F32", json_pack("[i, i]", 1, 1), (char *)ones, 4},
                   NULL);
    put_and_expect("packed-fp8-blocks",
                   &(struct other){q, "F32", json_pack("[i, i]", 64, 1), (char *)ones, 256},
                   "not a scale of each block of 128x128");
    put_and_expect("packed-ct-fp8", &(struct other){c, "F32", json_pack("[i, i]", 64, 1), (char *)ones, 256},
                   NULL);
    put_and_expect("packed-ct-fp8", &(struct other){c, "F32", json_pack("[i, i]", 1, 1), (char *)ones, 4},
                   "not a scale of each row");
    put_and_expect("packed-modelopt-fp8", &(struct other){c, "F32", json_pack("[i]", 64), (char *)ones, 256},
                   "not one scale");
    put_and_expect("packed-ct-int8",
                   &(struct other){zero, "I8", json_pack("[i, i]", 64, 1), (char *)codes, 64}, NULL);
    put_and_expect("packed-ct-int8",
                   &(struct other){zero, "I8", json_pack("[i, i]", 32, 1), (char *)codes, 32},
                   "not that of weight_scale");
    /* one too many */
    put_and_expect("packed-fp8-blocks", &(struct other){c, "F32", json_pack("[i, i]", 1, 1), (char *)ones, 4},
                   "weight_scale");
    put_and_expect("packed-modelopt-fp8", &(struct other){zero, "F32", json_pack("[i]", 1), (char *)ones, 4},
                   "weight_zero_point");
    put_and_expect("packed-gptq", &(struct other){c, "F32", json_pack("[i, i]", 64, 1), (char *)ones, 256},
                   "weight_scale");
    put_and_expect("packed-awq", &(struct other){zero, "I32", json_pack("[i]", 64), (char *)ones, 256},
                   "weight_zero_point");
    put_and_expect("packed-ct-w8", &(struct other){q, "F32", json_pack("[i]", 1), (char *)ones, 4},
                   "weight_scale_inv");
    codes[63] = 3;
    put_and_expect("packed-ct-int8",
                   &(struct other){zero, "I8", json_pack("[i, i]", 64, 1), (char *)codes, 64},
                   "supported where they are 0");
}

int main(int argc, char **argv) {
    static struct CMUnitTest tests[HF_FOLDERS_MAX + 1] = {cmocka_unit_test(scales_as_config_says)};
    static const char *models[HF_FOLDERS_MAX];
    const int n_model = hf_folders(models);
    int n = 1;
    for (int i = 0; i < n_model; i += EVERY(3))
        if (strncmp(models[i], "packed-", 7) == 0 || strstr(models[i], "-mxfp4"))
            tests[n++] = (struct CMUnitTest){models[i], every_side_tensor_counts, NULL, NULL,
                                             (void *)(uintptr_t)models[i]};
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return _cmocka_run_group_tests("folders", tests, (size_t)n, NULL, NULL);
}
