/* Any bytes as a model: open, bind, place on the reference backend, run a prompt and two decode rows. What
 * infer_model_open accepts must run to the end. */
#include "tests/lib/fuzz_file.h"
#include "infer.h"

#include <stdio.h>
#include <string.h>

static void use_text(const struct infer_model *m, const struct infer_model_info *info) {
    static const char text[] = "ab <|im_end|>\xe2\x96\x81 A\xff";
    int32_t ids[64];
    size_t n = 0, len;
    if (!info->has_tokenizer) return;
    infer_tokenize(m, text, NULL, sizeof text - 1, INFER_TOK_ADD | INFER_TOK_SPECIAL, ids, 64, &n);
    for (size_t i = 0; i < n && i < 64; i++) {
        if (ids[i] < 0 || ids[i] >= info->n_vocab) __builtin_trap();
        infer_piece(m, ids[i], true, i == 0, &len);
        infer_is_stop(m, ids[i]);
    }
}

static void run(struct infer_engine *e, const struct infer_model_info *info) {
    int seq, last = info->n_vocab - 1;
    struct infer_output out;
    if (infer_seq_open(e, &seq) != INFER_OK) return;
    const struct infer_row prompt[3] = {{.id = 0, .pos = 0, .seq = seq},
                                        {.id = last, .pos = 1, .seq = seq},
                                        {.id = 0, .pos = 2, .seq = seq, .want = INFER_WANT_TOKEN}};
    if (infer_step(e, prompt, 3, &out) != INFER_OK) return;
    for (int pos = 3; pos < 5; pos++) {
        const struct infer_row row = {
            .id = INFER_LAST, .pos = pos, .seq = seq, .decode = true, .want = INFER_WANT_TOKEN};
        if (infer_step(e, &row, 1, &out) != INFER_OK) return;
        if (out.token[0] < 0 || out.token[0] >= info->n_vocab) __builtin_trap();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *path = fuzz_file(data, size);
    if (!path) return 0;
    struct infer_model *m;
    const struct infer_model_options open = {.no_mmap = true};
    if (infer_model_open(&m, path, &open) != INFER_OK) {
        if (!*infer_error() || strchr(infer_error(), '\n')) __builtin_trap();
        return 0;
    }
    struct infer_model_info info;
    struct infer_engine *e;
    const struct infer_engine_options options = {.device = "ref", .ctx = 8, .batch = 4, .threads = 1};
    infer_model_info(m, &info);
    use_text(m, &info);
    if (infer_engine_create(&e, m, &options) == INFER_OK) {
        run(e, &info);
        infer_engine_free(e);
    }
    infer_model_close(m);
    return 0;
}
