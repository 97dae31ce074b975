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

static enum infer_status pick_cuda(struct placement *out) {
#ifdef INFER_CUDA
    TRY(probe(&backend_cuda));
    out->device = &backend_cuda;
    return backend_cuda.memory(&out->memory);
#else
    (void)out;
    return err_set(INFER_E_DEVICE, "this build has no CUDA backend (configure with INFER_CUDA=ON)");
#endif
}

static enum infer_status pick_cpu(const struct backend_type **out) {
    TRY(probe(&backend_cpu));
    *out = &backend_cpu;
    return INFER_OK;
}

static enum infer_status pick_auto(const struct infer_engine_options *o, struct placement *out) {
    char address[64], reason[400];
    unsigned id;
    if (o->gpu_layers == 0 || !device_pci_nvidia(address, sizeof address, &id)) {
        if (o->gpu_layers > 0)
            log_line(LOG_WARN, "--gpu-layers %d: this machine has no NVIDIA card", o->gpu_layers);
        return pick_cpu(&out->device);
    }
    if (pick_cuda(out) == INFER_OK) return pick_cpu(&out->host);
    snprintf(reason, sizeof reason, "%s", err_message());
    TRY(pick_cpu(&out->device));
    log_line(LOG_WARN,
             "the NVIDIA card %s (10de:%04x) is NOT used: %s; running on the CPU, which is much slower",
             address, id, reason);
    return INFER_OK;
}

static enum infer_status pick_named(const char *option, const char *name, const struct backend_type **out) {
    if (!strcmp(name, "cpu")) return pick_cpu(out);
    if (strcmp(name, "ref"))
        return err_set(INFER_E_INPUT, "%s is '%s', must be auto, cpu, cuda or ref", option, name);
    *out = &backend_ref;
    return INFER_OK;
}

enum infer_status device_pick(const struct infer_engine_options *o, struct placement *out) {
    *out = (struct placement){0};
    if (!o->device || !strcmp(o->device, "auto"))
        TRY(pick_auto(o, out));
    else if (!strcmp(o->device, "cuda"))
        TRY(pick_cuda(out));
    else
        TRY(pick_named("--device", o->device, &out->device));
    return o->host_device ? pick_named("the host's device", o->host_device, &out->host) : INFER_OK;
}

void device_pick_card(const struct infer_engine_options *o, const struct infer_card *card,
                      struct placement *out) {
    static const struct backend_type sizes_only = {.name = "cuda", .sizes = cuda_sizes};
    *out = (struct placement){.device = &sizes_only};
    out->memory.total_bytes = out->memory.free_bytes = (size_t)card->memory_bytes;
    snprintf(out->memory.name, sizeof out->memory.name, "%s", card->name);
    if (o->gpu_layers >= 0) out->host = &backend_cpu;
}
