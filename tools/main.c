/* The program `infer`: finds the subcommand, parses its options, calls it. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "infer.h"
#include "tools/config.h"
#include "tools/options.h"
#include "files/json.h"
#include "base/mem.h"
#include "tools/interrupt.h"
#include "tools/world.h"
#include "base/bandwidth.h"
#include "tools/tool.h"

#define COMMAND(name, usage, help, groups, lo, hi) int cmd_##name(const struct options *o);
#include "tools/commands.def"
#undef COMMAND

const struct command commands[] = {
#define COMMAND(name, usage, help, groups, lo, hi) {#name, usage, help, groups, lo, hi, cmd_##name},
#include "tools/commands.def"
#undef COMMAND
};
const int n_command = (int)(sizeof commands / sizeof *commands);

int cmd_help(const struct options *o) {
    if (o->markdown) {
        help_markdown(stdout);
    } else if (o->n_arg && strcmp(o->arg[0], "models") == 0) {
        help_models(stdout);
    } else if (o->man) {
        help_man(stdout);
    } else if (o->completion) {
        help_completion(stdout, o->completion);
    } else if (o->n_arg) {
        const struct command *c = command_find(o->arg[0]);
        if (!c) {
            const char *near = command_nearest(o->arg[0]);
            err_set(INFER_E_INPUT, "no command '%s'; %s%s%s", o->arg[0],
                    near ? "did you mean '" : "'infer help' lists them", near ? near : "", near ? "'?" : "");
            return tool_fail(o, INFER_E_INPUT);
        }
        help_command(stdout, c, o->all_options);
    } else {
        help_program(stdout);
    }
    return EXIT_DONE;
}

int cmd_version(const struct options *o) {
    (void)o;
    printf("infer %s\n", infer_version());
    return EXIT_DONE;
}

/* Splits off the command's name: infer NAME ..., or infer -flags ..., which is run. */
static const struct command *command_of(int *argc, char ***argv) {
    const char *name = *argc ? (*argv)[0] : "run";
    const struct command *c = command_find(name[0] == '-' ? "run" : name);
    if (!c && name[0] == '-') {
        err_set(INFER_E_INPUT, "'%s' stands where a command is expected; 'infer help' lists them", name);
    } else if (!c && access(name, F_OK) == 0) {
        err_set(INFER_E_INPUT, "no command '%s'; a model is given with -m: infer -m %s", name, name);
    } else if (!c && strchr(name, ' ')) {
        err_set(INFER_E_INPUT, "no command '%s'; a prompt stands behind run: infer run \"...\"", name);
    } else if (!c) {
        const char *near = command_nearest(name);
        err_set(INFER_E_INPUT, "no command '%s'; %s%s%s", name,
                near ? "did you mean '" : "'infer help' lists them", near ? near : "", near ? "'?" : "");
    }
    if (c && *argc && name[0] != '-') --*argc, ++*argv;
    return c;
}

/* A standard stream that is closed stays without use: the next file that is opened must not take its place and get what is
 * printed. */
static void open_standard(void) {
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDOUT_FILENO ? O_RDONLY : O_WRONLY) < 0)
            return;
}

/* A command that has an engine may be one of several ranks. */
static int run_command(const struct options *o) {
    const struct command *c = o->command;
    if (!(c->groups & G_ENGINE) || c->groups & G_PLAN) return c->run(o);
    const enum infer_status s = world_open(o);
    if (s) {
        const int code = tool_fail(o, s);
        return s == INFER_E_DEVICE ? EXIT_LOST : code; /* a rank is gone, or did not come */
    }
    const int code = world_follows() ? world_follow(o) : c->run(o);
    const bool lost = world_lost();
    world_close();
    return lost && code ? EXIT_LOST : code;
}

/* The exit code; what stdout could not take is a failure of every command. */
static int finish(const struct options *o, int code) {
    if (code != EXIT_DONE && code != EXIT_CHECK) return code;
    enum infer_status s = tool_flush();
    if (s) return tool_fail(o, s);
    return code == EXIT_DONE && tool_said_late() ? EXIT_CANNOT : code;
}

int main(int argc, char **argv) {
    open_standard();
    interrupt_install(argc > 1 && strcmp(argv[1], "serve") == 0);
    log_set(tool_log, NULL);
    json_use_mem();
    if (getenv("INFER_PROBE_MIB")) /* of tests, which start this program hundreds of times */
        probe_pretend((size_t)strtoul(getenv("INFER_PROBE_MIB"), NULL, 10) << 20);
    --argc, ++argv;
    bool nothing = argc == 0 && isatty(STDIN_FILENO); /* a text on stdin is a prompt */
    if (nothing || (argc && (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0))) {
        help_program(stdout);
        return finish(NULL, EXIT_DONE);
    }
    if (argc && (strcmp(argv[0], "--version") == 0 || strcmp(argv[0], "-v") == 0)) argv[0] = "version";
    const struct command *c = command_of(&argc, &argv);
    if (!c) return tool_fail(NULL, INFER_E_INPUT);

    struct options o;
    bool wants_help = false;
    enum infer_status s = options_parse(&o, c, argc, argv, &wants_help);
    int code;
    if (s) {
        code = tool_fail(&o, s);
    } else if (wants_help) {
        bool all = false;
        for (int i = 0; i < argc; i++) all |= strcmp(argv[i], "--all") == 0;
        help_command(stdout, c, all);
        code = finish(&o, EXIT_DONE);
    } else if (o.print_config) {
        config_print(stdout, &o);
        code = finish(&o, EXIT_DONE);
    } else {
        code = finish(&o, run_command(&o));
    }
    options_free(&o);
    return code;
}
