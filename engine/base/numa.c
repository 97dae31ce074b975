#define _GNU_SOURCE /* sched_setaffinity */
#include "base/numa.h"
#include <dlfcn.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- sets ---- */

enum { WORD = 8 * sizeof(long) };
static bool has(const struct topology_set *s, int i) {
    return i >= 0 && i < TOPOLOGY_CPUS && s->word[i / WORD] >> i % WORD & 1;
}
static void add(struct topology_set *s, int i) { s->word[i / WORD] |= 1ul << i % WORD; }
static int first_of(const struct topology_set *s) {
    for (int i = 0; i < TOPOLOGY_CPUS; i++)
        if (has(s, i)) return i;
    return -1;
}

/* ---- lists of numbers as the kernel writes them: "0-3,8,10-11" ---- */

static bool read_list(const char *path, struct topology_set *set) {
    char line[4096], *p = line;
    FILE *f = fopen(path, "re");
    *set = (struct topology_set){0};
    if (!f) return false;
    bool ok = fgets(line, sizeof line, f) != NULL;
    fclose(f);
    while (ok && *p >= '0' && *p <= '9') {
        long a = strtol(p, &p, 10), b = *p == '-' ? strtol(p + 1, &p, 10) : a;
        for (long i = a; i <= b && i < TOPOLOGY_CPUS; i++) add(set, (int)i);
        if (*p == ',') p++;
    }
    return ok;
}

/* ---- order and counts ---- */

static int compare(const void *a, const void *b) {
    const struct topology_cpu *x = a, *y = b;
    if (x->node != y->node) return x->node - y->node;
    return x->core != y->core ? x->core - y->core : x->cpu - y->cpu;
}

static void finish(struct topology *t) {
    qsort(t->at, (size_t)t->n, sizeof *t->at, compare);
    t->n_core = t->n_node = 0;
    for (int i = 0; i < t->n; i++) {
        t->n_node += !i || t->at[i].node != t->at[i - 1].node;
        t->n_core += !i || t->at[i].node != t->at[i - 1].node || t->at[i].core != t->at[i - 1].core;
    }
}

/* ---- /sys ---- */

void topology_read_sys(struct topology *t, const char *root, const struct topology_set *allowed) {
    static const int none = -1;
    int node_of[TOPOLOGY_CPUS];
    char path[512];
    struct topology_set nodes, set;
    *t = (struct topology){.here = true, .source = "/sys"};
    for (int i = 0; i < TOPOLOGY_CPUS; i++) node_of[i] = none;
    snprintf(path, sizeof path, "%s/node/online", root);
    if (!read_list(path, &nodes)) add(&nodes, 0); /* a kernel without nodes */
    for (int node = 0; node < TOPOLOGY_CPUS; node++) {
        if (!has(&nodes, node)) continue;
        snprintf(path, sizeof path, "%s/node/node%d/cpulist", root, node);
        if (!read_list(path, &set)) continue;
        for (int i = 0; i < TOPOLOGY_CPUS; i++)
            if (has(&set, i)) node_of[i] = node;
    }
    snprintf(path, sizeof path, "%s/cpu/online", root);
    if (!read_list(path, &nodes)) nodes = allowed ? *allowed : nodes;
    for (int i = 0; i < TOPOLOGY_CPUS; i++) {
        if (!has(&nodes, i) || (allowed && !has(allowed, i))) continue;
        snprintf(path, sizeof path, "%s/cpu/cpu%d/topology/thread_siblings_list", root, i);
        int core = read_list(path, &set) ? first_of(&set) : i;
        t->at[t->n++] = (struct topology_cpu){i, core < 0 ? i : core, node_of[i] < 0 ? 0 : node_of[i]};
    }
    finish(t);
}

/* ---- hwloc, whose interface 2 has been the same since 2018 ---- */

struct hwloc_object { /* the beginning of its struct hwloc_obj */
    int type;
    char *subtype;
    unsigned os_index;
    char *name;
    uint64_t total_memory;
    void *attributes;
    int depth;
    unsigned logical_index;
    struct hwloc_object *next_cousin, *prev_cousin, *parent;
    unsigned sibling_rank;
    struct hwloc_object *next_sibling, *prev_sibling;
    unsigned arity;
    struct hwloc_object **children, *first_child, *last_child;
    int symmetric;
    unsigned memory_arity;
    struct hwloc_object *memory_first;
    unsigned io_arity;
    struct hwloc_object *io_first;
    unsigned misc_arity;
    struct hwloc_object *misc_first;
    void *cpuset, *complete_cpuset, *nodeset;
};
enum { HWLOC_CORE = 2, HWLOC_PU = 3 };

struct hwloc {
    void *library, *topology;
    unsigned (*version)(void);
    int (*init)(void **), (*load)(void *), (*depth)(void *, int), (*is_here)(void *), (*first)(void *);
    unsigned (*count)(void *, int);
    struct hwloc_object *(*object)(void *, int, unsigned);
    void (*destroy)(void *);
};

static bool hwloc_open(struct hwloc *h) {
    static const char *const names[] = {
        "hwloc_get_api_version",     "hwloc_topology_init",          "hwloc_topology_load",
        "hwloc_get_type_depth",      "hwloc_topology_is_thissystem", "hwloc_bitmap_first",
        "hwloc_get_nbobjs_by_depth", "hwloc_get_obj_by_depth",       "hwloc_topology_destroy"};
    void *slots[] = {&h->version, &h->init,  &h->load,   &h->depth,  &h->is_here,
                     &h->first,   &h->count, &h->object, &h->destroy};
    h->library = dlopen("libhwloc.so.15", RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *f = h->library ? dlsym(h->library, names[i]) : NULL;
        if (!f) return false;
        memcpy(slots[i], &f, sizeof f);
    }
    if (h->version() >> 16 != 2 || h->init(&h->topology) != 0) return false;
    if (h->load(h->topology) == 0) return true;
    h->destroy(h->topology);
    return false;
}

static bool read_hwloc(struct topology *t, const struct topology_set *allowed) {
    struct hwloc h = {0};
    if (!hwloc_open(&h)) {
        if (h.library) dlclose(h.library);
        return false;
    }
    *t = (struct topology){.here = h.is_here(h.topology) == 1, .source = "hwloc"};
    int depth = h.depth(h.topology, HWLOC_PU);
    for (unsigned i = 0; i < h.count(h.topology, depth) && t->n < TOPOLOGY_CPUS; i++) {
        const struct hwloc_object *pu = h.object(h.topology, depth, i), *core = pu;
        if (t->here && !has(allowed, (int)pu->os_index)) continue;
        while (core->parent && core->type != HWLOC_CORE) core = core->parent;
        int node = pu->nodeset ? h.first(pu->nodeset) : 0;
        t->at[t->n++] = (struct topology_cpu){(int)pu->os_index,
                                              (int)(core->type == HWLOC_CORE ? core : pu)->logical_index,
                                              node < 0 ? 0 : node};
    }
    h.destroy(h.topology);
    dlclose(h.library);
    finish(t);
    return t->n > 0;
}

/* ---- this machine ---- */

static const char *const root = "/sys/devices/system";

static const struct topology *pretended;
void topology_pretend(const struct topology *t) { pretended = t; }

void topology_read(struct topology *t) {
    if (pretended) {
        *t = *pretended;
        return;
    }
    struct topology_set allowed = {0};
    if (sched_getaffinity(0, sizeof allowed, (cpu_set_t *)&allowed) != 0) add(&allowed, 0);
    topology_read_sys(t, root, &allowed);
    if (t->n_node < 2 && !getenv("HWLOC_SYNTHETIC") && !getenv("HWLOC_XMLFILE"))
        return; /* loading it takes ms */
    if (!read_hwloc(t, &allowed)) topology_read_sys(t, root, &allowed);
}

void topology_place(const struct topology *t, int n, struct topology_cpu *place) {
    struct topology_cpu slot[TOPOLOGY_CPUS] = {{0, 0, 0}};
    int n_slot = 0;
    for (int i = 0; i < t->n; i++) { /* cores, or hardware threads when there are more threads than cores */
        bool again = i && t->at[i].node == t->at[i - 1].node && t->at[i].core == t->at[i - 1].core;
        if (n > t->n_core || !again) slot[n_slot++] = t->at[i];
    }
    if (!n_slot) n_slot = 1;
    for (int i = 0; i < n; i++) place[i] = slot[(size_t)i * (size_t)n_slot / (size_t)n];
}

void topology_node(const struct topology *t, int node, struct topology_set *set) {
    *set = (struct topology_set){0};
    for (int i = 0; i < t->n; i++)
        if (t->at[i].node == node) add(set, t->at[i].cpu);
}

bool topology_bind(const struct topology_set *set, struct topology_set *old) {
    if (old && sched_getaffinity(0, sizeof *old, (cpu_set_t *)old) != 0) return false;
    return sched_setaffinity(0, sizeof *set, (const cpu_set_t *)set) == 0;
}

void topology_interleave(void *p, size_t n) {
    struct topology_set nodes;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), a = ((uintptr_t)p + page - 1) / page * page,
              b = ((uintptr_t)p + n) / page * page;
    int n_node = 0;
    if (!read_list("/sys/devices/system/node/has_memory", &nodes) || a >= b) return;
    for (int i = 0; i < TOPOLOGY_CPUS; i++) n_node += has(&nodes, i);
    if (n_node < 2) return;
    /* refused in some containers: the pages then come from the node of whoever reads the file in */
    (void)syscall(SYS_mbind, a, b - a, MPOL_INTERLEAVE, nodes.word, (unsigned long)TOPOLOGY_CPUS, 0);
}
