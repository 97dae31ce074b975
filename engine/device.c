#include "device.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

/* A hexadecimal attribute of a PCI device; 0 when it cannot be read. */
static unsigned pci_attribute(const char *address, const char *name) {
    char path[320];
    unsigned v = 0;
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/%s", address, name);
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    if (fscanf(f, "%x", &v) != 1) v = 0;
    fclose(f);
    return v;
}

bool device_pci_nvidia(char *address, size_t n, unsigned *id) {
    bool found = false;
    DIR *d = opendir("/sys/bus/pci/devices");
    if (!d) return false;
    for (const struct dirent *e; !found && (e = readdir(d));) {
        if (e->d_name[0] == '.' || pci_attribute(e->d_name, "vendor") != 0x10de) continue;
        if (pci_attribute(e->d_name, "class") >> 16 != 0x03) continue; /* display controllers */
        snprintf(address, n, "%s", e->d_name);
        *id = pci_attribute(e->d_name, "device");
        found = true;
    }
    closedir(d);
    return found;
}

#ifndef INFER_CPU /* until the CPU backend is built in, the reference stands for it */
#define backend_cpu backend_ref
#endif

static enum infer_status probe(const struct backend_type *b) { return b->probe ? b->probe() : INFER_OK; }

static enum infer_status pick_cuda(const struct backend_type **out) {
#ifdef INFER_CUDA
    TRY(probe(&backend_cuda));
    *out = &backend_cuda;
    return INFER_OK;
#else
    (void)out;
    return err_set(INFER_E_DEVICE, "this build has no CUDA backend (configure with INFER_CUDA=ON)");
#endif
}

static enum infer_status pick_auto(const struct backend_type **out) {
    char address[64];
    unsigned id;
    if (device_pci_nvidia(address, sizeof address, &id)) {
        if (pick_cuda(out) == INFER_OK) return INFER_OK;
        char reason[400];
        snprintf(reason, sizeof reason, "%s", err_message());
        TRY(probe(&backend_cpu));
        log_line(LOG_WARN,
                 "the NVIDIA card %s (10de:%04x) is NOT used: %s; running on the CPU, which is much slower",
                 address, id, reason);
        *out = &backend_cpu;
        return INFER_OK;
    }
    TRY(probe(&backend_cpu));
    *out = &backend_cpu;
    return INFER_OK;
}

enum infer_status device_pick(const char *name, const struct backend_type **out) {
    if (!name || !strcmp(name, "auto")) return pick_auto(out);
    if (!strcmp(name, "cuda")) return pick_cuda(out);
    if (!strcmp(name, "cpu")) {
        *out = &backend_cpu;
        return probe(*out);
    }
    if (!strcmp(name, "ref")) {
        *out = &backend_ref;
        return INFER_OK;
    }
    return err_set(INFER_E_INPUT, "--device is '%s', must be auto, cpu, cuda or ref", name);
}
