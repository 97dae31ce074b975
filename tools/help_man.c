/* The manual page, from the tables of commands and options. */
#include <string.h>
#include "infer.h"
#include "tools/options_impl.h"

/* Text of roff, in short lines: what it would read as a command or an escape is escaped. */
static void print_roff(FILE *out, const char *text) {
    int column = 0;
    for (; *text; text++, column++) {
        if (*text == '\n') {
            fputs("\n.br\n", out);
            column = -1;
        } else if (*text == ' ' && column > 60) {
            fputc('\n', out);
            column = -1;
        } else if (column == 0 && (*text == '.' || *text == '\''))
            fprintf(out, "\\&%c", *text);
        else if (*text == '\\')
            fputs("\\e", out);
        else if (*text == '-')
            fputs("\\-", out);
        else
            fputc(*text, out);
    }
}

static void print_option(FILE *out, const struct option *opt, const char *only) {
    char left[80], right[OPTION_TEXT_MAX];
    option_spelling(left, sizeof left, opt);
    option_text(right, sizeof right, opt);
    char *metavar = opt->metavar ? left + strlen(left) - strlen(opt->metavar) : left + strlen(left);
    if (opt->metavar) metavar[-1] = 0;
    fputs(".TP\n\\fB", out);
    print_roff(out, left + strspn(left, " "));
    fputs("\\fR", out);
    if (opt->metavar) {
        fputs(" \\fI", out);
        print_roff(out, metavar);
        fputs("\\fR", out);
    }
    fputc('\n', out);
    print_roff(out, right);
    fprintf(out, "%s%s%s\n", *only ? " (" : "", only, *only ? ")" : "");
}

/* The commands that have an option under heading h, as "run, chat"; opt NULL: that have any. */
static void commands_of(char *buf, size_t n, int h, const struct option *opt) {
    size_t len = 0;
    buf[0] = 0;
    for (int k = 0; k < n_command; k++) {
        bool takes = opt && option_heading_of(opt, commands[k].groups) == h;
        for (int i = 0; i < n_option && !opt && !takes; i++)
            takes = option_heading_of(&option_table[i], commands[k].groups) == h;
        if (takes && len < n)
            len += (size_t)snprintf(buf + len, n - len, "%s%s", len ? ", " : "", commands[k].name);
    }
}

/* Headings behind the first hold what several commands share: once for all of them. */
static void print_shared(FILE *out) {
    char all[256], some[256];
    fputs(".SH SHARED OPTIONS\n", out);
    for (int h = 1; h < n_option_heading; h++) {
        commands_of(all, sizeof all, h, NULL);
        if (!*all) continue;
        fprintf(out, ".SS %s\nOf %s.\n", option_headings[h].title, all);
        for (int i = 0; i < n_option; i++) {
            commands_of(some, sizeof some, h, &option_table[i]);
            if (*some) print_option(out, &option_table[i], strcmp(some, all) ? some : "");
        }
    }
}

static void print_command(FILE *out, const struct command *c) {
    fprintf(out, ".SS infer %s\n\\fBinfer %s\\fR%s", c->name, c->name, *c->usage ? " " : "");
    print_roff(out, c->usage);
    fputs("\n.PP\n", out);
    print_roff(out, c->help);
    fputs(".\n", out);
    for (int i = 0; i < n_option; i++)
        if (option_heading_of(&option_table[i], c->groups) == 0) print_option(out, &option_table[i], "");
    for (int h = 1, n = 0; h < n_option_heading; h++) {
        bool takes = false;
        for (int i = 0; i < n_option && !takes; i++)
            takes = option_heading_of(&option_table[i], c->groups) == h;
        if (takes) fprintf(out, "%s%s", n++ ? ", " : ".PP\nShared options: ", option_headings[h].title);
        if (h == n_option_heading - 1 && n) fputs(".\n", out);
    }
}

void help_man(FILE *out) {
    fprintf(out,
            ".TH INFER 1 \"\" \"infer %.*s\" \"User Commands\"\n"
            ".SH NAME\ninfer \\- run large language models from one file\n"
            ".SH SYNOPSIS\n\\fBinfer\\fR [\\fICOMMAND\\fR] [\\fIOPTION\\fR]...\n",
            (int)strcspn(infer_version(), " "), infer_version());
    fputs(".SH DESCRIPTION\n"
          "Runs a large language model from a GGUF file, or from a folder of Hugging\n"
          "Face with safetensors, on an NVIDIA card or on the CPU.\n"
          "Without a command, or with options alone, the command is \\fBrun\\fR.\n"
          "The answer goes to standard output, all else to standard error.\n"
          ".PP\n"
          "A value stands behind its option, or joined to a long one by =.\n"
          "Amounts of memory take K, M, G and T.\n"
          ".SH COMMANDS\n",
          out);
    for (int k = 0; k < n_command; k++) print_command(out, &commands[k]);
    print_shared(out);
    fputs(".SH EXIT STATUS\n"
          ".TP\n0\nDone.\n.TP\n1\nIt cannot be done here: context full, out of memory, no such device.\n"
          ".TP\n2\nBad input: file, flag, unsupported model, an error that a template raises.\n"
          ".TP\n3\nA check said no.\n.TP\n130\nInterrupted.\n"
          ".SH ENVIRONMENT\n"
          ".TP\nINFER_MODEL\nThe model where \\fB\\-m\\fR is left out.\n"
          ".TP\nXDG_CACHE_HOME\nWhere models that were fetched and measurements of a card are kept\n"
          "(\\fI~/.cache\\fR).\n"
          ".TP\nXDG_STATE_HOME\nWhere chat keeps its history (\\fI~/.local/state\\fR).\n"
          ".TP\nNO_COLOR\nNo colours on the terminal.\n"
          ".SH EXAMPLES\n"
          ".nf\n"
          "infer \\-m model.gguf \\-p \"Why is the sky blue?\"\n"
          "echo \"Translate to French: good morning\" | infer \\-m model.gguf\n"
          "infer chat \\-m model.gguf\n"
          "infer plan \\-m model.gguf \\-\\-ctx max\n"
          ".fi\n",
          out);
}
