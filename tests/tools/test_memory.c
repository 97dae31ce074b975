/* Out of memory wherever it falls: each command is run with its k-th allocation failing, for every k. Either it says so with exit
 * code 1, or nothing of its output is missing. */
#include "tests/lib/test.h"
#include "tests/lib/folder.h"
#define main infer_main
#include "tools/main.c"
#undef main
#include <fcntl.h>

/* ---- a model as a folder: one layer, seven tokens ---- */

static const char config[] =
    "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"hidden_act\": \"silu\", "
    "\"num_hidden_layers\": 1,"
    " \"hidden_size\": 8, \"intermediate_size\": 8, \"vocab_size\": 7, \"num_attention_heads\": 2, "
    "\"rms_norm_eps\": 1e-6,"
    " \"max_position_embeddings\": 64, \"tie_word_embeddings\": false, \"eos_token_id\": [6]}";

static const char tokenizer[] = "{\"added_tokens\": [{\"id\": 5, \"content\": \"<s>\", \"special\": true}],"
                                " \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false},"
                                " \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": "
                                "[{\"SpecialToken\": {\"id\": \"<s>\"}},"
                                " {\"SpecialToken\": {\"id\": \"<s>\"}}, {\"Sequence\": {\"id\": \"A\"}}]},"
                                " \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2, "
                                "\"c\": 3, \"\\\"\": 4}, \"merges\": [\"a b\"]}}";

static const char tokenizer_config[] =
    "{\"added_tokens_decoder\": {\"5\": {\"content\": \"<s>\", \"special\": true}, \"6\": {\"content\": "
    "\"</s>\", \"special\": true}},"
    " \"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"model_max_length\": 1000000000000000019884624838656,"
    " \"chat_template\": \"{{ bos_token }}{% for m in messages %}{{ m.content | upper | lower | trim }}"
    "{{ m | tojson | replace('x', 'y') | length }}{% endfor %}\"}";

static const char generation_config[] =
    "{\"do_sample\": true, \"temperature\": 0.6, \"top_k\": 20, \"eos_token_id\": [6, 5]}";

static const struct {
    const char *name;
    int rows, cols;
} tensors[] = {{"model.embed_tokens.weight", 7, 8},
               {"model.layers.0.input_layernorm.weight", 0, 8},
               {"model.layers.0.self_attn.q_proj.weight", 8, 8},
               {"model.layers.0.self_attn.k_proj.weight", 8, 8},
               {"model.layers.0.self_attn.v_proj.weight", 8, 8},
               {"model.layers.0.self_attn.o_proj.weight", 8, 8},
               {"model.layers.0.post_attention_layernorm.weight", 0, 8},
               {"model.layers.0.mlp.gate_proj.weight", 8, 8},
               {"model.layers.0.mlp.up_proj.weight", 8, 8},
               {"model.layers.0.mlp.down_proj.weight", 8, 8},
               {"model.norm.weight", 0, 8},
               {"lm_head.weight", 7, 8}};

static void put_model(const struct folder *d) {
    static char header[8192];
    static float data[1024];
    size_t n = 0, at = 0;
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        int rows = tensors[i].rows;
        size_t many = (size_t)((rows ? rows : 1) * tensors[i].cols);
        char shape[32];
        if (rows)
            snprintf(shape, sizeof shape, "%d, %d", rows, tensors[i].cols);
        else
            snprintf(shape, sizeof shape, "%d", tensors[i].cols);
        at += (size_t)sprintf(header + at,
                              "%s\"%s\": {\"dtype\": \"F32\", \"shape\": [%s], \"data_offsets\": [%zu, %zu]}",
                              i ? ", " : "{", tensors[i].name, shape, 4 * n, 4 * (n + many));
        for (size_t k = 0; k < many; k++, n++) data[n] = rows ? (float)((n * 7919) % 101) / 101 - 0.5f : 1;
    }
    header[at++] = '}';
    char *file = calloc(1, 8 + at + 4 * n);
    assert_non_null(file);
    memcpy(file, &(uint64_t){at}, 8);
    memcpy(file + 8, header, at);
    memcpy(file + 8 + at, data, 4 * n);
    folder_put(d, "model.safetensors", file, 8 + at + 4 * n);
    free(file);
    folder_text(d, "config.json", config);
    folder_text(d, "tokenizer.json", tokenizer);
    folder_text(d, "tokenizer_config.json", tokenizer_config);
    folder_text(d, "generation_config.json", generation_config);
}

/* ---- one run ---- */

enum { ROOM = 1 << 16 };
static struct folder model, work;
static int out_fd, err_fd; /* what stands for stdout and stderr while a command runs */

static size_t contents(int fd, char *text) {
    ssize_t n = pread(fd, text, ROOM - 1, 0);
    assert_true(n >= 0 && n < ROOM - 1);
    text[n] = 0;
    return (size_t)n;
}

/* The exit code of infer with those arguments, with allocation k failing (0: none), its output in out and err. */
static int run(char *const *args, uint64_t k, char *out, size_t *n_out, char *err) {
    int old_out = dup(1), old_err = dup(2), n = 0;
    char *argv[24] = {"infer"};
    while (args[n]) argv[n + 1] = args[n], n++;
    fflush(stdout);
    fflush(stderr);
    assert_int_equal(ftruncate(out_fd, 0) | ftruncate(err_fd, 0), 0);
    lseek(out_fd, 0, SEEK_SET);
    lseek(err_fd, 0, SEEK_SET);
    dup2(out_fd, 1);
    dup2(err_fd, 2);
    mem_fail_at(k);
    int code = infer_main(n + 1, argv);
    mem_fail_at(0);
    fflush(stdout);
    fflush(stderr);
    dup2(old_out, 1);
    dup2(old_err, 2);
    close(old_out);
    close(old_err);
    *n_out = contents(out_fd, out);
    contents(err_fd, err);
    return code;
}

/* result: a file that the command writes, NULL: none. */
static void fail_everywhere(char *const *args, const char *result) {
    static char want[ROOM], out[ROOM], err[ROOM], want_file[ROOM], file[ROOM];
    size_t n_want, n_out, n_want_file = 0, n_file = 0;
    char name[256] = "";
    for (int i = 0; args[i]; i++) snprintf(name + strlen(name), sizeof name - strlen(name), "%s ", args[i]);
    int code = run(args, 0, want, &n_want, err);
    if (code != EXIT_DONE) fail_msg("%s: exit code %d: %s", name, code, err);
    for (uint64_t k = 0; k < 20000; k++) {
        if (result) {
            int fd = open(result, O_RDONLY);
            *(k ? &n_file : &n_want_file) = fd < 0 ? 0 : contents(fd, k ? file : want_file);
            if (fd >= 0) close(fd);
            if (k && code == EXIT_DONE && (n_file != n_want_file || memcmp(file, want_file, n_file) != 0))
                fail_msg("%s, allocation %d: another file", name, (int)k);
            if (k && code != EXIT_DONE && fd >= 0)
                fail_msg("%s, allocation %d: a file is left", name, (int)k);
            unlink(result);
        }
        uint64_t failed = mem_failed();
        code = run(args, k + 1, out, &n_out, err);
        if (mem_failed() == failed) {
            print_message("%s: %d allocations\n", name, (int)k);
            assert_true(k > 20);
            return;
        }
        if (code == EXIT_DONE && (n_out != n_want || memcmp(out, want, n_out) != 0))
            fail_msg("%s, allocation %d: exit code 0 and other output:\n%.600s", name, (int)k + 1, out);
        if (code != EXIT_DONE && (code != EXIT_CANNOT || !*err))
            fail_msg("%s, allocation %d: exit code %d: %s", name, (int)k + 1, code, err);
    }
    fail_msg("%s: no end of allocations", name);
}

#define PATH(folder, name) folder_file(&folder, (char[256]){0}, name)
#define FAIL(result, ...)  fail_everywhere((char *const[]){__VA_ARGS__, NULL}, result)
#define CHAR(s)            ((char *)(uintptr_t)(s))

static void inspect_says_so(void **state) {
    (void)state;
    FAIL(NULL, "inspect", model.path);
    FAIL(NULL, "inspect", "--json", model.path);
    FAIL(NULL, "inspect", "--check", "--json", model.path);
}

static void template_says_so(void **state) {
    (void)state;
    FAIL(NULL, "template", "-m", model.path, "--input", CHAR(PATH(work, "case.json")));
    FAIL(NULL, "template", "--template", CHAR(PATH(work, "t.jinja")), "--input",
         CHAR(PATH(work, "case.json")));
}

static void convert_says_so(void **state) {
    (void)state;
    char path[256];
    folder_file(&work, path, "out.gguf");
    FAIL(path, "convert", model.path, path, "--type", "f16", "-q");
}

static void run_says_so(void **state) {
    (void)state;
    FAIL(NULL, "run", "-m", model.path, "-p", "abc", "-n", "3", "-q", "-t", "1", "--device", "ref", "--ctx",
         "32");
    FAIL(NULL, "run", "-m", model.path, "-p", "abc", "-n", "3", "-q", "-t", "1", "--device", "ref", "--ctx",
         "32", "--json-schema", CHAR(PATH(work, "schema.json")), "--logprobs", "1");
}

int main(void) {
    folder_make(&model);
    folder_make(&work);
    put_model(&model);
    folder_text(&work, "case.json",
                "{\"messages\": [{\"role\": \"user\", \"content\": \"x \\u00e4 1\", \"more\": [1, 2.5, "
                "{\"a\": null}]}],"
                " \"tools\": [{\"name\": \"f\"}], \"n\": 10000000000000000000000}");
    folder_text(&work, "t.jinja",
                "{% for m in messages %}{{ m.content | upper }}{{ m.more | tojson(indent=2) }}{% endfor %}"
                "{{ tools | map(attribute='name') | join(',') }}{{ n }}{{ 'Abc'.title().swapcase() }}");
    folder_text(&work, "schema.json", "{\"enum\": [\"a\", \"b\"]}");
    out_fd = open(PATH(work, "stdout"), O_RDWR | O_CREAT | O_TRUNC, 0600);
    err_fd = open(PATH(work, "stderr"), O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(out_fd >= 0 && err_fd >= 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inspect_says_so),
        cmocka_unit_test(template_says_so),
        cmocka_unit_test(convert_says_so),
        cmocka_unit_test(run_says_so),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    folder_remove(&model);
    folder_remove(&work);
    return failed;
}
