/* The reader of GGUF: each rule has a file that breaks it in one place; odd files that are valid are read. */
#include "tests/lib/test.h"
#include "tests/lib/folder.h"
#include "tests/lib/gguf_text.h"
#include "files/gguf_write.h"
#include "base/mem.h"
#include "files/tensorfile.h"
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- files in memory ---- */

/* A path to data[n] without a file on disk; close the descriptor with memory_close. */
static int memory_file(char path[64], const void *data, size_t n) {
    int fd = memfd_create("gguf", 0);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, n), (ssize_t)n);
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

static enum infer_status open_bytes(struct tensorfile **f, const void *data, size_t n,
                                    const struct tensorfile_options *options, char path[64]) {
    int fd = memory_file(path, data, n);
    enum infer_status s = tensorfile_open(f, path, options);
    close(fd);
    return s;
}

static const struct tensorfile_options plain = {0};
static const struct tensorfile_options vocab = {.vocab_only = true};
static const struct tensorfile_options copied = {.no_mmap = true, .vocab_only = true};

/* Opens the file of a line that must be valid. */
static struct tensorfile *open_line(const char *line) {
    struct gguf_text g;
    struct tensorfile *f;
    char path[64];
    gguf_text(&g, line);
    enum infer_status s = open_bytes(&f, g.data, g.n, &vocab, path);
    free(g.data);
    if (s) fail_msg("%s: %s", line, err_message());
    return f;
}

/* ---- hostile files ---- */

#define BAD    INFER_E_INPUT
#define UNSUP  INFER_E_UNSUPPORTED
#define KEY1   "head 3 0 1 "
#define TENSOR "head 3 1 0 "
#define ALIGN  "head 3 0 1 key general.alignment "
#define SPLIT  "key split.no 2 u16 0 key split.count 2 u16 "

static const struct {
    const char *line;
    enum infer_status status;
    const char *says; /* part of the message */
} hostile[] = {
    /* ---- the start ---- */
    {"", BAD, "is empty"},
    {"raw G", BAD, "begins with 'G'"},
    {"raw GGU", BAD, "begins with 'GGU'"},
    {"raw GGUF", BAD, "its header alone has 24"},
    {"raw GGUF u32 3 u64 0", BAD, "its header alone has 24"},
    {"raw GGUF u32 3 u64 0 u32 0 raw abc", BAD, "has 23 bytes"},
    {"raw ELF! zero 64", BAD, "begins with 'ELF!'"},
    {"raw \\1b[2J zero 64", BAD, "begins with '\\x1b[2J'"},
    {"raw <!DOCTYPE zero 64", BAD, "web page"},
    {"raw version\\20https://git-lfs.github.com/spec/v1 zero 64", BAD, "git-lfs pointer"},
    {"raw PK\\03\\04 zero 64", BAD, "zip"},
    {"raw tjgg zero 64", BAD, "GGJT"},
    {"raw lmgg zero 64", BAD, "GGML"},
    {"raw FUGG zero 64", BAD, "big-endian"},
    {"zero 4096", BAD, "not a model file"},
    /* ---- version ---- */
    {"head 0 0 0", BAD, "version 0"},
    {"head 1 0 0", UNSUP, "version 1 is not supported"},
    {"head 4 0 0", UNSUP, "version 4"},
    {"head 0xffffffff 0 0", UNSUP, "version 4294967295"},
    {"head 0x03000000 0 0", UNSUP, "big-endian"},
    {"head 0x02000000 0 0", UNSUP, "big-endian"},
    /* ---- counts of the header ---- */
    {"head 3 1 0", BAD, "1 tensors cannot fit"},
    {"head 3 0xffffffffffffffff 0 zero 100", BAD, "18446744073709551615 tensors cannot fit"},
    {"head 3 0x8000000000000000 0 zero 100", BAD, "tensors cannot fit"},
    {"head 3 0x0400000000000000 0 zero 100", BAD, "tensors cannot fit"},
    {"head 3 0 0xffffffffffffffff zero 100", BAD, "keys cannot fit"},
    {"head 3 0 0x8000000000000000 zero 100", BAD, "keys cannot fit"},
    {"head 3 0 0x0492492492492493 zero 100", BAD, "keys cannot fit"},
    {"head 3 0 1", BAD, "1 keys cannot fit"},
    {"head 3 0 9 zero 125", BAD, "9 keys cannot fit in the 125 bytes left (at most 8)"},
    {"head 3 5 1 key a 4 u32 1 zero 110", BAD, "tensors cannot fit"},
    /* ---- names of keys ---- */
    {KEY1 "u64 0xffffffffffffffff zero 32", BAD, "length of 18446744073709551615 bytes"},
    {KEY1 "u64 0x8000000000000000 zero 32", BAD, "length of"},
    {KEY1 "u64 33 zero 32", BAD, "length of 33 bytes, 32 are left"},
    {KEY1 "u64 32 zero 32", BAD, "zero byte"},
    {KEY1 "str \"\" u32 4 u32 1 zero 8", BAD, "name of the key is empty"},
    {KEY1 "key a\\00b 4 u32 1", BAD, "zero byte"},
    {KEY1 "long 65536 u32 4 u32 1", BAD, "65536 bytes, more than 65535"},
    {KEY1 "str abcdef zero 2", BAD, "ends inside the type of a value"},
    {"head 3 0 2 key a 4 u32 1 key a 4 u32 1", BAD, "key 1 'a': key 0 has the same name"},
    {"head 3 0 3 key a 4 u32 1 key b 4 u32 1 key a 8 str x", BAD, "key 2 'a': key 0 has the same name"},
    /* ---- types and values ---- */
    {KEY1 "key a 13 u64 1", BAD, "type of a value is 13"},
    {KEY1 "key a 0xffffffff u64 1", BAD, "type of a value is 4294967295"},
    {KEY1 "key abcdefgh 4 u16 1", BAD, "1 values cannot fit"},
    {KEY1 "key abcdefgh 10 u32 1", BAD, "1 values cannot fit"},
    {KEY1 "key abcdefgh 12 u32 1", BAD, "1 values cannot fit"},
    {KEY1 "key a 7 u8 2", BAD, "a bool has the value 2"},
    {KEY1 "key a 9 arr 7 4 u8 0 u8 1 u8 255 u8 0", BAD, "byte 51: key 0 'a': a bool has the value 255"},
    {KEY1 "key a 8 u64 0xffffffffffffffff", BAD, "a string has a length of 18446744073709551615"},
    {KEY1 "key a 8 u64 4 raw abc", BAD, "a string has a length of 4 bytes, 3 are left"},
    {KEY1 "key abcdefgh 8 u32 4", BAD, "cannot fit"},
    /* ---- arrays ---- */
    {KEY1 "key a 9 arr 13 1 u32 1", BAD, "element type of an array is 13"},
    {KEY1 "key a 9 arr 4 0xffffffffffffffff u32 1", BAD, "values cannot fit"},
    {KEY1 "key a 9 arr 4 0x4000000000000001 u32 1", BAD, "values cannot fit"},
    {KEY1 "key a 9 arr 4 0x8000000000000000 u32 1", BAD, "values cannot fit"},
    {KEY1 "key a 9 arr 10 0x2000000000000001 u64 1", BAD, "values cannot fit"},
    {KEY1 "key a 9 arr 0 0x8000000000000000 u64 1", BAD, "values cannot fit"},
    {KEY1 "key a 9 arr 4 3 u32 1 u32 2", BAD, "3 values cannot fit in the 8 bytes left (at most 2)"},
    {KEY1 "key a 9 arr 8 0xffffffffffffffff u64 0", BAD, "strings cannot fit"},
    {KEY1 "key a 9 arr 8 0x1000000000000001 u64 0", BAD, "strings cannot fit"},
    {KEY1 "key a 9 arr 8 3 str a str b", BAD, "strings cannot fit"},
    {KEY1 "key a 9 arr 8 2 str a u64 0x7fffffffffffffff", BAD, "a string has a length of"},
    {KEY1 "key a 9 arr 8 2 str a u64 1", BAD, "a string has a length of 1 bytes, 0 are left"},
    {KEY1 "key a 9 arr 9 0xffffffffffffffff zero 100", BAD, "arrays cannot fit"},
    {KEY1 "key a 9 arr 9 0x8000000000000000 zero 100", BAD, "arrays cannot fit"},
    {KEY1 "key a 9 arr 9 2 arr 4 0 u32 9 u32 0", BAD, "arrays cannot fit"},
    {KEY1 "key a 9 arr 9 1 arr 9 1 arr 9 1 arr 9 1 arr 4 0", BAD, "nested more than 4 deep"},
    {KEY1 "key a 9 arr 9 1 arr 9 1 arr 9 1 arr 9 1 arr 9 1 arr 9 1 arr 4 0", BAD, "nested more than 4 deep"},
    {KEY1 "key abcdef 9 u32 4 u32 0", BAD, "ends inside the length of an array"},
    {KEY1 "key abcdef 9 u16 4", BAD, "ends inside the element type of an array"},
    /* ---- alignment ---- */
    {ALIGN "4 u32 0", BAD, "'general.alignment' is 0, not a power of two"},
    {ALIGN "4 u32 1", BAD, "'general.alignment' is 1,"},
    {ALIGN "4 u32 4", BAD, "'general.alignment' is 4,"},
    {ALIGN "4 u32 24", BAD, "'general.alignment' is 24,"},
    {ALIGN "4 u32 48", BAD, "'general.alignment' is 48,"},
    {ALIGN "4 u32 2097152", BAD, "'general.alignment' is 2097152,"},
    {ALIGN "4 u32 0x80000000", BAD, "not a power of two"},
    {ALIGN "4 u32 0xffffffff", BAD, "not a power of two"},
    {ALIGN "5 u32 0xffffffe0", BAD, "'general.alignment' (i32) is -32"},
    {ALIGN "10 u64 0x100000020", BAD, "'general.alignment' (u64) is 4294967328"},
    {ALIGN "10 u64 0xffffffffffffffff", BAD, "18446744073709551615"},
    {ALIGN "6 f32 32", BAD, "is of type f32, not an integer"},
    {ALIGN "7 u8 1", BAD, "is of type bool, not an integer"},
    {ALIGN "8 str 32", BAD, "is of type string, not an integer"},
    {ALIGN "9 arr 4 1 u32 32", BAD, "is an array of 1 u32, not an integer"},
    /* ---- entries of tensors ---- */
    {TENSOR "str \"\" u32 1 u64 2 u32 0 u64 0 pad 32 zero 8", BAD, "name of the tensor is empty"},
    {TENSOR "long 65 u32 1 u64 2 u32 0 u64 0 pad 32 zero 8", BAD, "65 bytes, more than 64"},
    {TENSOR "tensor a\\00b 0 0 2 pad 32 zero 8", BAD, "zero byte"},
    {TENSOR "u64 0xffffffffffffffff zero 64", BAD, "length of 18446744073709551615"},
    {TENSOR "tensor a 0 0 1 1 1 1 1 pad 32 zero 4", BAD, "5 dimensions, more than 4"},
    {TENSOR "str a u32 0xffffffff zero 64", BAD, "4294967295 dimensions"},
    {TENSOR "str a u32 4 u64 1 u64 1 u64 1", BAD, "ends inside a dimension"},
    {TENSOR "str abc u32 1 u64 1 u16 0", BAD, "ends inside the type of a tensor"},
    {TENSOR "str abc u32 1 u64 1 u32 0 u32 0", BAD, "ends inside the offset of a tensor"},
    {TENSOR "tensor a 0 0 0 pad 32 zero 4", BAD, "dimension 0 is 0"},
    {TENSOR "tensor a 0 0 2 0 pad 32 zero 4", BAD, "dimension 1 is 0"},
    {TENSOR "tensor a 0 0 0xffffffffffffffff 0 pad 32 zero 4", BAD, "dimension 0 is 18446744073709551615"},
    {TENSOR "tensor a 0 0 0x4000000000000000 0 pad 32 zero 4", BAD, "dimension 1 is 0"},
    {TENSOR "tensor a 0 0 0x8000000000000000 pad 32 zero 4", BAD, "too large"},
    {TENSOR "tensor a 0 0 0x4000000000000000 2 pad 32 zero 4", BAD, "product of its dimensions"},
    {TENSOR "tensor a 0 0 0x4000000000000000 4 pad 32 zero 4", BAD, "product of its dimensions"},
    {TENSOR "tensor a 0 0 0x100000000 0x100000000 pad 32 zero 4", BAD, "product of its dimensions"},
    {TENSOR "tensor a 0 0 0x10000 0x10000 0x10000 0x10000 pad 32 zero 4", BAD, "product of its dimensions"},
    {TENSOR "tensor a 0 0 0x4000000000000000 pad 32 zero 4", BAD, "size in bytes is too large"},
    {TENSOR "tensor a 0 0 0x4000000000000001 pad 32 zero 4", BAD, "size in bytes is too large"},
    {TENSOR "tensor a 0 0 0x1fffffffffffffff pad 32 zero 4", BAD, "ends after the file"},
    {TENSOR "tensor a 8 0 33 pad 32 zero 64", BAD,
     "rows of 33 elements are no multiple of the 32 of a block"},
    {TENSOR "tensor a 8 0 16 2 pad 32 zero 64", BAD, "rows of 16 elements"},
    {TENSOR "tensor a 12 0 128 2 pad 32 zero 144", BAD, "rows of 128 elements"},
    /* ---- types of tensors ---- */
    {TENSOR "tensor a 4 0 32 pad 32 zero 64", BAD, "type Q4_2 (4) was removed"},
    {TENSOR "tensor a 5 0 32 pad 32 zero 64", BAD, "type Q4_3 (5) was removed"},
    {TENSOR "tensor a 31 0 32 pad 32 zero 64", BAD, "type Q4_0_4_4 (31) was removed"},
    {TENSOR "tensor a 33 0 32 pad 32 zero 64", BAD, "type Q4_0_8_8 (33) was removed"},
    {TENSOR "tensor a 38 0 32 pad 32 zero 64", BAD, "type IQ4_NL_8_8 (38) was removed"},
    {TENSOR "tensor a 15 0 256 pad 32 zero 292", UNSUP, "type Q8_K (15) is no type of weights"},
    {TENSOR "tensor a 144 0 256 pad 32 zero 136", UNSUP,
     "type IQ4_KS (144) is of the fork ik_llama.cpp alone; take a file"},
    {TENSOR "tensor a 142 0 256 pad 32 zero 136", UNSUP,
     "type PQ2_0 (142) is of the fork PrismML alone; take a file"},
    {TENSOR "tensor a 202 0 256 pad 32 zero 136", UNSUP, "type 202 is of the fork ik_llama.cpp alone"},
    {TENSOR "tensor a 400 0 256 pad 32 zero 136", BAD, "type 400 is unknown"},
    {TENSOR "tensor a 26 0 2 pad 32 zero 8", UNSUP, "type I32 (26) is no type of weights"},
    {TENSOR "tensor a 99 0 32 pad 32 zero 64", BAD, "type 99 is unknown"},
    {TENSOR "tensor a 0xffffffff 0 32 pad 32 zero 64", BAD, "type 4294967295 is unknown"},
    /* ---- offsets and layout ---- */
    {TENSOR "tensor a 0 8 2 pad 32 zero 64", BAD, "offset 8 is no multiple of the alignment 32"},
    {TENSOR "tensor a 0 1 2 pad 32 zero 64", BAD, "offset 1 is no multiple"},
    {TENSOR "tensor a 0 0xffffffffffffffff 2 pad 32 zero 64", BAD, "is no multiple of the alignment"},
    {TENSOR "tensor a 0 0xffffffffffffffe0 2 pad 32 zero 64", BAD, "ends after the file"},
    {TENSOR "tensor a 0 0xffffffffffffffe0 16 pad 32 zero 64", BAD, "ends after the file"},
    {TENSOR "tensor a 0 0x8000000000000000 2 pad 32 zero 64", BAD, "ends after the file"},
    {TENSOR "tensor a 0 64 2 pad 32 zero 64", BAD, "ends after the file"},
    {TENSOR "tensor a 0 32 2 pad 32 zero 40", BAD, "its data is at offset 32, but 'the start' ends at 0"},
    {TENSOR "tensor a 0 0 2 pad 32 zero 7", BAD, "ends after the file (7 bytes of data)"},
    {TENSOR "tensor a 0 0 2 pad 32", BAD, "ends after the file (0 bytes of data)"},
    {TENSOR "tensor a 0 0 2", BAD, "ends before the data of its tensors"},
    {TENSOR "tensor a 0 0 2 pad 32 zero 33", BAD, "1 bytes follow the data of the last tensor"},
    {TENSOR "tensor a 0 0 2 pad 32 zero 5000", BAD, "4968 bytes follow"},
    {"head 3 0 0 zero 9", BAD, "1 bytes follow"},
    {"head 3 0 1 key a 4 u32 1 pad 32 zero 32", BAD, "32 bytes follow"},
    {"head 3 2 0 tensor a 0 0 2 tensor a 0 32 2 pad 32 zero 64", BAD,
     "tensor 1 'a': tensor 0 has the same name"},
    {"head 3 2 0 tensor a 0 0 2 tensor b 0 0 2 pad 32 zero 64", BAD, "overlaps that of"},
    {"head 3 2 0 tensor a 0 0 16 tensor b 0 32 2 pad 32 zero 96", BAD, "'b': its data at offset 32 overlaps"},
    {"head 3 2 0 tensor a 0 32 2 tensor b 0 0 16 pad 32 zero 96", BAD, "'a': its data at offset 32 overlaps"},
    {"head 3 2 0 tensor a 0 0 2 tensor b 0 64 2 pad 32 zero 96", BAD, "at offset 64, but 'a' ends at 32"},
    {"head 3 3 0 tensor a 0 0 2 tensor b 0 64 2 tensor c 0 64 2 pad 32 zero 96", BAD, NULL},
    {"head 3 2 1 key general.alignment 4 u32 64 tensor a 0 0 2 tensor b 0 32 2 pad 64 zero 72", BAD,
     "offset 32 is no multiple of the alignment 64"},
    /* ---- split files ---- */
    {"head 3 0 2 " SPLIT "2", BAD, "does not end in '-00001-of-00002.gguf'"},
    {"head 3 0 2 " SPLIT "65535", BAD, "does not end in '-00001-of-65535.gguf'"},
    {"head 3 0 2 key split.no 4 u32 0 key split.count 4 u32 0xffffffff", BAD, "'split.count' is 4294967295"},
    {"head 3 0 1 key split.count 2 u16 2", BAD, "'split.no' is missing"},
    {"head 3 0 2 key split.no 2 u16 1 key split.count 2 u16 2", BAD, "is part 2 of 2; name the first part"},
    {"head 3 0 2 key split.no 8 str a key split.count 2 u16 2", BAD, "is of type string"},
    {"head 3 0 2 key split.no 2 u16 0 key split.count 3 u16 0xffff", BAD, "is -1, not in the range"},
};

static void expect_refusal(const char *line, const void *data, size_t n,
                           const struct tensorfile_options *options, enum infer_status want,
                           const char *says) {
    struct tensorfile *f;
    char path[64];
    enum infer_status s = open_bytes(&f, data, n, options, path);
    const char *m = err_message();
    if (s == INFER_OK) fail_msg("accepted: %s", line);
    if (s != want || (says && !strstr(m, says)))
        fail_msg("%s\n  status %d, not %d, or not '%s' in: %s", line, s, want, says ? says : "", m);
    assert_null(f);
    assert_null(strchr(m, '\n'));
    if (!strstr(m, path)) fail_msg("%s: the file is not named in: %s", line, m);
}

static void hostile_files_are_refused(void **state) {
    (void)state;
    assert_true(sizeof hostile / sizeof *hostile > 100);
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        struct gguf_text g;
        gguf_text(&g, hostile[i].line);
        expect_refusal(hostile[i].line, g.data, g.n, &vocab, hostile[i].status, hostile[i].says);
        expect_refusal(hostile[i].line, g.data, g.n, &copied, hostile[i].status, hostile[i].says);
        free(g.data);
    }
}

/* ---- a file that holds one of everything ---- */

static const char rich[] =
    "head 3 3 18 "
    "key general.architecture 8 str llama key general.alignment 4 u32 64 key n.u8 0 u8 200 key n.i8 1 u8 "
    "0xfe "
    "key n.u16 2 u16 65535 key n.i16 3 u16 0xfffe key n.u32 4 u32 4294967295 key n.i32 5 u32 0xfffffffe "
    "key n.f32 6 f32 1.5 key n.bool 7 u8 1 key n.u64 10 u64 7 key n.i64 11 u64 0xfffffffffffffffe "
    "key n.f64 12 f64 0.1 key a.ints 9 arr 1 3 u8 1 u8 2 u8 0xff key a.strings 9 arr 8 3 str a str \"\" str "
    "bcd "
    "key a.nested 9 arr 9 2 arr 4 2 u32 5 u32 6 arr 8 1 str x key a.empty 9 arr 4 0 "
    "key a.bools 9 arr 7 2 u8 0 u8 1 "
    "tensor w 8 0 64 3 tensor norm.weight 0 256 8 tensor t 1 320 2 3 5 1 pad 64 ones 204 pad 64 ones 32 pad "
    "64 "
    "ones 60";

static void every_type_is_read(void **state) {
    (void)state;
    struct tensorfile *f = open_line(rich);
    uint32_t u, three[3];
    float x;
    bool b, present;
    struct str s;
    const struct meta *m;
    assert_string_equal(f->format, "gguf v3");
    assert_int_equal(f->alignment, 64);
    assert_int_equal(f->n_meta, 18);
    assert_ok(meta_str(f, "general.architecture", &s, NULL));
    assert_true(s.len == 5 && memcmp(s.data, "llama", 5) == 0);
    static const char *const fits[] = {"n.u8", "n.u16", "n.u32", "n.u64"};
    static const uint32_t values[] = {200, 65535, 4294967295u, 7};
    for (int i = 0; i < 4; i++) {
        assert_ok(meta_u32(f, fits[i], &u, NULL));
        assert_int_equal(u, values[i]);
    }
    static const char *const negative[] = {"n.i8", "n.i16", "n.i32", "n.i64"};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(meta_elem_i64(tensorfile_meta(f, negative[i]), 0), -2);
        assert_int_equal(meta_u32(f, negative[i], &u, &present), INFER_E_INPUT);
        assert_non_null(strstr(err_message(), "is -2, not in the range 0 to 4294967295"));
    }
    assert_ok(meta_f32(f, "n.f32", &x, NULL));
    assert_true(x == 1.5f);
    assert_ok(meta_f32(f, "n.f64", &x, NULL));
    assert_true(x == 0.1f);
    assert_ok(meta_f32(f, "n.u8", &x, NULL));
    assert_true(x == 200);
    assert_ok(meta_bool(f, "n.bool", &b, NULL));
    assert_true(b);
    assert_ok(meta_u32_array(f, "n.u8", three, 3, NULL));
    assert_true(three[0] == 200 && three[2] == 200);
    assert_int_equal(meta_u32_array(f, "a.ints", three, 3, NULL), INFER_E_INPUT); /* the last is -1 */
    assert_int_equal(meta_u32_array(f, "a.ints", three, 2, NULL), INFER_E_INPUT);
    assert_non_null(strstr(err_message(), "has 3 values, not 2"));
    assert_ok(meta_u32_array(f, "a.bools", three, 2, NULL));
    assert_true(three[0] == 0 && three[1] == 1);
    assert_ok(meta_array(f, "a.strings", META_KIND_STRING, 3, &m, NULL));
    assert_true(m->strings[1].len == 0 && m->strings[2].len == 3 && m->strings[2].data[2] == 'd');
    m = tensorfile_meta(f, "a.nested");
    assert_true(m->elem == META_ARRAY && m->n == 2 && m->nested[0].n == 2 &&
                m->nested[1].elem == META_STRING);
    assert_int_equal(meta_elem_i64(&m->nested[0], 1), 6);
    assert_int_equal(tensorfile_meta(f, "a.empty")->n, 0);
    assert_null(tensorfile_meta(f, "a.absent"));
    tensorfile_close(f);
}

static void wrong_types_are_named(void **state) {
    (void)state;
    struct tensorfile *f = open_line(rich);
    uint32_t u;
    float x;
    bool b, present = true;
    struct str s;
    const struct meta *m;
    assert_ok(meta_u32(f, "absent", &u, &present));
    assert_false(present);
    assert_int_equal(meta_u32(f, "absent", &u, NULL), INFER_E_INPUT);
    assert_non_null(strstr(err_message(), "key 'absent' is missing"));
    assert_int_equal(meta_u32(f, "n.f32", &u, &present), INFER_E_INPUT);
    assert_true(present);
    assert_int_equal(meta_u32(f, "n.bool", &u, NULL), INFER_E_INPUT);
    assert_int_equal(meta_u32(f, "a.ints", &u, NULL), INFER_E_INPUT);
    assert_int_equal(meta_f32(f, "general.architecture", &x, NULL), INFER_E_INPUT);
    assert_int_equal(meta_bool(f, "n.u8", &b, NULL), INFER_E_INPUT);
    assert_int_equal(meta_str(f, "n.u8", &s, NULL), INFER_E_INPUT);
    assert_int_equal(meta_str(f, "a.strings", &s, NULL), INFER_E_INPUT);
    assert_int_equal(meta_array(f, "a.strings", META_KIND_STRING, 2, &m, NULL), INFER_E_INPUT);
    assert_int_equal(meta_array(f, "a.strings", META_KIND_INT, 3, &m, NULL), INFER_E_INPUT);
    assert_int_equal(meta_array(f, "a.ints", META_KIND_FLOAT, 3, &m, NULL), INFER_E_INPUT);
    assert_int_equal(meta_array(f, "n.u8", META_KIND_INT, 1, &m, NULL), INFER_E_INPUT);
    assert_int_equal(meta_array(f, "a.nested", META_KIND_INT, 2, &m, NULL), INFER_E_INPUT);
    tensorfile_close(f);
}

static void tensors_are_in_c_order(void **state) {
    (void)state;
    struct tensorfile *f = open_line(rich);
    const struct tensor *w = tensorfile_find(f, "w"), *n = tensorfile_find(f, "norm.weight"),
                        *t = tensorfile_find(f, "t");
    assert_true(f->n_tensor == 3 && w && n && t && !tensorfile_find(f, "v"));
    assert_true(w->type == QUANT_Q8_0 && w->n_dim == 2 && w->bytes == 204);
    assert_true(w->shape[0] == 1 && w->shape[1] == 1 && w->shape[2] == 3 && w->shape[3] == 64);
    assert_true(n->n_dim == 1 && n->shape[2] == 1 && n->shape[3] == 8);
    assert_true(t->n_dim == 4 && t->shape[0] == 1 && t->shape[1] == 5 && t->shape[2] == 3 &&
                t->shape[3] == 2);
    for (size_t i = 0; i < f->n_tensor; i++) {
        const unsigned char *p = f->tensor[i].data;
        assert_int_equal(p - f->part[0].data, f->tensor[i].offset);
        for (size_t k = 0; k < f->tensor[i].bytes; k++) assert_int_equal(p[k], 1);
    }
    tensorfile_close(f);
}

/* Every prefix of the file is refused: nothing in it may be missing. */
static void cut_files_are_refused(void **state) {
    (void)state;
    struct gguf_text g;
    gguf_text(&g, rich);
    for (size_t n = 0; n < g.n; n++) {
        char what[48];
        snprintf(what, sizeof what, "cut to %zu bytes", n);
        expect_refusal(what, g.data, n, &copied, INFER_E_INPUT, NULL);
    }
    free(g.data);
}

/* Any one byte changed: a status, no crash; what is accepted lies inside the file. */
static void changed_bytes_do_no_harm(void **state) {
    (void)state;
    static const unsigned char changes[] = {0x01, 0x80, 0xff, 0x10};
    struct gguf_text g;
    size_t accepted = 0;
    gguf_text(&g, rich);
    for (size_t i = 0; i < g.n; i++)
        for (size_t c = 0; c < sizeof changes; c++) {
            struct tensorfile *f;
            char path[64];
            g.data[i] ^= changes[c];
            if (open_bytes(&f, g.data, g.n, &copied, path) == INFER_OK) {
                accepted++;
                for (size_t t = 0; t < f->n_tensor; t++)
                    assert_true(f->tensor[t].offset + f->tensor[t].bytes <= g.n);
                tensorfile_close(f);
            }
            g.data[i] ^= changes[c];
        }
    free(g.data);
    assert_true(accepted > 0);
}

/* ---- odd files that are valid ---- */

static void odd_files_are_read(void **state) {
    (void)state;
    static const struct {
        const char *line;
        size_t n_tensor;
    } odd[] = {
        {"head 2 0 0", 0},
        {"head 3 0 0", 0},
        {"head 3 0 0 pad 32", 0},
        {"head 2 1 1 key a 4 u32 1 tensor a 0 0 2 pad 32 zero 8", 1},
        {"head 3 1 0 tensor a 0 0 2 pad 32 zero 8 pad 32", 1},  /* padded tail */
        {"head 3 1 0 tensor a 0 0 2 pad 32 zero 8 zero 10", 1}, /* tail padded in part */
        {"head 3 1 0 tensor a 0 0 pad 32 zero 4", 1},           /* no dimension: one number */
        {"head 3 1 0 tensor a 0 0 1 1 1 1 pad 32 zero 4", 1},
        {"head 3 1 1 key general.alignment 10 u64 8 tensor a 0 0 2 pad 8 zero 8", 1},
        {"head 3 2 1 key general.alignment 0 u8 8 tensor a 0 0 2 tensor b 0 8 2 pad 8 zero 16", 2},
        {"head 3 3 0 tensor c 0 64 2 tensor a 0 0 2 tensor b 0 32 2 pad 32 zero 72",
         3},                                                             /* in another order */
        {"head 3 0 1 key a 9 arr 9 1 arr 9 1 arr 9 1 arr 4 1 u32 7", 0}, /* nested 4 deep */
        {"head 3 0 2 key a 9 arr 9 0 key b 9 arr 8 0", 0},
        {"head 3 0 1 key a 8 str \"\"", 0},
        {"head 3 0 1 key \\1b]52;c\\07 8 str \\1b[2J", 0}, /* escapes are the printer's matter */
        {"head 3 0 1 key k\\c3\\a9y 8 str \\ff\\fe", 0},
        {"head 3 0 2 key a 9 arr 6 2 u32 0x7fc00000 u32 0x7f800000 key b 12 u64 0x7ff8000000000000", 0},
        {"head 3 0 2 key split.no 2 u16 0 key split.count 2 u16 1", 0},
        {"head 3 0 1 key split.count 2 u16 0", 0},
        {"head 3 0 1 long 65535 u32 4 u32 1", 0},
        {"head 3 1 0 long 64 u32 1 u64 2 u32 0 u64 0 pad 32 zero 8", 1},
        {"head 3 1 0 tensor a 30 0 3 5 pad 32 zero 30", 1},
    };
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        struct tensorfile *f = open_line(odd[i].line);
        assert_int_equal(f->n_tensor, odd[i].n_tensor);
        tensorfile_close(f);
    }
}

static void alignments_8_to_1_mib(void **state) {
    (void)state;
    for (uint32_t a = 8; a <= 1 << 20; a *= 2) {
        char line[256];
        snprintf(
            line, sizeof line,
            "head 3 2 1 key general.alignment 4 u32 %u tensor a 8 0 32 tensor b 0 %u 2 pad %u ones 34 pad %u "
            "ones 8",
            a, a < 34 ? (34 + a - 1) / a * a : a, a, a);
        struct tensorfile *f = open_line(line);
        for (int i = 0; i < 2; i++) {
            const struct tensor *t = &f->tensor[i];
            assert_int_equal((uintptr_t)t->data % (a < 4096 ? a : 4096), 0);
            assert_int_equal(((const unsigned char *)t->data)[t->bytes - 1], 1);
        }
        tensorfile_close(f);
    }
}

static void tensors_are_asked_for(void **state) {
    (void)state;
    struct gguf_text g;
    gguf_text(&g, "head 3 0 1 key a 4 u32 1");
    expect_refusal("no tensors", g.data, g.n, &plain, INFER_E_INPUT, "holds no tensors");
    free(g.data);
}

/* 20,000 keys and tensors: the indexes grow, and the last name doubled is found. */
static void many_names(void **state) {
    (void)state;
    enum { N = 20000 };
    size_t size = (size_t)N * 150;
    char *line = malloc(size);
    size_t n = (size_t)snprintf(line, size, "head 3 %d %d", N, N);
    for (int i = 0; i < N; i++) n += (size_t)snprintf(line + n, size - n, " key k%d 4 u32 %d", i, i);
    size_t tensors = n;
    for (int i = 0; i < N; i++) n += (size_t)snprintf(line + n, size - n, " tensor t%d 0 %d 1", i, i * 32);
    snprintf(line + n, size - n, " pad 32 zero %d", N * 32);
    struct tensorfile *f = open_line(line);
    for (int i = 0; i < N; i++) {
        char name[16];
        uint32_t v;
        snprintf(name, sizeof name, "k%d", i);
        assert_ok(meta_u32(f, name, &v, NULL));
        assert_int_equal(v, i);
        name[0] = 't';
        assert_ptr_equal(tensorfile_find(f, name), &f->tensor[i]);
    }
    tensorfile_close(f);
    memcpy(strstr(line, "k19999"), "k10000", 6);
    line[tensors] = 0;
    struct gguf_text g;
    gguf_text(&g, line);
    gguf_text_fill(&g, 0, (size_t)N * 57 + 1000);
    expect_refusal("k10000 twice", g.data, g.n, &vocab, INFER_E_INPUT, "key 19999 'k10000': key 10000 has");
    free(g.data);
    free(line);
}

/* ---- split files ---- */

static void folder_write(const struct folder *d, const char *name, const char *line) {
    struct gguf_text g;
    gguf_text(&g, line);
    folder_put(d, name, g.data, g.n);
    free(g.data);
}

#define PART(no, count, tensors)                                                                             \
    "head 3 " tensors " 3 key split.no 2 u16 " no " key split.count 2 u16 " count " "
static const char part1[] =
    PART("0", "3", "1") "key split.tensors.count 5 u32 4 tensor a 0 0 2 pad 32 ones 8";
static const char part2[] =
    PART("1", "3", "2") "key general.alignment 4 u32 64 tensor b 0 0 2 tensor c 0 64 2 pad 64 ones 72";
static const char part3[] = PART("2", "3", "1") "key x 8 str y tensor d 0 0 2 pad 32 ones 8";

static void split_files_are_joined(void **state) {
    (void)state;
    struct folder d;
    struct tensorfile *f;
    char path[128];
    folder_make(&d);
    folder_write(&d, "m-00001-of-00003.gguf", part1);
    folder_write(&d, "m-00002-of-00003.gguf", part2);
    folder_write(&d, "m-00003-of-00003.gguf", part3);
    snprintf(path, sizeof path, "%s/m-00001-of-00003.gguf", d.path);
    for (int copy = 0; copy < 2; copy++) {
        assert_ok(tensorfile_open(&f, path, copy ? &copied : &plain));
        assert_int_equal(f->n_part, 3);
        assert_int_equal(f->n_tensor, 4);
        assert_int_equal(f->file_bytes, f->part[0].size + f->part[1].size + f->part[2].size);
        static const char *const names[] = {"a", "b", "c", "d"};
        static const int parts[] = {0, 1, 1, 2};
        for (int i = 0; i < 4; i++) {
            const struct tensor *t = tensorfile_find(f, names[i]);
            assert_int_equal(t->part, parts[i]);
            assert_ptr_equal(t->data, f->part[parts[i]].data + t->offset);
            assert_int_equal(((const unsigned char *)t->data)[7], 1);
        }
        tensorfile_close(f);
    }
    snprintf(path, sizeof path, "%s/m-00002-of-00003.gguf", d.path);
    assert_int_equal(tensorfile_open(&f, path, &plain), INFER_E_INPUT);
    assert_non_null(strstr(err_message(), "is part 2 of 3; name the first part"));
    folder_remove(&d);
}

static void broken_splits_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *part[3]; /* NULL: missing */
        enum infer_status status;
        const char *says;
    } cases[] = {
        {{part1, NULL, part3}, INFER_E_IO, "part 2 of 3 cannot be opened: "},
        {{part1, part2, NULL}, INFER_E_IO, "part 3 of 3 cannot be opened: "},
        {{part1, part3, part2}, INFER_E_INPUT, "says it is part 3 of 3, its name says part 2 of 3"},
        {{part1, part2, part2}, INFER_E_INPUT, "says it is part 2 of 3"},
        {{part1, part2, "head 3 0 0"}, INFER_E_INPUT, "'split.no' is missing"},
        {{part1, part2, "raw hello"}, INFER_E_INPUT, "its header alone has 24"},
        {{part1, part2, "raw hello zero 32"}, INFER_E_INPUT, "does not begin with 'GGUF'"},
        {{part1, part2, ""}, INFER_E_INPUT, "has 0 bytes"},
        {{part1, part2, PART("2", "4", "1") "key x 8 str y tensor d 0 0 2 pad 32 ones 8"},
         INFER_E_INPUT,
         "says it is part 3 of 4"},
        {{part1, part2, PART("2", "3", "1") "key x 8 str y tensor b 0 0 2 pad 32 ones 8"},
         INFER_E_INPUT,
         "tensor 0 'b': tensor 1 has the same name"},
        {{part1, part2, PART("2", "3", "1") "key x 8 str y tensor d 0 0 2 pad 32 ones 7"},
         INFER_E_INPUT,
         "m-00003-of-00003.gguf: byte"},
        {{part1, part2, PART("2", "3", "0") "key x 8 str y"},
         INFER_E_INPUT,
         "'split.tensors.count' is 4, the 3 parts hold 3"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct folder d;
        struct tensorfile *f;
        char path[128];
        folder_make(&d);
        for (int p = 0; p < 3; p++) {
            char name[32];
            snprintf(name, sizeof name, "m-%05d-of-00003.gguf", p + 1);
            if (cases[i].part[p]) folder_write(&d, name, cases[i].part[p]);
        }
        snprintf(path, sizeof path, "%s/m-00001-of-00003.gguf", d.path);
        enum infer_status s = tensorfile_open(&f, path, &plain);
        if (s != cases[i].status || !strstr(err_message(), cases[i].says))
            fail_msg("case %zu: status %d, '%s' wanted: %s", i, s, cases[i].says, err_message());
        folder_remove(&d);
    }
}

/* ---- out of memory, files that cannot be opened, files that shrink ---- */

static void every_allocation_may_fail(void **state) {
    (void)state;
    struct folder d;
    char single[128], split[128];
    folder_make(&d);
    folder_write(&d, "m.gguf", rich);
    folder_write(&d, "m-00001-of-00003.gguf", part1);
    folder_write(&d, "m-00002-of-00003.gguf", part2);
    folder_write(&d, "m-00003-of-00003.gguf", part3);
    snprintf(single, sizeof single, "%s/m.gguf", d.path);
    snprintf(split, sizeof split, "%s/m-00001-of-00003.gguf", d.path);
    for (int c = 0; c < 4; c++) {
        const char *path = c & 1 ? split : single;
        enum infer_status s;
        uint64_t k = 0;
        do {
            struct tensorfile *f;
            mem_fail_at(++k);
            s = tensorfile_open(&f, path, c & 2 ? &copied : &plain);
            mem_fail_at(0);
            if (s == INFER_OK) {
                tensorfile_close(f);
            } else {
                if (s != INFER_E_MEMORY) fail_msg("allocation %d: %s", (int)k, err_message());
                assert_null(f);
                assert_non_null(strstr(err_message(), "memory"));
            }
        } while (s != INFER_OK && k < 1000);
        assert_true(k > 3 && k < 1000);
    }
    folder_remove(&d);
}

static void files_that_cannot_be_opened(void **state) {
    (void)state;
    struct folder d;
    struct tensorfile *f;
    char path[128];
    folder_make(&d);
    snprintf(path, sizeof path, "%s/absent.gguf", d.path);
    assert_int_equal(tensorfile_open(&f, path, &plain), INFER_E_IO);
    assert_non_null(strstr(err_message(), "absent.gguf: No such file"));
    assert_int_equal(tensorfile_open(&f, d.path, &plain), INFER_E_INPUT);
    assert_non_null(strstr(err_message(), "no config.json"));
    snprintf(path, sizeof path, "%s/fifo", d.path);
    char command[160];
    snprintf(command, sizeof command, "mkfifo '%s'", path);
    assert_int_equal(system(command), 0);
    assert_int_equal(tensorfile_open(&f, path, &plain), INFER_E_IO);
    assert_non_null(strstr(err_message(), "not a regular file"));
    assert_int_equal(tensorfile_open(&f, "/dev/zero", &plain), INFER_E_IO);
    /* a link is followed */
    char link[128];
    folder_write(&d, "m.gguf", rich);
    snprintf(link, sizeof link, "%s/link", d.path);
    assert_int_equal(symlink("m.gguf", link), 0);
    assert_ok(tensorfile_open(&f, link, &plain));
    tensorfile_close(f);
    folder_remove(&d);
}

/* What a program does that reads a tensor whose file is cut while it is open; returns its exit status. A program of
 * its own, because cmocka takes the signals of this one. */
static int cut_while_open(const char *path, bool no_mmap) {
    const struct tensorfile_options options = {.no_mmap = no_mmap};
    struct tensorfile *f;
    if (tensorfile_open(&f, path, &options) != INFER_OK || truncate(path, 4096) != 0) return 9;
    const volatile unsigned char *p = f->tensor[0].data;
    int status = p[f->tensor[0].bytes - 1] == 1 ? 0 : 8;
    tensorfile_close(f);
    return status;
}

/* Runs cut_while_open in a child; its exit status and stderr. */
static int run_cut(const char *path, const char *mode, char *out, size_t size) {
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(pipes[1], STDERR_FILENO);
        close(pipes[0]);
        execl("/proc/self/exe", "test_gguf", mode, path, (char *)NULL);
        _exit(127);
    }
    close(pipes[1]);
    size_t n = 0;
    for (ssize_t r; (r = read(pipes[0], out + n, size - 1 - n)) > 0;) n += (size_t)r;
    out[n] = 0;
    close(pipes[0]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void a_file_that_shrinks(void **state) {
    (void)state;
    static const char line[] = "head 3 1 0 tensor a 0 0 25000 pad 32 ones 100000";
    struct folder d;
    char path[128], out[1024], want[256];
    folder_make(&d);
    snprintf(path, sizeof path, "%s/shrinks.gguf", d.path);
    folder_write(&d, "shrinks.gguf", line);
    assert_int_equal(run_cut(path, "cut-mapped", out, sizeof out), 1);
    snprintf(want, sizeof want, "infer: %s: the file shrank or could not be read while it was in use\n",
             path);
    assert_string_equal(out, want);
    folder_write(&d, "shrinks.gguf", line); /* read into memory, it does no harm */
    assert_int_equal(run_cut(path, "cut-copied", out, sizeof out), 0);
    assert_string_equal(out, "");
    folder_remove(&d);
}

/* ---- the writer, real files, the program ---- */

static void what_we_write_is_read(void **state) {
    (void)state;
    struct folder d;
    struct tensorfile *f, *g;
    struct gguf_writer *w;
    char path[128];
    folder_make(&d);
    snprintf(path, sizeof path, "%s/out.gguf", d.path);
    f = open_line(rich);
    assert_ok(gguf_writer_open(&w, path));
    for (size_t i = 0; i < f->n_meta; i++) gguf_writer_meta(w, &f->meta[i]);
    for (size_t i = 0; i < f->n_tensor; i++) {
        const struct tensor *t = &f->tensor[i];
        gguf_writer_tensor(w, t->name, t->type, t->n_dim, t->shape);
    }
    assert_ok(gguf_writer_begin(w));
    for (size_t i = 0; i < f->n_tensor; i++)
        assert_ok(gguf_writer_data(w, f->tensor[i].data, f->tensor[i].bytes));
    assert_ok(gguf_writer_close(w));
    assert_ok(tensorfile_open(&g, path, &plain));
    assert_int_equal(g->alignment, 4096);
    assert_int_equal(g->n_meta, f->n_meta);
    for (size_t i = 0; i < f->n_tensor; i++) {
        const struct tensor *a = &f->tensor[i], *b = tensorfile_find(g, a->name);
        assert_non_null(b);
        assert_int_equal((uintptr_t)b->data % 4096, 0);
        assert_true(a->type == b->type && a->n_dim == b->n_dim && a->bytes == b->bytes);
        assert_memory_equal(a->shape, b->shape, sizeof a->shape);
        assert_memory_equal(a->data, b->data, a->bytes);
    }
    const struct meta *m = tensorfile_meta(g, "a.nested");
    assert_true(m && m->n == 2 && meta_elem_i64(&m->nested[0], 1) == 6 && m->nested[1].strings[0].len == 1);
    tensorfile_close(f);
    tensorfile_close(g);
    folder_remove(&d);
}

static void real_vocabularies(void **state) {
    (void)state;
    static const char *const names[] = {"gpt-2",     "llama-spm",    "phi-3",
                                        "starcoder", "deepseek-llm", "bert-bge"};
    char path[512], name[64];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct tensorfile *f;
        const struct meta *tokens, *types;
        snprintf(name, sizeof name, "vocab/ggml-vocab-%s.gguf", names[i]);
        if (!testdata_path(path, sizeof path, name)) skip();
        assert_ok(tensorfile_open(&f, path, &vocab));
        assert_ok(meta_array(f, "tokenizer.ggml.tokens", META_KIND_STRING, META_ANY_LENGTH, &tokens, NULL));
        assert_true(tokens->n > 30000);
        assert_ok(meta_array(f, "tokenizer.ggml.token_type", META_KIND_INT, (size_t)tokens->n, &types, NULL));
        tensorfile_close(f);
        assert_int_equal(tensorfile_open(&f, path, &plain), INFER_E_INPUT);
    }
}

int main(int argc, char **argv) {
    if (argc == 3) return cut_while_open(argv[2], strcmp(argv[1], "cut-copied") == 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hostile_files_are_refused), cmocka_unit_test(every_type_is_read),
        cmocka_unit_test(wrong_types_are_named),     cmocka_unit_test(tensors_are_in_c_order),
        cmocka_unit_test(cut_files_are_refused),     cmocka_unit_test(changed_bytes_do_no_harm),
        cmocka_unit_test(odd_files_are_read),        cmocka_unit_test(alignments_8_to_1_mib),
        cmocka_unit_test(tensors_are_asked_for),     cmocka_unit_test(many_names),
        cmocka_unit_test(split_files_are_joined),    cmocka_unit_test(broken_splits_are_refused),
        cmocka_unit_test(every_allocation_may_fail), cmocka_unit_test(files_that_cannot_be_opened),
        cmocka_unit_test(a_file_that_shrinks),       cmocka_unit_test(what_we_write_is_read),
        cmocka_unit_test(real_vocabularies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
