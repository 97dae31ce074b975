/* Files with holes, as a download leaves them that broke off behind the room that it had reserved: refused with the file, the place and the
 * first tensor that is missing, unless the caller says that the zeros are meant. */
#include "tests/lib/test.h"
#include "files/gguf_write.h"
#include "files/tensorfile.h"
#include "tests/lib/folder.h"
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { ROWS = 64, COLS = 512, BYTES = ROWS * COLS * 4 }; /* of each of the tensors */

static const struct tensorfile_options plain = {0}, sparse = {.sparse_ok = true}, copied = {.no_mmap = true},
                                       vocab = {.vocab_only = true};

/* What lies in the file from at on: never written but for the bytes behind end. */
enum how { HOLE, RESERVED, ZEROS };
static void make_hole(const char *path, off_t at, off_t end, enum how how) {
    int fd = open(path, O_RDWR);
    const off_t size = lseek(fd, 0, SEEK_END);
    char *rest = malloc((size_t)(size - end) + 1), *zeros = calloc(1, (size_t)(end - at));
    assert_true(fd >= 0 && at < end && end <= size);
    assert_int_equal(pread(fd, rest, (size_t)(size - end), end), size - end);
    assert_int_equal(ftruncate(fd, at), 0);
    assert_int_equal(ftruncate(fd, size), 0);
    if (how == RESERVED) assert_int_equal(posix_fallocate(fd, at, size - at), 0);
    if (how == ZEROS) assert_int_equal(pwrite(fd, zeros, (size_t)(end - at), at), end - at);
    if (size > end) assert_int_equal(pwrite(fd, rest, (size_t)(size - end), end), size - end);
    assert_int_equal(fsync(fd), 0);
    close(fd);
    free(rest), free(zeros);
}

/* Some file systems do not say where holes are. */
static bool has_holes(const struct folder *d) {
    char path[256];
    folder_put(d, "probe", "x", 1);
    int fd = open(folder_file(d, path, "probe"), O_RDWR);
    assert_int_equal(ftruncate(fd, 1 << 20), 0);
    const bool there = lseek(fd, 0, SEEK_HOLE) < 1 << 20;
    close(fd);
    if (!there) print_message("skipped: the file system of %s tells no holes\n", d->path);
    return there;
}

/* Two tensors, a and b; *b: where the data of b begins. */
static void write_gguf(const char *path, const char *a, const char *b, uint32_t no, uint32_t count,
                       off_t *at) {
    static const int64_t shape[4] = {1, 1, ROWS, COLS};
    float *ones = malloc(BYTES);
    struct gguf_writer *w;
    struct tensorfile *f;
    for (size_t i = 0; i < BYTES / 4; i++) ones[i] = 1;
    assert_ok(gguf_writer_open(&w, path));
    gguf_writer_str(w, "general.architecture", "llama");
    gguf_writer_u32(w, "split.no", no);
    gguf_writer_u32(w, "split.count", count);
    gguf_writer_tensor(w, a, QUANT_F32, 2, shape);
    gguf_writer_tensor(w, b, QUANT_F32, 2, shape);
    assert_ok(gguf_writer_begin(w));
    assert_ok(gguf_writer_data(w, ones, BYTES));
    assert_ok(gguf_writer_data(w, ones, BYTES));
    assert_ok(gguf_writer_close(w));
    free(ones);
    if (count > 1) return;
    assert_ok(tensorfile_open(&f, path, &plain));
    *at = (off_t)tensorfile_find(f, b)->offset;
    tensorfile_close(f);
}

static void expect_refusal(const char *open, const char *file, const char *tensor,
                           const struct tensorfile_options *options) {
    struct tensorfile *f;
    char says[128];
    snprintf(says, sizeof says, "were never written, from tensor '%s' on", tensor);
    enum infer_status s = tensorfile_open(&f, open, options);
    if (s != INFER_E_INPUT || !strstr(err_message(), says) || !strstr(err_message(), file) ||
        !strstr(err_message(), ".sparse_ok") || strchr(err_message(), '\n'))
        fail_msg("%s: status %d: %s", file, (int)s, s ? err_message() : "");
}
static void expect_open(const char *path, const struct tensorfile_options *options) {
    struct tensorfile *f;
    assert_ok(tensorfile_open(&f, path, options));
    tensorfile_close(f);
}

static void holes_of_gguf(void **state) {
    (void)state;
    struct folder d;
    char path[256];
    off_t b, size = 0;
    folder_make(&d);
    folder_file(&d, path, "m.gguf");
    for (int how = HOLE; how <= ZEROS && has_holes(&d); how++) {
        write_gguf(path, "a", "b", 0, 1, &b);
        size = b + BYTES;
        make_hole(path, b + 10000, size, (enum how)how); /* the tail */
        if (how != ZEROS) {
            expect_refusal(path, "m.gguf", "b", &plain);
            expect_refusal(path, "m.gguf", "b", &copied);
        } else {
            expect_open(path, &plain);
        }
        expect_open(path, &sparse);
        expect_open(path, &vocab);
        write_gguf(path, "a", "b", 0, 1, &b);
        make_hole(path, b - BYTES + 5000, b + 20000, (enum how)how); /* a part of a stream, in the middle */
        if (how != ZEROS)
            expect_refusal(path, "m.gguf", "a", &plain);
        else
            expect_open(path, &plain);
    }
    folder_remove(&d);
}

/* Room that was reserved, and has been read since: it lies in memory as zeros, as what was written does. */
static void reserved_and_read(void **state) {
    (void)state;
    struct folder d;
    char path[256], command[300];
    off_t b;
    folder_make(&d);
    folder_file(&d, path, "m.gguf");
    write_gguf(path, "a", "b", 0, 1, &b);
    make_hole(path, b + 10000, b + BYTES, RESERVED);
    snprintf(command, sizeof command, "cat %s > /dev/null", path);
    assert_int_equal(system(command), 0);
    int fd = open(path, O_RDONLY);
    struct fiemap map = {.fm_length = 1 << 20};
    const bool tells = ioctl(fd, FS_IOC_FIEMAP, &map) == 0;
    close(fd);
    if (tells)
        expect_refusal(path, "m.gguf", "b", &plain);
    else
        print_message("skipped: the file system of %s tells no extents\n", d.path);
    /* the same, written after it was reserved, also before that has reached the disk */
    write_gguf(path, "a", "b", 0, 1, &b);
    fd = open(path, O_RDWR);
    char *zeros = calloc(1, BYTES);
    assert_int_equal(ftruncate(fd, b), 0);
    assert_int_equal(posix_fallocate(fd, b, BYTES), 0);
    assert_int_equal(pwrite(fd, zeros, BYTES, b), BYTES);
    expect_open(path, &plain);
    free(zeros);
    close(fd);
    folder_remove(&d);
}

static void holes_of_parts(void **state) {
    (void)state;
    struct folder d;
    char first[256], second[256];
    off_t none;
    folder_make(&d);
    write_gguf(folder_file(&d, first, "m-00001-of-00002.gguf"), "a", "b", 0, 2, &none);
    write_gguf(folder_file(&d, second, "m-00002-of-00002.gguf"), "c", "d", 1, 2, &none);
    expect_open(first, &plain);
    make_hole(second, 2 * BYTES - 50000, 2 * BYTES, HOLE);
    if (has_holes(&d)) expect_refusal(first, "m-00002-of-00002.gguf", "d", &plain);
    expect_open(first, &sparse);
    folder_remove(&d);
}

/* golden/hf/llama with its weights, and the same behind a wide padding in front of them. */
static void holes_of_folders(void **state) {
    (void)state;
    struct folder d;
    char path[512], file[256], command[1200];
    folder_make(&d);
    test_path(path, sizeof path, "golden/hf/llama");
    snprintf(command, sizeof command, "cp '%s/config.json' '%s/model.safetensors' %s", path, path, d.path);
    assert_int_equal(system(command), 0);
    expect_open(d.path, &plain);
    folder_file(&d, file, "model.safetensors");
    FILE *f = fopen(file, "r");
    fseek(f, 0, SEEK_END);
    const off_t size = ftell(f);
    fclose(f);
    make_hole(file, 9000, size, ZEROS);
    expect_open(d.path, &plain);
    make_hole(file, 9000, size, HOLE);
    if (has_holes(&d)) {
        struct tensorfile *t;
        assert_int_equal(tensorfile_open(&t, d.path, &plain), INFER_E_INPUT);
        assert_non_null(strstr(err_message(), "model.safetensors: from byte 12288 on"));
        assert_non_null(strstr(err_message(), "from tensor 'model."));
    }
    expect_open(d.path, &sparse);
    folder_remove(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(holes_of_gguf), cmocka_unit_test(reserved_and_read),
                                       cmocka_unit_test(holes_of_parts), cmocka_unit_test(holes_of_folders)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
