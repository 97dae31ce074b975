/* Files of adapters that are refused, each with one line that says why: GGUF, PEFT's folders, bytes that lie, no memory. */
#include "tests/lib/test.h"
#include "base/mem.h"
#include "files/json.h"
#include "infer.h"
#include "tests/lib/folder.h"
#include "tests/lib/gguf_text.h"
#include "tests/lib/pace.h"

static void refused(struct infer_model *m, const char *path, const char *says) {
    struct infer_adapter *a;
    const enum infer_status s = infer_adapter_open(&a, m, path, NULL);
    if (s != INFER_E_INPUT && s != INFER_E_UNSUPPORTED && s != INFER_E_IO)
        fail_msg("%s: status %d", path, (int)s);
    if (!strstr(infer_error(), says)) fail_msg("'%s' is not in: %s", says, infer_error());
    if (strchr(infer_error(), '\n')) fail_msg("more than a line: %s", infer_error());
}

static void broken_gguf(void **state) {
    (void)state;
    struct infer_model *m;
    struct folder d;
    char path[512], file[256];
#define HEAD(t, k) "head 3 " #t " " #k " "
#define KEYS                                                                                                 \
    "key general.type 8 str adapter key general.architecture 8 str llama key adapter.type 8 str lora "
#define ALPHA      "key adapter.lora.alpha 6 f32 8 "
#define A_IS(dims) "tensor blk.0.attn_q.weight.lora_a 0 0 " dims
    static const struct {
        const char *text, *says;
    } cases[] = {
        {HEAD(1, 1) "key general.architecture 8 str llama " A_IS("32 2") " pad 32 zero 256",
         "it is no adapter"},
        {HEAD(1, 3) "key general.type 8 str adapter key general.architecture 8 str qwen3 key adapter.type 8 str lora " A_IS(
             "32 2") " pad 32 zero 256",
         "of another model"},
        {HEAD(1, 3) "key general.type 8 str adapter key general.architecture 8 str llama key adapter.type 8 str ia3 " A_IS(
             "32 2") " pad 32 zero 256",
         "other adapters"},
        {HEAD(1, 3) KEYS A_IS("32 2") " pad 32 zero 256", "adapter.lora.alpha' is missing"},
        {HEAD(0, 4) KEYS ALPHA "pad 32", "no tensors"},
        {HEAD(1, 5) KEYS ALPHA
         "key adapter.alora.invocation_tokens 9 arr 4 1 u32 7 " A_IS("32 2") " pad 32 zero 256",
         "from some tokens on"},
        {HEAD(1, 4) KEYS "key adapter.lora.alpha 6 f32 nan " A_IS("32 2") " pad 32 zero 256", "alpha is"},
        {HEAD(1, 4) KEYS ALPHA A_IS("32 2") " pad 32 zero 256", "has no B"},
        {HEAD(1, 4) KEYS ALPHA "tensor blk.0.attn_norm.weight 0 0 32 pad 32 zero 128", "neither NAME.lora_a"},
        {HEAD(2, 4) KEYS ALPHA A_IS("31 2") " tensor blk.0.attn_q.weight.lora_b 0 256 2 64 pad 32 zero 768",
         "of another model"},
        {HEAD(2, 4) KEYS ALPHA A_IS("32 2") " tensor blk.0.attn_q.weight.lora_b 0 256 2 63 pad 32 zero 760",
         "of another model"},
        {HEAD(2, 4) KEYS ALPHA A_IS("32 2") " tensor blk.0.attn_q.weight.lora_b 0 256 3 64 pad 32 zero 1024",
         "of another model"},
        {HEAD(2, 4) KEYS ALPHA
         "tensor blk.9.attn_q.weight.lora_a 0 0 32 2 tensor blk.9.attn_q.weight.lora_b 0 256 2 64 "
         "pad 32 zero 768",
         "has no blk.9.attn_q.weight"},
        {HEAD(2, 4) KEYS ALPHA
         "tensor token_embd.weight.lora_a 0 0 32 2 tensor token_embd.weight.lora_b 0 256 2 67 "
         "pad 32 zero 792",
         "no matrix of a product"},
        {HEAD(2, 4) KEYS ALPHA
         "tensor blk.0.attn_q.weight.lora_a 0 0 32 2000 tensor blk.0.attn_q.weight.lora_b 0 256000 "
         "2000 64 pad 32 zero 768000",
         "more than 1024"},
        {HEAD(2, 4) KEYS ALPHA A_IS("32 2") " tensor blk.0.attn_q.weight.lora_b 0 256 2 64 pad 32 zero 700",
         "byte"},
        {HEAD(1, 1) "key general.architecture 8 str controlvector tensor direction.9 0 0 32 pad 32 zero 128",
         "layers 0 to 1"},
        {HEAD(1, 1) "key general.architecture 8 str controlvector tensor direction.1 0 0 31 pad 32 zero 124",
         "does not fit"},
        {HEAD(1, 1) "key general.architecture 8 str controlvector tensor way.1 0 0 32 pad 32 zero 128",
         "direction.N"},
    };
    folder_make(&d);
    assert_ok(infer_model_open(&m, test_path(path, sizeof path, "golden/hf/llama"), NULL));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gguf_text g = {0};
        gguf_text(&g, cases[i].text);
        folder_put(&d, "a.gguf", g.data, g.n);
        refused(m, folder_file(&d, file, "a.gguf"), cases[i].says);
        free(g.data);
    }
    refused(m, folder_file(&d, file, "none.gguf"), "none.gguf");
    infer_model_close(m);
    folder_remove(&d);
}

/* Configurations of PEFT that ask for more than pairs, beside the weights of tests/golden/adapter/llama. */
static void broken_folders(void **state) {
    (void)state;
    static const struct {
        const char *config, *says;
    } cases[] = {
        {"{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 6, \"use_dora\": true}", "DoRA"},
        {"{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 6, \"modules_to_save\": [\"lm_head\"]}",
         "modules_to_save"},
        {"{\"peft_type\": \"IA3\", \"lora_alpha\": 6}", "only LORA"},
        {"{\"peft_type\": \"LORA\", \"r\": 4}", "lora_alpha is no number"},
        {"{\"peft_type\": \"LORA\", \"lora_alpha\": 6, \"bias\": \"all\"}", "bias is 'all'"},
        {"{\"peft_type\": \"LORA\", \"lora_alpha\": 6, \"init_lora_weights\": \"pissa_niter_4\"}",
         "base that was changed"},
        {"{\"peft_type\": \"LORA\", \"lora_alpha\": 6, \"alpha_pattern\": {\"q_proj|k_proj\": 2}}",
         "expression"},
        {"{\"peft_type\"", "adapter_config.json"},
    };
    struct infer_model *m;
    struct folder d;
    char path[512], command[1024], from[512];
    folder_make(&d);
    assert_ok(infer_model_open(&m, test_path(path, sizeof path, "golden/hf/llama"), NULL));
    refused(m, d.path, "no adapter_config.json");
    folder_text(&d, "adapter_config.json", "{\"peft_type\": \"LORA\", \"lora_alpha\": 6}");
    refused(m, d.path, "no adapter_model.safetensors");
    snprintf(command, sizeof command, "cp '%s/adapter_model.safetensors' '%s'",
             test_path(from, sizeof from, "golden/adapter/llama"), d.path);
    assert_int_equal(system(command), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        folder_text(&d, "adapter_config.json", cases[i].config);
        refused(m, d.path, cases[i].says);
    }
    folder_text(&d, "adapter_config.json", "{\"peft_type\": \"LORA\", \"lora_alpha\": 6}");
    snprintf(command, sizeof command, "truncate -s -10 '%s/adapter_model.safetensors'", d.path);
    assert_int_equal(system(command), 0);
    refused(m, d.path, "adapter_model.safetensors");
    infer_model_close(m);
    /* of another model */
    assert_ok(infer_model_open(&m, test_path(path, sizeof path, "golden/hf/phi3"), NULL));
    refused(m, from, "of another model");
    infer_model_close(m);
    folder_remove(&d);
}

/* Opens what is there as often as it takes until no allocation fails; every failure says so. */
static void without_memory(struct infer_model *m, const char *path) {
    struct infer_adapter *a;
    enum infer_status s = INFER_E_MEMORY;
    for (uint64_t k = 1; s; k++) {
        mem_fail_at(k);
        s = infer_adapter_open(&a, m, path, NULL);
        mem_fail_at(0);
        if (s && s != INFER_E_MEMORY) fail_msg("allocation %d: status %d: %s", (int)k, (int)s, infer_error());
    }
    infer_adapter_close(a);
}

/* Each byte of a file in turn is another one: it is refused with a line, or opened, and nothing else. */
static void each_byte_lies(struct infer_model *m, const struct folder *d, const char *name,
                           const char *opened, unsigned char *data, size_t n, size_t head) {
    struct infer_adapter *a;
    for (size_t i = 0; i < head; i += EVERY(7)) {
        const unsigned char kept = data[i];
        data[i] = i % 2 ? (unsigned char)~kept : (unsigned char)(kept + 1);
        folder_put(d, name, data, n);
        if (infer_adapter_open(&a, m, opened, NULL) == INFER_OK)
            infer_adapter_close(a);
        else
            assert_true(*infer_error() && !strchr(infer_error(), '\n'));
        data[i] = kept;
    }
    folder_put(d, name, data, n);
}

static void files_that_lie(void **state) {
    (void)state;
    struct infer_model *m;
    struct folder d, peft;
    struct gguf_text g = {0};
    char path[512], file[256], command[1100];
    static unsigned char weights[1 << 16];
    folder_make(&d), folder_make(&peft);
    assert_ok(infer_model_open(&m, test_path(path, sizeof path, "golden/hf/llama"), NULL));
    gguf_text(&g, HEAD(2, 4) KEYS ALPHA A_IS(
                      "32 2") " tensor blk.0.attn_q.weight.lora_b 0 256 2 64 pad 32 zero 768");
    folder_put(&d, "a.gguf", g.data, g.n);
    folder_file(&d, file, "a.gguf");
    without_memory(m, file);
    each_byte_lies(m, &d, "a.gguf", file, g.data, g.n, g.n - 768);
    free(g.data);
    snprintf(command, sizeof command, "cp '%s'/adapter_* '%s'",
             test_path(path, sizeof path, "golden/adapter/llama-second"), peft.path);
    assert_int_equal(system(command), 0);
    json_use_mem();
    without_memory(m, peft.path);
    FILE *f = fopen(folder_file(&peft, file, "adapter_model.safetensors"), "rb");
    assert_non_null(f);
    const size_t n = fread(weights, 1, sizeof weights, f);
    fclose(f);
    uint64_t head;
    memcpy(&head, weights, sizeof head);
    assert_true(n < sizeof weights && head + 8 < n);
    each_byte_lies(m, &peft, "adapter_model.safetensors", peft.path, weights, n, (size_t)head + 8);
    infer_model_close(m);
    folder_remove(&d), folder_remove(&peft);
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broken_gguf),
        cmocka_unit_test(broken_folders),
        cmocka_unit_test(files_that_lie),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
