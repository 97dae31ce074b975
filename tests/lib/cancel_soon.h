/* A thread that cancels an engine's step. */
#pragma once
#include "infer.h"
#include <unistd.h>

/* user: the engine. */
static inline void *cancel_soon(void *user) {
    usleep(20000);
    infer_cancel(user);
    return NULL;
}
