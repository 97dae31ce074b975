/* Pages and states in files: another engine takes them over with the same bits, and what is damaged, foreign, unfinished or too much is
 * not there. */
#include "tests/lib/test.h"
#include "tests/lib/folder.h"
#include "tests/lib/synth_model.h"
#include "cache/disk.h"
#include "engine_impl.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PROMPT = 300, PAGE = 64, WHOLE = PROMPT / PAGE * PAGE };

static int32_t id_at(int i) { return (i * i + 7 * i + 3) % 311; }

struct side {
    const struct infer_model *m;
    const char *dir; /* NULL: without files */
    const char *kv_type;
    uint64_t most;
};
static struct infer_engine *engine_of(const struct side *s) {
    struct infer_engine *e;
    const struct infer_engine_options o = {.device = "cpu",
                                           .kv_type = s->kv_type,
                                           .ctx = 512,
                                           .slots = 2,
                                           .threads = 1,
                                           .gpu_layers = -1,
                                           .kv_store = s->dir,
                                           .kv_store_max = s->most};
    assert_ok(infer_engine_create(&e, s->m, &o));
    return e;
}

/* What a prompt of PROMPT tokens that begins with `begin` takes over, pages at a time; the logits behind it into out. */
static int answer(struct infer_engine *e, const struct infer_prefix *among, int32_t begin, float *out) {
    struct infer_row rows[PROMPT];
    struct infer_output o;
    int32_t ids[PROMPT];
    int seq, n = 0, calls = 0;
    for (int i = 0; i < PROMPT; i++) ids[i] = i ? id_at(i) : begin;
    assert_ok(infer_seq_open(e, &seq));
    assert_ok(infer_seq_prefix(e, seq, ids, PROMPT, among, &n));
    for (bool done = false; !done; calls++)
        assert_ok(infer_seq_kept(e, seq, ids, PROMPT, among, 0, &n, &done));
    assert_true(calls <= 2 * (PROMPT / PAGE + 2));
    const int taken = n;
    while (n < PROMPT) {
        const int end = n < WHOLE ? WHOLE : PROMPT;
        for (int i = n; i < end; i++) rows[i - n] = (struct infer_row){.id = ids[i], .pos = i, .seq = seq};
        rows[end - n - 1].want = INFER_WANT_LOGITS;
        assert_ok(infer_step(e, rows, end - n, &o));
        n = end;
    }
    memcpy(out, o.logits[0], 300 * sizeof *out);
    infer_seq_close(e, seq);
    return taken;
}

struct case_of {
    struct folder d;
    struct infer_model *m;
    struct side side;
    float want[300], got[300];
};
static void make(struct case_of *c, const char *shape) {
    folder_make(&c->d);
    c->m = synth_model(&(struct synth_options){.shape = shape, .type = "q8_0", .seed = 3});
    c->side = (struct side){.m = c->m};
    struct infer_engine *e = engine_of(&c->side);
    assert_int_equal(answer(e, NULL, 5, c->want), 0);
    infer_engine_free(e);
    c->side.dir = c->d.path;
}
static void drop(struct case_of *c) {
    infer_model_close(c->m);
    folder_remove(&c->d);
}
/* One engine's answer; how much it took over. */
static int run(struct case_of *c, const struct infer_prefix *among) {
    struct infer_engine *e = engine_of(&c->side);
    const int n = answer(e, among, 5, c->got);
    infer_engine_free(e);
    assert_memory_equal(c->got, c->want, sizeof c->want);
    return n;
}

/* The items of a folder into name[][]; their bytes with those of files that grow. */
static int items(const struct folder *d, char name[][300], int most, uint64_t *bytes) {
    DIR *dir = opendir(d->path);
    int n = 0;
    *bytes = 0;
    for (struct dirent *e; (e = readdir(dir));) {
        char path[256];
        struct stat st;
        if (e->d_name[0] == '.' || strlen(e->d_name) < 20) continue;
        if (stat(folder_file(d, path, e->d_name), &st) != 0) continue; /* went just now */
        *bytes += (uint64_t)st.st_size;
        if (strlen(e->d_name) == 68 && n < most) snprintf(name[n++], 300, "%s", path);
    }
    closedir(dir);
    return n;
}

static const char *const shapes[] = {"tiny",       "tiny-gemma4", "tiny-latent",
                                     "tiny-delta", "tiny-lfm2",   "tiny-nemotron"};

static void another_engine_goes_on(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct case_of c;
        make(&c, shapes[i]);
        assert_int_equal(run(&c, NULL), 0);
        if (run(&c, NULL) != WHOLE) fail_msg("%s: a second engine computed more than the end", shapes[i]);
        assert_int_equal(run(&c, &(struct infer_prefix){.exact = true}), WHOLE);
        /* not of other users, types and models, and not what is to be alone */
        assert_int_equal(run(&c, &(struct infer_prefix){.salt = 7}), 0);
        assert_int_equal(run(&c, &(struct infer_prefix){.salt = 7}), WHOLE);
        assert_int_equal(run(&c, &(struct infer_prefix){.alone = true}), 0);
        struct infer_engine *e = engine_of(&c.side);
        assert_int_equal(answer(e, NULL, 6, c.got), 0);
        assert_memory_not_equal(c.got, c.want, sizeof c.want);
        infer_engine_free(e);
        const struct side other = {c.m, c.d.path, "f32", 0};
        e = engine_of(&other);
        assert_int_equal(answer(e, NULL, 5, c.got), 0);
        infer_engine_free(e);
        drop(&c);
    }
}

/* Pages in types of each layer are for engines of the same types alone, also where their bytes are as many. */
static void types_are_told_apart(void **state) {
    static const char *const types[] = {"f16/q4_0", "q4_0/f16", "f16/q4_0,0:q4_0/f16"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct case_of c;
        make(&c, "tiny");
        for (int k = 0; k < 3; k++) {
            c.side.kv_type = types[(i + k) % 3];
            struct infer_engine *e = engine_of(&c.side);
            if (answer(e, NULL, 5, c.got) != 0)
                fail_msg("%s takes over pages of %s", c.side.kv_type, types[i]);
            infer_engine_free(e);
            e = engine_of(&c.side);
            assert_int_equal(answer(e, NULL, 5, c.want), WHOLE);
            assert_memory_equal(c.got, c.want, sizeof c.want);
            infer_engine_free(e);
        }
        drop(&c);
    }
}

static int n_warned, n_damage_told;
static void heard(void *user, enum log_level level, const char *line) {
    (void)user;
    n_warned += level == LOG_WARN && strstr(line, "pages are not kept") != NULL;
    n_damage_told += level == LOG_WARN && strstr(line, "damaged file") != NULL;
}

/* Every byte in front of the item, some of the item, and the length. */
static void damage_is_a_miss(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct case_of c;
        char name[32][300];
        uint64_t bytes;
        make(&c, k ? "tiny-delta" : "tiny");
        run(&c, NULL);
        for (int at = 0; at < DISK_HEAD + 4 * PAGE + 12; at += at < DISK_HEAD ? 1 + 6 * k : 29) {
            const int n = items(&c.d, name, 32, &bytes);
            int damaged = 0;
            struct infer_kept_info info;
            for (int i = 0; i < n; i++) { /* all files, so that nothing is found at all */
                struct stat st;
                const int fd = open(name[i], O_RDWR);
                char byte;
                assert_true(fd >= 0 && fstat(fd, &st) == 0);
                assert_int_equal(pread(fd, &byte, 1, at), 1);
                byte ^= (char)(1 << at % 8);
                assert_int_equal(pwrite(fd, &byte, 1, at), 1);
                if (at % 40 == 39) assert_int_equal(ftruncate(fd, st.st_size + (at % 80 == 79 ? 1 : -1)), 0);
                close(fd);
                damaged++;
            }
            struct infer_engine *e = engine_of(&c.side);
            n_damage_told = 0;
            if (answer(e, NULL, 5, c.got)) fail_msg("byte %d of files was changed, and they were taken", at);
            assert_memory_equal(c.got, c.want, sizeof c.want);
            infer_kept_info(e, &info);
            assert_true(info.n_damaged > 0 && info.n_read == 0 && damaged > 0);
            assert_int_equal(n_damage_told, 1);
            infer_engine_free(e);
        }
        drop(&c);
    }
}

/* One sequence takes over, the other waits; when the first one closes on the way, the other has its turn. */
static void one_at_a_time(void **state) {
    (void)state;
    for (int closes = 0; closes < 2; closes++) {
        struct case_of c;
        int32_t ids[PROMPT];
        int seq[2], n[2];
        bool done[2];
        make(&c, "tiny-gemma4");
        run(&c, NULL);
        struct infer_engine *e = engine_of(&c.side);
        for (int i = 0; i < PROMPT; i++) ids[i] = i ? id_at(i) : 5;
        for (int k = 0; k < 2; k++) {
            assert_ok(infer_seq_open(e, &seq[k]));
            assert_ok(infer_seq_prefix(e, seq[k], ids, PROMPT, NULL, &n[k]));
            assert_ok(infer_seq_kept(e, seq[k], ids, PROMPT, NULL, 0, &n[k], &done[k]));
            assert_false(done[k]);
        }
        assert_ok(infer_seq_kept(e, seq[1], ids, PROMPT, NULL, 1, &n[1], &done[1]));
        assert_false(done[1]);
        if (closes)
            infer_seq_close(e, seq[0]);
        else
            assert_ok(infer_seq_kept(e, seq[0], ids, PROMPT, NULL, 1, &n[0], &done[0]));
        if (!closes) assert_true(done[0] && n[0] == WHOLE);
        assert_ok(infer_seq_kept(e, seq[1], ids, PROMPT, NULL, 1, &n[1], &done[1]));
        assert_true(done[1] && n[1] == WHOLE);
        for (int k = closes; k < 2; k++) infer_seq_close(e, seq[k]);
        infer_engine_free(e);
        drop(&c);
    }
}

/* What is computed sooner than it is read is computed; nothing is known before the first of both. */
static void what_takes_less_time(void **state) {
    (void)state;
    struct case_of c;
    make(&c, "tiny");
    for (uint64_t salt = 0; salt < 3; salt++) run(&c, &(struct infer_prefix){.salt = salt});
    struct infer_engine *e = engine_of(&c.side);
    assert_int_equal(answer(e, NULL, 5, c.got), WHOLE);
    e->prompt_rows = 1e12, e->prompt_seconds = 1e-9;
    assert_int_equal(answer(e, &(struct infer_prefix){.salt = 1}, 5, c.got), 0);
    assert_memory_equal(c.got, c.want, sizeof c.want);
    e->prompt_rows = 1, e->prompt_seconds = 1e9;
    assert_int_equal(answer(e, &(struct infer_prefix){.salt = 2}, 5, c.got), WHOLE);
    assert_memory_equal(c.got, c.want, sizeof c.want);
    infer_engine_free(e);
    drop(&c);
}

/* Weights that are changed behind the bytes that are looked at. */
static void a_changed_file_is_another_model(void **state) {
    (void)state;
    struct case_of c;
    char path[SYNTH_PATH];
    make(&c, "tiny");
    infer_model_close(c.m);
    synth_temporary(&(struct synth_options){.shape = "tiny", .type = "q8_0", .seed = 3}, path);
    for (int k = 0; k < 3; k++) {
        const struct timespec times[2] = {{100, 0}, {100 + (k == 2), 0}};
        assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
        assert_ok(infer_model_open(&c.m, path, NULL));
        c.side.m = c.m;
        assert_int_equal(run(&c, NULL), k == 1 ? WHOLE : 0);
        if (k < 2) infer_model_close(c.m);
    }
    unlink(path);
    drop(&c);
}

/* One damaged page in the middle: what stands in front of it is taken. Another's file under its name, too. */
static void one_bad_page(void **state) {
    (void)state;
    struct case_of c;
    char name[32][300];
    uint64_t bytes;
    make(&c, "tiny");
    run(&c, NULL);
    const int n = items(&c.d, name, 32, &bytes);
    int taken[WHOLE / PAGE + 1] = {0};
    size_t size;
    assert_int_equal(n, WHOLE / PAGE);
    for (int i = 0; i < n; i++) {
        char *other = read_file(name[(i + 1) % n], &size);
        FILE *f = fopen(name[i], "wb");
        assert_int_equal(fwrite(other, 1, size, f), size);
        fclose(f);
        free(other);
        const int m = run(&c, NULL);
        taken[m / PAGE]++;
        assert_int_equal(run(&c, NULL), WHOLE); /* it is there again */
    }
    for (int i = 0; i < WHOLE / PAGE; i++) assert_int_equal(taken[i], 1);
    drop(&c);
}

static void the_oldest_go(void **state) {
    (void)state;
    struct case_of c;
    char name[32][300];
    uint64_t bytes, all;
    make(&c, "tiny");
    run(&c, NULL);
    assert_int_equal(items(&c.d, name, 32, &all), 4);
    c.side.most = all * 5 / 2;
    for (int k = 0; k < 6; k++) {
        struct infer_engine *e = engine_of(&c.side);
        assert_int_equal(answer(e, NULL, 10 + k, c.got), 0);
        infer_engine_free(e);
        items(&c.d, name, 32, &bytes);
        assert_true(bytes > all && bytes <= c.side.most);
        assert_int_equal(run(&c, NULL), WHOLE); /* stays in use */
    }
    struct infer_engine *e = engine_of(&c.side);
    assert_int_equal(answer(e, NULL, 10, c.got), 0); /* the one not used for longest */
    infer_engine_free(e);
    /* a bound that is less than what is there, and one that holds no page */
    c.side.most = all / 2;
    e = engine_of(&c.side);
    items(&c.d, name, 32, &bytes);
    assert_true(bytes <= all / 2);
    infer_engine_free(e);
    c.side.most = 100;
    assert_int_equal(run(&c, NULL), 0);
    assert_int_equal(items(&c.d, name, 32, &bytes), 0);
    drop(&c);
}

/* What does not fit beside what waits to be written is said to, before it is taken off a list. */
static void a_large_item_waits(void **state) {
    (void)state;
    enum { LARGE = 24 << 20, SMALL = 1 << 20 };
    struct folder d;
    struct disk *disk;
    struct disk_write *w[2];
    folder_make(&d);
    assert_ok(disk_open(&disk, d.path, 1 << 30, (struct disk_identity){1, 2}));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(disk_state(disk, LARGE), DISK_READY);
        const struct disk_item item = {.key = {(uint64_t)i, 1}};
        assert_non_null(w[i] = disk_begin(disk, &item, LARGE));
    }
    assert_int_equal(disk_state(disk, LARGE), DISK_BUSY);
    assert_null(disk_begin(disk, &(struct disk_item){.key = {2, 1}}, LARGE));
    assert_int_equal(disk_state(disk, SMALL), DISK_READY);
    for (int i = 0; i < 2; i++) disk_drop(disk, w[i]);
    assert_int_equal(disk_state(disk, LARGE), DISK_READY);
    disk_close(disk, 1);
    folder_remove(&d);
}

static void a_full_disk_is_told_once(void **state) {
    (void)state;
    struct case_of c;
    char name[32][300];
    struct rlimit before, none;
    uint64_t bytes;
    make(&c, "tiny");
    struct infer_engine *e = engine_of(&c.side);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    none = before;
    none.rlim_cur = 4096;
    n_warned = 0;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    for (int k = 0; k < 3; k++) {
        answer(e, NULL, 5 + k, c.got);
        if (!k) assert_memory_equal(c.got, c.want, sizeof c.want);
        while (infer_keep(e, 0.01)) continue;
    }
    infer_engine_free(e);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(n_warned, 1);
    assert_int_equal(items(&c.d, name, 32, &bytes), 0);
    assert_int_equal(bytes, 0); /* nothing begun is left */
    run(&c, NULL);
    assert_int_equal(run(&c, NULL), WHOLE);
    drop(&c);
}

/* Bytes of a folder in which others write: under their lock none comes and none goes; one that gets its name meanwhile may be met twice. */
static uint64_t bytes_now(const struct folder *d) {
    enum { MOST = 512 };
    static ino_t seen[MOST];
    char path[256];
    uint64_t bytes = 0;
    int n = 0;
    const int lock = open(folder_file(d, path, "total"), O_RDWR | O_CLOEXEC);
    if (lock < 0) return 0;
    assert_int_equal(flock(lock, LOCK_EX), 0);
    DIR *dir = opendir(d->path);
    for (struct dirent *e; (e = readdir(dir));) {
        struct stat st;
        int k = 0;
        if (strlen(e->d_name) < 20 || stat(folder_file(d, path, e->d_name), &st) != 0) continue;
        while (k < n && seen[k] != st.st_ino) k++;
        if (k < n) continue;
        assert_true(n < MOST);
        seen[n++] = st.st_ino;
        bytes += (uint64_t)st.st_size;
    }
    closedir(dir);
    close(lock);
    return bytes;
}

/* Processes write and read at once under a bound that holds two of their prompts. */
static void several_processes(void **state) {
    (void)state;
    struct case_of c;
    char name[64][300];
    uint64_t all;
    pid_t child[3];
    make(&c, "tiny");
    run(&c, NULL);
    items(&c.d, name, 64, &all);
    c.side.most = all * 2;
    for (int k = 0; k < 3; k++)
        if (!(child[k] = fork())) {
            for (int i = 0; i < 8; i++) {
                struct infer_engine *e = engine_of(&c.side);
                answer(e, NULL, 5, c.got);
                if (memcmp(c.got, c.want, sizeof c.want)) _exit(1);
                answer(e, NULL, 20 + (i + k) % 4, c.got);
                infer_engine_free(e);
            }
            _exit(0);
        }
    for (int k = 0; k < 3;) {
        int status;
        const pid_t ended = waitpid(-1, &status, WNOHANG);
        assert_true(bytes_now(&c.d) <= c.side.most);
        usleep(500); /* they want the lock, too */
        if (ended <= 0) continue;
        assert_int_equal(status, 0);
        k++;
    }
    run(&c, NULL);
    drop(&c);
}

/* Of a process that is killed while it writes every file is whole, and what it had begun holds nobody up. */
static void killed_while_writing(void **state) {
    (void)state;
    enum { N = 1 << 20 };
    struct folder d;
    struct disk *disk;
    const struct disk_identity identity = {1, 2};
    char *bytes = malloc(N);
    folder_make(&d);
    for (int k = 0; k < 12; k++) {
        const pid_t child = fork();
        if (!child) {
            assert_ok(disk_open(&disk, d.path, 64 << 20, identity));
            for (uint64_t i = 0;; i++) {
                const struct disk_item item = {.key = {(uint64_t)k, i + 1}, .part = 0};
                struct disk_write *w = disk_begin(disk, &item, N);
                if (!w) continue;
                memset(disk_bytes(w), (int)i + k, N);
                disk_put(disk, w);
            }
        }
        nanosleep(&(struct timespec){0, 5000000 + k * 1700000}, NULL);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    assert_ok(disk_open(&disk, d.path, 64 << 20, identity));
    int n = 0;
    for (int k = 0; k < 12; k++)
        for (uint64_t i = 0; i < 64; i++) {
            const struct disk_item item = {.key = {(uint64_t)k, i + 1}, .part = 0};
            const bool there = disk_has(disk, item.key, 0), got = disk_get(disk, &item, bytes, N);
            assert_int_equal(there, got);
            for (int b = 0; got && b < N; b += 4095) assert_int_equal(bytes[b], (char)((int)i + k));
            n += got;
        }
    assert_true(n > 0);
    struct disk_figures f;
    disk_figures(disk, &f);
    assert_int_equal(f.n_damaged, 0);
    assert_true(f.bytes >= (uint64_t)n * N && f.bytes <= 64 << 20);
    const struct disk_item item = {.key = {99, 99}, .part = 0};
    disk_put(disk, disk_begin(disk, &item, N));
    disk_close(disk, 5);
    assert_ok(disk_open(&disk, d.path, 64 << 20, identity));
    assert_true(disk_has(disk, item.key, 0));
    disk_close(disk, 5);
    free(bytes);
    folder_remove(&d);
}

static void folders_that_are_none(void **state) {
    (void)state;
    struct folder d;
    struct disk *disk;
    char path[256];
    const struct disk_identity identity = {1, 2};
    folder_make(&d);
    assert_int_equal(disk_open(&disk, "/nowhere/at/all", 1000, identity), INFER_E_IO);
    folder_text(&d, "file", "");
    assert_int_equal(disk_open(&disk, folder_file(&d, path, "file"), 1000, identity), INFER_E_IO);
    chmod(d.path, 0777);
    assert_int_equal(disk_open(&disk, d.path, 1000, identity), INFER_E_INPUT);
    chmod(d.path, 0700);
    folder_text(&d, "secret", "too short");
    assert_int_equal(disk_open(&disk, d.path, 1000, identity), INFER_E_INPUT);
    unlink(folder_file(&d, path, "secret"));
    assert_ok(disk_open(&disk, folder_file(&d, path, "new"), 1000, identity));
    disk_close(disk, 0);
    folder_remove(&d);
}

int main(void) {
    log_set(heard, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_engine_goes_on),
        cmocka_unit_test(types_are_told_apart),
        cmocka_unit_test(damage_is_a_miss),
        cmocka_unit_test(one_bad_page),
        cmocka_unit_test(one_at_a_time),
        cmocka_unit_test(what_takes_less_time),
        cmocka_unit_test(a_changed_file_is_another_model),
        cmocka_unit_test(the_oldest_go),
        cmocka_unit_test(a_large_item_waits),
        cmocka_unit_test(a_full_disk_is_told_once),
        cmocka_unit_test(several_processes),
        cmocka_unit_test(killed_while_writing),
        cmocka_unit_test(folders_that_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
