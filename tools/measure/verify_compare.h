/* Two records against each other. */
#pragma once
#include "tools/measure/verify_record.h"

/* What the middle one of an operation's rows may be apart by: the root mean square of the differences in root mean squares of the row, and
 * half of it for the difference of the root mean squares themselves; a single row by `one` times as much. */
struct verify_limits {
    double apart, one;
    bool grows;      /* with the layer; and routers may choose otherwise */
    const char *why; /* in a message */
};
/* By who computed, and by the types of their weights. */
struct verify_limits verify_limits_of(const struct verify_record *a, const struct verify_record *b);

struct verify_difference {
    const struct verify_op *was, *is; /* NULL: the operation is not in the list */
    int pos;
    double apart, size, limit;
    int at; /* of the value that is shown, in the row; -1: the peaks are */
    float was_value, is_value;
    int before; /* operations that agree before it */
};
struct verify_report {
    int compared;       /* operations that both have rows of */
    double apart, size; /* the most of those that agree */
    const struct verify_op *most,
        *left; /* where that is; the first router that chose otherwise, within what its logits may differ by */
    int left_pos; /* from this row on nothing is compared behind that router */
};
/* Whether is and was compute the same; false: *d is the first operation that differs, in the order of the lists. */
bool verify_compare(const struct verify_record *was, const struct verify_record *is,
                    struct verify_limits limits, struct verify_difference *d, struct verify_report *report);
/* The first text of both that becomes something else: a message in line[n]. */
bool verify_texts(const struct infer_model *m, const struct verify_record *was,
                  const struct verify_record *is, char *line, size_t n);
