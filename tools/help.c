/* infer help: all of it is made from the tables of commands and options. */
#include <string.h>
#include "tools/options_impl.h"
#include "tools/foreign.h"
#include "tools/term.h"

static const struct option_heading headings[] = {
    /* a command's own: what is under no other heading */
    {~(uint64_t)(G_MODEL | G_LOAD | G_SAMPLE | G_TEXT | G_SEED | G_ENGINE | G_JSON | G_QUIET | G_COMMON),
     "Options"},
    {G_MODEL | G_LOAD, "Model"},
    {G_SAMPLE, "Choice of tokens"},
    {G_TEXT | G_SEED, "Answer"},
    {G_ENGINE, "Device and memory"},
    {G_JSON | G_QUIET, "Output"},
};
enum { N_HEADING = sizeof headings / sizeof *headings };
const struct option_heading *const option_headings = headings;
const int n_option_heading = N_HEADING;

/* text in lines of the window's width, the second and further ones indented. */
static void paragraph(FILE *out, const char *text, int indent) {
    term_hang(out, text, indent, term_columns(out));
}

void help_program(FILE *out) {
    fprintf(out, "infer: runs large language models from one file\n\n");
    if (command_find("run")) {
        fprintf(out, "    infer run \"hello\"           answer a prompt with the default model\n");
        fprintf(out, "    infer run \"hello\" -m model.gguf\n");
        fprintf(out, "    infer -p \"Sum it up\" <text  the text, then the prompt\n");
        if (command_find("chat")) fprintf(out, "    infer chat -m model.gguf    talk\n");
        fprintf(out, "\n");
    }
    paragraph(out, "Commands ('infer help COMMAND' lists their options, 'infer help models' what runs):", 0);
    for (int i = 0; i < n_command; i++) {
        fprintf(out, "    %-12s ", commands[i].name);
        paragraph(out, commands[i].help, 17);
    }
    fputc('\n', out);
    paragraph(out,
              "Exit codes: 0 done; 1 cannot be done here (context full, memory, device); 2 bad file, flag or "
              "model; 3 a check said no; 130 interrupted. stdout is the answer, all else goes to stderr.",
              0);
}

void option_spelling(char *buf, size_t n, const struct option *opt) {
    char letter[8] = "    ";
    if (opt->letter) snprintf(letter, sizeof letter, "-%c, ", opt->letter);
    snprintf(buf, n, "%s--%s%s%s", letter, opt->name, opt->metavar ? " " : "",
             opt->metavar ? opt->metavar : "");
}

void option_text(char *buf, size_t n, const struct option *opt) {
    const char *values = strchr(opt->help, '\n'); /* a line each */
    int len = snprintf(buf, n, "%.*s", (int)strcspn(opt->help, "\n"), opt->help);
    if (opt->choices && (opt->type == OPT_TEXT || opt->type == OPT_SWITCH) && !values) {
        bool many = strlen(opt->choices) > 60; /* lines break at blanks */
        len += snprintf(buf + len, n - (size_t)len, many ? ": " : "; ");
        for (const char *p = opt->choices; *p && (size_t)len + 3 < n; p++)
            len += snprintf(buf + len, n - (size_t)len, many && *p == '|' ? ", " : "%c", *p);
    }
    bool shown =
        opt->def && strcmp(opt->def, "-1") != 0 && !(opt->type == OPT_INT && strcmp(opt->def, "0") == 0);
    if (shown) len += snprintf(buf + len, n - (size_t)len, " [%s]", opt->def);
    if (values) snprintf(buf + len, n - (size_t)len, "%s", values);
}

int option_heading_of(const struct option *opt, uint64_t groups) {
    for (int h = 0; h < N_HEADING; h++)
        if (headings[h].groups & opt->groups & groups) return h;
    return -1;
}

enum { LEFT = 31, FEW = 14 }; /* columns of the names; a command with so few options shows all */

static void print_option(FILE *out, const struct option *opt) {
    char left[80], right[OPTION_TEXT_MAX];
    option_spelling(left, sizeof left, opt);
    option_text(right, sizeof right, opt);
    fprintf(out, "  %-*s", LEFT - 3, left);
    if (strlen(left) > LEFT - 4) fprintf(out, "\n%*s", LEFT - 1, "");
    fputc(' ', out);
    for (char *line = right, *end; line; line = end) {
        if ((end = strchr(line, '\n'))) *end++ = 0;
        if (line != right) fprintf(out, "%*s", LEFT, "");
        paragraph(out, line, line == right ? LEFT : LEFT + 2);
    }
}

enum { COMMON = 1, OTHERS = 2 };
/* The options of c under heading h (-1: any), the common ones or the others or both; a title first. The number of them. */
static int print_heading(FILE *out, const struct command *c, int h, int which, const char *title) {
    int n = 0;
    for (int i = 0; i < n_option; i++) {
        const struct option *opt = &option_table[i];
        if (!(opt->groups & c->groups) || !(which & (opt->groups & G_COMMON ? COMMON : OTHERS))) continue;
        if (h >= 0 && option_heading_of(opt, c->groups) != h) continue;
        if (n++ == 0 && out) fprintf(out, "\n%s:\n", title);
        if (out) print_option(out, opt);
    }
    return n;
}

void help_command(FILE *out, const struct command *c, bool all) {
    char line[160];
    const int n_common = print_heading(NULL, c, -1, COMMON, ""),
              n_other = print_heading(NULL, c, -1, OTHERS, "");
    const bool split = n_common && n_common + n_other > FEW;
    snprintf(line, sizeof line, "infer %s %s", c->name, c->usage);
    paragraph(out, line, 6);
    fputc('\n', out);
    paragraph(out, c->help, 0);
    if (split) print_heading(out, c, -1, COMMON, all ? "Common options" : "Options");
    for (int h = 0; h < N_HEADING && (all || !split); h++)
        print_heading(out, c, h, split ? OTHERS : COMMON | OTHERS, headings[h].title);
    snprintf(line, sizeof line, "'infer help %s --all' lists %d more.", c->name, n_other);
    if (split && !all && n_other) fputc('\n', out), paragraph(out, line, 0);
}

/* Text of a table cell: a bar would end the cell. */
static void print_cell(FILE *out, const char *text) {
    for (; *text; text++) {
        if (*text == '|') fputc('\\', out);
        if (*text == '\n')
            fputs("<br>", out);
        else
            fputc(*text, out);
    }
}

/* How many commands take an option, and (out not NULL) which. */
static int print_takers(FILE *out, const struct option *opt) {
    int n = 0;
    for (int k = 0; k < n_command; k++)
        if (commands[k].groups & opt->groups) {
            if (out) fprintf(out, "%s%s", n ? ", " : "", commands[k].name);
            n++;
        }
    return n;
}
static void print_row(FILE *out, const struct option *opt, bool takers) {
    char left[80], right[OPTION_TEXT_MAX];
    option_spelling(left, sizeof left, opt);
    option_text(right, sizeof right, opt);
    fprintf(out, "| `");
    print_cell(out, left + strspn(left, " "));
    fprintf(out, "` | ");
    print_cell(out, right);
    if (takers) fprintf(out, " | "), print_takers(out, opt);
    fprintf(out, " |\n");
}
/* Those that no other command takes, then the names of the rest. */
static void print_command(FILE *out, const struct command *c) {
    int own = 0, others = 0;
    fprintf(out, "\n## infer %s\n\n`infer %s%s%s`: %s\n", c->name, c->name, *c->usage ? " " : "", c->usage,
            c->help);
    for (int i = 0; i < n_option; i++) {
        const struct option *opt = &option_table[i];
        if (!(opt->groups & c->groups) || print_takers(NULL, opt) > 1) continue;
        if (own++ == 0) fprintf(out, "\n| option | effect |\n| --- | --- |\n");
        print_row(out, opt, false);
    }
    for (int i = 0; i < n_option; i++) {
        const struct option *opt = &option_table[i];
        if (!(opt->groups & c->groups) || print_takers(NULL, opt) < 2) continue;
        fprintf(out, "%s`--%s`", others++ ? ", " : "\nAs others: ", opt->name);
    }
    if (others) fprintf(out, ".\n");
}

void help_markdown(FILE *out) {
    fprintf(
        out,
        "# The program `infer`\n\nMade by `infer help --markdown`. Options that several commands take stand "
        "behind [all commands](#options-of-several-commands).\n");
    for (int k = 0; k < n_command; k++) print_command(out, &commands[k]);
    fprintf(out, "\n## Options of several commands\n");
    for (int h = -1; h < N_HEADING; h++) {
        int n = 0;
        for (int i = 0; i < n_option; i++) {
            const struct option *opt = &option_table[i];
            if (print_takers(NULL, opt) < 2 || option_heading_of(opt, ~0u) != h) continue;
            if (n++ == 0)
                fprintf(out, "\n%s%s%s| option | effect | commands |\n| --- | --- | --- |\n",
                        h < 0 ? "" : "### ", h < 0 ? "" : headings[h].title, h < 0 ? "" : "\n\n");
            print_row(out, opt, true);
        }
    }
    foreign_markdown(out);
}
