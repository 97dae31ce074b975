/* What programs of this folder share. */
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include "base/status.h"

/* A call without which there is nothing to measure. */
#define MUST(call)                                                                                           \
    do {                                                                                                     \
        if ((call) != INFER_OK) {                                                                            \
            printf("%s: %s\n", #call, err_message());                                                        \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)
