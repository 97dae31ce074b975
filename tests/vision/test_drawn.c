/* Pictures that are drawn (tests/lib/drawn.h) through towers with the sizes of patches, tiles and pictures that published models have: against
 * transformers. With --write FOLDER they are written there, with a list of their words, for scripts/goldens/drawn.py and for eyes. */
#include "tests/lib/drawn.h"
#include "tests/lib/tolerance.h"
#include "vision/tower_impl.h"

#include <math.h>

static const char *const names[] = {"qwen3vl", "pixtral", "idefics3", "gemma4v", "minicpmv4_6"};
enum { N_NAMES = sizeof names / sizeof *names };

/* ---- what is drawn ---- */

/* Words lie where is said, apart from each other, of all heights, some turned. */
static void words_are_where_they_are_said(void **state) {
    (void)state;
    int seen[41] = {0}, turned = 0, all = 0;
    for (int c = 0; c < 128; c++)
        for (const char *s = drawn_letter[c]; s && *s; s += strcspn(s, " ") + (strchr(s, ' ') != NULL))
            assert_int_equal(strcspn(s, " ") % 2, 0);
    for (int n = 0; n < DRAWN; n++) {
        struct drawn d;
        drawn_make(&d, n);
        for (int i = 0; i < d.n_word; i++) {
            const struct drawn_word *w = &d.word[i];
            const int area = (w->box[2] - w->box[0] + 1) * (w->box[3] - w->box[1] + 1);
            int dark = 0;
            assert_true(w->box[0] >= 0 && w->box[1] >= 0 && w->box[2] < d.image.width &&
                        w->box[3] < d.image.height);
            for (int y = w->box[1]; y <= w->box[3]; y++)
                for (int x = w->box[0]; x <= w->box[2]; x++)
                    dark += d.image.rgb[((size_t)y * (size_t)d.image.width + (size_t)x) * 3 + 1] < 120;
            if (dark * 25 < area)
                fail_msg("picture %d: %d of %d pixels of '%s', %d high, are dark", n, dark, area, w->text,
                         w->height);
            for (int k = 0; k < i; k++) assert_true(drawn_apart(w->box, d.word[k].box));
            seen[w->height]++, turned += w->angle > 0, all++;
        }
        image_free(&d.image);
    }
    assert_true(seen[8] && seen[10] && seen[12] && seen[16] && seen[24] && seen[40]);
    assert_in_range(turned, 20, all / 2);
}

/* ---- against transformers ---- */

struct kept {
    int32_t width, height, to_width, to_height, n_token, mark, resized, n_row;
};

/* Row r's share in the sum of all. */
static double share(int r) { return (double)((uint32_t)r * 2654435761u) / 4294967296.0 - 0.5; }

static void one_picture(struct tower *t, const char *name, int n, FILE *f, int width, double sd) {
    struct kept k;
    struct drawn d;
    struct tower_fit fit;
    int32_t at[64];
    float want[512];
    double most = 0;
    read_words(f, &k, sizeof k / 4);
    assert_in_range(k.n_row, 1, 64);
    assert_in_range(width, 1, 512);
    read_words(f, at, (size_t)k.n_row);
    drawn_make(&d, n);
    assert_int_equal((int32_t)drawn_mark(d.image.rgb, (size_t)d.image.width * (size_t)d.image.height * 3),
                     k.mark);
    assert_ok(tower_fit(t, d.image.width, d.image.height, &fit));
    if (fit.to_width != k.to_width || fit.to_height != k.to_height || fit.n_token != k.n_token)
        fail_msg("%s: picture %d is %d x %d, %d rows, not %d x %d, %d", name, n, fit.to_width, fit.to_height,
                 fit.n_token, k.to_width, k.to_height, k.n_token);
    assert_ok(tower_begin(t, &d.image, &fit));
    if (k.resized)
        assert_int_equal(
            (int32_t)drawn_mark(t->picture.rgb, (size_t)fit.to_width * (size_t)fit.to_height * 3), k.resized);
    float *rows = malloc((size_t)fit.n_token * (size_t)width * sizeof *rows);
    for (bool done = false; !done;) assert_ok(tower_step(t, 3600, rows, &done));
    for (int i = 0; i <= k.n_row; i++) { /* the last is of all rows a sum */
        read_words(f, want, (size_t)width);
        for (int c = 0; c < width; c++) {
            double got = 0;
            if (i < k.n_row) got = (double)rows[(size_t)at[i] * (size_t)width + (size_t)c];
            for (int r = 0; i == k.n_row && r < fit.n_token; r++)
                got += share(r) * (double)rows[(size_t)r * (size_t)width + (size_t)c] / sqrt(fit.n_token);
            most = fmax(most, fabs(got - (double)want[c]));
        }
    }
    if (!(most / sd <= TOL_LOGITS_REF))
        fail_msg("%s: rows of picture %d differ by %.3g of sd", name, n, most / sd);
    free(rows);
    image_free(&d.image);
}

static void rows_of_drawn_pictures(void **state) {
    (void)state;
    for (int i = 0; i < N_NAMES; i++) {
        char file[128], path[512];
        struct tower *t;
        int32_t head[2];
        float sd;
        snprintf(file, sizeof file, "golden/drawn/%s", names[i]);
        assert_ok(tower_open(&t, test_path(path, sizeof path, file),
                             &(struct tower_options){.strict_fp32 = true, .cpu.threads = 2}));
        snprintf(file, sizeof file, "golden/drawn/%s/rows.bin", names[i]);
        FILE *f = fopen(test_path(path, sizeof path, file), "rb");
        if (!f) fail_msg("%s cannot be opened", path);
        read_words(f, head, 2);
        read_words(f, &sd, 1);
        assert_int_equal(head[0], DRAWN);
        for (int n = 0; n < DRAWN; n++) one_picture(t, names[i], n, f, head[1], (double)sd);
        assert_int_equal(fgetc(f), EOF);
        fclose(f);
        tower_close(t);
    }
}

/* ---- files ---- */

static void write_all(const char *folder) {
    char path[512];
    snprintf(path, sizeof path, "%s/words.txt", folder);
    FILE *list = fopen(path, "w");
    for (int n = 0; list && n < DRAWN; n++) {
        struct drawn d;
        drawn_make(&d, n);
        snprintf(path, sizeof path, "%s/%d.ppm", folder, n);
        FILE *f = fopen(path, "wb");
        if (!f) break;
        fprintf(f, "P6\n%d %d\n255\n", d.image.width, d.image.height);
        fwrite(d.image.rgb, 3, (size_t)d.image.width * (size_t)d.image.height, f);
        fclose(f);
        for (int i = 0; i < d.n_word; i++) {
            const struct drawn_word *w = &d.word[i];
            fprintf(list, "%d\t%s\t%d\t%d\t%d %d %d %d\n", n, w->text, w->height, w->angle, w->box[0],
                    w->box[1], w->box[2], w->box[3]);
        }
        image_free(&d.image);
    }
    if (list) fclose(list);
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "--write") == 0) {
        write_all(argv[2]);
        return 0;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(words_are_where_they_are_said),
                                       cmocka_unit_test(rows_of_drawn_pictures)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
