/* The conversation of `infer chat`, shared by its loop and its commands; what run and chat show alike. */
#pragma once
#include <jansson.h>
#include "request/generate.h"
#include "tools/talk/line.h"
#include "base/mem.h"
#include "request/prompt.h"
#include "request/prompt_check.h"

/* What a model thinks, on stderr: dim where there are colours, folded to one line with --thinking fold. */
struct thoughts {
    bool open, dim, folded;
    char last;
    double start; /* seconds */
};
void talk_thinking(struct thoughts *t, const struct options *o, const char *text, size_t n);
/* The thinking is over: colours and line are as before it. */
void talk_thinking_end(struct thoughts *t);
/* --thinking show: what stands between thinking whose last character is this and the answer: an empty line. */
const char *talk_thinking_gap(char last);
/* What ends an answer: --stop, and how the template ends a turn, as a token or as text. texts points into end. */
struct stops {
    struct option_texts texts;
    struct turn_end end;
};
void talk_stops(struct stops *out, const struct session *s, const struct chat_template *t,
                const struct options *o);
/* Says that the answer was ended because its last cycle tokens repeat themselves, and how to go on; set: before an option's
 * name, "--" or "/set ". */
void talk_loop(const struct options *o, int cycle, const char *set);
/* How an answer to this prompt begins. */
enum answer_start talk_answer_start(bool templated, const struct prompt *p);

struct chat {
    const struct options *o; /* live */
    struct options live;     /* the options as /set has changed them */
    struct arena kept;       /* texts of /set */
    struct session session;
    struct chat_template template; /* text NULL: --raw */
    struct generator generator;
    struct stops stop;
    struct line *line;
    json_t *messages; /* [{role, content}] */
    bool terminal_in, terminal_out, colour;
    bool thought_shown; /* as part of this answer, which has not begun */
    bool answered;      /* the generator's figures are of an answer */
    struct thoughts thoughts;
    struct term_wrap wrap;
    char sampling[256]; /* what sampling_recommended took */
    char last;          /* last byte shown */
    char *thought;      /* what was thought before the last answer; NULL: nothing */
    int code;           /* exit code so far */
};

enum chat_next { CHAT_GO_ON, CHAT_QUIT, CHAT_ANSWER };
/* Carries out a line that begins with '/'. CHAT_ANSWER: the conversation ends with a user's turn to answer. */
enum chat_next chat_command(struct chat *c, const char *line);
/* Says what a command did, to somebody at a terminal. */
void chat_say(const struct chat *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Candidates for the end of before: commands, settings and their values, paths; user: the chat. See line_open. */
int chat_complete(void *user, const char *before, size_t *from, char **out, int cap);
/* /set: shows all settings, one (NAME), or changes one (NAME VALUE). errors: those of options_set and generate_set */
enum infer_status chat_set(struct chat *c, const char *arg);
/* Candidates for what stands behind "/set "; *from grows by where they begin. */
int chat_set_complete(const struct chat *c, const char *before, size_t *from, char **out, int cap);
/* Removes the last message when it is of this role (any role: NULL); false when it is not. */
bool chat_drop(struct chat *c, const char *role);
/* Puts a system message in front, or takes it away (NULL). */
enum infer_status chat_system(struct chat *c, const char *text);
