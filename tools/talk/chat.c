/* infer chat: talks. The conversation goes through the chat template at every turn; the engine computes only what
 * is new in it. */
#include "tools/talk/talk.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/mem.h"
#include "tools/talk/sampling.h"
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
    if (!c->template.text)
        return err_set(INFER_E_INPUT, "a system message needs a chat template, this is --raw");
    size_t n = json_array_size(c->messages);
    TRY(prompt_add_message(c->messages, "system", text, strlen(text)));
    json_t *added = json_incref(json_array_get(c->messages, n));
    json_array_remove(c->messages, n);
    json_array_insert_new(c->messages, 0, added);
    return INFER_OK;
}

/* A folded part is a line while it lasts, on a terminal only. */
static void fold(struct thoughts *t) {
    t->folded = true;
    t->start = term_seconds();
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "%sthinking ...%s", t->dim ? "\033[2m" : "", t->dim ? "\033[0m" : "");
}

void talk_thinking(struct thoughts *t, const struct options *o, const char *text, size_t n) {
    if (strcmp(o->thinking, "hide") == 0 || strcmp(o->thinking, "off") == 0) return;
    if (!t->open) {
        t->open = true;
        t->dim = term_colour(stderr);
        if (strcmp(o->thinking, "fold") == 0) fold(t);
        if (t->dim && !t->folded) fputs("\033[2m", stderr);
        size_t skip = strspn(text, "\n");
        if (skip > n) skip = n;
        text += skip, n -= skip;
    }
    if (t->folded) return;
    if (n) t->last = text[n - 1];
    term_write_safe(stderr, text, n);
}

void talk_thinking_end(struct thoughts *t) {
    if (!t->open) return;
    if (t->folded && isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K%sthought for %.1f s%s\n", t->dim ? "\033[2m" : "",
                term_seconds() - t->start, t->dim ? "\033[0m" : "");
    if (!t->folded && t->dim) fputs("\033[0m", stderr);
    if (!t->folded && t->last != '\n') fputc('\n', stderr);
    *t = (struct thoughts){0};
}

const char *talk_thinking_gap(char last) { return last == '\n' ? "\n" : "\n\n"; }

void talk_stops(struct stops *out, const struct session *s, const struct chat_template *t,
                const struct options *o) {
    out->texts = o->stop;
    out->end = t->text ? prompt_turn_end(s, t) : (struct turn_end){.id = -1};
    if (*out->end.text && out->texts.n < OPTION_MAX_TEXTS) out->texts.text[out->texts.n++] = out->end.text;
}

void talk_loop(const struct options *o, int cycle, const char *set) {
    const char *other = o->repeat_penalty == 1 ? "repeat-penalty 1.1" : o->temp == 0 ? "temp 0.7" : "seed 2";
    tool_say("the answer repeats its last %d token%s over and over and was ended; %s%s may do better, "
             "%sloop-stop off lets "
             "it go on",
             cycle, cycle > 1 ? "s" : "", set, other, set);
}

enum answer_start talk_answer_start(bool templated, const struct prompt *p) {
    if (!templated) return ANSWER_PLAIN;
    return answer_opened(p->text, p->n_text) ? ANSWER_THINKING : ANSWER_MAYBE;
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
static enum infer_status raw_prompt(struct chat *c, struct prompt *p) {
    size_t n = 0, i;
    json_t *m;
    json_array_foreach(c->messages, i, m) n += json_string_length(json_object_get(m, "content"));
    char *text;
    TRY(mem_new(&text, n + 1, "conversation"));
    n = 0;
    json_array_foreach(c->messages, i, m) {
        json_t *content = json_object_get(m, "content");
        memcpy(text + n, json_string_value(content), json_string_length(content));
        n += json_string_length(content);
    }
    enum infer_status st = prompt_text(p, &c->session, text, n);
    mem_free(text);
    return st;
}

/* --overflow shift: takes the oldest turns away until the prompt fits; the system message stays. */
static enum infer_status shorten(struct chat *c, struct prompt *p) {
    bool shift = strcmp(c->o->overflow, "shift") == 0;
    int dropped = 0;
    while (shift && c->template.text && p->n >= c->session.place.n_ctx) {
        json_t *first = json_array_get(c->messages, 0);
        size_t at = strcmp(json_string_value(json_object_get(first, "role")), "system") == 0;
        if (json_array_size(c->messages) < at + 3) break;
        json_array_remove(c->messages, at); /* a user's message and the answer to it */
        json_array_remove(c->messages, at);
        dropped += 2;
        prompt_free(p);
        TRY(prompt_messages(p, &c->session, &c->template, c->messages));
    }
    if (dropped) tool_say("the context is full: the oldest %d messages were dropped", dropped);
    return INFER_OK;
}

#define CHOICES "/clear starts anew, /set overflow shift drops the oldest turns, --ctx gives more"

/* Says what is to be known about the context, also that another turn like this one, which began at before tokens, would not
 * fit; the answer is kept in any case. */
static void say_context(struct chat *c, enum generate_why why, int before) {
    int held = c->generator.n_ids, all = c->session.place.n_ctx, turn = held > before ? held - before : 0;
    if (why == GENERATE_FULL) {
        tool_say("the context of %d tokens is full, the answer ends here; " CHOICES, all);
        c->code = EXIT_CANNOT;
    } else if (c->generator.n_shift) {
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

/* Answers the conversation; the answer becomes its last message. */
static enum infer_status answer(struct chat *c) {
    struct prompt p = {0};
    TRY(c->template.text ? prompt_messages(&p, &c->session, &c->template, c->messages) : raw_prompt(c, &p));
    enum infer_status st = shorten(c, &p);
    if (st) return st;
    if (c->o->show_prompt) prompt_show(&p, &c->session, &c->template);
    struct answer a = {0};
    answer_start(&a, &c->stop.texts, talk_answer_start(c->template.text != NULL, &p));
    term_wrap_start(&c->wrap, stdout);
    int before = c->generator.n_ids; /* of the turns so far, but where some were edited away */
    struct generate_how how = {
        c->o->n_predict, c->template.text != NULL, c->stop.end.id, generate_loop_stop(c->o), show, c};
    enum generate_why why;
    c->last = '\n';
    c->thought_shown = false;
    session_interrupt_clear();
    session_idle(false);
    st = generate_answer(&c->generator, p.ids, p.n, &how, &a, &why);
    session_idle(true);
    talk_thinking_end(&c->thoughts);
    if (c->terminal_out) term_wrap_flush(&c->wrap);
    if (!st && c->last != '\n') st = tool_write("\n", 1);
    if (!st) st = tool_flush();
    if (!st) {
        c->answered = true;
        if (why == GENERATE_CANCEL && c->terminal_in) tool_say("interrupted; /regen answers again");
        if (why == GENERATE_LIMIT && c->terminal_in)
            tool_say("ended after %d tokens (-n, /set n-predict)", c->o->n_predict);
        logprobs_print(&c->generator.logprobs, &c->session, c->generator.n_answer);
        if (why == GENERATE_LOOP) {
            talk_loop(c->o, c->generator.cycle, "/set ");
            c->code = EXIT_CANNOT;
        }
        say_context(c, why, before < p.n ? before : p.n);
        keep_thought(c, &a);
        size_t n =
            term_valid_utf8(a.text ? a.text : "", a.n); /* bytes that are no text cannot be said again */
        st = prompt_add_message(c->messages, "assistant", a.text ? a.text : "", n);
    }
    answer_free(&a);
    prompt_free(&p);
    return st;
}

/* One turn: what cannot be answered is taken back, so that the user can try something else. */
static void turn(struct chat *c) {
    enum infer_status st = answer(c);
    if (!st) return;
    progress_clear(&c->session.progress);
    c->code = tool_fail(c->o, st);
    chat_drop(c, "user");
    if (st == INFER_E_FULL && c->terminal_in) tool_say("the message was taken back; " CHOICES);
}

static void loop(struct chat *c) {
    int presses = 0; /* Ctrl-C at an empty prompt, in a row */
    for (;;) {
        const char *text;
        size_t n;
        session_idle(true);
        enum line_result r = line_read(c->line, &text, &n);
        if (r == LINE_END) return;
        if (r == LINE_INTERRUPT) {
            session_interrupt_clear();
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
            enum infer_status st = prompt_add_message(c->messages, "user", text, n);
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
    struct session_need need = generate_need(o);
    TRY(session_open(&c->session, o, &need));
    TRY(prompt_template(&c->template, &c->session, o));
    if (!c->template.text && !o->raw)
        return err_set(INFER_E_INPUT,
                       "the file has no chat template: give one with --template FILE, or --raw to "
                       "complete texts as they are");
    talk_stops(&c->stop, &c->session, &c->template, o);
    c->messages = json_array();
    if (!c->messages) return err_set(INFER_E_MEMORY, "the conversation");
    if (o->system) TRY(chat_system(c, o->system));
    struct sample_params params;
    sampling_recommended(&c->live, c->session.model, c->sampling, sizeof c->sampling);
    TRY(generate_params(o, &params));
    TRY(generate_open(&c->generator, &c->session, o, &params));
    return line_open(&c->line, c->terminal_in, c->colour, chat_complete, c);
}

static void greet(const struct chat *c) {
    char line[512];
    const struct infer_model_info *m = &c->session.info;
    snprintf(line, sizeof line, "%.*s on %s, %d tokens of context.",
             m->name_len ? (int)m->name_len : (int)strlen(m->arch), m->name_len ? m->name : m->arch,
             c->session.place.device, c->session.place.n_ctx);
    if (c->o->quiet) return;
    if (c->terminal_in) term_line(stderr, line);
    if (*c->sampling) term_line(stderr, c->sampling);
    if (c->terminal_in) term_line(stderr, "/help lists the commands.");
}

int cmd_chat(const struct options *o) {
    const char *no_color = getenv("NO_COLOR");
    struct chat c = {.live = *o, .generator = {.seq = -1}, .last = '\n'};
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
    generate_close(&c.generator);
    json_decref(c.messages);
    arena_free(&c.kept);
    mem_free(c.thought);
    prompt_template_free(&c.template);
    session_close(&c.session);
    return c.code;
}
