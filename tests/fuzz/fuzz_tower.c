/* Any bytes as a tower's file: open, sizes and texts of pictures, one picture on the reference backend. What tower_open accepts must run
 * to the end. */
#include "tests/lib/fuzz_file.h"
#include "base/mem.h"
#include "vision/tower.h"

#include <stdio.h>
#include <string.h>

enum { MAX_ROWS = 24 };

static bool look_at(const struct tower *t, int width, int height, struct tower_fit *f) {
    struct tower_info info;
    struct tower_part p;
    int next = 0, rows = 0;
    tower_info(t, &info);
    if (tower_fit(t, width, height, f) != INFER_OK) return false;
    if (f->n_token < 1 || f->n_token > info.max_tokens) __builtin_trap();
    for (int k = 0; k < f->n_part; k++) {
        static int32_t axis[1 << 16][3];
        tower_part(t, f, k, &p);
        if (p.first_row != rows || memchr(p.text, 0, sizeof p.text) == NULL) __builtin_trap();
        rows += p.n_row;
        tower_positions(t, f, k, next, axis, &next);
    }
    if (rows != f->n_token) __builtin_trap();
    return true;
}

static void encode(struct tower *t, const struct tower_fit *f) {
    struct tower_info info;
    unsigned char rgb[20 * 12 * 3];
    float *rows;
    tower_info(t, &info);
    for (size_t i = 0; i < sizeof rgb; i++) rgb[i] = (unsigned char)(i * 37);
    const size_t n = (size_t)f->n_token * (size_t)info.n_embd * (1 + (size_t)info.n_deepstack);
    if (mem_new(&rows, n * sizeof *rows, "rows") != INFER_OK) return;
    (void)tower_encode(t, &(struct image){20, 12, rgb}, f, rows);
    mem_free(rows);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const int sides[] = {1, 7, 448, 65535};
    const char *path = fuzz_file(data, size);
    if (!path) return 0;
    struct tower *t;
    struct tower_fit f;
    const struct tower_options options = {
        .backend = &backend_ref, .max_tokens = MAX_ROWS, .no_mmap = true, .strict_fp32 = true};
    if (tower_open(&t, path, &options) != INFER_OK) {
        if (!*err_message() || strchr(err_message(), '\n')) __builtin_trap();
        return 0;
    }
    for (int i = 0; i < 16; i++) look_at(t, sides[i / 4], sides[i % 4], &f);
    if (look_at(t, 20, 12, &f)) encode(t, &f);
    tower_close(t);
    return 0;
}
