#include "tools/foreign.h"
#include <string.h>

static const struct foreign table[] = {
#define FOREIGN(how, names, ours) {names, FOREIGN_##how, ours},
#include "tools/foreign.def"
#undef FOREIGN
};
enum { N_ROW = sizeof table / sizeof *table };

bool foreign_has(const char *words, const char *word, size_t n) {
    for (const char *p = words; n && p; p = strchr(p, '|') ? strchr(p, '|') + 1 : NULL) {
        size_t i = 0;
        while (i < n && p[i] && (p[i] == word[i] || (i > 1 && p[i] == '-' && word[i] == '_'))) i++;
        if (i == n && (p[n] == '|' || p[n] == 0)) return true;
    }
    return false;
}

const struct foreign *foreign_find(const char *name, size_t n) {
    for (int i = 0; i < N_ROW; i++)
        if (foreign_has(table[i].names, name, n)) return &table[i];
    return NULL;
}

/* "-a|--b" as `-a`, `--b` */
static void print_names(FILE *out, const char *names) {
    for (const char *p = names; *p; p++) {
        if (p == names) fputc('`', out);
        fputs(*p == '|' ? "`, `" : (const char[]){*p, 0}, out);
    }
    fputc('`', out);
}

void foreign_markdown(FILE *out) {
    fputs("\n## Flags of other programs\n\nFlags of llama.cpp and Ollama that are taken, or refused with "
          "what to say instead (exit code 2).\n"
          "\n| flag | here |\n| --- | --- |\n",
          out);
    for (int i = 0; i < N_ROW; i++) {
        const struct foreign *f = &table[i];
        fputs("| ", out);
        print_names(out, f->names);
        if (f->how == FOREIGN_SAME) fprintf(out, " | taken as `--%s` |\n", f->ours);
        if (f->how == FOREIGN_ANYWAY) fputs(" | taken: it is so anyway |\n", out);
        if (f->how == FOREIGN_OTHER) fprintf(out, " | %s |\n", f->ours);
    }
}
