/* A picture on its way into a prompt: what stands around it there, and its rows once they are computed. */
#pragma once
#include <stdatomic.h>
#include "infer_request.h"
#include "text/chat_template.h"

/* Rows that follow each other, with the text in front of them. */
struct picture_part {
    char text[96];
    int first_row, n_row, advance;
    int32_t (*axis)[3]; /* axis[n_row][3], from (0, 0, 0); NULL: as tokens */
};
struct infer_picture {
    atomic_int refs;
    /* As the tower's: what a template writes in its place, and what stands around that where it writes nothing. */
    const char *placeholder, *before, *after;
    struct picture_part *part; /* part[n_part] */
    int n_part, width;
    bool both_ways;                /* its rows see each other */
    const float *rows;             /* rows[..][width] of all parts; NULL: not computed yet */
    struct picture_source *source; /* of picture.c; NULL: there is nothing to compute them from */
};

/* prompt_picture.c: the pictures that the parts of messages name, in their order: order[n]. errors: INFER_E_INPUT (none of t's),
 * INFER_E_MEMORY */
enum infer_status pictures_of(const json_t *messages, const struct infer_prompt_template *t,
                              struct infer_picture ***order, int *n);
/* A copy in which the parts of a message are one text with a mark for each picture; NULL: no memory. */
json_t *pictures_flat(const json_t *messages);
/* In a text rendered of that, tokens of the tower around each mark. */
enum infer_status pictures_mark(struct chat_text *text, const struct infer_picture *p);
/* In p->ids, rows for each of the tokens that a template writes for a picture, which have to be n; *found: so many there are, and where
 * that is another number nothing else is done. errors: INFER_E_UNSUPPORTED (no such token), INFER_E_MEMORY */
enum infer_status pictures_into(struct infer_prompt *p, const struct infer_model *m,
                                struct infer_picture *const *order, int n, int *found);
