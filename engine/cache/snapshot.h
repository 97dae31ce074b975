/* Snapshots: the tokens of a sequence with their keys and values in a file, taken back bit for bit.
 *
 * little endian, without padding:
 *     magic     8 bytes "INFERKV1"
 *     model     u64: fingerprint of the weights and the metadata
 *     place     64 bytes: device kind, instruction set and KV type, "cpu avx512-vnni f16", filled up with 0
 *     n_ids     u64
 *     page      u64: bytes of one page in all stores
 *     checksum  u64: of ids and pages
 *     ids       i32[n_ids]
 *     pages     [(n_ids + KV_PAGE - 1) / KV_PAGE][store]: K, then V, as the backend keeps them
 *
 * Keys and values are bits of one device kind, instruction set and KV type: where any of these or the model differs,
 * a snapshot is refused by name and the caller computes the tokens again. */
#pragma once
#include "seam/backend.h"
#include "cache/kv.h"
#include "files/tensorfile.h"

struct snapshot_place {
    struct backend *backend;
    const struct backend_config *config;
    const struct tensorfile *file;
    struct kv *kv;
    uint64_t *fingerprint; /* 0: not computed yet */
};

/* Writes sequence slot to path, whole or not at all, readable by the owner alone. errors: INFER_E_IO, INFER_E_WRITE,
 * INFER_E_MEMORY, INFER_E_DEVICE */
enum infer_status snapshot_save(const struct snapshot_place *p, int slot, const char *path);
/* Fills the empty sequence slot. On an error it stays empty. errors: INFER_E_UNSUPPORTED (another model, device kind,
 * instruction set or KV type: the message names both), INFER_E_INPUT (broken), INFER_E_FULL (longer than the context),
 * INFER_E_IO, INFER_E_DEVICE */
enum infer_status snapshot_load(const struct snapshot_place *p, int slot, const char *path);

/* What a snapshot holds; views into it. */
struct snapshot_view {
    uint64_t model, page_bytes;
    int n_ids;
    const char *place;          /* ended by 0 */
    const int32_t *ids;         /* ids[n_ids] */
    const unsigned char *pages; /* [n_page][page_bytes] */
};
/* data[n], aligned to 4. errors: INFER_E_INPUT (magic, sizes that do not fit each other, checksum) */
enum infer_status snapshot_parse(struct snapshot_view *out, const unsigned char *data, size_t n);
/* Puts the right checksum into data[n] that begins with a header. */
void snapshot_seal(unsigned char *data, size_t n);
