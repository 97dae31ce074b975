/* Records of `infer verify`: what the text of fixed cases becomes, and of every operation's rows numbers that are enough to see whether
 * another run computes the same, but few. */
#pragma once
#include "infer.h"
#include "base/mem.h"
#include "files/gguf_write.h"

enum {
    VERIFY_VERSION = 2, /* 1 has no sum and is read as well */
    VERIFY_PROMPT = 24, /* rows of the prompt, and rows decoded behind it */
    VERIFY_DECODE = 6,
    VERIFY_SUMS = 12,  /* sums of a row with random signs */
    VERIFY_VALUES = 8, /* values of a row as they are, the first included */
    VERIFY_NUMBERS = 5 + VERIFY_SUMS + VERIFY_VALUES,
    VERIFY_NAME = 48
};

/* One row of an operation's output, x[width]. */
struct verify_row {
    float pos, mean, rms, peak, peak_at; /* peak: the value of the greatest magnitude */
    /* sum of s_i x_i / sqrt(width), s_i 1 or -1 by a hash of i: the mean square of the differences of two rows' sums is that of the rows
     * themselves, on average (Johnson and Lindenstrauss 1984; Achlioptas 2003) */
    float sum[VERIFY_SUMS];
    float value[VERIFY_VALUES]; /* x[verify_at(width, i)] */
};
static inline int verify_at(int width, int i) { return (int)((int64_t)width * i / VERIFY_VALUES); }

struct verify_op {
    char name[VERIFY_NAME];
    bool route,
        attend; /* its rows are choices of experts; or means of values, which are smaller than what they are made of */
    bool decode;
    int layer, width;
    struct verify_row *row; /* row[n_row]; 0: it is a part of a later one here, or nobody ran it */
    int n_row;
};

/* A text and what becomes of it: rendered by the chat template (NULL: the case is a text as it is, or there is no template), and its ids. */
struct verify_text {
    const char *name, *text;
    const int32_t *ids;
    int n_id;
};

struct verify_record {
    struct arena arena;
    uint64_t model; /* snapshot_fingerprint */
    const char *device, *isa, *version, *arch, *type;
    float bits; /* of a weight that is read for a token, on average */
    bool exact; /* by the reference */
    struct verify_text *text;
    int n_text;
    const int32_t *ids; /* ids[n_id]: the first VERIFY_PROMPT are the prompt */
    int n_id;
    struct verify_op *op; /* op[n_op], in the order of the lists: prompt rows, decode rows */
    int n_op, cap_op, at;
    enum infer_status status; /* the first failure while operations are watched */
    const struct verify_op
        *whole; /* whose row at position whole_pos is kept as it is, in x[whole->width]; NULL: none */
    int whole_pos;
    float *x;
};

/* For infer_engine_options.watch, user a record. */
void verify_watch(void *record, const struct infer_watched *w);
/* Row x[width]. */
struct verify_row verify_row_of(const float *x, int width, int pos);
/* Whether two operations are the same one. */
bool verify_same(const struct verify_op *a, const struct verify_op *b);

enum infer_status verify_write(const struct verify_record *r, const char *path);
/* errors: those of tensorfile_open; INFER_E_INPUT: no record, of another version, broken */
enum infer_status verify_read(struct verify_record *r, const char *path);
void verify_free(struct verify_record *r);
