/* Flags of llama.cpp, Ollama and other programs, and what they are here: ONE table (foreign.def). */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum foreign_how {
    FOREIGN_SAME,   /* means what an option of ours means, with the same value: taken as that one */
    FOREIGN_ANYWAY, /* says what is so anyway: taken, and changes nothing */
    FOREIGN_OTHER,  /* refused, with what to say here */
};
struct foreign {
    const char *names; /* "-ngl|--n-gpu-layers" */
    enum foreign_how how;
    const char
        *ours; /* SAME: the option's name; ANYWAY: values that may follow, "on|auto"; OTHER: what to say */
};

/* The row of a flag name[n], dashes included; NULL when nobody knows it. _ and - are one. */
const struct foreign *foreign_find(const char *name, size_t n);
/* Whether words, "a|b|c", has word[n]. */
bool foreign_has(const char *words, const char *word, size_t n);
/* The whole table as one of Markdown. */
void foreign_markdown(FILE *out);
