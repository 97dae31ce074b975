/* The commands of `infer chat`: one table feeds the dispatch, /help and completion. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tools/talk/talk.h"
#include "files/json.h"
#include "base/mem.h"
#include "files/outfile.h"
#include "files/textfile.h"
#include "tools/tool.h"
#include "base/host.h"

static enum chat_next do_help(struct chat *c, const char *arg);

static enum chat_next say_error(struct chat *c, enum infer_status st) {
    int code = tool_fail(c->o, st);
    if (!c->terminal_in) c->code = code; /* nobody is there to try again */
    return CHAT_GO_ON;
}

void chat_say(const struct chat *c, const char *format, ...) {
    va_list ap;
    if (!c->terminal_in || c->o->quiet) return;
    va_start(ap, format);
    tool_vsay(format, ap);
    va_end(ap);
}

static enum chat_next do_quit(struct chat *c, const char *arg) {
    (void)c, (void)arg;
    return CHAT_QUIT;
}

static enum chat_next do_clear(struct chat *c, const char *arg) {
    (void)arg;
    json_t *first = json_array_get(c->messages, 0);
    bool keep = first && strcmp(json_string_value(json_object_get(first, "role")), "system") == 0;
    while (json_array_size(c->messages) > (size_t)keep) chat_drop(c, NULL);
    talk_forget_pictures(&c->talk);
    c->n_said = 0;
    chat_say(c, "the conversation is empty%s", keep ? " but for the system message" : "");
    return CHAT_GO_ON;
}

static enum chat_next do_regen(struct chat *c, const char *arg) {
    (void)arg;
    chat_drop(c, "assistant");
    size_t n = json_array_size(c->messages);
    json_t *last = n ? json_array_get(c->messages, n - 1) : NULL;
    if (last && strcmp(json_string_value(json_object_get(last, "role")), "user") == 0) {
        c->live.seed++; /* another answer, when one is drawn at all */
        if (c->live.temp == 0)
            chat_say(c, "greedy: the answer will be the same (/set temp 0.7)");
        else
            chat_say(c, "another answer, with seed %llu", (unsigned long long)c->live.seed);
        return CHAT_ANSWER;
    }
    tool_say("there is nothing to answer yet");
    return CHAT_GO_ON;
}

static bool is_by(const struct chat *c, size_t i, const char *role) {
    return strcmp(json_string_value(json_object_get(json_array_get(c->messages, i), "role")), role) == 0;
}

/* Where the last turn begins: the user's message, with the answer to it if there is one behind; NULL: there is no turn. */
static json_t *last_turn(const struct chat *c, bool *answered) {
    size_t n = json_array_size(c->messages);
    *answered = n && is_by(c, n - 1, "assistant");
    n -= *answered;
    return n && is_by(c, n - 1, "user") ? json_array_get(c->messages, n - 1) : NULL;
}

/* The last message goes back into the line to be edited; with a text it becomes that and is answered. */
static enum chat_next do_edit(struct chat *c, const char *arg) {
    bool answered;
    json_t *last = last_turn(c, &answered);
    if (!last) {
        tool_say("there is no message to edit yet");
        return CHAT_GO_ON;
    }
    if (!*arg && !c->terminal_in)
        return say_error(c, err_set(INFER_E_INPUT, "/edit needs a text where nobody can edit: /edit TEXT"));
    json_incref(last);
    chat_drop(c, "assistant");
    chat_drop(c, "user");
    c->n_said = chat_first_picture(c, last); /* its pictures stay */
    enum infer_status st = INFER_OK;
    if (*arg)
        st = chat_say_to_model(c, arg, strlen(arg));
    else
        line_preset(c->line, json_string_value(chat_text(last)));
    json_decref(last);
    if (st) return say_error(c, st);
    return *arg ? CHAT_ANSWER : CHAT_GO_ON;
}

static enum chat_next do_thoughts(struct chat *c, const char *arg) {
    (void)arg;
    if (!c->thought) {
        tool_say("nothing was thought before the last answer");
        return CHAT_GO_ON;
    }
    struct options shown = c->live;
    shown.thinking = "dim";
    struct thoughts t = {0};
    talk_thinking(&t, &shown, c->thought, strlen(c->thought));
    talk_thinking_end(&t);
    return CHAT_GO_ON;
}

static enum chat_next do_undo(struct chat *c, const char *arg) {
    (void)arg;
    bool answered;
    size_t turns = 0;
    if (!last_turn(c, &answered)) {
        tool_say("there is no message to take back yet");
        return CHAT_GO_ON;
    }
    chat_drop(c, "assistant");
    chat_drop(c, "user");
    for (size_t i = 0; i < json_array_size(c->messages); i++) turns += is_by(c, i, "user");
    char left[48] = "none is left";
    if (turns) snprintf(left, sizeof left, "%zu of yours %s left", turns, turns == 1 ? "is" : "are");
    chat_say(c, "your last message%s taken back; %s", answered ? " and its answer are" : " is", left);
    return CHAT_GO_ON;
}

static enum chat_next do_system(struct chat *c, const char *arg) {
    json_t *first = json_array_get(c->messages, 0);
    bool have = first && strcmp(json_string_value(json_object_get(first, "role")), "system") == 0;
    if (*arg) {
        bool none = strcmp(arg, "none") == 0;
        enum infer_status st = chat_system(c, none ? NULL : arg);
        if (st) return say_error(c, st);
        chat_say(c, none ? "there is no system message now"
                         : "the system message is set, from the next message on");
        return CHAT_GO_ON;
    }
    const char *text = have ? json_string_value(json_object_get(first, "content")) : "(no system message)";
    term_write_safe(stderr, text, strlen(text));
    fputc('\n', stderr);
    return CHAT_GO_ON;
}

static enum chat_next do_read(struct chat *c, const char *arg) {
    char *text;
    size_t n;
    enum infer_status st = *arg ? text_read(&text, &n, arg, TEXT_PROMPT)
                                : err_set(INFER_E_INPUT, "/read needs a file: /read notes.txt");
    if (st) return say_error(c, st);
    st = n ? chat_say_to_model(c, text, n) : err_set(INFER_E_INPUT, "%s is empty", arg);
    mem_free(text);
    if (!st) chat_say(c, "%s: %zu bytes are sent", arg, n);
    return st ? say_error(c, st) : CHAT_ANSWER;
}

static enum chat_next do_image(struct chat *c, const char *arg) {
    const enum infer_status st = chat_image(c, arg);
    return st ? say_error(c, st) : CHAT_GO_ON;
}

static enum chat_next do_set(struct chat *c, const char *arg) {
    enum infer_status st = chat_set(c, arg);
    return st ? say_error(c, st) : CHAT_GO_ON;
}

/* ---- figures ---- */

static enum chat_next do_mem(struct chat *c, const char *arg) {
    (void)arg;
    tool_report(stderr, infer_plan_text(c->talk.session.engine));
    fprintf(stderr, "context: %d of %d tokens used\n", talk_held(&c->talk), c->talk.session.place.n_ctx);
    return CHAT_GO_ON;
}

static enum chat_next do_stats(struct chat *c, const char *arg) {
    (void)arg;
    char line[512];
    const struct infer_engine_info *place = &c->talk.session.place;
    if (!c->talk.request) {
        tool_say("no answer yet");
        return CHAT_GO_ON;
    }
    talk_summary(&c->talk, line, sizeof line);
    term_line(stderr, line);
    fprintf(stderr, "context: %d of %d tokens used\n%s %s, %d threads\n", talk_held(&c->talk), place->n_ctx,
            place->device, place->isa ? place->isa : "", place->n_thread);
    if (place->state_bytes)
        fprintf(stderr, "states: %.1f MiB a sequence; %llu rows computed again from copies\n",
                (double)place->state_bytes / (1 << 20),
                (unsigned long long)infer_replayed(c->talk.session.engine));
    return CHAT_GO_ON;
}

/* ---- files ---- */

/* Where the keys and values of a saved conversation are. */
static const char *cache_path(char path[PATH_MAX], const char *conversation) {
    snprintf(path, PATH_MAX, "%s.kv", conversation);
    return path;
}

static enum infer_status save_messages(struct chat *c, const char *path) {
    uint64_t failed = mem_failed();
    char *text;
    json_t *j = json_pack("{s:O}", "messages", c->messages);
    TRY(json_write(&text, j, failed, JSON_INDENT(1), "the conversation as JSON"));
    enum infer_status st = outfile_put(path, OUTFILE_PRIVATE, text, strlen(text));
    mem_free(text);
    return st;
}

/* A later /save without a name goes there. */
static void keep_file(struct chat *c, const char *path) {
    if (path != c->file) snprintf(c->file, sizeof c->file, "%s", path);
}

static enum chat_next do_save(struct chat *c, const char *arg) {
    char path[PATH_MAX];
    const size_t n = json_array_size(c->messages);
    if (!*arg) arg = c->file;
    if (!*arg) return say_error(c, err_set(INFER_E_INPUT, "/save needs a name: /save talk.json"));
    enum infer_status st = tool_check_output(c->o, c->talk.session.path, arg);
    if (!st) st = tool_check_output(c->o, c->talk.session.path, cache_path(path, arg));
    if (!st) st = save_messages(c, arg);
    if (st) return say_error(c, st);
    keep_file(c, arg);
    if (talk_held(&c->talk) == 0) {
        if (c->terminal_in) tool_say("%zu messages are in %s", n, arg);
        return CHAT_GO_ON;
    }
    st = infer_seq_save(c->talk.session.engine, c->talk.seq, path);
    if (st)
        return say_error(
            c,
            err_prefix(st, "%zu messages are in %s, but the tokens computed for them are not kept", n, arg));
    if (c->terminal_in)
        tool_say("%zu messages are in %s, the %d tokens computed for them in %s", n, arg, talk_held(&c->talk),
                 path);
    return CHAT_GO_ON;
}

/* After a failed load the sequence is empty, and the next prompt is computed whole. */
static enum infer_status load_sequence(struct talk *t, const char *path) {
    TRY(infer_seq_rewind(t->session.engine, t->seq, 0));
    return infer_seq_load(t->session.engine, t->seq, path);
}

/* Takes the keys and values that lie beside a conversation; what cannot be used is computed again, which is said. */
static void load_cache(struct chat *c, const char *arg) {
    char path[PATH_MAX];
    double start = host_seconds();
    size_t n = json_array_size(c->messages);
    enum infer_status st = access(cache_path(path, arg), F_OK) == 0
                               ? load_sequence(&c->talk, path)
                               : err_set(INFER_E_IO, "%s: %s", path, strerror(errno));
    if (st)
        tool_say("%zu messages; their tokens will be computed again: %s", n, err_message());
    else if (c->terminal_in)
        tool_say("%zu messages, %d tokens ready in %.2f s", n, talk_held(&c->talk), host_seconds() - start);
}

/* NULL with a message when the file does not hold a conversation. */
static json_t *read_messages(const char *path) {
    json_t *j;
    char *text;
    size_t n;
    if (text_read(&text, &n, path, TEXT_CONVERSATION)) return NULL;
    json_read(&j, path, text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL);
    mem_free(text);
    if (!j) return NULL;
    json_t *messages = json_is_object(j) ? json_object_get(j, "messages") : j, *m;
    bool good = json_is_array(messages);
    size_t i;
    json_array_foreach(messages, i, m) good =
        good && json_is_string(json_object_get(m, "role")) && json_is_string(chat_text(m));
    if (good) json_incref(messages);
    json_decref(j);
    if (good) return messages;
    err_set(INFER_E_INPUT, "%s: no list of messages with role and content", path);
    return NULL;
}

static enum chat_next do_load(struct chat *c, const char *arg) {
    if (!*arg) return say_error(c, err_set(INFER_E_INPUT, "/load needs a file: /load talk.json"));
    json_t *messages = read_messages(arg);
    if (!messages) return say_error(c, INFER_E_INPUT);
    const enum infer_status st = chat_load_pictures(c, messages);
    if (st) {
        json_decref(messages);
        return say_error(c, err_prefix(st, "%s", arg));
    }
    json_decref(c->messages);
    c->messages = messages;
    keep_file(c, arg);
    load_cache(c, arg);
    return CHAT_GO_ON;
}

/* ---- the table ---- */

static const struct chat_entry {
    const char *name, *arg, *help;
    enum chat_next (*run)(struct chat *c, const char *arg);
    bool path; /* its argument is one */
} entries[] = {
    {"/help", "[COMMAND]", "this list, or one line of it", do_help, false},
    {"/clear", "", "forget the conversation, keep the system message", do_clear, false},
    {"/regen", "", "answer the last message again, with the next seed", do_regen, false},
    {"/edit", "[TEXT]", "edit the last message, or say TEXT instead of it", do_edit, false},
    {"/undo", "", "take the last message and its answer back", do_undo, false},
    {"/system", "[TEXT]", "show or set the system message; none takes it away", do_system, false},
    {"/set", "[NAME [VALUE]]", "show all settings, say what one means, or change it: /set temp 0.7", do_set,
     false},
    {"/read", "FILE", "send a file as the next message", do_read, true},
    {"/image", "FILE", "show a picture with the next message", do_image, true},
    {"/save", "[FILE]", "write the conversation as JSON, what was computed to FILE.kv; again without FILE",
     do_save, true},
    {"/load", "FILE", "go on with a saved conversation, at once where FILE.kv fits", do_load, true},
    {"/thoughts", "", "what was thought before the last answer (/set thinking fold)", do_thoughts, false},
    {"/mem", "", "what the memory is used for", do_mem, false},
    {"/stats", "", "speed of the last answer, use of the context", do_stats, false},
    {"/quit", "", "leave; so do /exit and Ctrl-D", do_quit, false},
};
enum { N_ENTRY = sizeof entries / sizeof *entries };

static void help_line(const struct chat_entry *e, int columns) {
    char left[48];
    snprintf(left, sizeof left, "%s %s", e->name, e->arg);
    fprintf(stderr, "  %-21s ", left);
    term_hang(stderr, e->help, 24, columns);
}

static enum chat_next do_help(struct chat *c, const char *arg) {
    (void)c;
    int columns = term_columns(stderr);
    size_t n = strcspn(arg, " \t\n");
    bool slash = arg[0] == '/', found = n == 0;
    for (int i = 0; i < N_ENTRY; i++) {
        if (n && strncmp(entries[i].name + !slash, arg, n) != 0) continue;
        help_line(&entries[i], columns);
        found = true;
    }
    if (!found)
        return say_error(c, err_set(INFER_E_INPUT, "no command '%.*s'; /help lists them", (int)n, arg));
    if (n) return CHAT_GO_ON;
    static const char *const lines[] = {
        "Examples: /system You answer in one sentence.  /set temp 0.7  /set thinking hide  /read notes.txt  "
        "/edit And in Spain?",
        "A line that ends with \\ goes on in the next one; \"\"\" begins and ends a text of many lines; // "
        "begins a message "
        "with a slash. A command may be shortened (/st).",
        "Ctrl-C stops an answer; at the prompt, twice leaves, as Ctrl-D does. Up and Ctrl-R find earlier "
        "lines, Tab "
        "completes commands, settings, their values and paths.",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) term_line(stderr, lines[i]);
    return CHAT_GO_ON;
}

/* The path that a user wrote: blanks at its end and quotes around it are left out, "~/" is the home. */
static const char *written_path(char path[PATH_MAX], const char *arg) {
    const char *home = tool_home();
    size_t n = strlen(arg);
    while (n && strchr(" \t\n", arg[n - 1])) n--;
    if (n > 1 && (arg[0] == '"' || arg[0] == '\'') && arg[n - 1] == arg[0]) arg++, n -= 2;
    bool in_home = *home && n > 1 && arg[0] == '~' && arg[1] == '/';
    snprintf(path, PATH_MAX, "%s%.*s", in_home ? home : "", (int)(n - in_home), arg + in_home);
    return path;
}

enum chat_next chat_command(struct chat *c, const char *line) {
    size_t n = strcspn(line, " \t\n");
    const char *arg = line + n + strspn(line + n, " \t\n");
    const struct chat_entry *found = NULL;
    int near = 0;
    for (int i = 0; i < N_ENTRY; i++) {
        if (strncmp(entries[i].name, line, n) != 0) continue;
        found = &entries[i];
        near++;
        if (strlen(entries[i].name) == n) {
            near = 1;
            break;
        }
    }
    char path[PATH_MAX];
    if (near == 1) return found->run(c, found->path ? written_path(path, arg) : arg);
    if (n == 5 && (strncmp(line, "/exit", 5) == 0)) return CHAT_QUIT;
    if (near)
        return say_error(
            c, err_set(INFER_E_INPUT, "'%.*s' may be several commands; /help lists them", (int)n, line));
    char name[32];
    const char *meant = NULL;
    int best = 100;
    snprintf(name, sizeof name, "%.*s", (int)n, line);
    for (int i = 0; i < N_ENTRY; i++)
        if (option_nearer(name + 1, entries[i].name + 1, &best)) meant = entries[i].name;
    return say_error(c, err_set(INFER_E_INPUT, "no command '%s'; %s%s%s", name,
                                meant ? "did you mean '" : "/help lists them", meant ? meant : "",
                                meant ? "'?" : ""));
}

/* word: a path as the user wrote it so far. */
static int complete_path(const char *word, char **out, int cap) {
    char folder[PATH_MAX], path[2 * PATH_MAX];
    const char *slash = strrchr(word, '/'), *name = slash ? slash + 1 : word;
    int n_folder = (int)(name - word), n = 0;
    snprintf(path, sizeof path, "%.*s", n_folder, word);
    DIR *d = opendir(n_folder ? written_path(folder, path) : ".");
    for (struct dirent *e; d && n < cap && (e = readdir(d));) {
        if (strncmp(e->d_name, name, strlen(name)) != 0 || (e->d_name[0] == '.' && name[0] != '.')) continue;
        struct stat info;
        snprintf(path, sizeof path, "%s%s", n_folder ? folder : "", e->d_name);
        bool is_folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
        if (asprintf(&out[n], "%.*s%s%s", n_folder, word, e->d_name, is_folder ? "/" : " ") >= 0) n++;
    }
    if (d) closedir(d);
    return n;
}

/* Commands that begin with word, each with a blank; the slash may be missing. */
static int complete_command(const char *word, char **out, int cap) {
    int n = 0;
    bool slash = word[0] == '/';
    for (int i = 0; i < N_ENTRY && n < cap; i++)
        if (strncmp(entries[i].name + !slash, word, strlen(word)) == 0 &&
            asprintf(&out[n], "%s ", entries[i].name + !slash) >= 0)
            n++;
    return n;
}

int chat_complete(void *user, const char *before, size_t *from, char **out, int cap) {
    const char *space = strchr(before, ' ');
    *from = 0;
    if (before[0] != '/') return 0;
    if (!space) return complete_command(before, out, cap);
    const char *word = space + strspn(space, " ");
    *from = (size_t)(word - before);
    const struct chat_entry *e = entries;
    while (e < entries + N_ENTRY && strncmp(e->name, before, (size_t)(space - before)) != 0) e++;
    if (e == entries + N_ENTRY) return 0;
    if (e->path) return complete_path(word, out, cap);
    if (e->run == do_help) return complete_command(word, out, cap);
    return e->run == do_set ? chat_set_complete(user, word, from, out, cap) : 0;
}
