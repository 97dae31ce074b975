/* The options of the program: ONE table (options.def) that feeds parsing, help and docs.
 *
 * A command is a row of commands.def and says which groups of options it takes; an option is a row of
 * options.def and says which groups it belongs to. main parses before it calls the command, so a command gets
 * values that are complete and in range. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "base/status.h"

/* Groups of options; a command takes any set of them. */
enum option_group {
    G_MODEL = 1 << 0,  /* -m */
    G_LOAD = 1 << 1,   /* how the file is read */
    G_ENGINE = 1 << 2, /* device, threads, context, memory */
    G_RUN = 1 << 3,    /* the prompt */
    G_TEXT = 1 << 4,   /* sampling, chat template, when to stop */
    G_BENCH = 1 << 5,
    G_PLAN = 1 << 6,
    G_LOGITS = 1 << 7,
    G_FILE = 1 << 8,   /* -f */
    G_OUT = 1 << 9,    /* -o */
    G_QUIET = 1 << 10, /* --quiet */
    G_JSON = 1 << 11,  /* --json */
    G_INSPECT = 1 << 12,
    G_TOKENIZE = 1 << 13,
    G_TEMPLATE = 1 << 14,
    G_SYNTH = 1 << 15,
    G_QUANT = 1 << 16,
    G_MERGE = 1 << 17,
    G_HELP = 1 << 18,
    G_PPL = 1 << 19,
    G_MONITOR = 1 << 20,
    G_SEED = 1 << 21,
    G_SAMPLE = 1 << 22, /* how tokens are chosen; /set of chat changes these */
    G_DOCTOR = 1 << 23,
    G_SERVE = 1 << 24,
    G_LOADTEST = 1 << 25, /* bench serve */
    G_IMATRIX = 1 << 26,
    G_BPW = 1 << 27,
    G_TUNE = 1 << 29,
    G_VERIFY = 1 << 18,
    G_ADAPT = 1 << 30,  /* adapters */
    G_COMMON = 1 << 28, /* an option that help shows first; no command takes the group */
};
/* beyond what an enum holds */
#define G_EMBED  (UINT64_C(1) << 31)
#define G_KVTUNE (UINT64_C(1) << 32)

enum option_type {
    OPT_FLAG,   /* bool: present or not */
    OPT_INT,    /* int; the word in choices, if any, gives -1 */
    OPT_UINT64, /* uint64_t; the word in choices, if any, gives OPTION_RANDOM */
    OPT_NUMBER, /* double */
    OPT_BYTES,  /* uint64_t; 500M, 8G, 8GiB: powers of 1024 */
    OPT_SWITCH, /* bool; on or off, which choices are */
    OPT_TEXT,   /* const char *; choices "a|b|c" limits it */
    OPT_TEXTS,  /* struct option_texts: may be given several times */
    OPT_INTS,   /* struct option_ints: 1,5,9 */
};

#define OPTION_RANDOM UINT64_MAX
enum { OPTION_MAX_TEXTS = 16, OPTION_MAX_ARGS = 4, OPTION_MAX = 288 };

/* Who says what an option is; a later one wins. */
enum option_origin { ORIGIN_DEFAULT, ORIGIN_PRESET, ORIGIN_FILE, ORIGIN_ENVIRONMENT, ORIGIN_FLAG };

/* The rows of the table, by their fields: OPTION_ROW_ctx. */
enum option_row {
#define OPTION(field, ...) OPTION_ROW_##field,
#include "tools/options.def"
#undef OPTION
};

struct option_texts {
    const char *text[OPTION_MAX_TEXTS];
    int n;
};
struct option_ints {
    int *value; /* value[n] */
    int n;
};

struct options {
#define OPTION(field, letter, name, metavar, type, group, def, lo, hi, choices, help)                        \
    OPTION_FIELD_##type field;
#define OPTION_FIELD_OPT_FLAG   bool
#define OPTION_FIELD_OPT_INT    int
#define OPTION_FIELD_OPT_UINT64 uint64_t
#define OPTION_FIELD_OPT_NUMBER double
#define OPTION_FIELD_OPT_BYTES  uint64_t
#define OPTION_FIELD_OPT_SWITCH bool
#define OPTION_FIELD_OPT_TEXT   const char *
#define OPTION_FIELD_OPT_TEXTS  struct option_texts
#define OPTION_FIELD_OPT_INTS   struct option_ints
#include "tools/options.def"
#undef OPTION
    const char *arg[OPTION_MAX_ARGS]; /* positional arguments, arg[n_arg] */
    int n_arg;
    const struct command *command;
    unsigned char
        origin[OPTION_MAX]; /* of each row of the table: enum option_origin; options_set: ORIGIN_FLAG */
    char **kept;            /* kept[n_kept]: texts of a configuration */
    int n_kept;
};

struct command {
    const char *name;
    const char *usage; /* what follows the name */
    const char *help;  /* one line */
    uint64_t groups;   /* enum option_group bits */
    int min_arg, max_arg;
    int (*run)(const struct options *o); /* returns the exit code */
};

/* The commands in the order of help, and their number. */
extern const struct command commands[];
extern const int n_command;

/* NULL when there is none of this name. */
const struct command *command_find(const char *name);
/* True when name is nearer to what was typed than *best, and near enough to be meant; *best becomes its distance. Begin with
 * 100. */
bool option_nearer(const char *typed, const char *name, int *best);
/* The command nearest to a misspelt name, NULL when none is near. */
const char *command_nearest(const char *name);

/* Parses argv[argc] for c into o, above what a configuration says (config.h), and that above defaults. errors: INFER_E_INPUT, the message names the flag and, for
 * an unknown one, the nearest that c takes. Free with options_free. *wants_help: --help or -h was there. */
enum infer_status options_parse(struct options *o, const struct command *c, int argc, char **argv,
                                bool *wants_help);
void options_free(struct options *o);

/* Changes one option of these groups by its name; a text value must live as long as o. errors: INFER_E_INPUT (the
 * message names the nearest option, or what is wrong with the value) */
enum infer_status options_set(struct options *o, uint64_t groups, const char *name, const char *value);
/* True when the option of o's command was named by the user. */
bool options_given(const struct options *o, const char *name);
/* By whom; ORIGIN_DEFAULT: by nobody, or the command takes none of that name. */
enum option_origin options_origin(const struct options *o, const char *name);

/* One option of some groups, for those who show it. */
struct option_view {
    const char *name, *help, *choices; /* choices: "a|b|c" or NULL */
    char value[96];                    /* "" when it has none */
    double least, most;                /* equal: no bounds */
};
/* The i-th option of these groups that has one value; false behind the last. o NULL: without the value. */
bool options_view(const struct options *o, uint64_t groups, int i, struct option_view *out);

/* Help of the program, of one command (its common options, or all), and all of it as Markdown for docs/, in lines of the window's
 * width. */
void help_program(FILE *out);
void help_command(FILE *out, const struct command *c, bool all);
void help_markdown(FILE *out);
/* Architectures, containers and element types (models.c). */
void help_models(FILE *out);
/* The same as a manual page (man macros, section 1), and a script that completes commands and options in a shell: bash, zsh, fish. */
void help_man(FILE *out);
void help_completion(FILE *out, const char *shell);
