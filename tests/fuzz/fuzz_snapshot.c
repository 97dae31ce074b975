/* Any bytes as a snapshot: what is accepted can be read to its end. The checksum is made right first, or nothing would get
 * past it. */
#include "cache/snapshot.h"

#include <stdlib.h>
#include <string.h>

static volatile uint64_t sink; /* keeps the reads */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct snapshot_view v;
    unsigned char *copy = malloc(size + (size == 0)); /* exact, so that a read past the end is seen */
    memcpy(copy, data, size);
    snapshot_seal(copy, size);
    if (snapshot_parse(&v, copy, size) == INFER_OK) {
        if (v.place[strlen(v.place)] || v.n_ids < 0) __builtin_trap();
        for (int i = 0; i < v.n_ids; i++)
            sink += (uint32_t)v.ids[i] + v.how[i] + (v.shift ? (uint32_t)v.shift[i] : 0);
        for (const unsigned char *p = v.pages; p < copy + size; p++) sink += *p;
    } else if (!*err_message()) {
        __builtin_trap();
    }
    free(copy);
    return 0;
}
