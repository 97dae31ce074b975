#include "cuda/plan/card_memory.h"

#include <dlfcn.h>
#include <string.h>

struct memory { /* nvmlMemory_t */
    unsigned long long total, free, used;
};

static void find(void *library, void *slot, const char *name) {
    void *f = dlsym(library, name);
    memcpy(slot, &f, sizeof f);
}

bool card_memory(const char *pci, size_t *free_bytes, size_t *total_bytes) {
    int (*init)(void), (*shutdown)(void), (*by_pci)(const char *, void **), (*get)(void *, struct memory *);
    struct memory m = {0};
    void *card, *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return false;
    find(library, &init, "nvmlInit_v2");
    find(library, &shutdown, "nvmlShutdown");
    find(library, &by_pci, "nvmlDeviceGetHandleByPciBusId_v2");
    find(library, &get, "nvmlDeviceGetMemoryInfo");
    bool ok = init && shutdown && by_pci && get && init() == 0;
    if (ok) {
        ok = by_pci(pci, &card) == 0 && get(card, &m) == 0;
        shutdown();
    }
    dlclose(library);
    *free_bytes = (size_t)m.free;
    *total_bytes = (size_t)m.total;
    return ok;
}
