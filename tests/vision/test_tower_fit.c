/* What size pictures get, how many rows, what text stands around them and at which positions: of every tower that is there. */
#include "tests/lib/test.h"
#include "vision/tower.h"

#include <dirent.h>

enum { MAX_NAMES = 64 };
static char names[MAX_NAMES][64];
static int n_names;

static void read_names(void) {
    char path[512];
    const struct dirent *e;
    DIR *d = opendir(test_path(path, sizeof path, "golden/tower"));
    assert_non_null(d);
    while ((e = readdir(d)))
        if (e->d_name[0] != '.' && n_names < MAX_NAMES)
            snprintf(names[n_names++], sizeof names[0], "%.60s", e->d_name);
    closedir(d);
    assert_true(n_names > 8);
}

static struct tower *open_tower(const char *name, const struct tower_options *o) {
    struct tower *t;
    char file[128], path[512];
    snprintf(file, sizeof file, "golden/tower/%s", name);
    assert_ok(tower_open(&t, test_path(path, sizeof path, file), o));
    return t;
}

/* Sizes at the edges: never more rows than may be, never none; more than the tower has lines of is refused. */
static void sizes_of_pictures(void **state) {
    (void)state;
    static const int sides[] = {1, 2, 7, 8, 9, 47, 48, 49, 200, 3000, 65535};
    enum { N = sizeof sides / sizeof *sides };
    for (int i = 0; i < n_names; i++) {
        struct tower *t = open_tower(names[i], &(struct tower_options){.cpu.threads = 1, .max_tokens = 12});
        struct tower_info info;
        int n_refused = 0;
        tower_info(t, &info);
        for (int k = 0; k < N * N; k++) {
            struct tower_fit f;
            const enum infer_status s = tower_fit(t, sides[k / N], sides[k % N], &f);
            n_refused += s != INFER_OK;
            if (s) continue;
            assert_in_range(f.n_token, 1, info.max_tokens);
            if (!f.tiles_x) assert_int_equal(f.to_width / f.grid_x, f.to_height / f.grid_y);
        }
        assert_in_range(n_refused, 0, N * N / 2);
        struct tower_fit f;
        assert_int_equal(tower_fit(t, 0, 5, &f), INFER_E_INPUT);
        assert_int_equal(tower_fit(t, 5, 1 << 20, &f), INFER_E_INPUT);
        tower_close(t);
    }
}

/* Rows of a picture as they stand in a text, each once. */
static void parts_and_positions(void **state) {
    (void)state;
    for (int i = 0; i < n_names; i++) {
        struct tower *t = open_tower(names[i], &(struct tower_options){.cpu.threads = 1});
        struct tower_info info;
        struct tower_fit f;
        int next = 10, rows = 0;
        tower_info(t, &info);
        assert_ok(tower_fit(t, 40, 24, &f));
        for (int k = 0; k < f.n_part; k++) {
            struct tower_part p;
            int32_t axis[64][3];
            const int first = next;
            tower_part(t, &f, k, &p);
            assert_int_equal(p.first_row, rows);
            rows += p.n_row;
            tower_positions(t, &f, k, first, axis, &next);
            for (int r = 0; r < p.n_row; r++)
                for (int a = 0; a < 3; a++)
                    assert_int_equal(axis[r][a], first + (!info.three_positions ? r
                                                          : a == 0              ? 0
                                                          : a == 1              ? r / f.grid_x
                                                                                : r % f.grid_x));
        }
        assert_int_equal(rows, f.n_token);
        assert_int_equal(next, 10 + (!info.three_positions ? f.n_token
                                     : f.grid_x > f.grid_y ? f.grid_x
                                                           : f.grid_y));
        tower_close(t);
    }
}

/* The text around rows, and how many these are, as processors write them. */
static void text_around_rows(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int width, height;
        const char *want;
    } row[] = {
        {"idefics3", 48, 48,
         "<fake_token_around_image><row_1_col_1>(9)<fake_token_around_image><row_1_col_2>(9)\n"
         "<fake_token_around_image><row_2_col_1>(9)<fake_token_around_image><row_2_col_2>(9)\n\n"
         "<fake_token_around_image><global-img>(9)<fake_token_around_image>"},
        {"pixtral", 24, 16, "(3)[IMG_BREAK](3)[IMG_END]"},
        {"gemma3", 5, 5, "\n\n<start_of_image>(9)<end_of_image>\n\n"},
        {"gemma4v", 48, 36, "<|image>(12)<image|>"},
        {"qwen3vl", 32, 24, "(12)"},
        {"glm4v", 1, 1, "(4)"},
        {"internvl", 24, 24, "<img>(9)</img>"},
        {"internvl", 48, 24, "<img>(9)(9)(9)</img>"},
        {"llama4", 24, 24, "<|image_start|><|image|>(9)<|image_end|>"},
        {"llama4", 48, 40,
         "<|image_start|>(9)<|tile_x_separator|>(9)<|tile_y_separator|>(9)<|tile_x_separator|>(9)"
         "<|tile_y_separator|><|image|>(9)<|image_end|>"},
        {"minicpmv4_6", 48, 48, "<image>(9)</image>"},
        {"minicpmv4_6", 100, 100,
         "<image>(9)</image><slice>(9)</slice><slice>(9)</slice>\n<slice>(9)</slice><slice>(9)</slice>"},
        {"minicpmv", 48, 48, "<image>(6)</image>"},
        {"minicpmv", 49, 60, "<image>(6)</image><slice>(6)</slice>\n<slice>(6)</slice>"},
        {"lfm2", 40, 24, "<|image_start|>(8)<|image_end|>"},
        {"lfm2", 33, 75,
         "<|image_start|><|img_row_1_col_1|>(9)<|img_row_2_col_1|>(9)<|img_thumbnail|>(10)<|image_end|>"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char got[1024] = "";
        struct tower *t = open_tower(row[i].name, &(struct tower_options){.cpu.threads = 1});
        struct tower_fit f;
        assert_ok(tower_fit(t, row[i].width, row[i].height, &f));
        for (int k = 0; k < f.n_part; k++) {
            struct tower_part p;
            const size_t n = strlen(got);
            tower_part(t, &f, k, &p);
            snprintf(got + n, sizeof got - n, p.n_row ? "%s(%d)" : "%s", p.text, p.n_row);
        }
        if (strcmp(got, row[i].want) != 0) fail_msg("%s: '%s', not '%s'", row[i].name, got, row[i].want);
        tower_close(t);
    }
}

int main(void) {
    read_names();
    const struct CMUnitTest tests[] = {cmocka_unit_test(sizes_of_pictures),
                                       cmocka_unit_test(parts_and_positions),
                                       cmocka_unit_test(text_around_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
