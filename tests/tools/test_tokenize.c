/* The command `infer tokenize`, as a user calls it: text to ids and back, JSON lines, exit codes. */
#include "tests/lib/test.h"
#include "tests/lib/tok_vocab.h"
#include <sys/wait.h>

static char bpe[] = "/tmp/infer-vocab-XXXXXX", spm[] = "/tmp/infer-vocab-XXXXXX";

static int write_both(void **state) {
    (void)state;
    struct vocab_file v;
    vf_bpe(&v, "gpt-2");
    vf_write(&v, bpe);
    vf_spm(&v);
    vf_write(&v, spm);
    return 0;
}
static int remove_both(void **state) {
    (void)state;
    unlink(bpe);
    unlink(spm);
    return 0;
}

/* printf INPUT | infer tokenize -m VOCAB FLAGS must print want and end with code. */
static void check(const char *vocab, const char *flags, const char *input, const char *want, int code) {
    const char *bin = getenv("INFER_BIN");
    char command[4096], got[4096];
    snprintf(command, sizeof command, "printf -- '%s' | '%s/infer' tokenize -m %s %s 2>/dev/null", input,
             bin ? bin : ".", vocab, flags);
    FILE *p = popen(command, "r");
    assert_non_null(p);
    size_t n = fread(got, 1, sizeof got - 1, p);
    got[n] = 0;
    int status = pclose(p);
    if (strcmp(got, want) != 0) fail_msg("%s: '%s', not '%s'", command, got, want);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) != code) fail_msg("%s: exit code %d, not %d", command, WEXITSTATUS(status), code);
}

static void text_to_ids(void **state) {
    (void)state;
    check(bpe, "", "hello hello", "261 262\n", 0);
    check(bpe, "", "", "\n", 0);
    check(bpe, "", "a\\n", "97 10\n", 0); /* the last line's end is text, too */
    check(bpe, "--special", "<|im_start|>hello<|im_end|>", "265 261 266\n", 0);
    check(spm, "--add-special", "ab", "1 259 262\n", 0);
}

static void ids_to_text(void **state) {
    (void)state;
    check(bpe, "--decode", "261 262\\n10", "hello hello\n", 0);
    check(bpe, "--decode", "265 97", "a", 0);
    check(bpe, "--decode --special", "265 97", "<|im_start|>a", 0);
    check(bpe, "--decode", "1,2 x", "", 2);
    check(bpe, "--decode", "100000", "", 2);
    check(bpe, "--decode", "-1", "", 2);
}

static void json_lines(void **state) {
    (void)state;
    check(bpe, "--jsonl", "\"hello\"\\n\"\"\\n\"\\\\u0000a\"\\n", "[261]\n[]\n[0,97]\n", 0);
    check(bpe, "--jsonl --decode", "[261]\\n[10,34]\\n[255]\\n", "\"hello\"\n\"\\n\\\"\"\n\"\xef\xbf\xbd\"\n",
          0);
    check(bpe, "--jsonl", "hello", "", 2);
    check(bpe, "--jsonl", "[1]", "", 2);
    check(bpe, "--jsonl --decode", "[1.5]", "", 2);
}

static void no_such_file(void **state) {
    (void)state;
    check("/tmp/infer-no-such-file", "", "a", "", 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_to_ids),
        cmocka_unit_test(ids_to_text),
        cmocka_unit_test(json_lines),
        cmocka_unit_test(no_such_file),
    };
    return cmocka_run_group_tests(tests, write_both, remove_both);
}
