#include "tools/tool.h"
#include <errno.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "files/outfile.h"
#include "tools/adapters.h"
#include "tools/interrupt.h"
#include "tools/world.h"
#include "files/tensorfile.h"
#include "tools/term.h"

int tool_exit_code(enum infer_status s) {
    switch (s) {
    case INFER_OK:
        return EXIT_DONE;
    case INFER_E_INPUT:
    case INFER_E_UNSUPPORTED:
    case INFER_E_IO:
        return EXIT_INPUT;
    case INFER_E_MEMORY:
    case INFER_E_DEVICE:
    case INFER_E_FULL:
    case INFER_E_NAN:
    case INFER_E_WRITE:
        return EXIT_CANNOT;
    case INFER_E_CANCEL:
        return EXIT_CANCEL;
    }
    infer_bug("status %d", (int)s);
}

void tool_vsay(const char *format, va_list arguments) {
    char line[1024], flags[1024], safe[3 * 1024 + 8] = "infer: ";
    const int name = snprintf(line, sizeof line, "%s", world_name());
    vsnprintf(line + name, sizeof line - (size_t)name, format, arguments);
    tool_flags(flags, sizeof flags, line);
    text_escape(safe + 7, sizeof safe - 7, flags, strlen(flags));
    term_line(stderr, safe);
}

void tool_say(const char *format, ...) {
    va_list ap;
    va_start(ap, format);
    tool_vsay(format, ap);
    va_end(ap);
}

static bool said_late;

void tool_say_late(const char *format, ...) {
    va_list ap;
    va_start(ap, format);
    tool_vsay(format, ap);
    va_end(ap);
    said_late = true;
}

bool tool_said_late(void) { return said_late; }

void tool_log(void *user, enum log_level level, const char *line) {
    (void)user;
    if (level >= LOG_WARN) tool_say("%s", line);
}

void tool_report(FILE *out, const char *text) {
    char flags[8192];
    fputs(tool_flags(flags, sizeof flags, text), out);
}

int tool_interrupted(void) {
    fflush(stdout);
    if (isatty(STDERR_FILENO)) fputs("\r\033[K", stderr); /* the ^C that the terminal showed */
    fputs("infer: interrupted\n", stderr);
    return EXIT_CANCEL;
}

int tool_fail(const struct options *o, enum infer_status s) {
    const char *m = err_message();
    if (world_lost()) return EXIT_LOST;
    if (s == INFER_E_CANCEL || interrupted()) return tool_interrupted();
    fflush(stdout);
    char line[2048], flags[1024];
    snprintf(line, sizeof line, "infer%s%s: %s%s", o && o->command ? " " : "",
             o && o->command ? o->command->name : "", world_name(),
             *m ? tool_flags(flags, sizeof flags, m) : "failed");
    term_line(stderr, line);
    return tool_exit_code(s);
}

enum infer_status tool_check_beams(const struct options *o) {
    if (o->beams <= 1) return INFER_OK;
    return err_set(
        INFER_E_INPUT,
        "--beams %d: beam search is not done here; with chat models its likeliest text is short and dull, "
        "and it reads the weights for every beam: use --temp with --top-p or --min-p",
        o->beams);
}

const char *tool_home(void) {
    const char *home = getenv("HOME");
    if (home && *home) return home;
    const struct passwd *user = getpwuid(getuid());
    return user && user->pw_dir ? user->pw_dir : "";
}

int tool_core_count(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

/* A reader that went away ends the program as SIGPIPE does. */
static enum infer_status stdout_failed(int e) {
    if (e == EPIPE) {
        signal(SIGPIPE, SIG_DFL);
        raise(SIGPIPE);
    }
    return err_set(INFER_E_WRITE, "stdout: %s", e ? strerror(e) : "an earlier write failed");
}

enum infer_status tool_write(const char *data, size_t n) {
    errno = 0;
    return fwrite(data, 1, n, stdout) == n ? INFER_OK : stdout_failed(errno);
}

enum infer_status tool_flush(void) {
    errno = 0;
    return fflush(stdout) == 0 && !ferror(stdout) ? INFER_OK : stdout_failed(errno);
}

/* ---- files that a command writes ---- */

enum infer_status tool_check_output(const struct options *o, const char *model, const char *path) {
    const char *const inputs[] = {
        o->file,    o->chat_template, o->grammar, o->json_schema, o->lark_file, o->structural_tag,
        o->compare, o->targets,       o->input,   o->kl,          o->imatrix};
    const struct option_texts *const lists[] = {&o->draft, &o->image, &o->lora, &o->control_vector};
    char file[4096];
    float scale;
    if (model) TRY(tensorfile_differs(path, model));
    if (o->mmproj) TRY(tensorfile_differs(path, o->mmproj));
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        if (inputs[i]) TRY(outfile_differs(path, inputs[i]));
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (int k = 0; k < lists[i]->n; k++)
            if (!adapter_named(lists[i]->text[k], file, sizeof file, &scale))
                TRY(tensorfile_differs(path, file));
    return INFER_OK;
}
