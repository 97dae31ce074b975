// Which card, and what its memory holds.
#include <stdio.h>
#include "cuda/plan/card_memory.h"
#include "cuda/run/cuda_impl.h"

enum { MAX_DEVICES = 64 };

__global__ void probe_kernel(int *out) { *out = 1; }

static enum infer_status device_count(int *n) {
    int driver = 0, runtime = 0;
    *n = 0;
    cudaError_t e = cudaGetDeviceCount(n);
    if (*n > MAX_DEVICES) *n = MAX_DEVICES;
    if (e == cudaSuccess && *n > 0) return INFER_OK;
    (void)cudaGetLastError();
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (!driver) return err_set(INFER_E_DEVICE, "no NVIDIA driver (libcuda.so.1) was found");
    if (e == cudaErrorInsufficientDriver)
        return err_set(INFER_E_DEVICE, "the NVIDIA driver is for CUDA %d.%d, this build needs %d.%d or newer",
                       driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    return err_set(INFER_E_DEVICE, "no CUDA device: %s",
                   e == cudaSuccess ? "none is visible" : cudaGetErrorString(e));
}

// Free memory of a device before this process had a context there; known: as the management library says it. Without
// that library, or where it speaks of more than the device (a part of a divided card), the runtime is asked, whose
// answer is from inside the context.
struct first_look {
    bool taken, known;
    size_t free_bytes;
};
static first_look first[MAX_DEVICES];

static bool look(int device, size_t *free_bytes, size_t *total_bytes) {
    char pci[32];
    cudaDeviceProp p;
    bool known = cudaDeviceGetPCIBusId(pci, sizeof pci, device) == cudaSuccess &&
                 cudaGetDeviceProperties(&p, device) == cudaSuccess &&
                 card_memory(pci, free_bytes, total_bytes) &&
                 *total_bytes < p.totalGlobalMem + p.totalGlobalMem / 8;
    bool got = known || (cudaSetDevice(device) == cudaSuccess &&
                         cudaMemGetInfo(free_bytes, total_bytes) == cudaSuccess);
    (void)cudaGetLastError();
    if (got && !first[device].taken) first[device] = {true, known, *free_bytes};
    return got;
}

enum infer_status cuda_pick_device(int card, int *device, size_t *free_bytes, size_t *total_bytes) {
    int n, best = -1;
    TRY(device_count(&n));
    if (card > n) return err_set(INFER_E_DEVICE, "card %d of %d", card, n);
    for (int i = card ? card - 1 : 0; i < (card ? card : n); i++) {
        size_t left = 0, all = 0;
        if (!look(i, &left, &all) || (best >= 0 && left <= *free_bytes)) continue;
        best = i;
        *free_bytes = left;
        *total_bytes = all;
    }
    if (best < 0) return err_set(INFER_E_DEVICE, "none of %d CUDA devices can be used", n);
    CU(cudaSetDevice(best));
    cudaFuncAttributes fa;
    cudaError_t e = cudaFuncGetAttributes(&fa, probe_kernel);
    if (e != cudaSuccess) {
        cudaDeviceProp p;
        (void)cudaGetLastError();
        if (cudaGetDeviceProperties(&p, best) != cudaSuccess) return cuda_error(e, "cudaFuncGetAttributes");
        return err_set(INFER_E_DEVICE, "this build has no kernels for %s (sm_%d%d)", p.name, p.major,
                       p.minor);
    }
    *device = best;
    return INFER_OK;
}

enum infer_status cuda_probe(void) {
    int device;
    size_t left, all;
    return cuda_pick_device(0, &device, &left, &all);
}

enum infer_status cuda_memory(int card, struct backend_memory *out) {
    int device;
    cudaDeviceProp p;
    TRY(cuda_pick_device(card, &device, &out->free_bytes, &out->total_bytes));
    CU(cudaGetDeviceProperties(&p, device));
    snprintf(out->name, sizeof out->name, "%.100s, sm_%d%d", p.name, p.major, p.minor);
    return INFER_OK;
}

static size_t taken[MAX_DEVICES]; // by arenas of this process

void cuda_arena_count(int device, size_t bytes, bool add) {
    if (add)
        __atomic_add_fetch(&taken[device], bytes, __ATOMIC_RELAXED);
    else
        __atomic_sub_fetch(&taken[device], bytes, __ATOMIC_RELAXED);
}

size_t cuda_driver_bytes(int device) {
    size_t left, all, gone;
    const size_t arenas = __atomic_load_n(&taken[device], __ATOMIC_RELAXED);
    if (!first[device].known || !look(device, &left, &all) || left > first[device].free_bytes) return 0;
    gone = first[device].free_bytes - left;
    return gone > arenas ? gone - arenas : 0;
}
