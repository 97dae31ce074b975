/* Inside of the tool parser: rows, marks, and the machine's parts. */
#pragma once
#include "serve/buf.h"
#include "serve/toolcall/tool_parser.h"
#include "text/tok/tok.h"

static inline bool tool_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

enum tool_shape {
    SHAPE_OBJECT,
    SHAPE_BARE,
    SHAPE_NAMED,
    SHAPE_TAGGED,
    SHAPE_PYTHON,
    SHAPE_GEMMA,
    SHAPE_HARMONY
};

/* What a mark is for. */
enum tool_role {
    ROLE_SECTION,     /* opens a list of calls */
    ROLE_SECTION_END, /* and closes it */
    ROLE_OPEN,        /* opens one call */
    ROLE_CLOSE,
    ROLE_NAME, /* stands before the function's name */
    ROLE_ID,   /* before the call's id, behind the name */
    ROLE_ARGS, /* before the arguments */
    ROLE_ARGS_END,
    ROLE_KEY, /* before an argument's name */
    ROLE_KEY_END,
    ROLE_VALUE, /* before its value; without this mark ROLE_KEY_END is */
    ROLE_VALUE_END,
    ROLE_PAD,   /* what the template writes on both sides of a value, and a value does not have */
    ROLE_QUOTE, /* on both sides of a text (GEMMA) */
    ROLE_END_1, /* end a message (HARMONY) */
    ROLE_END_2,
    ROLE_END_3,
    ROLE_END_4,
    ROLE_END_5,
    ROLE_INNER, /* inside a header */
    ROLE_THINK, /* open reasoning, one each pair */
    TOOL_PAIRS = 7,
    ROLE_UNTHINK = ROLE_THINK + TOOL_PAIRS,
    N_ROLE = ROLE_UNTHINK + TOOL_PAIRS
};

struct tool_row {
    const char *name;
    enum tool_shape shape;
    const char *mark[N_ROLE];
};
extern const struct tool_row tool_rows[];
extern const int n_tool_row;
/* The tags around reasoning: tool_pairs[TOOL_PAIRS][2] */
extern const char *const tool_pairs[TOOL_PAIRS][2];

/* A control token is not shown as text: in the parser's input it is these two bytes, TOKEN_BYTE (no UTF-8 has it) and 1 + its number in
 * tool_format.control. */
enum { TOKEN_BYTE = 0xff, TOOL_CONTROLS = 48, TOOL_MARK_MAX = 64 };

/* A mark as the parser meets it. */
struct tool_mark {
    char text[TOOL_MARK_MAX]; /* text[n], control tokens as two bytes; n 0: the row has no such mark */
    uint8_t n;
    char spelt[TOOL_MARK_MAX]; /* spelt[n_spelt] */
    uint8_t n_spelt;
};
struct tool_format {
    const struct tool_row *row; /* NULL: calls are not known */
    struct tool_mark mark[N_ROLE];
    int32_t control[TOOL_CONTROLS]; /* control[n_control]: ids */
    int n_control;
    uint32_t first[256]; /* bit s: a mark that counts in state s may begin with this byte */
};
/* errors: none. control(user, text, n) gives the id of the control token whose text is s[n], or -1; NULL: there are none. */
void tool_format_set(struct tool_format *f, const struct tool_row *row,
                     int32_t (*control)(void *user, const char *s, size_t n), void *user);

/* Walks over one JSON value, byte by byte. */
struct json_walk {
    size_t depth;
    bool text, escaped;
};
/* True when the object or list that began with its first byte is complete behind c. */
bool json_walk(struct json_walk *w, char c);

/* JSON from what Python and Gemma write. */
enum { LITERAL_DEPTH = 64, LITERAL_WORD = 512 };
struct literal {
    uint8_t level
        [LITERAL_DEPTH]; /* level[depth]: brackets that are open: '{' '[' '(' or 'f', arguments of a call */
    bool filled[LITERAL_DEPTH]; /* it has an element */
    int depth;
    bool key;                                    /* what comes is a key */
    enum { GAP_NONE, GAP_COLON, GAP_VALUE } gap; /* what a member lacks: all behind its key, its value */
    bool done, bad;
    int quote; /* of the text that is open: ' " or TOKEN_BYTE, the format's own; 0: none */
    char escape[12];
    int n_escape;
    char word[LITERAL_WORD]; /* word[n_word]: a name, a number */
    size_t n_word;
};
void literal_begin(struct literal *l, char level);
/* One byte, or (quote_mark) the format's own quote; JSON is added to out. done: the outermost bracket is closed. */
void literal_byte(struct literal *l, char c, bool quote_mark, struct buf *out);
/* The value that Python's text[n] stands for, or NULL. */
json_t *literal_value(const char *text, size_t n);

enum tool_state {
    STATE_FRESH,   /* the answer, nothing of it yet */
    STATE_CONTENT, /* the answer */
    STATE_REASON,
    STATE_SECTION, /* behind ROLE_SECTION: a call comes */
    STATE_CALL,    /* behind ROLE_OPEN: the name comes */
    STATE_NAME,
    STATE_ID,
    STATE_ARGS,    /* JSON comes */
    STATE_JSON,    /* in it */
    STATE_OBJECT,  /* in the object that names function and arguments */
    STATE_LITERAL, /* arguments of PYTHON and GEMMA */
    STATE_KEYS,    /* a key or the end comes */
    STATE_KEY,
    STATE_BEFORE, /* ROLE_VALUE comes */
    STATE_VALUE,
    STATE_AFTER,  /* behind a call */
    STATE_HEADER, /* of a message */
    N_STATE
};

enum object_key { KEY_OTHER, KEY_NAME, KEY_ARGS, KEY_ID, KEY_INNER, KEY_TYPE };
/* Behind which part of the object that names function and arguments we are. */
struct object {
    enum { OBJECT_KEY, OBJECT_IN_KEY, OBJECT_COLON, OBJECT_VALUE, OBJECT_IN, OBJECT_COMMA } at;
    int key;               /* enum object_key: whose value comes */
    int depth;             /* 1; 2 in "function": {..} */
    bool quoted, has_args; /* the value is a text; arguments came */
    struct json_walk walk;
};

struct tool_parser {
    struct tool_options o;
    const struct tool_format *f;
    enum tool_state state;
    bool calls;     /* calls are looked for */
    bool recording; /* a call has begun and has no name yet: raw is what it was made of */
    bool bare;      /* without a mark: only a known name makes it a call */
    bool in_call;   /* TOOL_CALL without its TOOL_END */
    bool listed;    /* a list was opened by [ */
    bool section;   /* ROLE_SECTION without its end */
    bool open;      /* ROLE_OPEN without ROLE_CLOSE */
    bool trim;      /* white space that comes is dropped */
    bool reasoned;  /* some reasoning came */
    bool finished, done;
    int n_call, stop;
    struct tok_stream stream;
    struct buf in; /* in.p[at..n): what is not used up */
    size_t at;
    struct buf opened; /* of tool_opened */
    /* space: white space held back; held: content that may begin a stop string */
    struct buf raw, word, space, held;
    /* args: before the name came, or a value up to its end; quoted: arguments as a text */
    struct buf args, quoted, id, name, out;
    struct object object;
    struct json_walk walk;
    struct literal literal;
    bool some;            /* an argument came */
    int value;            /* enum value_type */
    const json_t *schema; /* the value's, NULL: none */
    bool begun;           /* something of the value came */
    bool pad;             /* a newline that may be the one before ROLE_VALUE_END */
    enum infer_status status;
};

enum match { MATCH_NO, MATCH_PART, MATCH_YES };
/* Whether in[at..] begins with a mark; *n its bytes. MATCH_PART: so far. */
enum match tool_match(const struct tool_parser *p, enum tool_role role, size_t at, size_t *n);

/* ---- tool_machine.c: states and marks ---- */

/* Fills in f->first. */
void tool_rules(struct tool_format *f);
/* Goes on by one mark or part; false: more has to come. */
bool tool_step(struct tool_parser *p);

/* ---- tool_parser.c: what goes out. All fail quietly into p->status ---- */

/* Uses up n bytes of the input. */
void tool_eat(struct tool_parser *p, size_t n);
/* More reasoning or content. */
void tool_text_out(struct tool_parser *p, enum tool_event_kind kind, const char *text, size_t n);
/* Content that may have begun a stop text goes out, since something else follows; trim: without white space at its end. */
void tool_unsay(struct tool_parser *p, bool trim);
void tool_args(struct tool_parser *p, const char *text, size_t n);
/* The call has its name, name[n]. False: it is none, and what it was made of is content. */
bool tool_named(struct tool_parser *p, const char *name, size_t n);
void tool_end(struct tool_parser *p, bool cut);
/* What was to be a call is content. */
void tool_give_up(struct tool_parser *p);

/* ---- tool_object.c, tool_value.c: parts of a call. Each goes on as far as the input allows; false: more has to come ---- */

bool tool_object(struct tool_parser *p);
bool tool_value(struct tool_parser *p);
/* A key is read: key[n] with what stands behind it in the tag. */
void tool_key(struct tool_parser *p, const char *key, size_t n);
