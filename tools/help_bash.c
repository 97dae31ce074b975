/* Completion for bash, from the tables of commands and options. */
#include <string.h>
#include "tools/options_impl.h"

/* What completes the value of an option: its choices, a file name, or nothing. */
static void print_value(FILE *out, const struct option *opt) {
    fprintf(out, "    *:--%s%s%c) ", opt->name, opt->letter ? "|*:-" : "", opt->letter ? opt->letter : ' ');
    if (opt->choices) {
        fputs("words='", out);
        for (const char *c = opt->choices; *c; c += strcspn(c, "|"), c += *c == '|') {
            const int n = (int)strcspn(c, "|");
            if (!memchr(c, ':', (size_t)n)) fprintf(out, "%.*s%s", n, c, c[n] ? " " : ""); /* not cuda:N */
        }
        fputs("'", out);
    } else if (opt->metavar && strstr("FILE FOLDER OUT", opt->metavar)) {
        fputs("files=1", out);
    }
    fputs(" ;;\n", out);
}

static void print_command(FILE *out, const struct command *c) {
    fprintf(out, "        %s) words='", c->name);
    for (int i = 0; i < n_option; i++)
        if (option_table[i].groups & c->groups) fprintf(out, "--%s ", option_table[i].name);
    fputs("' ;;\n", out);
}

void help_bash(FILE *out) {
    fputs("# Completion of infer for bash; made by infer help --bash.\n"
          "_infer() {\n"
          "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} "
          "command=${COMP_WORDS[1]-}\n"
          "    local words= files= commands='",
          out);
    for (int k = 0; k < n_command; k++) fprintf(out, "%s%s", k ? " " : "", commands[k].name);
    fputs("'\n"
          "    COMPREPLY=()\n"
          "    [[ $command == -* ]] && command=run\n"
          "    case $command:$before in\n",
          out);
    for (int i = 0; i < n_option; i++)
        if (option_table[i].type != OPT_FLAG) print_value(out, &option_table[i]);
    fputs("    *)\n"
          "        case $command in\n",
          out);
    for (int k = 0; k < n_command; k++) print_command(out, &commands[k]);
    fputs(
        "        esac\n"
        "        [[ $word == -* ]] || files=1\n"
        "        ((COMP_CWORD == 1)) && words=\"$commands $words\" && files=\n"
        "        [[ $command:$COMP_CWORD == help:2 ]] && words=$commands && files=\n"
        "        ;;\n"
        "    esac\n"
        "    [[ $files ]] && { compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- \"$word\")); }\n"
        "    [[ $words && ! $files ]] && COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
        "}\n"
        "complete -F _infer infer\n",
        out);
}
