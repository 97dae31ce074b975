/* Pages and states in files, so that another process finds them, or this one when it starts again.
 *
 * A folder holds an item a file, named by what it was computed with and by the prefix that it ends (prefix.h; the secret of its keys is in
 * the folder). little endian, without padding:
 *     magic     8 bytes "INFERPG1"
 *     identity  u64[2]: of the model, the device's kind, the types of the cache, the program
 *     key       u64[2]: of the prefix up to the item's end
 *     before    u64[2]: of the prefix before its ids
 *     part      u32: group of pages, or DISK_ALL_STATES
 *     n_ids     u32
 *     n         u64: bytes of the item
 *     checksum  u64: of all the other bytes
 *     ids       i32[n_ids]
 *     item      [n]
 * What is not, byte for byte, the file that would be written for this name, ids and length is not there: a damaged file goes away.
 *
 * Files are written by a thread of their own, whole or not at all, and the least recently used ones go where the bytes in the folder
 * would pass a bound. Processes share the folder: a file takes its name by rename, and the bytes are counted under flock, which ends with
 * the process that holds it. */
#pragma once
#include "base/status.h"
#include "cache/prefix.h"
#include <stddef.h>

enum { DISK_ALL_STATES = 255 }; /* as a part: all state stores of a sequence */
enum { DISK_HEAD = 80 };        /* bytes in front of the ids */

struct disk_identity {
    uint64_t a, b;
};
struct disk_item {
    struct prefix_key key, before;
    int part;
    const int32_t *ids; /* ids[n_ids] */
    int n_ids;
};
struct disk_figures {
    uint64_t bytes, most; /* in the folder when it was last counted; the bound */
    uint64_t n_read, n_written, n_damaged,
        n_gone;        /* items: read, written, found damaged, removed for others */
    uint64_t n_failed; /* that could not be written */
};

struct disk;
/* Takes a folder, which is made where there is none (its parent is there), for the owner alone. errors: INFER_E_IO (no folder, no permission),
 * INFER_E_WRITE, INFER_E_INPUT (it holds a secret that is none), INFER_E_MEMORY */
enum infer_status disk_open(struct disk **out, const char *folder, uint64_t most,
                            struct disk_identity identity);
/* What was handed over is written before, within `seconds`. */
void disk_close(struct disk *d, double seconds);
/* Of the keys that name its items. */
struct prefix_secret disk_secret(const struct disk *d);

bool disk_has(const struct disk *d, struct prefix_key key, int part);
/* The item's n bytes; false: it is not there. By any thread. */
bool disk_get(struct disk *d, const struct disk_item *item, void *bytes, size_t n);
/* Room for an item of n bytes behind ids; NULL: too much waits to be written, there is no memory, or the disk was full a moment ago. */
struct disk_write;
struct disk_write *disk_begin(struct disk *d, const struct disk_item *item, size_t n);
void *disk_bytes(struct disk_write *w); /* [n], to be filled */
void disk_put(struct disk *d, struct disk_write *w);
void disk_drop(struct disk *d, struct disk_write *w); /* instead */
/* They are in use: key[n] of the pages of a prefix. */
void disk_use(struct disk *d, const struct prefix_key *key, int n, int n_part);
/* Whether disk_begin would refuse n bytes, those of ids among them: since much waits to be written, or since it could not be a moment ago. */
enum disk_state { DISK_READY, DISK_BUSY, DISK_FAILED };
enum disk_state disk_state(struct disk *d, size_t n);
void disk_remove(struct disk *d, struct prefix_key key, int part);
void disk_figures(struct disk *d, struct disk_figures *out);
