/* Snapshots: the tokens of a sequence with their keys and values in a file, taken back bit for bit.
 *
 * little endian, without padding:
 *     magic     8 bytes "INFERKV4"
 *     model     u64: fingerprint of the weights and the metadata, with adapters times an odd number plus theirs
 *     place     64 bytes: device kind, instruction set and KV type, "cpu avx512-vnni f16", filled up with 0
 *     n_ids     u64
 *     n_group   u64
 *     n_state   u64: bytes of one sequence in all state stores
 *     n_shift   u64: n_ids where rows of pictures are among them, else 0
 *     checksum  u64: of all that follows
 *     groups    u64[n_group][2]: first page that is there (a window needs none before), bytes of one page in all stores of the group
 *     ids       i32[n_ids]; below -1: of a row that is no token, by its content
 *     names     u64[2], with shifts: what rows that are no tokens are named under (struct kv: names)
 *     shifts    i32[n_shift]: struct kv_seq
 *     pages     [group][first .. (n_ids + KV_PAGE - 1) / KV_PAGE - 1][store]: K, then V, as the backend keeps them
 *     states    float32 [store][n_elem]
 *     how       u8[n_ids]: how each was computed, enum kv_how bits
 *
 * Keys and values are bits of one device kind, instruction set and KV type: where any of these or the model differs,
 * a snapshot is refused by name and the caller computes the tokens again. With rows of pictures the names go over as well: the same rows
 * are known again, those of another picture are not. */
#pragma once
#include "seam/backend.h"
#include "cache/kv.h"
#include "files/tensorfile.h"

/* All metadata but lists of strings, and of every tensor its name, type, shape and first 4 KiB: another model, another quantisation of it
 * and another training of the same shapes differ there. Never 0. */
uint64_t snapshot_fingerprint(const struct tensorfile *f);

struct snapshot_place {
    struct backend *backend;
    const struct backend_config *config;
    const struct tensorfile *file;
    struct kv *kv;
    uint64_t *fingerprint; /* 0: not computed yet */
    uint64_t adapter;      /* of the sequence: struct kv_find */
};

/* Writes sequence slot to path, whole or not at all, readable by the owner alone. errors: INFER_E_IO, INFER_E_WRITE,
 * INFER_E_MEMORY, INFER_E_DEVICE */
enum infer_status snapshot_save(const struct snapshot_place *p, int slot, const char *path);
/* Fills the empty sequence slot. On an error it stays empty. errors: INFER_E_UNSUPPORTED (another model, device kind,
 * instruction set or KV type: the message names both; rows of pictures while other sequences hold some under other names), INFER_E_INPUT (broken), INFER_E_FULL (longer than the context),
 * INFER_E_IO, INFER_E_DEVICE */
enum infer_status snapshot_load(const struct snapshot_place *p, int slot, const char *path);

/* What a snapshot holds; views into it. */
struct snapshot_view {
    uint64_t model, state_bytes;
    int n_ids, n_group;
    struct snapshot_group {
        uint64_t first, page_bytes;
    } group[KV_GROUPS];
    const char *place;    /* ended by 0 */
    const int32_t *ids;   /* ids[n_ids] */
    const int32_t *shift; /* shift[n_ids]; NULL: all 0, and all ids are tokens */
    struct prefix_secret names;
    const unsigned char *pages; /* of all groups, the states behind them */
    const uint8_t *how;         /* how[n_ids] */
};
/* data[n], aligned to 8. errors: INFER_E_INPUT (magic, sizes that do not fit each other, checksum), INFER_E_UNSUPPORTED (of an
 * older version) */
enum infer_status snapshot_parse(struct snapshot_view *out, const unsigned char *data, size_t n);
/* Puts the right checksum into data[n] that begins with a header. */
void snapshot_seal(unsigned char *data, size_t n);
