/* Names of the members of the objects that are open in a JSON text: beside the automaton, which cannot know them, so that no name comes
 * twice in an object. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    NAMES_DEPTH = 256,     /* objects and arrays that are open at once, */
    NAMES_MOST = 4096,     /* names of open objects, */
    NAMES_TEXT = 64 << 10, /* and their bytes: beyond these a text is no longer followed */
    NAMES_LONG = 512       /* bytes of a name that names_next looks at */
};

/* Where a text is: in front of a value, or behind one; behind a { or a comma of an object; in a name; in a text that is a value. */
enum names_place { NAMES_VALUE, NAMES_BEFORE, NAMES_IN, NAMES_IN_TEXT };
struct names {
    enum names_place place;
    bool escape; /* behind a backslash */
    bool lost;
    int depth;
    uint32_t n_name, n_text, begin; /* begin: of the name that is being written */
    struct names_open {
        bool object;
        uint32_t name, text; /* n_name and n_text when it was opened */
    } open[NAMES_DEPTH];
    struct {
        uint32_t at, n; /* text[at .. at + n), without quotes, as it is spelled */
        int depth;      /* of its object */
    } name[NAMES_MOST];
    char text[NAMES_TEXT];
};

/* Goes on by a text. trial: nothing of what was there before is given up, so that names_back can go there. False: a name comes twice. */
bool names_go(struct names *s, const char *text, size_t n, bool trial);
/* A place to come back to after a trial. */
struct names_mark {
    enum names_place place;
    bool escape, lost;
    int depth;
    uint32_t n_name, n_text, begin;
    struct names_open open[NAMES_DEPTH]; /* open[depth] */
};
void names_keep(const struct names *s, struct names_mark *mark);
void names_back(struct names *s, const struct names_mark *mark);
/* The innermost object has names already. */
bool names_some(const struct names *s);
/* Of the innermost object's names that begin with begun[n]: bit b % 64 of word b / 64 of next says that b comes next in one of them.
 * Returns how many there are. *whole: begun is one of them. */
int names_next(const struct names *s, const char *begun, size_t n, uint64_t next[4], bool *whole);
