// What the programs of decode and of prompt rows have in common: links one after the other, and the jobs of each.
#pragma once
#include "base/mem.h"
#include "cuda/plan/links.h"
#include "cuda/run/cuda_impl.h"

struct program_link {
    struct cuda_link is;
    const char *name;
    bool out_rows; // works on the rows that want an output
    bool from_rows,
        to_rows; // a matmul behind an edge of rows makes its input of them first; in front of one, rows of its result
    front_job front;               // of .before, done to the input on its way
    alignas(16) uint8_t own[2048]; // the jobs of what is no matmul
};
template <class T> static T *own(program_link *d) {
    static_assert(sizeof(T) <= sizeof d->own, "room for a link's jobs");
    return (T *)d->own;
}
template <class T> static const T *own(const program_link *d) { return own<T>((program_link *)d); }
// Rows of the step that a link works on.
static inline const int *row_count(const cuda_backend *b, bool out_rows) {
    return out_rows ? &b->t.step->n_out : &b->t.step->n_row;
}

// An empty program P for a list, with room for its links, and for what links_make leaves; program_free in any case.
template <class P>
static enum infer_status program_new(P **p, struct cuda_link **found, const struct op_list *l) {
    const size_t n = (size_t)l->n_op;
    *found = NULL;
    TRY(mem_new(p, sizeof **p, "a program"));
    TRY(mem_new(&(*p)->link, n * sizeof *(*p)->link, "a program"));
    return mem_new(found, n * sizeof **found, "a program");
}
template <class P> static void program_free(P *p) {
    if (p) mem_free(p->link);
    mem_free(p);
}
// The links of a case become those of a program; how many have a matmul.
template <class P> static int program_links(P *p, const struct link_case &c, struct cuda_link *found) {
    const struct op_list *l = c.list;
    int n = 0;
    p->n_link = links_make(&c, found);
    for (int i = 0; i < p->n_link; i++) {
        const struct view out = link_writes(l, &found[i]);
        memset(&p->link[i], 0, sizeof p->link[i]);
        p->link[i].is = found[i];
        p->link[i].name = link_name(l, &found[i]);
        p->link[i].out_rows = found[i].product != PRODUCT_CHOSEN && out.buf >= 0 && cuda_out_rows(l, out);
        n += found[i].matmul >= 0;
    }
    return n;
}
