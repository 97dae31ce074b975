/* What ranks on cards need in a card's memory, and how their operations of a step are counted. Plain C. */
#pragma once
#include "seam/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CARDS_MAX = 16, /* ranks that are cards */
    GATHER_BLOCKS =
        128, /* of the kernel that sends logits, whose blocks speak with those of their number, at most */
    RANK_FEW_ROWS =
        8, /* of decode, that go number by number with a tag each; more go whole, with a flag a block */
    BULK_BLOCKS = 512
};

/* The last `bytes` of the workspace, a multiple of 4096. They begin with what ranks leave for others to read, mail_bytes for an
 * operation; behind that lie slots, which others write: of few decode rows n_rank times slot_n numbers of 8 bytes, of many n_rank times
 * bulk_n of 4; then the flags of GATHER_BLOCKS blocks of each rank. Of all two, by turns: of flags those to begin and to end. Last flags of
 * each rank that say how far it is: one, and BULK_BLOCKS of blocks. */
struct rank_plan {
    size_t mail_bytes, slots, bulk, flags, meets, bulk_flags, bytes;
    size_t slot_n, bulk_n; /* bulk_n 0: there are never many */
};
/* errors: INFER_E_UNSUPPORTED: more than CARDS_MAX ranks. All 0 where there are none. */
enum infer_status rank_plan_of(struct rank_plan *out, const struct backend_config *c);
/* Operations in front of l->op[at] in which ranks speak; at = n_op: all of a step. */
int rank_ops_before(const struct op_list *l, int at);

#ifdef __cplusplus
}
#endif
