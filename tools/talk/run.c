/* infer run: answers one prompt. stdout gets the answer, ended by one newline, and nothing else. */
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "files/json.h"
#include "request/answer.h"
#include "base/mem.h"
#include "tools/interrupt.h"
#include "tools/talk/logprobs_show.h"
#include "tools/talk/prompt_show.h"
#include "tools/talk/talk.h"
#include "files/textfile.h"
#include "tools/tool.h"

int cmd_chat(const struct options *o);
int cmd_run(const struct options *o);

struct run {
    const struct options *o;
    struct talk talk;
    struct infer_prompt prompt;
    char *text; /* text[n]: the user's prompt */
    size_t n;
    const char *prompted; /* of the command line; NULL: the text is of a file or of stdin */
    bool later;           /* stdin is an open pipe, from which nothing came yet */
    struct thoughts thoughts;
    bool terminal;      /* stdout is one */
    bool thought_shown; /* --thinking show: as part of the answer, which has not begun */
    char last;          /* last byte shown */
    int n_newline;      /* held back: the answer ends with one, whatever the model wrote */
};

/* ---- the prompt ---- */

enum { PATIENCE = 5000 }; /* ms behind the load for the first byte of an open pipe */

/* Whether stdin, beside a prompt of the command line, has a text: at once, or perhaps later. A terminal or device has none, and no file that
 * somebody has read of before: the rest of it is for the loop of a shell, say, that reads a line a round. */
static enum stdin_has { STDIN_NONE, STDIN_NOW, STDIN_LATER } stdin_has(int milliseconds) {
    struct stat st;
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    if (fstat(STDIN_FILENO, &st)) return STDIN_NONE;
    if (S_ISREG(st.st_mode)) return lseek(STDIN_FILENO, 0, SEEK_CUR) == 0 ? STDIN_NOW : STDIN_NONE;
    if (!S_ISFIFO(st.st_mode) && !S_ISSOCK(st.st_mode)) return STDIN_NONE;
    return poll(&p, 1, milliseconds) > 0 ? STDIN_NOW : STDIN_LATER;
}

/* A text of a file or of stdin ("-"), whose last newline is not part of the prompt: the prompt, or in front of that of the command line. */
static enum infer_status read_text(struct run *r, const char *path) {
    const size_t n_prompted = r->prompted ? strlen(r->prompted) : 0;
    char *text, *both;
    size_t n;
    TRY(text_read(&text, &n, path, TEXT_PROMPT));
    if (n && text[n - 1] == '\n') text[--n] = 0;
    if (!r->prompted) {
        r->text = text, r->n = n;
        return INFER_OK;
    }
    if (!n) {
        mem_free(text);
        return INFER_OK;
    }
    enum infer_status st = mem_new(&both, n + 2 + n_prompted + 1, "the prompt");
    if (!st) {
        memcpy(both, text, n);
        memcpy(both + n, "\n\n", 2);
        memcpy(both + n + 2, r->prompted, n_prompted + 1);
        mem_free(r->text);
        r->text = both, r->n = n + 2 + n_prompted;
    }
    mem_free(text);
    return st;
}

/* Whether a picture comes from stdin. */
static bool takes_stdin(const struct options *o) {
    for (int i = 0; i < o->image.n; i++)
        if (strcmp(o->image.text[i], "-") == 0) return true;
    return false;
}

/* The prompt of the command line, with the text of stdin before it, as llm and ollama have it; else -f, else stdin. */
static enum infer_status read_prompt(struct run *r) {
    const struct options *o = r->o;
    const bool waits = o->file && strcmp(o->file, "-") == 0;
    r->prompted = o->n_arg ? o->arg[0] : o->prompt;
    if (!r->prompted) {
        TRY(read_text(r, o->file ? o->file : "-"));
    } else if (*r->prompted) {
        r->text = mem_strdup(r->prompted);
        if (!r->text) return err_set(INFER_E_MEMORY, "the prompt");
        r->n = strlen(r->text);
        const enum stdin_has has = takes_stdin(o) ? STDIN_NONE : waits ? STDIN_NOW : stdin_has(0);
        if (has == STDIN_NOW) TRY(read_text(r, "-"));
        r->later = has == STDIN_LATER;
    }
    if (r->n == 0 && (r->prompted || o->file)) return err_set(INFER_E_INPUT, "the prompt is empty");
    if (r->n == 0)
        return err_set(INFER_E_INPUT, "there is no prompt: -p TEXT or -f FILE gives one, or a text on stdin "
                                      "('infer chat' talks, 'infer help' lists the rest)");
    return INFER_OK;
}

/* Once the model is there: what writes into the pipe has had time to begin, or never will. */
static enum infer_status read_later(struct run *r) {
    if (!r->later) return INFER_OK;
    if (stdin_has(PATIENCE) == STDIN_NOW) return read_text(r, "-");
    if (interrupted()) return err_set(INFER_E_CANCEL, "cancelled");
    tool_say("stdin is an open pipe, and nothing came from it for %d s: the prompt alone is answered "
             "(</dev/null: at once; "
             "-f -: waits longer)",
             PATIENCE / 1000);
    return INFER_OK;
}

/* Of -p, the argument and -f there is one; -p with -f - is both. */
static enum infer_status check_prompt(const struct options *o) {
    const char *arg = o->n_arg ? o->arg[0] : "";
    const size_t n = strlen(arg);
    struct stat st;
    if (o->n_arg && o->prompt)
        return err_set(INFER_E_INPUT, "'%s' and -p are both given, and there is one prompt", arg);
    if ((o->n_arg || o->prompt) && o->file && strcmp(o->file, "-") != 0)
        return err_set(INFER_E_INPUT, "%s and -f are both given, and there is one prompt",
                       o->prompt ? "-p" : "a prompt");
    if (takes_stdin(o) && ((!o->n_arg && !o->prompt && !o->file) || (o->file && strcmp(o->file, "-") == 0)))
        return err_set(INFER_E_INPUT,
                       "--image - takes stdin, and the prompt is to come from there, too: -p TEXT gives one");
    if (o->image.n && o->raw)
        return err_set(INFER_E_INPUT, "--image needs a chat template, and this is --raw");
    if (n > 5 && strcmp(arg + n - 5, ".gguf") == 0 && stat(arg, &st) == 0)
        return err_set(INFER_E_INPUT,
                       "'%s' stands where the prompt does; a model is given with -m: infer run -m %s", arg,
                       arg);
    return INFER_OK;
}

/* The user's text -> ids, through the chat template when there is one. */
static enum infer_status make_prompt(struct run *r) {
    const struct options *o = r->o;
    struct infer_model *m = r->talk.session.model;
    if (!r->talk.template.text) {
        if (o->system)
            return err_set(INFER_E_INPUT, "--system needs a chat template, and there is none%s",
                           o->raw ? " with --raw" : " in the file (--template gives one)");
        if (!o->raw && !o->quiet)
            tool_say(
                "the file has no chat template: completing the text as it is (--raw: as meant; --template "
                "FILE: with one)");
        return infer_prompt_text(&r->prompt, m, r->text, r->n, false);
    }
    json_t *messages = json_array();
    enum infer_status st = messages ? INFER_OK : err_set(INFER_E_MEMORY, "the conversation");
    if (!st && o->system) st = infer_prompt_add_message(messages, "system", o->system, strlen(o->system));
    for (int i = 0; !st && i < o->image.n; i++) {
        char line[PATH_MAX];
        st = talk_picture(&r->talk, o, o->image.text[i], line, sizeof line);
        if (!st && !o->quiet) tool_say("%s", line);
    }
    if (!st) st = talk_say(&r->talk, messages, 0, r->text, r->n);
    if (!st) st = infer_prompt_render(&r->prompt, m, &r->talk.template, messages, true);
    json_decref(messages);
    return st;
}

/* Text of the answer to stdout. With --raw every byte as it comes; else the newlines at its end wait for what follows. */
static enum infer_status write_answer(struct run *r, const char *text, size_t n) {
    size_t end = n;
    while (!r->o->raw && end && text[end - 1] == '\n') end--;
    for (; end && r->n_newline; r->n_newline--) TRY(tool_write("\n", 1));
    r->n_newline += (int)(n - end);
    r->last = text[n - 1];
    if (r->terminal)
        term_write_safe(stdout, text, end);
    else
        TRY(tool_write(text, end));
    return tool_flush();
}

/* Nothing more comes: the answer, if there is any, ends its line. --raw promises the bytes alone, but to a pipe or file. */
static enum infer_status end_answer(struct run *r) {
    bool open = r->last != '\n' || r->n_newline;
    if (!open || r->o->json || (r->o->raw && (!r->terminal || r->last == '\n'))) return INFER_OK;
    r->last = '\n', r->n_newline = 0;
    TRY(tool_write("\n", 1));
    return tool_flush();
}

static enum infer_status show(void *user, const char *text, size_t n, bool thinking) {
    struct run *r = user;
    if (thinking && strcmp(r->o->thinking, "show") != 0) {
        if (!r->o->quiet) talk_thinking(&r->thoughts, r->o, text, n);
        return INFER_OK;
    }
    talk_thinking_end(&r->thoughts);
    if (r->o->json) return INFER_OK;
    if (!thinking && r->thought_shown) {
        const char *gap = talk_thinking_gap(r->last);
        TRY(write_answer(r, gap, strlen(gap)));
    }
    r->thought_shown = thinking;
    return write_answer(r, text, n);
}

static const char *const why_names[] = {"", "turn", "stop", "limit", "context", "interrupt", "loop"};

static json_t *draft_json(const struct infer_request_figures *f) {
    const double times = talk_speed_up(f);
    return json_pack("{s:i, s:i, s:i, s:o}", "guessed", f->n_guessed, "right", f->n_right, "steps", f->n_step,
                     "times_as_fast", times > 0 ? json_real(times) : json_null());
}

static enum infer_status print_json(const struct run *r) {
    const struct infer_request *q = r->talk.request;
    const struct infer_request_figures *g = infer_request_figures(q);
    double rate = talk_rate(g);
    size_t n, n_thought;
    const char *answer = infer_request_text(q, false, &n), *thought = infer_request_text(q, true, &n_thought);
    uint64_t failed = mem_failed();
    json_t *text = json_stringn(answer, n);
    bool utf8 = text != NULL;
    if (!utf8) text = json_null(); /* bytes that are no text: ids would be needed, say so */
    json_t *j =
        json_pack("{s:o, s:s, s:i, s:i, s:i, s:f, s:o, s:o}", "answer", text, "ended_by",
                  why_names[infer_request_why(q)], "prompt_tokens", g->n_prompt + g->n_reused,
                  "reused_tokens", g->n_reused, "answer_tokens", g->n_answer, "prompt_tok_s",
                  g->prompt_seconds > 0 ? g->n_prompt / g->prompt_seconds : 0.0, "answer_tok_s",
                  rate > 0 ? json_real(rate) : json_null(), "gb_s",
                  rate > 0 ? json_real(talk_step_rate(g) * talk_token_bytes(&r->talk) * 1e-9) : json_null());
    if (j && n_thought) json_object_set_new(j, "thinking", json_stringn(thought, n_thought));
    if (j && infer_request_logprobs(q)->n_top >= 0)
        json_object_set_new(j, "logprobs",
                            logprobs_json(infer_request_logprobs(q), r->talk.session.model, g->n_answer));
    if (j && r->talk.draws) json_object_set_new(j, "seed", json_integer((json_int_t)r->talk.seed));
    if (j && r->talk.draft.by) json_object_set_new(j, "draft", draft_json(g));
    char *line;
    TRY(json_write(&line, j, failed, JSON_COMPACT, "the answer as JSON"));
    printf("%s\n", line);
    mem_free(line);
    return utf8 ? tool_flush()
                : err_set(INFER_E_INPUT, "the answer is not UTF-8 and so has no place in JSON");
}

/* What there is to say after the answer; the exit code. */
static int report(struct run *r) {
    const struct options *o = r->o;
    const struct infer_request *q = r->talk.request;
    const struct infer_request_figures *f = infer_request_figures(q);
    const enum infer_request_why why = infer_request_why(q);
    const int n_ctx = r->talk.session.place.n_ctx;
    if (o->json) {
        enum infer_status st = print_json(r);
        if (st) return tool_fail(o, st);
    }
    if (why == INFER_REQUEST_FULL)
        tool_say("the context of %d tokens is full, the answer ends here (--ctx gives more)", n_ctx);
    talk_thinking_end(&r->thoughts);
    if (why == INFER_REQUEST_CANCELLED) tool_interrupted();
    if (why == INFER_REQUEST_LOOP) talk_loop(o, f->cycle, "--");
    if (f->n_shift)
        tool_say("the context of %d tokens was full: its older half was dropped (%d times)", n_ctx,
                 f->n_shift);
    if (!o->json) logprobs_print(infer_request_logprobs(q), r->talk.session.model, f->n_answer);
    if (request_answer(q)->cut) tool_say("the answer ended in the middle of a character");
    if (!o->quiet) {
        char line[256];
        talk_summary(&r->talk, line, sizeof line);
        tool_say("%s%s", line, why == INFER_REQUEST_LIMIT ? "; ended by -n" : "");
    }
    bool whole = why != INFER_REQUEST_FULL && why != INFER_REQUEST_LOOP;
    return why == INFER_REQUEST_CANCELLED ? EXIT_CANCEL : whole ? EXIT_DONE : EXIT_CANNOT;
}

static enum infer_status run_answer(struct run *r) {
    const struct options *o = r->o;
    r->talk.show = show;
    r->talk.user = r;
    TRY(talk_begin(&r->talk, o));
    TRY(read_later(r));
    TRY(make_prompt(r));
    if (o->show_prompt) prompt_show(&r->prompt, r->talk.session.model, &r->talk.template);
    TRY(talk_open(&r->talk, o));
    enum infer_status st = talk_answer(&r->talk, o, &r->prompt);
    if (st && r->terminal && r->last != '\n') putchar('\n'); /* the message begins a line */
    return st ? st : end_answer(r);
}

int cmd_run(const struct options *given) {
    struct options own = *given;
    const struct options *o = &own;
    talk_seed(&own);
    if (!o->n_arg && !o->prompt && !o->file && isatty(STDIN_FILENO)) return cmd_chat(given);
    struct run r = {.o = o, .terminal = isatty(STDOUT_FILENO), .last = '\n'};
    enum infer_status st = check_prompt(o);
    if (!st) st = tool_check_beams(o);
    if (!st) st = read_prompt(&r);
    if (!st) st = run_answer(&r);
    int code = st ? tool_fail(o, st) : report(&r);
    infer_prompt_free(&r.prompt);
    talk_close(&r.talk);
    mem_free(r.text);
    return code;
}
