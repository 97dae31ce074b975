/* What this machine gives the process: processors and memory, within what its control groups leave. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct host_cores {
    int physical; /* cores with at least one allowed hardware thread */
    int logical;  /* hardware threads in the affinity mask */
    int quota;    /* whole processors of the cgroup's limit, rounded up; 0: none */
};
/* Counts from the affinity mask, /sys/devices/system/cpu and the cgroup (v1 and v2). */
struct host_cores host_cores_count(void);
/* wanted 0: physical cores within the cgroup's limit. More than the limit or the mask allows is cut, and a
 * warning says so. */
int host_threads_pick(int wanted);
/* From now on as if n hardware threads were allowed, for tests of results that must not depend on their number; 0: as it
 * is. */
void host_threads_pretend(int n);

/* Copies by several threads where that is worth it: bytes; and n rows, from[i] to to + at[i] * bytes, those that are not NULL. */
void host_copy(void *to, const void *from, size_t bytes);
void host_copy_rows(void *to, const int32_t *at, const void *const *from, int n, size_t bytes);
/* As many threads as that takes. */
int host_copy_threads(void);

/* Bytes of host memory that can be taken: what the kernel calls available, and what the control groups leave: the one at
 * the root (a container's own) and this process's, of version 2 and 1. */
size_t host_memory_available(void);
/* Seconds that only go up, from any beginning. */
double host_seconds(void);
/* What this machine is called since it started, as no other one is. */
void host_boot_id(char out[40]);

#ifdef __cplusplus
}
#endif
