/* The hardware threads that this process may use, their cores and NUMA nodes, and which thread of a team goes where.
 *
 * Known from hwloc (libhwloc.so.15, opened at run time) where it is installed and there is more than one node, or its
 * environment asks for another machine (HWLOC_SYNTHETIC, HWLOC_XMLFILE); else from /sys. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

enum { TOPOLOGY_CPUS = 1024 };
struct topology_set { /* of hardware threads: the kernel's mask */
    unsigned long word[TOPOLOGY_CPUS / (8 * sizeof(long))];
};

struct topology_cpu {
    int cpu, core, node; /* numbers of the system; core: its lowest hardware thread, or hwloc's number */
};
struct topology {
    struct topology_cpu at[TOPOLOGY_CPUS]; /* at[n], by node, then core, then cpu */
    int n, n_core, n_node;
    bool here;          /* this machine, so that threads can be bound */
    const char *source; /* "hwloc", "/sys" */
};

/* What this process may use: hwloc or /sys, less what the affinity mask leaves out. */
void topology_read(struct topology *t);
/* The same from a folder like /sys/devices/system; allowed NULL: every hardware thread. */
void topology_read_sys(struct topology *t, const char *root, const struct topology_set *allowed);

/* place[i]: where thread i of n goes. Cores are taken evenly over the nodes, so that the bandwidth of all of them is
 * used, neighbouring threads on one node; hardware threads of one core only when there are more threads than cores. */
void topology_place(const struct topology *t, int n, struct topology_cpu *place);
/* All hardware threads of one node. */
void topology_node(const struct topology *t, int node, struct topology_set *set);
/* Binds the calling thread. old: the mask that it had, NULL: not wanted; false: nothing was changed. */
bool topology_bind(const struct topology_set *set, struct topology_set *old);

/* From now on topology_read says t, for tests on machines of one node; NULL: what it finds. */
void topology_pretend(const struct topology *t);

/* Pages of p[n] that are touched from now on come from all nodes in turn; nothing where there is one node. */
void topology_interleave(void *p, size_t n);
