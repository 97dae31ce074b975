/* Copies of weights for decode matmuls in huge pages; of quantised ones in the order in which their kernels read
 * (gemm_int8.h), without transposes, as one stream a thread. The file's map stays what prompts and embeddings read.
 *
 * Nothing is copied before a decode step reads it, nor in the first .repack_after steps, and all of it within four steps. Copies are made only where they take a third at most of the memory
 * that can be taken: the file's own pages may then stay in the page cache. */
#include <sys/mman.h>
#include "cpu/cpu_list.h"
#include "base/host.h"
#include "seam/weight.h"

enum { SHARE = 3 };
static const size_t huge_page = (size_t)2 << 20;

struct size {
    size_t head, data; /* bytes of entries and marks; of weights */
};

static size_t unit_bytes(const struct weight *w, int unit_rows) {
    return cpu_copy_bytes(w->type, weight_stride(w), unit_rows, w->k);
}
static size_t units_of(const struct weight *w, int unit_rows) {
    return (size_t)((w->n + unit_rows - 1) / unit_rows) * (size_t)w->n_stack;
}

/* Units lie in the order in which a thread reads them, without gaps, for the processor asks ahead only along a stream that has none:
 * of a folded glu the gate's and the up's of the same rows beside each other. */
size_t cpu_copies_place(const struct weight_group *g, int unit_rows, bool paired, struct cpu_copy *copy,
                        uint8_t *data) {
    size_t pair = 0, at = 0, all = 0;
    for (int m = 0; paired && m < g->n_member; m++) pair += unit_bytes(&g->member[m], unit_rows);
    for (int m = 0; m < g->n_member; m++) {
        const size_t unit = unit_bytes(&g->member[m], unit_rows), units = units_of(&g->member[m], unit_rows);
        if (copy) copy[m].data = data + at, copy[m].step = paired ? pair : unit;
        at += paired ? unit : unit * units;
        all += unit * units;
    }
    return all;
}
/* Adds the members of a matmul or of experts; base: where they are, with the weights of all from base + data_at, NULL: only counted. */
static struct cpu_copy *add_copy(struct size *n, const struct weight_group *g, int unit_rows, bool paired,
                                 uint8_t *base, size_t data_at) {
    struct cpu_copy *copy = base ? (struct cpu_copy *)(void *)(base + n->head) : NULL;
    n->head += (size_t)g->n_member * sizeof *copy;
    for (int m = 0; m < g->n_member; m++) {
        if (copy) copy[m].made = base + n->head;
        n->head += (units_of(&g->member[m], unit_rows) + 7) / 8 * 8;
    }
    n->data += cpu_copies_place(g, unit_rows, paired, copy, base ? base + data_at + n->data : NULL);
    return copy;
}

static size_t whole_pages(size_t n) { return (n + huge_page - 1) / huge_page * huge_page; }

static struct size count(const struct backend_config *c, int n_thread) {
    const struct op_list *l = c->list[ROW_DECODE];
    struct size n = {0, 0};
    for (int i = 0; l && i < l->n_op; i++) {
        const struct weight_group *g = op_uses(&l->op[i]).group;
        if (g) add_copy(&n, g, cpu_decode_unit_rows(n_thread, g), false, NULL, 0);
    }
    return n;
}

size_t cpu_repack_bytes(const struct backend_config *c, int n_thread) {
    struct size n = count(c, n_thread);
    size_t bytes = whole_pages(n.head) + whole_pages(n.data);
    return n.data && !c->cpu.no_repack && bytes <= host_memory_available() / SHARE ? bytes : 0;
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
        const struct weight_group *g = op_uses(o->op).group;
        if (g) o->copy = add_copy(&n, g, o->unit_rows, o->epilogue == CPU_EPI_GLU, base, head);
    }
}

/* Making all copies in one step would hold up an answer's second token: by 0.14 to 0.5 s for 0.8 GB on 2 threads, most
 * of it the kernel's clearing of pages. So a step makes those of every fourth huge page. Of experts a step reads few: with a fourth of
 * these one of 128 would have its copies after some hundred tokens alone. */
static bool copied_now(const struct cpu *c, const uint8_t *to) {
    enum { HUGE_PAGE_BITS = 21 };
    return ((uintptr_t)to >> HUGE_PAGE_BITS) % CPU_REPACK_STEPS == c->n_decode % CPU_REPACK_STEPS;
}
struct cpu_copied cpu_copied(const struct cpu *c, const struct cpu_copy *copy, int unit, bool at_once) {
    if (!copy || c->n_decode < (unsigned)c->config.cpu.repack_after) return (struct cpu_copied){0};
    uint8_t *to = copy->data + copy->step * (size_t)unit, *mark = &copy->made[unit];
    if (!*mark && !at_once && !copied_now(c, to)) return (struct cpu_copied){0};
    return (struct cpu_copied){to, mark, *mark};
}

void cpu_repack_close(struct cpu *c) {
    if (c->copies) munmap(c->copies, c->copies_bytes);
    c->copies = NULL;
}
