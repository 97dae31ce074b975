/* A temporary folder for a test: made, filled, removed. */
#pragma once
#include "tests/lib/test.h"
#include <unistd.h>

struct folder {
    char path[64];
};
static inline void folder_make(struct folder *d) {
    strcpy(d->path, "/tmp/infer-test-XXXXXX");
    assert_non_null(mkdtemp(d->path));
}
static inline const char *folder_file(const struct folder *d, char path[256], const char *name) {
    snprintf(path, 256, "%s/%s", d->path, name);
    return path;
}
static inline void folder_put(const struct folder *d, const char *name, const void *data, size_t n) {
    char path[256];
    FILE *out = fopen(folder_file(d, path, name), "wb");
    assert_non_null(out);
    if (n) assert_int_equal(fwrite(data, 1, n, out), n);
    assert_int_equal(fclose(out), 0);
}
static inline void folder_text(const struct folder *d, const char *name, const char *text) {
    folder_put(d, name, text, strlen(text));
}
static inline void folder_remove(const struct folder *d) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", d->path);
    assert_int_equal(system(command), 0);
}
