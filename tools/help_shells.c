/* Completion for bash, zsh and fish, from the tables of commands and options. */
#include <string.h>
#include "tools/options_impl.h"

/* ---- what the three say ---- */

/* The words that an option's value may be, a blank between; not of forms such as cuda:N, nor that there are others. */
static void print_choices(FILE *out, const struct option *opt) {
    bool first = true;
    for (const char *c = opt->choices; *c; c += strcspn(c, "|"), c += *c == '|') {
        const int n = (int)strcspn(c, "|");
        if (memchr(c, ':', (size_t)n) || *c == '.') continue;
        fprintf(out, "%s%.*s", first ? "" : " ", n, c);
        first = false;
    }
}
static bool wants_file(const struct option *opt) {
    static const char *const names[] = {"FILE", "FOLDER", "OUT"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (opt->metavar && !strncmp(opt->metavar, names[i], strlen(names[i]))) return true;
    return false;
}
static void print_commands(FILE *out) {
    for (int k = 0; k < n_command; k++) fprintf(out, "%s%s", k ? " " : "", commands[k].name);
}
/* The commands that take an option. */
static void print_takers(FILE *out, const struct option *opt, char between) {
    for (int k = 0, n = 0; k < n_command; k++) {
        if (!(commands[k].groups & opt->groups)) continue;
        if (n++) fputc(between, out);
        fputs(commands[k].name, out);
    }
}
/* The first clause of a help text, inside of single quotes, with a backslash before each character of `escaped`; a single quote as `quote`. */
static void print_clause(FILE *out, const char *text, const char *escaped, const char *quote) {
    for (int depth = 0; *text && *text != '\n' && (depth || *text != ';'); text++) {
        depth += (*text == '(') - (*text == ')');
        if (*text == '\'')
            fputs(quote, out);
        else
            fprintf(out, "%s%c", strchr(escaped, *text) ? "\\" : "", *text);
    }
}

/* ---- bash ---- */

/* What completes the value of an option: its choices, a file name, or nothing. */
static void print_bash_value(FILE *out, const struct option *opt) {
    fprintf(out, "    *:--%s%s%c) ", opt->name, opt->letter ? "|*:-" : "", opt->letter ? opt->letter : ' ');
    if (opt->choices) {
        fputs("words='", out);
        print_choices(out, opt);
        fputs("'", out);
    } else if (wants_file(opt)) {
        fputs("files=1", out);
    }
    fputs(" ;;\n", out);
}
static void print_bash_command(FILE *out, const struct command *c) {
    fprintf(out, "        %s) words='", c->name);
    for (int i = 0; i < n_option; i++)
        if (option_table[i].groups & c->groups) fprintf(out, "--%s ", option_table[i].name);
    fputs("' ;;\n", out);
}
static void help_bash(FILE *out) {
    fputs("# Completion of infer for bash; made by infer help --completion bash.\n"
          "_infer() {\n"
          "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} "
          "command=${COMP_WORDS[1]-}\n"
          "    local words= files= commands='",
          out);
    print_commands(out);
    fputs("'\n"
          "    COMPREPLY=()\n"
          "    [[ $command == -* ]] && command=run\n"
          "    case $command:$before in\n",
          out);
    for (int i = 0; i < n_option; i++)
        if (option_table[i].type != OPT_FLAG) print_bash_value(out, &option_table[i]);
    fputs("    *)\n"
          "        case $command in\n",
          out);
    for (int k = 0; k < n_command; k++) print_bash_command(out, &commands[k]);
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

/* ---- zsh: a line an option, which the commands that take it give to _arguments ---- */

static void print_zsh_option(FILE *out, const struct option *opt) {
    const bool value = opt->type != OPT_FLAG, many = opt->type == OPT_TEXTS;
    fputs("    ", out);
    print_takers(out, opt, '|');
    fputs(") specs+=(", out);
    if (opt->letter && !many) fprintf(out, "'(-%c --%s)'", opt->letter, opt->name);
    if (many) fputs("'*'", out);
    if (opt->letter)
        fprintf(out, "{-%c%s,--%s%s}", opt->letter, value ? "+" : "", opt->name, value ? "=" : "");
    else
        fprintf(out, "--%s%s", opt->name, value ? "=" : "");
    fputs("'[", out);
    print_clause(out, opt->help, "\\[]", "'\\''");
    fputs("]", out);
    if (value) {
        fputs(":", out);
        print_clause(out, opt->metavar, "\\:", "");
        fputs(":", out);
        if (opt->choices) {
            fputs("(", out);
            print_choices(out, opt);
            fputs(")", out);
        } else {
            fputs(wants_file(opt) ? "_files" : " ", out);
        }
    }
    fputs("') ;;\n", out);
}
static void help_zsh(FILE *out) {
    fputs("#compdef infer\n"
          "# Completion of infer for zsh; made by infer help --completion zsh.\n"
          "local command=$words[2]\n"
          "local -a specs\n"
          "if [[ CURRENT -eq 2 && $command != -* ]]; then\n"
          "    local -a commands=(\n",
          out);
    for (int k = 0; k < n_command; k++) {
        fprintf(out, "        '%s:", commands[k].name);
        print_clause(out, commands[k].help, "\\:", "'\\''");
        fputs("'\n", out);
    }
    fputs("    )\n"
          "    _describe command commands\n"
          "    return\n"
          "fi\n"
          "if [[ $command == -* ]]; then\n"
          "    command=run\n"
          "else\n"
          "    shift words\n"
          "    ((CURRENT--))\n"
          "fi\n",
          out);
    for (int i = 0; i < n_option; i++) {
        fputs("case $command in\n", out);
        print_zsh_option(out, &option_table[i]);
        fputs("esac\n", out);
    }
    fputs("if [[ $command == help ]]; then\n"
          "    specs+=('1:command:(models ",
          out);
    print_commands(out);
    fputs(")')\n"
          "else\n"
          "    specs+=('*:file:_files')\n"
          "fi\n"
          "_arguments -s $specs\n",
          out);
}

/* ---- fish: a rule an option, with the commands that it holds for ---- */

static void print_fish_option(FILE *out, const struct option *opt) {
    fputs("complete -c infer -n '__infer_is ", out);
    print_takers(out, opt, ' ');
    fprintf(out, "' -l %s", opt->name);
    if (opt->letter) fprintf(out, " -s %c", opt->letter);
    if (opt->type != OPT_FLAG) fputs(wants_file(opt) && !opt->choices ? " -r -F" : " -x", out);
    if (opt->choices) {
        fputs(" -a '", out);
        print_choices(out, opt);
        fputs("'", out);
    }
    fputs(" -d '", out);
    print_clause(out, opt->help, "\\", "\\'");
    fputs("'\n", out);
}
static void help_fish(FILE *out) {
    fputs("# Completion of infer for fish; made by infer help --completion fish.\n"
          "function __infer_is\n"
          "    set -l words (commandline -opc)\n"
          "    set -l command run\n"
          "    if test (count $words) -gt 1; and not string match -q -- '-*' $words[2]\n"
          "        set command $words[2]\n"
          "    end\n"
          "    contains -- $command $argv\n"
          "end\n"
          "function __infer_first\n"
          "    test (count (commandline -opc)) -eq 1\n"
          "end\n",
          out);
    for (int k = 0; k < n_command; k++) {
        fprintf(out, "complete -c infer -n __infer_first -f -a %s -d '", commands[k].name);
        print_clause(out, commands[k].help, "\\", "\\'");
        fputs("'\n", out);
    }
    fputs("complete -c infer -n '__infer_is help' -f -a 'models ", out);
    print_commands(out);
    fputs("'\n", out);
    for (int i = 0; i < n_option; i++) print_fish_option(out, &option_table[i]);
}

void help_completion(FILE *out, const char *shell) {
    if (!strcmp(shell, "bash"))
        help_bash(out);
    else if (!strcmp(shell, "zsh"))
        help_zsh(out);
    else
        help_fish(out);
}
