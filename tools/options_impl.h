/* Inside of the option table: what options.c, help_man.c and help_bash.c share. */
#pragma once
#include "tools/options.h"

struct option {
    char letter;
    const char *name, *metavar;
    enum option_type type;
    unsigned groups;
    size_t offset;
    const char *def;
    double least, most;
    const char *choices, *help;
};
extern const struct option *const option_table; /* [n_option] */
extern const int n_option;

/* Headings of the help, in order; an option stands under the first group that it shares with the command. */
struct option_heading {
    unsigned groups;
    const char *title;
};
extern const struct option_heading *const option_headings; /* [n_option_heading] */
extern const int n_option_heading;

/* The heading of an option among those of a command with these groups; -1: the command does not take it. */
int option_heading_of(const struct option *opt, unsigned groups);
/* "  -m, --model FILE" */
void option_spelling(char *buf, size_t n, const struct option *opt);
/* help, choices and default as one text */
enum { OPTION_TEXT_MAX = 1024 }; /* bytes of the longest, with its choices */
void option_text(char *buf, size_t n, const struct option *opt);
