/* Copies of weights for decode matmuls in huge pages; of quantised ones in the order in which their kernels read
 * (gemm_int8.h), without transposes, as one stream a thread. The file's map stays what prompts and embeddings read.
 *
 * Nothing is copied before a decode step reads it, and all of it within four steps. Copies are made only where they take a third at most of the memory
 * that can be taken: the file's own pages may then stay in the page cache. */
#include <sys/mman.h>
#include "cpu/cpu_list.h"
#include "base/host.h"

enum { SHARE = 3 };
static const size_t huge_page = (size_t)2 << 20;

struct size {
    size_t head, data; /* bytes of entries and marks; of weights */
};

/* Adds a matmul's members; base: where they are, with the weights of all from base + data_at, NULL: only counted. */
static struct cpu_copy *add(struct size *n, const struct weight_group *g, int unit_rows, uint8_t *base,
                            size_t data_at) {
    struct cpu_copy *copy = base ? (struct cpu_copy *)(void *)(base + n->head) : NULL;
    n->head += (size_t)g->n_member * sizeof *copy;
    for (int m = 0; m < g->n_member; m++) {
        const struct weight *w = &g->member[m];
        size_t stride = quant_row_bytes(quant_info(w->type), (size_t)w->k);
        size_t unit = cpu_copy_bytes(stride, unit_rows, w->k);
        size_t units = (size_t)((w->n + unit_rows - 1) / unit_rows);
        if (base) copy[m] = (struct cpu_copy){base + data_at + n->data, unit, base + n->head};
        n->head += (units + 7) / 8 * 8;
        n->data += unit * units;
    }
    return copy;
}

static size_t whole_pages(size_t n) { return (n + huge_page - 1) / huge_page * huge_page; }

static struct size count(const struct backend_config *c, int n_thread) {
    const struct op_list *l = c->list[ROW_DECODE];
    struct size n = {0, 0};
    for (int i = 0; l && i < l->n_op; i++) {
        const struct weight_group *g = op_uses(&l->op[i]).group;
        if (g) add(&n, g, cpu_decode_unit_rows(n_thread, g), NULL, 0);
    }
    return n;
}

size_t cpu_repack_bytes(const struct backend_config *c, int n_thread) {
    struct size n = count(c, n_thread);
    size_t bytes = whole_pages(n.head) + whole_pages(n.data);
    return n.data && !c->no_repack && bytes <= host_memory_available() / SHARE ? bytes : 0;
}

void cpu_repack_open(struct cpu *c, struct cpu_list *l) {
    struct size all = count(&c->config, c->n_thread);
    size_t head = whole_pages(all.head), bytes = head + whole_pages(all.data), mapped = bytes + huge_page;
    if (!c->config.copy_bytes || bytes > c->config.copy_bytes)
        return; /* more: there were other threads then */
    uint8_t *p =
        mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return; /* the file does as well */
    c->copies = p, c->copies_bytes = mapped;
    uint8_t *base = p + (huge_page - (uintptr_t)p % huge_page) % huge_page;
    madvise(base + head, bytes - head, MADV_HUGEPAGE);
    struct size n = {0, 0};
    for (int i = 0; i < l->n_op; i++) {
        struct cpu_op *o = &l->op[i];
        if (o->fn == cpu_op_matmul_decode) o->copy = add(&n, o->op->matmul.w, o->unit_rows, base, head);
    }
}

void cpu_repack_close(struct cpu *c) {
    if (c->copies) munmap(c->copies, c->copies_bytes);
    c->copies = NULL;
}
