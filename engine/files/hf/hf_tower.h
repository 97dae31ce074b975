/* What a folder has for images, under the names of GGUF's clip. Private to this room. */
#pragma once
#include "files/hf/hf.h"

/* Keys from config.json, text[n], and from what tells the processor's numbers, more[n_more] (preprocessor_config.json), n_more 0: none;
 * then what each tensor becomes.
 * errors: INFER_E_INPUT and INFER_E_UNSUPPORTED name path and key */
struct hf_tower {
    const struct tower_kind *kind;
    struct arena *arena;
    const char *path;
    bool for_gguf;
    int n_embd, n_head, patch, pool, deepstack[16], n_deepstack;
    long long break_id; /* the token behind a line of rows whose embedding goes into the file; -1: none */
};
enum infer_status hf_tower_keys(struct hf_tower *out, struct hf_keys *keys, const char *path,
                                const char *text, size_t n, const char *more, size_t n_more,
                                const struct tensorfile_options *options);
/* out[*n_out] (TOWER_PARTS at most) of a tensor of the folder, with names in the arena; *n_out 0: it is not of the tower. errors: as above, and
 * INFER_E_MEMORY */
enum { TOWER_PARTS = 3 };
enum infer_status hf_tower_tensor(const struct hf_tower *h, const struct tensor *from,
                                  struct tensor out[TOWER_PARTS], int *n_out);
