#define _GNU_SOURCE
#include "cpu/cpu_isa.h"

#include <cpuid.h>
#include <stdint.h>
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
