/* The conversation of `infer chat`, shared by its loop and its commands; what run and chat show alike. */
#pragma once
#include <jansson.h>
#include <limits.h>
#include "base/mem.h"
#include "request/prompt_check.h"
#include "infer_request.h"
#include "tools/options.h"
#include "tools/session.h"
#include "tools/talk/line.h"

/* A model and one sequence of an engine, and what the options ask of every answer in it. */
struct talk {
    struct session session;
    struct infer_vision *vision;    /* NULL: not needed yet */
    struct infer_picture **picture; /* picture[n_picture]: those of the conversation, */
    char **picture_file;            /* of these files */
    int n_picture, preview;         /* preview: enum preview, once the terminal was asked */
    bool asked;
    struct infer_prompt_template template; /* text NULL: the file has none, or --raw */
    char *template_text;                   /* --template's */
    struct infer_turn_end end;             /* how the template ends a turn */
    struct infer_grammar *grammar;         /* NULL: none */
    struct infer_grammar_vocab *vocab;
    struct infer_constraint *constraint;
    struct infer_sched *sched;
    struct session_draft draft;
    int seq;
    bool draws;                                      /* of talk_params: tokens are drawn, */
    uint64_t seed;                                   /* with this seed */
    struct infer_request *request;                   /* of the last answer; NULL: there was none */
    struct infer_sample_bias bias[OPTION_MAX_TEXTS]; /* of talk_params */
    const char *stop[OPTION_MAX_TEXTS + 1];
    int32_t think_end[32]; /* of the prompt */
    enum infer_status (*show)(void *user, const char *text, size_t n, bool thinking);
    void *user;
};
/* Opens model and engine and takes the template. errors: those of session_open, INFER_E_IO (--template cannot be read) */
enum infer_status talk_begin(struct talk *t, const struct options *o);
/* A picture that messages can name from now on (t->n_picture - 1); what sees is opened for the first one. line[n]: what there is to say of it.
 * errors: those of sight_open and sight_picture, INFER_E_INPUT (--raw) */
enum infer_status talk_picture(struct talk *t, const struct options *o, const char *path, char *line,
                               size_t n);
/* All pictures go. */
void talk_forget_pictures(struct talk *t);
/* {role: "user", content}: pictures first .. t->n_picture - 1, and text[n]. errors: INFER_E_INPUT (no UTF-8), INFER_E_MEMORY */
enum infer_status talk_say(struct talk *t, json_t *messages, int first, const char *text, size_t n);
/* The rest. errors: those of talk_params, of grammar and schema (and both given), INFER_E_MEMORY */
enum infer_status talk_open(struct talk *t, const struct options *o);
void talk_close(struct talk *t);
/* What the options ask for now; lists and texts are in t. errors: INFER_E_INPUT (--samplers, --logit-bias, a value out of range) */
enum infer_status talk_params(struct talk *t, const struct options *o, struct infer_request_params *out);
/* Draws the seed where none is given. */
void talk_seed(struct options *o);
/* Answers p; t->show gets the text. t->request tells the rest. errors: those of infer_request_new and infer_request_status */
enum infer_status talk_answer(struct talk *t, const struct options *o, struct infer_prompt *p);
/* Tokens that the sequence holds. */
int talk_held(const struct talk *t);
/* Tokens and steps of the answer a second, but for steps in which weights were arranged, where there were others; 0: unknown. */
double talk_rate(const struct infer_request_figures *f);
double talk_step_rate(const struct infer_request_figures *f);
/* How many times as fast drafts made decoding: against the shortest step without; 0: unknown. */
double talk_speed_up(const struct infer_request_figures *f);
/* The line "prompt 31 tokens at 800 tok/s; answer ..." of the last answer, without a newline. */
void talk_summary(const struct talk *t, char *buf, size_t n);
/* Bytes that one decoded token reads at the middle of the last answer: weights, and keys and values. */
double talk_token_bytes(const struct talk *t);

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
/* Says that the answer was ended because its last cycle tokens repeat themselves, and how to go on; set: before an option's
 * name, "--" or "/set ". */
void talk_loop(const struct options *o, int cycle, const char *set);

struct chat {
    const struct options *o; /* live */
    struct options live;     /* the options as /set has changed them */
    struct arena kept;       /* texts of /set */
    struct talk talk;
    struct line *line;
    json_t *messages; /* [{role, content}] */
    int n_said;       /* of talk.picture: those that messages have; the others go with the next one */
    bool terminal_in, terminal_out, colour;
    bool interrupted;   /* an answer was ended by Ctrl-C */
    bool thought_shown; /* as part of this answer, which has not begun */
    struct thoughts thoughts;
    struct term_wrap wrap;
    char sampling[256];      /* what sampling_recommended took */
    char last;               /* last byte shown */
    char file[PATH_MAX - 3]; /* of /save and /load last; "": none */
    char *thought;           /* what was thought before the last answer; NULL: nothing */
    int code;                /* exit code so far */
};

enum chat_next { CHAT_GO_ON, CHAT_QUIT, CHAT_ANSWER };
/* Carries out a line that begins with '/'. CHAT_ANSWER: the conversation ends with a user's turn to answer. */
enum chat_next chat_command(struct chat *c, const char *line);
/* Says what a command did, to somebody at a terminal. */
void chat_say(const struct chat *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Candidates for the end of before: commands, settings and their values, paths; user: the chat. See line_open. */
int chat_complete(void *user, const char *before, size_t *from, char **out, int cap);
/* /set: shows all settings, one (NAME), or changes one (NAME VALUE). errors: those of options_set and talk_params */
enum infer_status chat_set(struct chat *c, const char *arg);
/* Candidates for what stands behind "/set "; *from grows by where they begin. */
int chat_set_complete(const struct chat *c, const char *before, size_t *from, char **out, int cap);
/* Removes the last message when it is of this role (any role: NULL); false when it is not. */
bool chat_drop(struct chat *c, const char *role);
/* The user's message, with the pictures that wait for one. errors: those of talk_say */
enum infer_status chat_say_to_model(struct chat *c, const char *text, size_t n);
/* chat_picture.c: the text of a message beside its pictures; the first of these, or those that none has yet. */
const json_t *chat_text(const json_t *message);
int chat_first_picture(const struct chat *c, const json_t *message);
/* /image FILE. */
enum infer_status chat_image(struct chat *c, const char *path);
/* Opens the pictures that messages of a file name. errors: INFER_E_INPUT (no such messages), those of talk_picture */
enum infer_status chat_load_pictures(struct chat *c, json_t *messages);
/* Puts a system message in front, or takes it away (NULL). */
enum infer_status chat_system(struct chat *c, const char *text);
