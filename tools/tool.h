/* What the subcommands share: exit codes, messages, terminal output. */
#pragma once
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include "tools/options.h"
#include "base/status.h"

/* Exit codes of the program; every command returns one of these. */
enum exit_code {
    EXIT_DONE = 0,
    EXIT_CANNOT =
        1, /* it cannot be done here: context full, out of memory, no such device, device lost, disk full */
    EXIT_INPUT = 2,   /* bad file, flag, unsupported model */
    EXIT_CHECK = 3,   /* a check said no: bench --compare, bench --targets, verify */
    EXIT_LOST = 70,   /* serve lost its device; a rank is gone */
    EXIT_CANCEL = 130 /* interrupted */
};
/* The one map from status to exit code. */
int tool_exit_code(enum infer_status s);

/* Prints "infer COMMAND: message" (this thread's message) on stderr, returns the exit code of s. After Ctrl-C whatever failed
 * is that: tool_interrupted. */
int tool_fail(const struct options *o, enum infer_status s);
/* Prints "infer: interrupted" on a line of its own, returns the exit code. */
int tool_interrupted(void);
/* Prints "infer: text" on stderr, whatever --quiet says; control characters of the arguments are escaped. */
void tool_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same of what could not be written when the work was done: a command that succeeded otherwise ends with EXIT_CANNOT. */
void tool_say_late(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool tool_said_late(void);
void tool_vsay(const char *format, va_list arguments);
/* text, a message or report of the library, into buf[n] with the flags of this program where it names fields of the library's
 * options: "up to .ctx 2048" becomes "up to --ctx 2048". Returns buf. */
const char *tool_flags(char *buf, size_t n, const char *text);
/* What the library has to say while it works (log_set). */
void tool_log(void *user, enum log_level level, const char *line);
/* A memory report of the library. */
void tool_report(FILE *out, const char *text);

/* INFER_E_INPUT with the reason when --beams asks for more than one. */
enum infer_status tool_check_beams(const struct options *o);

/* $HOME, else the home that the system has for this user, "" when there is none. */
const char *tool_home(void);

/* Cores that this process may use: the affinity mask. */
int tool_core_count(void);

/* Writes bytes to stdout. Nothing is lost silently: INFER_E_WRITE with the reason; a pipe without a reader ends the
 * program. */
enum infer_status tool_write(const char *data, size_t n);
/* Writes out what stdout still holds: the last call of a command that prints through stdio. */
enum infer_status tool_flush(void);

/* INFER_E_INPUT when writing to path would replace a file that the command reads: one of the model's (its path, NULL: none)
 * or one that an option names. */
enum infer_status tool_check_output(const struct options *o, const char *model, const char *path);
