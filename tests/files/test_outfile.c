/* outfile: every call of the system fails once, and the old file is there; names, links, devices, permissions; which files
 * are a model's. */
#include "tests/lib/folder.h"
#include "files/outfile.h"
#include "files/tensorfile.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* ---- the system's calls, of which the k-th fails ---- */

static int calls, fail_at;    /* 0: none fails */
static size_t most = INT_MAX; /* bytes that one write takes */

static bool fails(int error) {
    if (!fail_at || ++calls != fail_at) return false;
    errno = error;
    return true;
}
ssize_t write(int fd, const void *data, size_t n) {
    return fails(ENOSPC) ? -1 : syscall(SYS_write, fd, data, n < most ? n : most);
}
int fsync(int fd) { return fails(EIO) ? -1 : (int)syscall(SYS_fsync, fd); }
int close(int fd) {
    bool bad = fails(EDQUOT);
    int result = (int)syscall(SYS_close, fd), e = errno;
    errno = bad ? EDQUOT : e;
    return bad ? -1 : result;
}
int renameat(int from, const char *a, int to, const char *b) {
    return fails(EIO) ? -1 : (int)syscall(SYS_renameat, from, a, to, b);
}

/* ---- a folder to write in ---- */

static struct folder d;
static int setup(void **state) {
    (void)state;
    folder_make(&d);
    umask(027);
    return 0;
}
static int teardown(void **state) {
    (void)state;
    folder_remove(&d);
    return 0;
}

static const char *at(const char *name) {
    static char path[4][256];
    static int turn;
    return folder_file(&d, path[turn = (turn + 1) % 4], name);
}
static void assert_text(const char *name, const char *want) {
    char got[64];
    FILE *f = fopen(at(name), "r");
    assert_non_null(f);
    got[fread(got, 1, sizeof got - 1, f)] = 0;
    fclose(f);
    assert_string_equal(got, want);
}
static unsigned mode_of(const char *name) {
    struct stat st;
    assert_int_equal(lstat(at(name), &st), 0);
    return st.st_mode & 0777;
}
static int entries(void) {
    int n = 0;
    DIR *dir = opendir(d.path);
    for (struct dirent *e; (e = readdir(dir));) n += e->d_name[0] != '.';
    closedir(dir);
    return n;
}

/* ---- tests ---- */

static void old_file_stays_until_the_new_is_whole(void **state) {
    (void)state;
    for (int kind = OUTFILE_DEFAULT; kind <= OUTFILE_PRIVATE; kind++)
        for (int there = 0; there < 2; there++) {
            int failures = 0;
            bool failed = true;
            for (int k = 1; failed; k++) {
                if (there)
                    folder_text(&d, "out", "old");
                else
                    unlink(at("out"));
                fail_at = k, calls = 0, most = 3;
                enum infer_status s = outfile_put(at("out"), kind, "new text", 8);
                failed = calls >= k;
                fail_at = 0, most = INT_MAX;
                bool written = s == INFER_OK || strstr(err_message(), "is written");
                if (s) assert_int_equal(s, INFER_E_WRITE);
                if (!failed) assert_int_equal(s, INFER_OK);
                if (written || there) assert_text("out", written ? "new text" : "old");
                if (there && !written) assert_non_null(strstr(err_message(), "as it was"));
                assert_int_equal(entries(), written || there);
                failures += s != INFER_OK;
            }
            assert_int_equal(failures,
                             3 + 1 + 1 + 1 + 1); /* writes, fsync, close, rename, the folder's fsync */
            unlink(at("out"));
        }
}

static void permissions(void **state) {
    (void)state;
    assert_ok(outfile_put(at("new"), OUTFILE_DEFAULT, "a", 1));
    assert_int_equal(mode_of("new"), 0640);
    assert_int_equal(chmod(at("new"), 0604), 0);
    assert_ok(outfile_put(at("new"), OUTFILE_DEFAULT, "b", 1));
    assert_int_equal(mode_of("new"), 0604);
    assert_ok(outfile_put(at("new"), OUTFILE_PRIVATE, "c", 1));
    assert_int_equal(mode_of("new"), 0600);
    assert_text("new", "c");
    if (geteuid() == 0) return; /* who may write everything */
    assert_int_equal(chmod(at("new"), 0400), 0);
    assert_int_equal(outfile_put(at("new"), OUTFILE_DEFAULT, "d", 1), INFER_E_IO);
    assert_text("new", "c");
    assert_int_equal(chmod(d.path, 0500), 0);
    assert_int_equal(outfile_put(at("other"), OUTFILE_DEFAULT, "d", 1), INFER_E_IO);
    assert_int_equal(chmod(d.path, 0700), 0);
}

static void links(void **state) {
    (void)state;
    char name[64];
    folder_text(&d, "target", "old");
    assert_int_equal(mkdir(at("sub"), 0700), 0);
    assert_int_equal(symlink("../target", at("sub/one")), 0);
    assert_int_equal(symlink("sub/one", at("two")), 0);
    assert_int_equal(symlink("nothing yet", at("dangling")), 0);
    assert_int_equal(symlink("loop", at("loop")), 0);
    assert_ok(outfile_put(at("two"), OUTFILE_DEFAULT, "new", 3));
    assert_text("target", "new");
    assert_text("two", "new"); /* still a link: */
    assert_int_equal(unlink(at("target")), 0);
    assert_int_equal(access(at("two"), F_OK), -1);
    assert_ok(outfile_put(at("dangling"), OUTFILE_DEFAULT, "made", 4));
    assert_text("nothing yet", "made");
    assert_int_equal(outfile_put(at("loop"), OUTFILE_DEFAULT, "x", 1), INFER_E_IO);
    /* planted ones: under the name, and under the name that the unfinished file would have */
    folder_text(&d, "victim", "whole");
    assert_int_equal(symlink("victim", at("saved")), 0);
    snprintf(name, sizeof name, "saved.part-%ld", (long)getpid());
    assert_int_equal(symlink("victim", at(name)), 0);
    assert_ok(outfile_put(at("saved"), OUTFILE_PRIVATE, "secret", 6));
    assert_text("victim", "whole");
    assert_text("saved", "secret");
    assert_int_equal(mode_of("saved"), 0600);
}

static void devices_are_written_as_they_are(void **state) {
    (void)state;
    char got[16], name[64];
    struct outfile *f;
    assert_int_equal(mkfifo(at("pipe"), 0600), 0);
    int in = open(at("pipe"), O_RDONLY | O_NONBLOCK);
    assert_ok(outfile_put(at("pipe"), OUTFILE_DEFAULT, "through", 7));
    assert_int_equal(read(in, got, sizeof got), 7);
    assert_ok(outfile_open(&f, at("pipe"), OUTFILE_DEFAULT));
    assert_ok(outfile_reserve(f, 1000));
    outfile_abort(f);
    assert_int_equal(mode_of("pipe"), 0600);
    close(in);
    assert_ok(outfile_put("/dev/null", OUTFILE_DEFAULT, "x", 1));
    if (mknod(at("full"), S_IFCHR | 0666, 1 << 8 | 7) == 0 && (in = open(at("full"), O_WRONLY)) >= 0) {
        close(in);
        assert_int_equal(outfile_put(at("full"), OUTFILE_DEFAULT, "x", 1), INFER_E_WRITE);
        assert_int_equal(access(at("full"), F_OK), 0);
    }
    /* a descriptor by its name: what it has already written stays */
    int fd = open(at("log"), O_WRONLY | O_CREAT, 0600);
    assert_int_equal(write(fd, "first ", 6), 6);
    snprintf(name, sizeof name, "/dev/fd/%d", fd);
    assert_ok(outfile_put(name, OUTFILE_DEFAULT, "second", 6));
    assert_int_equal(close(fd), 0);
    assert_text("log", "first second");
}

static void names(void **state) {
    (void)state;
    static char longest[PATH_MAX + 10];
    static const char *const bad[] = {"none/out", "file/out", ".", "sub/", "none/"};
    char name[256];
    folder_text(&d, "file", "");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(outfile_put(at(bad[i]), OUTFILE_DEFAULT, "x", 1), INFER_E_IO);
    assert_int_equal(outfile_put(at("none/out"), OUTFILE_DEFAULT, "x", 1), INFER_E_IO);
    assert_non_null(strstr(err_message(), "no folder"));
    assert_int_equal(outfile_put("", OUTFILE_DEFAULT, "x", 1), INFER_E_IO);
    memset(longest, '/', sizeof longest - 1);
    longest[sizeof longest - 2] = 'x';
    assert_int_equal(outfile_put(longest, OUTFILE_DEFAULT, "x", 1), INFER_E_IO);
    char here[PATH_MAX]; /* the longest name, in the folder that the process is in */
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(d.path), 0);
    memset(name, 'n', NAME_MAX);
    name[NAME_MAX] = 0;
    assert_ok(outfile_put(name, OUTFILE_DEFAULT, "x", 1));
    assert_int_equal(access(name, F_OK), 0);
    assert_int_equal(chdir(here), 0);
}

static void signals_leave_nothing(void **state) {
    (void)state;
    struct outfile *f[12];
    folder_text(&d, "0", "old");
    for (int i = 0; i < 12; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        assert_ok(outfile_open(&f[i], at(name), OUTFILE_DEFAULT));
        assert_ok(outfile_write(f[i], "new", 3));
        if (i == 7) outfile_remove_unfinished();
    }
    assert_int_equal(entries(), 1 + 4);
    assert_text("0", "old");
    for (int i = 8; i < 12; i++) assert_ok(outfile_close(f[i]));
    for (int i = 0; i < 8; i++) outfile_abort(f[i]);
    outfile_remove_unfinished(); /* none is unfinished now */
    assert_int_equal(entries(), 1 + 4);
    assert_text("11", "new");
}

static void outputs_differ_from_inputs(void **state) {
    (void)state;
    static const struct {
        const char *out, *model;
        bool same;
    } cases[] = {
        {"a.gguf", "a.gguf", true},
        {"./a.gguf", "a.gguf", true},
        {"hard", "a.gguf", true},
        {"soft", "a.gguf", true},
        {"a.gguf", "soft", true},
        {"b.gguf", "a.gguf", false},
        {"none", "a.gguf", false},
        {"a.gguf", "none", false},
        {"s-00001-of-00003.gguf", "s-00001-of-00003.gguf", true},
        {"s-00003-of-00003.gguf", "s-00001-of-00003.gguf", true},
        {"s-00002-of-00003.gguf", "s-00001-of-00003.gguf", false}, /* it is not there */
        {"a.gguf", "s-00001-of-00003.gguf", false},
        {"hf/config.json", "hf", true},
        {"blob", "hf", true},
        {"hf/new", "hf/", false},
        {"hf/old.gguf", "hf", false}, /* an earlier result */
    };
    assert_int_equal(mkdir(at("hf"), 0700), 0);
    static const char *const files[] = {
        "a.gguf",      "b.gguf", "s-00001-of-00003.gguf", "s-00003-of-00003.gguf", "hf/config.json",
        "hf/old.gguf", "blob"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) folder_text(&d, files[i], "x");
    assert_int_equal(link(at("a.gguf"), at("hard")), 0);
    assert_int_equal(symlink("a.gguf", at("soft")), 0);
    assert_int_equal(symlink("../blob", at("hf/model.safetensors")), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum infer_status s = tensorfile_differs(at(cases[i].out), at(cases[i].model));
        if (s != (cases[i].same ? INFER_E_INPUT : INFER_OK))
            fail_msg("%s and %s: status %d", cases[i].out, cases[i].model, s);
    }
    assert_ok(outfile_differs("/dev/null", "/dev/null"));
}

int main(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(old_file_stays_until_the_new_is_whole),
        T(permissions),
        T(links),
        T(devices_are_written_as_they_are),
        T(names),
        T(signals_leave_nothing),
        T(outputs_differ_from_inputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
