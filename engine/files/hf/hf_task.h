/* Adapters of tasks that folders of Jina's embeddings have beside their matrices. */
#pragma once
#include "files/hf/hf_packed.h"

struct hf_tasks {
    struct hf_list *list; /* list[n_list]: the tensors of all files */
    int n_list;
    int n, task; /* how many tasks there are; the one that is added to the matrices, -1: none */
    float alpha; /* times 1 / rank of each pair */
    struct arena *arena;
    const char *path; /* for messages */
};
/* Gives the matrices their usual names, those of the adapters the name "" (nothing is computed with them), and with a task the matrices
 * what it adds, in float32. errors: INFER_E_INPUT (a half is missing or does not fit its matrix), INFER_E_MEMORY */
enum infer_status hf_tasks_take(const struct hf_tasks *s);
