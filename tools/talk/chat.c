/* infer chat: talks. The conversation goes through the chat template at every turn; the engine computes only what
 * is new in it. */
#include "tools/talk/talk.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "request/answer.h"
#include "base/mem.h"
#include "tools/interrupt.h"
#include "tools/talk/logprobs_show.h"
#include "tools/talk/prompt_show.h"
#include "tools/talk/recommended.h"
#include "tools/tool.h"

int cmd_chat(const struct options *o);

bool chat_drop(struct chat *c, const char *role) {
    size_t n = json_array_size(c->messages);
    json_t *last = n ? json_array_get(c->messages, n - 1) : NULL;
    if (!last || (role && strcmp(json_string_value(json_object_get(last, "role")), role) != 0)) return false;
    json_array_remove(c->messages, n - 1);
    return true;
}

enum infer_status chat_system(struct chat *c, const char *text) {
    json_t *first = json_array_get(c->messages, 0);
    if (first && strcmp(json_string_value(json_object_get(first, "role")), "system") == 0)
        json_array_remove(c->messages, 0);
    if (!text) return INFER_OK;
    if (!c->talk.template.text)
        return err_set(INFER_E_INPUT, "a system message needs a chat template, this is --raw");
    size_t n = json_array_size(c->messages);
    TRY(infer_prompt_add_message(c->messages, "system", text, strlen(text)));
    json_t *added = json_incref(json_array_get(c->messages, n));
    json_array_remove(c->messages, n);
    json_array_insert_new(c->messages, 0, added);
    return INFER_OK;
}

static enum infer_status write_answer(struct chat *c, const char *text, size_t n) {
    c->last = text[n - 1];
    if (!c->terminal_out) return tool_write(text, n);
    term_wrap_write(&c->wrap, text, n);
    return INFER_OK;
}

static enum infer_status show(void *user, const char *text, size_t n, bool thinking) {
    struct chat *c = user;
    if (thinking && strcmp(c->o->thinking, "show") != 0) {
        talk_thinking(&c->thoughts, c->o, text, n);
        return INFER_OK;
    }
    talk_thinking_end(&c->thoughts);
    if (!thinking && c->thought_shown) {
        const char *gap = talk_thinking_gap(c->last);
        TRY(write_answer(c, gap, strlen(gap)));
    }
    c->thought_shown = thinking;
    TRY(write_answer(c, text, n));
    return tool_flush();
}

/* --raw: the text of all messages, one after the other, as the user typed and the model went on. */
static enum infer_status raw_prompt(struct chat *c, struct infer_prompt *p) {
    size_t n = 0, i;
    json_t *m;
    json_array_foreach(c->messages, i, m) n += json_string_length(chat_text(m));
    char *text;
    TRY(mem_new(&text, n + 1, "conversation"));
    n = 0;
    json_array_foreach(c->messages, i, m) {
        const json_t *content = chat_text(m);
        memcpy(text + n, json_string_value(content), json_string_length(content));
        n += json_string_length(content);
    }
    enum infer_status st = infer_prompt_text(p, c->talk.session.model, text, n, false);
    mem_free(text);
    return st;
}

/* --overflow shift: takes the oldest turns away until the prompt fits; the system message stays. */
static enum infer_status shorten(struct chat *c, struct infer_prompt *p) {
    bool shift = strcmp(c->o->overflow, "shift") == 0;
    int dropped = 0;
    while (shift && c->talk.template.text && p->n >= c->talk.session.place.n_ctx) {
        json_t *first = json_array_get(c->messages, 0);
        size_t at = strcmp(json_string_value(json_object_get(first, "role")), "system") == 0;
        if (json_array_size(c->messages) < at + 3) break;
        json_array_remove(c->messages, at); /* a user's message and the answer to it */
        json_array_remove(c->messages, at);
        dropped += 2;
        infer_prompt_free(p);
        TRY(infer_prompt_render(p, c->talk.session.model, &c->talk.template, c->messages, true));
    }
    if (dropped) tool_say("the context is full: the oldest %d messages were dropped", dropped);
    return INFER_OK;
}

#define CHOICES "/clear starts anew, /set overflow shift drops the oldest turns, --ctx gives more"

/* Says what is to be known about the context, also that another turn like this one, which began at before tokens, would not
 * fit; the answer is kept in any case. */
static void say_context(struct chat *c, int before) {
    int held = talk_held(&c->talk), all = c->talk.session.place.n_ctx,
        turn = held > before ? held - before : 0;
    if (infer_request_why(c->talk.request) == INFER_REQUEST_FULL) {
        tool_say("the context of %d tokens is full, the answer ends here; " CHOICES, all);
        c->code = EXIT_CANNOT;
    } else if (infer_request_figures(c->talk.request)->n_shift) {
        tool_say("the context was full: its older half was dropped while answering");
    } else if (strcmp(c->o->overflow, "shift") != 0 && (held > all - all / 10 || held > all - turn)) {
        tool_say("%d of %d tokens of the context are used; " CHOICES, held, all);
    }
}

/* For /thoughts. */
static void keep_thought(struct chat *c, const struct answer *a) {
    size_t n;
    const char *text = answer_thinking(a, &n);
    mem_free(c->thought);
    if (!n || mem_new(&c->thought, n + 1, "a thought")) c->thought = NULL;
    if (c->thought) memcpy(c->thought, text, n);
}

/* What there is to say after an answer, which becomes the last message. */
static enum infer_status keep_answer(struct chat *c, int before) {
    const struct infer_request *r = c->talk.request;
    const struct infer_request_figures *f = infer_request_figures(r);
    const struct answer *a = request_answer(r);
    const enum infer_request_why why = infer_request_why(r);
    if (why == INFER_REQUEST_CANCELLED && c->terminal_in) tool_say("interrupted; /regen answers again");
    if (why == INFER_REQUEST_LIMIT && c->terminal_in)
        tool_say("ended after %d tokens (-n, /set n-predict)", c->o->n_predict);
    logprobs_print(infer_request_logprobs(r), c->talk.session.model, f->n_answer);
    if (why == INFER_REQUEST_LOOP) {
        talk_loop(c->o, f->cycle, "/set ");
        c->code = EXIT_CANNOT;
    }
    say_context(c, before);
    keep_thought(c, a);
    const char *text = a->text ? a->text : "";
    size_t n = text_valid_utf8(text, a->n); /* bytes that are no text cannot be said again */
    return infer_prompt_add_message(c->messages, "assistant", text, n);
}

/* Answers the conversation; the answer becomes its last message. */
static enum infer_status answer(struct chat *c) {
    struct infer_prompt p = {0};
    struct infer_model *m = c->talk.session.model;
    const struct infer_prompt_template *template = &c->talk.template;
    TRY(template->text ? infer_prompt_render(&p, m, template, c->messages, true) : raw_prompt(c, &p));
    enum infer_status st = shorten(c, &p);
    if (st) return st;
    if (c->o->show_prompt) prompt_show(&p, m, template);
    term_wrap_start(&c->wrap, stdout);
    int before = talk_held(&c->talk); /* of the turns so far, but where some were edited away */
    c->last = '\n';
    c->thought_shown = false;
    interrupt_idle(false); /* (a Ctrl-C that came before is not forgotten: it ends the answer) */
    st = talk_answer(&c->talk, c->o, &p);
    interrupt_idle(true);
    talk_thinking_end(&c->thoughts);
    if (c->terminal_out) term_wrap_flush(&c->wrap);
    if (!st && c->last != '\n') st = tool_write("\n", 1);
    if (!st) st = tool_flush();
    if (!st) st = keep_answer(c, before < p.n ? before : p.n);
    infer_prompt_free(&p);
    return st;
}

/* One turn: what cannot be answered is taken back, so that the user can try something else. */
static void turn(struct chat *c) {
    enum infer_status st = answer(c);
    if (st) {
        c->code = tool_fail(c->o, st);
        chat_drop(c, "user");
        if (st == INFER_E_FULL && c->terminal_in) tool_say("the message was taken back; " CHOICES);
    }
    c->interrupted |= interrupted();
    interrupt_clear(); /* what fails from here on fails for a reason of its own */
}

static void loop(struct chat *c) {
    int presses = 0; /* Ctrl-C at an empty prompt, in a row */
    for (;;) {
        const char *text;
        size_t n;
        interrupt_idle(true);
        enum line_result r = line_read(c->line, &text, &n);
        if (r == LINE_END) {
            if (c->interrupted && !c->terminal_in) c->code = tool_interrupted();
            return;
        }
        if (r == LINE_INTERRUPT) {
            interrupt_clear();
            if (!c->terminal_in || ++presses > 1) {
                c->code = c->terminal_in ? EXIT_CANCEL : tool_interrupted();
                return;
            }
            tool_say("Ctrl-C once more, Ctrl-D or /quit ends the program");
            continue;
        }
        presses = 0;
        if (strspn(text, " \t\n") == n) continue;
        if (text[0] == '/' && text[1] != '/') {
            enum chat_next next = chat_command(c, text);
            if (next == CHAT_QUIT) return;
            if (next == CHAT_GO_ON) continue;
        } else {
            if (text[0] == '/') text++, n--; /* "//" is a text that begins with a slash */
            enum infer_status st = chat_say_to_model(c, text, n);
            if (st) {
                c->code = tool_fail(c->o, st);
                continue;
            }
        }
        turn(c);
    }
}

static enum infer_status chat_open(struct chat *c) {
    const struct options *o = c->o;
    TRY(tool_check_beams(o));
    c->talk.show = show;
    c->talk.user = c;
    TRY(talk_begin(&c->talk, o));
    if (!c->talk.template.text && !o->raw)
        return err_set(INFER_E_INPUT,
                       "the file has no chat template: give one with --template FILE, or --raw to "
                       "complete texts as they are");
    c->messages = json_array();
    if (!c->messages) return err_set(INFER_E_MEMORY, "the conversation");
    if (o->system) TRY(chat_system(c, o->system));
    sampling_recommended(&c->live, c->talk.session.model, c->sampling, sizeof c->sampling);
    talk_seed(&c->live);
    TRY(talk_open(&c->talk, o));
    return line_open(&c->line, c->terminal_in, c->colour, chat_complete, c);
}

static void greet(const struct chat *c) {
    char line[512];
    const struct infer_model_info *m = &c->talk.session.info;
    snprintf(line, sizeof line, "%.*s on %s, %d tokens of context.",
             m->name_len ? (int)m->name_len : (int)strlen(m->arch), m->name_len ? m->name : m->arch,
             c->talk.session.place.device, c->talk.session.place.n_ctx);
    if (c->o->quiet) return;
    if (c->terminal_in) term_line(stderr, line);
    if (*c->sampling) term_line(stderr, c->sampling);
    if (c->terminal_in) term_line(stderr, "/help lists the commands.");
}

int cmd_chat(const struct options *o) {
    const char *no_color = getenv("NO_COLOR");
    struct chat c = {.live = *o, .last = '\n'};
    c.o = &c.live;
    c.terminal_in = isatty(STDIN_FILENO);
    c.terminal_out = isatty(STDOUT_FILENO);
    c.colour = c.terminal_in && c.terminal_out && !(no_color && *no_color);
    if (c.terminal_in) term_echo(false); /* what is typed meanwhile is for the first line */
    enum infer_status st = chat_open(&c);
    if (st) {
        c.code = tool_fail(o, st);
    } else {
        greet(&c);
        loop(&c);
    }
    line_close(c.line);
    term_echo(true);
    json_decref(c.messages);
    arena_free(&c.kept);
    mem_free(c.thought);
    talk_close(&c.talk);
    return c.code;
}
