/* What every test includes: cmocka with the headers it needs, and helpers to find files. */
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/status.h"

/* Fails the test with the library's message when a call is not INFER_OK. */
#define assert_ok(call)                                                                                      \
    do {                                                                                                     \
        enum infer_status assert_status_ = (call);                                                           \
        if (assert_status_ != INFER_OK)                                                                      \
            fail_msg("%s: status %d: %s", #call, (int)assert_status_, err_message());                        \
    } while (0)

/* path of tests/<name> in buf; the folder comes from $INFER_TESTS, which ctest sets. */
static inline const char *test_path(char *buf, size_t n, const char *name) {
    const char *dir = getenv("INFER_TESTS");
    snprintf(buf, n, "%s/%s", dir ? dir : "tests", name);
    return buf;
}

/* path of $INFER_TESTDATA/<name>, NULL when the folder is not there (then skip with a printed reason; under
 * INFER_REQUIRE_TESTDATA=1 that is a failure). */
static inline const char *testdata_path(char *buf, size_t n, const char *name) {
    const char *dir = getenv("INFER_TESTDATA");
    if (!dir || !*dir) {
        const char *must = getenv("INFER_REQUIRE_TESTDATA");
        if (must && *must == '1') fail_msg("INFER_TESTDATA is not set and INFER_REQUIRE_TESTDATA is");
        print_message("skipped: INFER_TESTDATA is not set (folder with outside vectors)\n");
        return NULL;
    }
    snprintf(buf, n, "%s/%s", dir, name);
    return buf;
}

/* The bytes of a file and a 0 behind them, to be freed; NULL: it cannot be opened. */
static inline char *read_file(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    *n = 0;
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    char *text = malloc(*n + 1);
    assert_int_equal(fread(text, 1, *n, f), *n);
    text[*n] = 0;
    fclose(f);
    return text;
}

/* to[n], words of four bytes. */
static inline void read_words(FILE *f, void *to, size_t n) { assert_int_equal(fread(to, 4, n, f), n); }
