/* The terminal: progress lines on stderr, model text that cannot steer the terminal, time. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Writes text[n] (whole UTF-8 sequences) so that it cannot steer a terminal: control characters other than
 * newline and tab, and bytes that are no UTF-8, come out as \xHH. */
void term_write_safe(FILE *out, const char *text, size_t n);

/* Off: keys typed on stdin, a terminal, are not shown and wait for whoever reads next, a pasted text between its marks.
 * On: as it was before; safe in a signal handler. */
void term_echo(bool on);

/* True when out is a terminal that may get colours (NO_COLOR is not set, TERM is not dumb). */
bool term_colour(FILE *out);

/* Text in lines that break between words, for a terminal. */
struct term_wrap {
    FILE *out;
    int width, column; /* width 0: lines are left alone */
    char word[256];    /* word[n]: its end has not come yet */
    size_t n;
    int word_width;
    bool joined; /* the word's beginning has been written: it goes on in the same line */
};
void term_wrap_start(struct term_wrap *w, FILE *out);
/* Whole UTF-8 sequences; written as term_write_safe does. */
void term_wrap_write(struct term_wrap *w, const char *text, size_t n);
/* Writes the word that is held. */
void term_wrap_flush(struct term_wrap *w);

/* Text as one line, on a terminal as several that break between words. */
void term_line(FILE *out, const char *text);
/* Columns that text[n] takes as term_write_safe writes it. */
int term_width(const char *text, size_t n);
/* Columns of a terminal, 80 of anything else. */
int term_columns(FILE *out);
/* The rest of a line that has indent columns already, in lines of at most width columns, the following ones indented as far. */
void term_hang(FILE *out, const char *text, int indent, int width);

/* One line that is rewritten in place, on stderr, only when that is a terminal and nobody asked for quiet. */
struct progress {
    bool on, shown;
    const char *what;   /* the stage; a new one starts the clock */
    double start, last; /* seconds */
};
void progress_start(struct progress *p, bool quiet);
/* done of total; unit "tokens", or "B" for bytes. Shows amount, rate and time left, from 0.3 s on. */
void progress_show(struct progress *p, const char *what, double done, double total, const char *unit);
/* Takes the line away. */
void progress_clear(struct progress *p);
