#define _GNU_SOURCE
#include "base/host.h"
#include "base/status.h"

#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- cores */

static bool read_line(const char *path, char *buf, size_t n) {
    FILE *f = fopen(path, "re");
    if (!f) return false;
    bool ok = fgets(buf, (int)n, f) != NULL;
    fclose(f);
    return ok;
}

/* Lowest hardware thread of the core that cpu is on: its siblings have the same. */
static int core_of(int cpu) {
    char path[128], line[256];
    int first;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    return read_line(path, line, sizeof line) && sscanf(line, "%d", &first) == 1 ? first : cpu;
}

/* Processors of a cgroup directory's limit, rounded up; 0: none. */
static int quota_of(const char *v2, const char *v1_quota, const char *v1_period) {
    char line[128];
    long long quota = -1, period = 0;
    if (read_line(v2, line, sizeof line)) {
        if (sscanf(line, "%lld %lld", &quota, &period) != 2) return 0; /* "max 100000" */
    } else if (read_line(v1_quota, line, sizeof line) && sscanf(line, "%lld", &quota) == 1) {
        if (!read_line(v1_period, line, sizeof line) || sscanf(line, "%lld", &period) != 1) return 0;
    }
    return quota > 0 && period > 0 ? (int)((quota + period - 1) / period) : 0;
}

/* The path on a line of /proc/self/cgroup, "number:controllers:path", when the group can limit processors: version 2,
 * which names no controllers, or version 1's "cpu". */
static char *group_path(char *line, bool *v1) {
    char *list = strchr(line, ':'), *path = list ? strchr(++list, ':') : NULL, *rest = list;
    line[strcspn(line, "\n")] = 0;
    if (!path) return NULL;
    *path++ = 0;
    *v1 = *list != 0;
    for (char *name; (name = strsep(&rest, ","));)
        if (!strcmp(name, *v1 ? "cpu" : "")) return path;
    return NULL;
}

/* The least limit of this process's own groups and their parents, and of the ones mounted at the root. */
static int cgroup_quota(void) {
    char line[512], file[3][640];
    FILE *f = fopen("/proc/self/cgroup", "re");
    int best = quota_of("/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us",
                        "/sys/fs/cgroup/cpu/cpu.cfs_period_us");
    while (f && fgets(line, sizeof line, f)) {
        bool v1;
        char *path = group_path(line, &v1);
        for (char *end = path ? path + strlen(path) : NULL; end > path; *end = 0) {
            snprintf(file[0], sizeof *file, "/sys/fs/cgroup%s/cpu.max", path);
            snprintf(file[1], sizeof *file, "/sys/fs/cgroup/cpu%s/cpu.cfs_quota_us", path);
            snprintf(file[2], sizeof *file, "/sys/fs/cgroup/cpu%s/cpu.cfs_period_us", path);
            int q = v1 ? quota_of("", file[1], file[2]) : quota_of(file[0], "", "");
            if (q && (!best || q < best)) best = q;
            while (end > path && *end != '/') end--;
        }
    }
    if (f) fclose(f);
    return best;
}

struct host_cores host_cores_count(void) {
    struct host_cores n = {0, 0, cgroup_quota()};
    cpu_set_t set, seen;
    CPU_ZERO(&seen);
    if (sched_getaffinity(0, sizeof set, &set) != 0) {
        n.physical = n.logical = 1;
        return n;
    }
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET(i, &set)) continue;
        int core = core_of(i);
        n.logical++;
        if (core >= 0 && core < CPU_SETSIZE && !CPU_ISSET(core, &seen)) {
            CPU_SET(core, &seen);
            n.physical++;
        }
    }
    if (!n.physical) n.physical = n.logical ? n.logical : 1;
    return n;
}

static int pretended;
void host_threads_pretend(int n) { pretended = n; }

int host_threads_pick(int wanted) {
    enum { MOST = 256 };
    struct host_cores n = pretended ? (struct host_cores){pretended, pretended, 0} : host_cores_count();
    int most = n.quota && n.quota < n.logical ? n.quota : n.logical;
    if (most > MOST) most = MOST;
    if (most < 1) most = 1;
    if (wanted <= 0) return n.physical < most ? n.physical : most;
    if (wanted > most) {
        static int said; /* once: sizes and open both ask */
        if (__atomic_exchange_n(&said, wanted, __ATOMIC_RELAXED) != wanted)
            log_line(LOG_WARN,
                     "%d threads asked for, %d used: the affinity mask has %d processors, the cgroup %s",
                     wanted, most, n.logical, n.quota ? "limits them further" : "does not limit them");
        return most;
    }
    return wanted;
}

/* ---- copies ---- */

enum { COPY_THREADS = 8, COPY_PIECE = 1 << 20 };
int host_copy_threads(void) {
    static int known;
    int n = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (n) return n;
    n = host_threads_pick(0) < COPY_THREADS ? host_threads_pick(0) : COPY_THREADS;
    __atomic_store_n(&known, n, __ATOMIC_RELAXED);
    return n;
}
void host_copy(void *to, const void *from, size_t bytes) {
    const int n = (int)((bytes + COPY_PIECE - 1) / COPY_PIECE), threads = n > 2 ? host_copy_threads() : 1;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int i = 0; i < n; i++) {
        const size_t at = (size_t)i * COPY_PIECE, left = bytes - at;
        memcpy((char *)to + at, (const char *)from + at, left < COPY_PIECE ? left : COPY_PIECE);
    }
}
void host_copy_rows(void *to, const int32_t *at, const void *const *from, int n, size_t bytes) {
    const int threads = (size_t)n * bytes > 2 * COPY_PIECE ? host_copy_threads() : 1;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int i = 0; i < n; i++)
        if (from[i]) memcpy((char *)to + (size_t)at[i] * bytes, from[i], bytes);
}

/* ---- memory */

/* The first number in a file, times unit; SIZE_MAX when there is none. */
static size_t read_number(const char *path, const char *key, size_t unit) {
    char line[256];
    size_t v = SIZE_MAX;
    unsigned long long n;
    FILE *f = fopen(path, "r");
    if (!f) return v;
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, key, strlen(key)) && sscanf(line + strlen(key), "%llu", &n) == 1) {
            v = (size_t)n * unit;
            break;
        }
    fclose(f);
    return v;
}

/* What the limit of one control group leaves: the directory and the names of its files. */
static size_t group_left(const char *dir, const char *max_name, const char *used_name,
                         const char *cache_key) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, max_name);
    size_t max = read_number(path, "", 1);
    snprintf(path, sizeof path, "%s/%s", dir, used_name);
    size_t used = read_number(path, "", 1);
    snprintf(path, sizeof path, "%s/memory.stat", dir);
    size_t cache = read_number(path, cache_key, 1);
    if (max == SIZE_MAX || used == SIZE_MAX) return SIZE_MAX;
    size_t busy = cache != SIZE_MAX && cache < used ? used - cache : used;
    return max > busy ? max - busy : 0;
}

size_t host_memory_available(void) {
    size_t n = read_number("/proc/meminfo", "MemAvailable:", 1024), left;
    char line[384], dir[448];
    FILE *f = fopen("/proc/self/cgroup", "re");
    for (bool root = true;; root = false) {
        if (!root && (!f || !fgets(line, sizeof line, f))) break;
        line[root ? 0 : strcspn(line, "\n")] = 0;
        const char *v1 = root ? NULL : strstr(line, ":memory:");
        if (root || !strncmp(line, "0::", 3)) {
            snprintf(dir, sizeof dir, "/sys/fs/cgroup%s", root ? "" : line + 3);
            left = group_left(dir, "memory.max", "memory.current", "inactive_file ");
            if (left < n) n = left;
        }
        if (root || v1) {
            snprintf(dir, sizeof dir, "/sys/fs/cgroup/memory%s", root ? "" : v1 + 8);
            left = group_left(dir, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file ");
            if (left < n) n = left;
        }
    }
    if (f) fclose(f);
    return n;
}

void host_boot_id(char out[40]) {
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (!f || !fgets(out, 40, f)) snprintf(out, 40, "?");
    if (f) fclose(f);
    out[strcspn(out, "\n")] = 0;
}

double host_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
