/* Files of all kinds to the pixels that Pillow makes of them (scripts/make-image-goldens); cut, broken and foreign files by name. */
#include "tests/lib/test.h"
#include "base/mem.h"
#include "vision/image_decode.h"

struct golden {
    char name[32];
    int width, height;
    char *file;
    size_t n_file;
    const unsigned char *rgb;
};
static struct golden goldens[64];
static int n_golden;
static char *all_rgb;

static int load(void **state) {
    (void)state;
    char path[512], line[256], name[96];
    size_t n, at = 0;
    all_rgb = read_file(test_path(path, sizeof path, "golden/vision/pictures.rgb"), &n);
    FILE *f = fopen(test_path(path, sizeof path, "golden/vision/pictures.txt"), "r");
    if (!all_rgb || !f) return -1;
    while (fgets(line, sizeof line, f)) {
        struct golden *g = &goldens[n_golden];
        if (*line == '#') continue;
        if (sscanf(line, "%31s %d %d", g->name, &g->width, &g->height) != 3) return -1;
        snprintf(name, sizeof name, "fuzz/corpus/image/%s", g->name);
        g->file = read_file(test_path(path, sizeof path, name), &g->n_file);
        g->rgb = (const unsigned char *)all_rgb + at;
        at += (size_t)g->width * (size_t)g->height * 3;
        n_golden++;
    }
    fclose(f);
    return at == n && n_golden == 37 ? 0 : -1;
}
static int unload(void **state) {
    (void)state;
    for (int i = 0; i < n_golden; i++) free(goldens[i].file);
    free(all_rgb);
    return 0;
}
static const struct golden *golden(const char *name) {
    for (int i = 0; i < n_golden; i++)
        if (strcmp(goldens[i].name, name) == 0) return &goldens[i];
    fail_msg("no golden %s", name);
    return NULL;
}

static int worst(const struct image *i, const struct golden *g) {
    int most = 0;
    for (int k = 0; k < g->width * g->height * 3; k++) {
        const int d = abs((int)i->rgb[k] - (int)g->rgb[k]);
        most = d > most ? d : most;
    }
    return most;
}

static void pillows_pixels(void **state) {
    (void)state;
    for (int i = 0; i < n_golden; i++) {
        const struct golden *g = &goldens[i];
        struct image_head head;
        struct image p;
        assert_ok(image_head(&head, g->file, g->n_file, &IMAGE_LIMITS));
        assert_ok(image_decode(&p, g->file, g->n_file, &IMAGE_LIMITS));
        if (p.width != g->width || p.height != g->height || head.width != g->width ||
            head.height != g->height)
            fail_msg("%s: %d x %d, header %d x %d", g->name, p.width, p.height, head.width, head.height);
        const int most = worst(&p, g); /* (another version of libjpeg may round otherwise) */
        if (most > (head.kind == IMAGE_JPEG ? 2 : 0)) fail_msg("%s: differs by %d", g->name, most);
        image_free(&p);
    }
}

/* Every beginning of a file is refused in one line, or has all pixels and lacks an end that nobody needs. */
static void cut(void **state) {
    (void)state;
    for (int i = 0; i < n_golden; i++) {
        const struct golden *g = &goldens[i];
        size_t n = 0;
        for (struct image p; n < g->n_file; n++) {
            char *some = malloc(n + 1); /* (so that a sanitizer sees a byte too many) */
            memcpy(some, g->file, n);
            const enum infer_status e = image_decode(&p, some, n, &IMAGE_LIMITS);
            free(some);
            if (!e) {
                if (p.width == g->width && worst(&p, g) > 2)
                    fail_msg("%s: %zu bytes give other pixels", g->name, n);
                image_free(&p);
                continue;
            }
            assert_int_equal(e, INFER_E_INPUT);
            assert_null(p.rgb);
            if (!*err_message() || strchr(err_message(), '\n')) fail_msg("%s: '%s'", g->name, err_message());
        }
    }
}

static void expect(const char *message, enum infer_status want, const char *bytes, size_t n,
                   const struct image_limits *limits) {
    struct image p;
    struct image_head head;
    assert_int_equal(image_head(&head, bytes, n, limits), want);
    assert_string_equal(err_message(), message);
    assert_int_equal(image_decode(&p, bytes, n, limits), want);
    assert_string_equal(err_message(), message);
    assert_null(p.rgb);
}

static void refused_by_name(void **state) {
    (void)state;
    const struct golden *g = golden("rgb.png");
    char *bad = malloc(g->n_file);
    struct image p;
    expect("the picture is empty", INFER_E_INPUT, "", 0, &IMAGE_LIMITS);
    expect("this is no JPEG, PNG, WebP, GIF or BMP", INFER_E_INPUT, "hello", 5, &IMAGE_LIMITS);
    expect("this is a HEIC picture, which is not read here: make it a JPEG or PNG", INFER_E_UNSUPPORTED,
           "\0\0\0\x18"
           "ftypheic1234",
           16, &IMAGE_LIMITS);
    expect("the picture has 189 bytes, at most 188 are taken", INFER_E_INPUT, g->file, g->n_file,
           &(struct image_limits){188, 1000});
    expect("the picture is 23 x 14, at most 321 pixels and sides of 65535 are taken", INFER_E_INPUT, g->file,
           g->n_file, &(struct image_limits){1000, 321});
    memcpy(bad, g->file, g->n_file); /* a PNG that says it has 2 GB of pixels is not begun */
    memcpy(bad + 16, "\0\0\x80\0\0\0\x40\0", 8);
    expect("the picture is 32768 x 16384, at most 64000000 pixels and sides of 65535 are taken",
           INFER_E_INPUT, bad, g->n_file, &IMAGE_LIMITS);
    memcpy(bad, g->file, g->n_file);
    bad[45] ^= 1;
    assert_int_equal(image_decode(&p, bad, g->n_file, &IMAGE_LIMITS), INFER_E_INPUT);
    assert_memory_equal(err_message(), "the PNG is broken: IDAT: ", 25);
    free(bad);
}

/* Whatever a byte is: an answer or a line, and the size that the header said. */
static void any_byte(void **state) {
    (void)state;
    for (int i = 0; i < n_golden; i++) {
        const struct golden *g = &goldens[i];
        for (size_t at = 0; at < g->n_file; at += 3) {
            struct image p;
            struct image_head head;
            const char was = g->file[at];
            g->file[at] = (char)(was ^ (char)(1 << at % 8));
            if (!image_decode(&p, g->file, g->n_file, &(struct image_limits){100000, 1000000})) {
                assert_ok(image_head(&head, g->file, g->n_file, &IMAGE_LIMITS));
                assert_int_equal(head.width, p.width);
                assert_int_equal(head.height, p.height);
            }
            image_free(&p);
            g->file[at] = was;
        }
    }
}

static void memory(void **state) {
    (void)state;
    for (int i = 0; i < n_golden; i++) {
        struct image p;
        enum infer_status e = INFER_E_MEMORY;
        for (int k = 1; e; k++) {
            mem_fail_at((uint64_t)k);
            e = image_decode(&p, goldens[i].file, goldens[i].n_file, &IMAGE_LIMITS);
            mem_fail_at(0);
            if (e && e != INFER_E_MEMORY) fail_msg("%s: %s", goldens[i].name, err_message());
            assert_true(k < 100);
        }
        image_free(&p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(pillows_pixels), cmocka_unit_test(cut),
                                       cmocka_unit_test(refused_by_name), cmocka_unit_test(any_byte),
                                       cmocka_unit_test(memory)};
    return cmocka_run_group_tests(tests, load, unload);
}
