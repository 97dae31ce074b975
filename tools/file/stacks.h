/* The tensors of a file as GGUF lists them today: experts in stacks, a table in one tensor, gates and what they multiply in stacks of their own. */
#pragma once
#include "files/tensorfile.h"

/* One tensor to write: its name, type and shape in t, its data n_part pieces of part_bytes, one after the other. */
struct listed {
    char name[80];
    struct tensor t; /* data and offset: of the first piece */
    int64_t n_part;
    size_t part_bytes;
    const void **part; /* [n_part] */
};

/* list[*n], in the order of the file; free with stacks_free. blk.N.ffn_up.E.weight of all experts E becomes blk.N.ffn_up_exps.weight;
 * blk.N.ffn_gate_up_exps.weight without a bias becomes ffn_gate_exps and ffn_up_exps. errors: INFER_E_MEMORY */
enum infer_status stacks_list(const struct tensorfile *f, struct listed **list, size_t *n);
void stacks_free(struct listed *list, size_t n);
