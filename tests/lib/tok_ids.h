/* What a text must give, for the tests of tokenizers. */
#pragma once
#include "tests/lib/test.h"
#include "text/tok/tok.h"

/* ids must be what text gives; the list ends with -1 */
static void check_ids(const struct tok *t, const char *text, const uint8_t *marks, unsigned flags,
                      const int32_t *want) {
    int32_t ids[256];
    size_t n, k = 0;
    assert_ok(tok_encode(t, text, marks, strlen(text), flags, ids, 256, &n));
    while (want[k] >= 0) k++;
    for (size_t i = 0; i < n && i < k; i++)
        if (ids[i] != want[i]) fail_msg("'%s': id %zu is %d, not %d", text, i, ids[i], want[i]);
    assert_int_equal(n, k);
}
#define IDS(...) ((const int32_t[]){__VA_ARGS__, -1})
#define NO_IDS   ((const int32_t[]){-1})
