/* infer bench --compare PROGRAM: this program and another one take turns on the same tests.
 *
 * What moves from minute to minute (the clock, the memory's other users) meets both in a block of four repetitions,
 * this, other, other, this, and cancels in its ratio. What two processes of one program differ by (which pages their
 * memory got) does not, so there are several rounds, each of two fresh processes (bench_compare_turns has the rule).
 *
 * Each process runs `infer bench --turns 0` with the options of this one. It walks the tests in order; between the two, in
 * lines: "NAME" when a test is ready, "end" behind the last; asked "r" it answers the seconds of a repetition and, where one
 * thread of the processor does all, those that this took of it; asked "n" it goes on to the next test. What both programs
 * tell of the processor is compared instead of what the clock says, since others do not count in it. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "tools/measure/bench.h"
#include "base/mem.h"
#include "tools/tool.h"

extern char **environ;

enum { ROUNDS = BENCH_ROUNDS, MOST_TESTS = 64, MOST_WORDS = 256, WORDS_BYTES = 16384 };
enum { BLOCKS_OF_REP = 2, MOST_BLOCKS = 500 }; /* of a round, for each repetition that -r asks for */

bool bench_is_program(const char *path) {
    char magic[4] = "";
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(magic, 1, sizeof magic, f) : 0;
    if (f) fclose(f);
    return n == sizeof magic && !memcmp(magic, "\177ELF", sizeof magic);
}

/* ---- a process that answers ---- */

struct player {
    const char *program;
    pid_t pid; /* 0: none */
    FILE *in, *out;
};

static enum infer_status player_open(struct player *p, const char *turns) {
    char words[WORDS_BYTES], *argv[MOST_WORDS + 4];
    FILE *f = fopen("/proc/self/cmdline", "re");
    size_t n = f ? fread(words, 1, sizeof words - 1, f) : 0, n_word = 0;
    int to[2], from[2];
    if (f) fclose(f);
    for (size_t i = 0; i < n && n_word < MOST_WORDS; i += strlen(words + i) + 1) argv[n_word++] = words + i;
    if (n == 0 || n == sizeof words - 1 || n_word == MOST_WORDS)
        return err_set(INFER_E_INPUT, "--compare: the command line is too long");
    words[n] = 0;
    argv[0] = (char *)p->program;
    argv[n_word++] = "--turns";
    argv[n_word++] = (char *)turns;
    argv[n_word++] = "--quiet";
    argv[n_word] = NULL;
    if (pipe2(to, O_CLOEXEC) != 0) return err_set(INFER_E_IO, "a pipe: %s", strerror(errno));
    if (pipe2(from, O_CLOEXEC) != 0) {
        close(to[0]), close(to[1]);
        return err_set(INFER_E_IO, "a pipe: %s", strerror(errno));
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
    int e = posix_spawn(&p->pid, p->program, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(to[0]), close(from[1]);
    p->in = fdopen(to[1], "w"), p->out = fdopen(from[0], "r");
    if (e) {
        p->pid = 0;
        return err_set(INFER_E_INPUT, "%s: %s", p->program, strerror(e));
    }
    return p->in && p->out ? INFER_OK : err_set(INFER_E_MEMORY, "a pipe to %s", p->program);
}

static void player_close(struct player *p) {
    if (p->in) fclose(p->in);
    if (p->out) fclose(p->out);
    if (p->pid) waitpid(p->pid, NULL, 0);
    p->pid = 0, p->in = p->out = NULL;
}

static enum infer_status answer(struct player *p, char *line, int n) {
    if (!fgets(line, n, p->out))
        return err_set(INFER_E_INPUT, "%s gives no answer: it failed, or is too old for --compare",
                       p->program);
    line[strcspn(line, "\n")] = 0;
    return INFER_OK;
}

static enum infer_status ask(struct player *p, const char *question, struct bench_took *took) {
    char line[BENCH_NAME];
    fputs(question, p->in);
    if (fflush(p->in) != 0 || !took) return INFER_OK; /* a closed pipe ends the program: seen at the answer */
    TRY(answer(p, line, sizeof line));
    took->processor = NAN; /* of earlier programs */
    return sscanf(line, "%lf %lf", &took->seconds, &took->processor) >= 1 && took->seconds > 0
               ? INFER_OK
               : err_set(INFER_E_INPUT, "%s answers '%s'", p->program, line);
}

/* ---- rounds ---- */

struct turn { /* one test */
    char test[BENCH_NAME];
    double *ratio[2];     /* by the clock, and of the processor: [ROUNDS][n_block] speed this / other */
    double seconds[2][2]; /* medians of the last round: of this and the other */
    bool alone;           /* the processor's time is known */
};
struct turns {
    struct turn test[MOST_TESTS];
    int n, n_block;
};

/* Sums of a block's repetitions: its ratio, and the seconds of one of both. */
static double ratio_of(const double t[4], bool other_first, double *mine, double *others) {
    const double outer = (t[0] + t[3]) / 2, inner = (t[1] + t[2]) / 2;
    *mine = other_first ? inner : outer, *others = other_first ? outer : inner;
    return *others / *mine;
}

/* Blocks of four repetitions of one test. */
static enum infer_status blocks(struct player p[2], int n, struct turn *turn, int round) {
    /* The threads of the process that was asked wait for its next step without sleeping, some 300,000 looks of 50 ns, and
     * would take the processors from the other one. */
    static const struct timespec pause = {0, 30000000};
    double mine[2][MOST_BLOCKS], others[2][MOST_BLOCKS];
    for (int i = 0; i < n; i++) {
        double t[2][4];
        for (int k = 0; k < 4; k++) {
            struct bench_took took;
            nanosleep(&pause, NULL);
            TRY(ask(&p[(k == 1 || k == 2) ^ (i & 1)], "r\n", &took));
            t[0][k] = took.seconds, t[1][k] = took.processor;
            turn->alone = turn->alone && took.processor > 0;
        }
        for (int k = 0; k < 2; k++)
            turn->ratio[k][round * n + i] = ratio_of(t[k], i & 1, &mine[k][i], &others[k][i]);
    }
    for (int k = 0; k < 2; k++) {
        turn->seconds[k][0] = bench_percentile(mine[k], (size_t)n, 0.5);
        turn->seconds[k][1] = bench_percentile(others[k], (size_t)n, 0.5);
    }
    return INFER_OK;
}

static enum infer_status play_round(struct turns *t, struct player p[2], int round) {
    char names[2][BENCH_NAME];
    for (t->n = 0;; t->n++) {
        for (int k = 0; k < 2; k++) { /* one after the other, since each warms up */
            if (t->n) TRY(ask(&p[k], "n\n", NULL));
            TRY(answer(&p[k], names[k], BENCH_NAME));
        }
        if (strcmp(names[0], names[1]) != 0)
            return err_set(INFER_E_INPUT, "the programs run other tests: '%s', '%s'", names[0], names[1]);
        if (!strcmp(names[0], "end")) return INFER_OK;
        if (t->n == MOST_TESTS)
            return err_set(INFER_E_INPUT, "--compare PROGRAM takes %d tests at most", MOST_TESTS);
        struct turn *test = &t->test[t->n];
        snprintf(test->test, BENCH_NAME, "%s", names[0]);
        for (int k = 0; k < 2 && !round; k++)
            TRY(mem_new(&test->ratio[k], (size_t)ROUNDS * (size_t)t->n_block * sizeof(double), "ratios"));
        if (!round) test->alone = true;
        TRY(blocks(p, t->n_block, test, round));
    }
}

/* N of a test's name: tokens of a repetition are N sequences times what the name begins with. */
static double tokens(const char *test) {
    int n = 0, sequences = 1;
    sscanf(test + 2, "%dx%d", &n, &sequences);
    return (double)n * sequences;
}

static json_t *rounds_json(const double *ratio, int n_block) {
    json_t *all = json_array();
    for (int i = 0; i < ROUNDS; i++) {
        json_t *one = json_array();
        for (int k = 0; k < n_block; k++) json_array_append_new(one, json_real(ratio[i * n_block + k]));
        json_array_append_new(all, one);
    }
    return all;
}

static void print(struct turns *t, const struct options *o, int *slower) {
    json_t *all = json_array();
    for (int i = 0; i < t->n; i++) {
        struct turn *r = &t->test[i];
        const double *seconds = r->seconds[r->alone];
        json_t *rounds = rounds_json(r->ratio[r->alone], t->n_block); /* before they are sorted */
        struct bench_turns_change c = bench_compare_turns(r->ratio[r->alone], t->n_block);
        const char *verdict = bench_verdict_name(c.verdict);
        *slower += c.verdict == BENCH_SLOWER;
        json_array_append_new(all,
                              json_pack("{s:s, s:f, s:f, s:f, s:s, s:s, s:o}", "test", r->test, "ratio",
                                        c.ratio, "ratio_least", c.least, "ratio_most", c.most, "verdict",
                                        verdict, "time", r->alone ? "processor" : "clock", "rounds", rounds));
        if (!o->json)
            printf("%-16s %9.1f -> %9.1f tok/s%s, speed %+.1f%% (%+.1f .. %+.1f%%): %s\n", r->test,
                   tokens(r->test) / seconds[1], tokens(r->test) / seconds[0],
                   r->alone ? " of processor time" : "", 100 * (c.ratio - 1), 100 * (c.least - 1),
                   100 * (c.most - 1), verdict);
    }
    char *text = o->json ? json_dumps(all, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) : NULL;
    json_decref(all);
    if (text) printf("%s\n", text);
    mem_free(text);
}

enum infer_status bench_turns(const struct options *o, int *slower) {
    struct turns *t;
    char inject[32];
    enum infer_status st = mem_new(&t, sizeof *t, "results of the turns");
    if (!st) t->n_block = o->reps < MOST_BLOCKS / BLOCKS_OF_REP ? o->reps * BLOCKS_OF_REP : MOST_BLOCKS;
    signal(SIGPIPE, SIG_IGN); /* a process that ended is seen when it does not answer */
    snprintf(inject, sizeof inject, "%g", o->inject);
    for (int round = 0; !st && round < ROUNDS; round++) {
        struct player p[2] = {{.program = "/proc/self/exe"}, {.program = o->compare}};
        for (int k = 0; !st && k < 2; k++) { /* the one that starts second finds the file's pages mapped */
            int which = k ^ (round & 1);
            st = player_open(&p[which], which ? "0" : inject);
        }
        if (!st) st = play_round(t, p, round);
        for (int k = 0; k < 2; k++) player_close(&p[k]);
    }
    if (!st) {
        print(t, o, slower);
        st = tool_flush();
    }
    for (int i = 0; t && i < MOST_TESTS; i++)
        for (int k = 0; k < 2; k++) mem_free(t->test[i].ratio[k]);
    mem_free(t);
    return st;
}

/* ---- the side that answers ---- */

enum infer_status bench_answer(const char *test,
                               enum infer_status (*repeat)(void *user, struct bench_took *took), void *user) {
    char line[8];
    printf("%s\n", test);
    TRY(tool_flush());
    while (fgets(line, sizeof line, stdin) && line[0] == 'r') {
        struct bench_took took;
        TRY(repeat(user, &took));
        if (took.processor > 0)
            printf("%.9f %.9f\n", took.seconds, took.processor);
        else
            printf("%.9f\n", took.seconds);
        TRY(tool_flush());
    }
    return INFER_OK;
}
