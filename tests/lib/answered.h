/* What a request answers. */
#pragma once
#include <stdint.h>

enum { MOST_ANSWERED = 256 };
struct answered {
    int n;
    int32_t id[MOST_ANSWERED];
};

/* on_token of a request whose user is a struct answered. */
static inline void add_id(void *user, int32_t id) {
    struct answered *a = user;
    if (a->n < MOST_ANSWERED) a->id[a->n++] = id;
}
