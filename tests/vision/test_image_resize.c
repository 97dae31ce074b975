/* Pictures scaled as Pillow scales them: hashes that scripts/make-image-goldens has written. */
#include "tests/lib/test.h"
#include "base/mem.h"
#include "vision/image_resize.h"

static struct image made_up(int width, int height) {
    struct image i = {.width = width, .height = height};
    const size_t n = (size_t)width * (size_t)height * 3;
    assert_ok(mem_new(&i.rgb, n, "a picture"));
    uint32_t x = 1;
    for (size_t k = 0; k < n; k++) {
        x = (x * 1103515245u + 12345u) & 0x7fffffff;
        i.rgb[k] = (unsigned char)(x >> 16);
    }
    return i;
}

static uint64_t hash_of(const struct image *i) {
    uint64_t h = 0xcbf29ce484222325;
    for (size_t k = 0; k < (size_t)i->width * (size_t)i->height * 3; k++) h = (h ^ i->rgb[k]) * 0x100000001b3;
    return h;
}

static enum image_filter filter_of(const char *name) {
    static const char *const names[] = {"nearest", "box", "bilinear", "bicubic", "lanczos"};
    for (int i = 0; i < 5; i++)
        if (strcmp(name, names[i]) == 0) return (enum image_filter)i;
    fail_msg("no filter %s", name);
    return IMAGE_NEAREST;
}

static void pillows_bits(void **state) {
    (void)state;
    char path[512], line[256], name[16];
    FILE *f = fopen(test_path(path, sizeof path, "golden/vision/resize.txt"), "r");
    assert_non_null(f);
    int n = 0, w, h, to_w, to_h;
    unsigned long long want;
    while (fgets(line, sizeof line, f)) {
        if (*line == '#') continue;
        assert_int_equal(sscanf(line, "%d %d %d %d %15s %llx", &w, &h, &to_w, &to_h, name, &want), 6);
        struct image in = made_up(w, h), out;
        assert_ok(image_resize(&in, to_w, to_h, filter_of(name), &out));
        assert_int_equal(out.width, to_w);
        assert_int_equal(out.height, to_h);
        if (hash_of(&out) != want) fail_msg("%s", line);
        image_free(&in);
        image_free(&out);
        assert_null(out.rgb);
        n++;
    }
    fclose(f);
    assert_true(n >= 80);
}

static void sides_and_memory(void **state) {
    (void)state;
    struct image in = made_up(40, 30), out;
    assert_int_equal(image_resize(&in, 0, 5, IMAGE_BICUBIC, &out), INFER_E_INPUT);
    assert_int_equal(image_resize(&in, 5, IMAGE_SIDE_MAX + 1, IMAGE_BICUBIC, &out), INFER_E_INPUT);
    assert_string_equal(err_message(),
                        "a picture of 40x30 cannot be scaled to 5x65536: sides are 1 to 65535");
    enum infer_status e;
    int k = 1;
    for (;; k++) { /* every allocation fails once */
        mem_fail_at((uint64_t)k);
        e = image_resize(&in, 20, 20, IMAGE_LANCZOS, &out);
        mem_fail_at(0);
        if (!e) break;
        assert_int_equal(e, INFER_E_MEMORY);
        assert_null(out.rgb);
    }
    assert_in_range(k, 4, 40);
    image_free(&out);
    image_free(&in);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(pillows_bits), cmocka_unit_test(sides_and_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
