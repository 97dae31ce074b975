/* Room on the host for rows that cross between a card and the host, which has the experts of some layers (op_remote). Needs no
 * device. */
#pragma once
#include "seam/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Offsets into pinned memory: the rows of the largest step, dense. */
struct host_part {
    size_t x, choice, out, bytes;
};
/* bytes 0: no list asks the host. */
struct host_part host_part_of(const struct backend_config *c);

#ifdef __cplusplus
}
#endif
