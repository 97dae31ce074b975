/* Inside of the option table: what options.c, help_man.c and help_shells.c share. */
#pragma once
#include "tools/options.h"

struct option {
    char letter;
    const char *name, *metavar;
    enum option_type type;
    uint64_t groups;
    size_t offset;
    const char *def;
    double least, most;
    const char *choices, *help;
};
extern const struct option *const option_table; /* [n_option] */
extern const int n_option;

/* Every option of the command as the table has it. */
enum infer_status options_defaults(struct options *o, const struct command *c);
/* The option of a command by its name; NULL: it takes none of that name. */
const struct option *option_find(const struct command *c, const char *name);
/* What to say where no command has it; INFER_E_INPUT. */
enum infer_status option_unknown(const struct command *c, const char *name);
/* Sets one (text: of a flag NULL), which is then said by `from`: of those that may be given several times what others said before is gone. */
enum infer_status option_set(struct options *o, const struct option *opt, const char *text,
                             enum option_origin from);
/* A flag as if nobody had said it. */
enum infer_status option_unset(struct options *o, const struct option *opt);
/* Its value as text, "" without one. */
void option_value(char *text, size_t n, const struct options *o, const struct option *opt);
/* text[n] and a zero, until options_free; NULL: out of memory. */
const char *options_keep(struct options *o, const char *text, size_t n);

/* Headings of the help, in order; an option stands under the first group that it shares with the command. */
struct option_heading {
    uint64_t groups;
    const char *title;
};
extern const struct option_heading *const option_headings; /* [n_option_heading] */
extern const int n_option_heading;

/* The heading of an option among those of a command with these groups; -1: the command does not take it. */
int option_heading_of(const struct option *opt, uint64_t groups);
/* "  -m, --model FILE" */
void option_spelling(char *buf, size_t n, const struct option *opt);
/* help, choices and default as one text */
enum { OPTION_TEXT_MAX = 1024 }; /* bytes of the longest, with its choices */
void option_text(char *buf, size_t n, const struct option *opt);
