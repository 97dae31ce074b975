#define _GNU_SOURCE
#include "cpu_isa.h"

#include <cpuid.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- instruction set */

static uint64_t xcr0(void) {
    uint32_t a, d;
    __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    return (uint64_t)d << 32 | a;
}

/* AMX state is granted per process: arch_prctl(ARCH_REQ_XCOMP_PERM, XTILE_DATA), kernel 5.16 and newer. */
static bool amx_granted(void) { return syscall(SYS_arch_prctl, 0x1023, 18) == 0; }

/* AVX-VNNI: leaf 7.1 bit 4 of eax; it comes and goes without AVX-512. */
static bool has_avxvnni(void) {
    uint32_t a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 4);
}

static enum cpu_isa detect(void) {
    uint32_t a, b, c, d;
    /* leaf 1: FMA bit 12, OSXSAVE 27, F16C 29 of ecx */
    if (!__get_cpuid(1, &a, &b, &c, &d) || (~c & (1u << 12 | 1u << 27 | 1u << 29))) return CPU_ISA_NONE;
    uint64_t os = xcr0();
    if ((os & 6) != 6) return CPU_ISA_NONE;
    /* leaf 7: AVX2 bit 5; AVX-512 F 16, DQ 17, BW 30, VL 31 of ebx; VNNI 11 of ecx */
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & 1u << 5)) return CPU_ISA_NONE;
    enum cpu_isa narrow = has_avxvnni() ? CPU_ISA_AVXVNNI : CPU_ISA_AVX2;
    if ((~b & (1u << 16 | 1u << 17 | 1u << 30 | 1u << 31)) || !(c & 1u << 11) || (os & 0xe6) != 0xe6)
        return narrow;
    /* AMX-BF16, AMX-TILE, AMX-INT8 */
    bool amx = (d & 1u << 22) && (d & 1u << 24) && (d & 1u << 25) && (os & 0x60000) == 0x60000;
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || !(a & 1u << 5)) return narrow; /* AVX512_BF16 */
    return amx && amx_granted() ? CPU_ISA_AMX : CPU_ISA_AVX512;
}

enum cpu_isa cpu_isa_best(void) {
    static int known; /* 1 + enum cpu_isa; a race would write the same value twice */
    int k = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (!k) __atomic_store_n(&known, k = 1 + (int)detect(), __ATOMIC_RELAXED);
    return (enum cpu_isa)(k - 1);
}

const char *cpu_isa_name(enum cpu_isa isa) {
    static const char *const name[] = {"none", "avx2", "avxvnni", "avx512", "amx"};
    return name[isa];
}

enum infer_status cpu_isa_pick(const char *name, enum cpu_isa *out) {
    enum cpu_isa best = cpu_isa_best(), want = best;
    if (best == CPU_ISA_NONE)
        return err_set(INFER_E_DEVICE,
                       "this processor has no AVX2, FMA and F16C, which the CPU kernels need");
    if (name && *name) {
        for (want = CPU_ISA_AVX2; want <= CPU_ISA_AMX && strcmp(name, cpu_isa_name(want)); want++) {
        }
        if (want > CPU_ISA_AMX)
            return err_set(INFER_E_INPUT, "unknown instruction set \"%s\"; known: avx2, avxvnni, avx512, amx",
                           name);
        if (want > best || (want == CPU_ISA_AVXVNNI && !has_avxvnni()))
            return err_set(INFER_E_DEVICE, "instruction set %s is not available here; the best is %s", name,
                           cpu_isa_name(best));
    }
    *out = want;
    return INFER_OK;
}

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

struct cpu_cores cpu_cores_count(void) {
    struct cpu_cores n = {0, 0, cgroup_quota()};
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
void cpu_threads_pretend(int n) { pretended = n; }

int cpu_threads_pick(int wanted) {
    enum { MOST = 256 };
    struct cpu_cores n = pretended ? (struct cpu_cores){pretended, pretended, 0} : cpu_cores_count();
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
