#include "tools/sense/nvml.h"
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/mem.h"

typedef void *device_handle; /* nvmlDevice_t */

struct memory {
    unsigned long long total, free, used;
};
struct utilization {
    unsigned gpu, memory;
};
struct pci_info { /* nvmlPciInfo_t, version 3 */
    char legacy[16];
    unsigned domain, bus, device, pci_device, pci_subsystem;
    char bus_id[32];
};

struct process_info { /* nvmlProcessInfo_t, version 3 */
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
};

struct nvml {
    void *library;
    char driver[96];
    unsigned count;
    int (*shutdown)(void);
    int (*get_handle)(unsigned, device_handle *);
    int (*get_name)(device_handle, char *, unsigned);
    int (*get_pci)(device_handle, struct pci_info *);
    int (*get_memory)(device_handle, struct memory *);
    int (*get_utilization)(device_handle, struct utilization *);
    int (*get_clock)(device_handle, int, unsigned *);
    int (*get_temperature)(device_handle, int, unsigned *);
    int (*get_power)(device_handle, unsigned *);
    int (*get_limit)(device_handle, unsigned *);
    int (*get_energy)(device_handle, unsigned long long *);
    int (*get_throttle)(device_handle, unsigned long long *);
    int (*get_capability)(device_handle, int *, int *);
    int (*get_generation)(device_handle, unsigned *);
    int (*get_lanes)(device_handle, unsigned *);
    int (*get_traffic)(device_handle, int, unsigned *); /* KB a second */
    int (*get_ecc)(device_handle, int, int, unsigned long long *);
    int (*get_processes)(device_handle, unsigned *, struct process_info *);
};

/* A function of the library; NULL when this version has none. */
static void find(struct nvml *n, void *slot, const char *name) {
    void *f = dlsym(n->library, name);
    memcpy(slot, &f, sizeof f);
}

enum infer_status nvml_open(struct nvml **out) {
    int (*init)(void), (*get_driver)(char *, unsigned), (*get_count)(unsigned *);
    *out = NULL;
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return err_set(INFER_E_DEVICE, "libnvidia-ml.so.1 is not there: no NVIDIA driver is installed");
    struct nvml *n;
    enum infer_status st = mem_new(&n, sizeof *n, "NVML");
    if (st) {
        dlclose(library);
        return st;
    }
    n->library = library;
    find(n, &init, "nvmlInit_v2");
    find(n, &n->shutdown, "nvmlShutdown");
    find(n, &get_driver, "nvmlSystemGetDriverVersion");
    find(n, &get_count, "nvmlDeviceGetCount_v2");
    find(n, &n->get_handle, "nvmlDeviceGetHandleByIndex_v2");
    find(n, &n->get_name, "nvmlDeviceGetName");
    find(n, &n->get_pci, "nvmlDeviceGetPciInfo_v3");
    find(n, &n->get_memory, "nvmlDeviceGetMemoryInfo");
    find(n, &n->get_utilization, "nvmlDeviceGetUtilizationRates");
    find(n, &n->get_clock, "nvmlDeviceGetClockInfo");
    find(n, &n->get_temperature, "nvmlDeviceGetTemperature");
    find(n, &n->get_power, "nvmlDeviceGetPowerUsage");
    find(n, &n->get_limit, "nvmlDeviceGetEnforcedPowerLimit");
    find(n, &n->get_energy, "nvmlDeviceGetTotalEnergyConsumption");
    find(n, &n->get_throttle, "nvmlDeviceGetCurrentClocksThrottleReasons");
    find(n, &n->get_capability, "nvmlDeviceGetCudaComputeCapability");
    find(n, &n->get_generation, "nvmlDeviceGetCurrPcieLinkGeneration");
    find(n, &n->get_lanes, "nvmlDeviceGetCurrPcieLinkWidth");
    find(n, &n->get_traffic, "nvmlDeviceGetPcieThroughput");
    find(n, &n->get_ecc, "nvmlDeviceGetTotalEccErrors");
    find(n, &n->get_processes, "nvmlDeviceGetComputeRunningProcesses_v3");
    int code = init && get_count && n->get_handle ? init() : -1;
    if (code != 0) {
        dlclose(library);
        mem_free(n);
        return err_set(INFER_E_DEVICE, "the NVIDIA driver does not answer (NVML error %d)", code);
    }
    if (!get_driver || get_driver(n->driver, sizeof n->driver) != 0) n->driver[0] = 0;
    if (get_count(&n->count) != 0) n->count = 0;
    *out = n;
    return INFER_OK;
}

void nvml_close(struct nvml *n) {
    if (!n) return;
    if (n->shutdown) n->shutdown();
    dlclose(n->library);
    mem_free(n);
}

const char *nvml_driver(const struct nvml *n) { return n->driver; }
int nvml_count(const struct nvml *n) { return (int)n->count; }

/* What holds the clocks back. source: nvmlClocksThrottleReasons* of the NVML API reference; idle clocks and limits that
 * the user set are no throttling. */
static void throttle(struct nvml_sample *s, unsigned long long bits) {
    static const struct {
        unsigned long long bits;
        const char *name;
    } reasons[] = {{0x04, "power"}, {0x08, "hardware"}, {0x20 | 0x40, "heat"}, {0x80, "power brake"}};
    size_t used = 0;
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        if (!(bits & reasons[i].bits)) continue;
        used += (size_t)snprintf(s->reasons + used, sizeof s->reasons - used, "%s%s", used ? ", " : "",
                                 reasons[i].name);
        s->throttled = true;
    }
}

static void processes(const struct nvml *n, device_handle h, struct nvml_sample *s) {
    struct process_info p[4 * NVML_PROCESSES];
    unsigned count = 4 * NVML_PROCESSES;
    if (!n->get_processes || n->get_processes(h, &count, p) != 0) return;
    s->n_process = (int)count;
    for (unsigned i = 0; i < count && i < NVML_PROCESSES; i++)
        s->process[i] = (struct nvml_process){p[i].pid, p[i].bytes == ~0ull ? NAN : (double)p[i].bytes};
}

/* What a card may not have, each by itself. */
static void link_and_errors(const struct nvml *n, device_handle h, struct nvml_sample *s) {
    enum { SENT = 0, RECEIVED = 1, CORRECTED = 0, UNCORRECTED = 1, SINCE_LOAD = 0 };
    unsigned u;
    unsigned long long v;
    s->pcie_generation = n->get_generation && n->get_generation(h, &u) == 0 ? u : NAN;
    s->pcie_lanes = n->get_lanes && n->get_lanes(h, &u) == 0 ? u : NAN;
    s->pcie_sent = n->get_traffic && n->get_traffic(h, SENT, &u) == 0 ? 1000.0 * u : NAN;
    s->pcie_received = n->get_traffic && n->get_traffic(h, RECEIVED, &u) == 0 ? 1000.0 * u : NAN;
    s->ecc_corrected = n->get_ecc && n->get_ecc(h, CORRECTED, SINCE_LOAD, &v) == 0 ? (double)v : NAN;
    s->ecc_uncorrected = n->get_ecc && n->get_ecc(h, UNCORRECTED, SINCE_LOAD, &v) == 0 ? (double)v : NAN;
}

double nvml_joules(const struct nvml *n, int device) {
    device_handle h;
    unsigned long long v;
    if (!n->get_energy || n->get_handle((unsigned)device, &h) || n->get_energy(h, &v)) return NAN;
    return (double)v / 1000;
}

void nvml_level(const struct nvml *n, int device, double *used_bytes, double *watts) {
    device_handle h;
    struct memory memory;
    unsigned u;
    *used_bytes = *watts = NAN;
    if (n->get_handle((unsigned)device, &h)) return;
    if (n->get_memory && n->get_memory(h, &memory) == 0) *used_bytes = (double)memory.used;
    if (n->get_power && n->get_power(h, &u) == 0) *watts = u / 1000.0;
}

enum infer_status nvml_sample(const struct nvml *n, int device, struct nvml_sample *s) {
    enum { CLOCK_SM = 1, CLOCK_MEMORY = 2, SENSOR_GPU = 0 };
    device_handle h;
    struct pci_info pci;
    struct memory memory;
    struct utilization use;
    unsigned u;
    unsigned long long v;
    *s = (struct nvml_sample){.total_bytes = NAN,
                              .busy = NAN,
                              .memory_busy = NAN,
                              .sm_mhz = NAN,
                              .memory_mhz = NAN,
                              .celsius = NAN,
                              .limit_watts = NAN,
                              .joules = NAN};
    int code = n->get_handle((unsigned)device, &h);
    if (code) return err_set(INFER_E_DEVICE, "card %d does not answer (NVML error %d)", device, code);
    if (!n->get_name || n->get_name(h, s->name, sizeof s->name)) s->name[0] = 0;
    if (n->get_pci && n->get_pci(h, &pci) == 0)
        memcpy(s->pci, pci.bus_id, sizeof s->pci), s->pci[sizeof s->pci - 1] = 0;
    nvml_level(n, device, &s->used_bytes, &s->watts);
    if (n->get_memory && n->get_memory(h, &memory) == 0) s->total_bytes = (double)memory.total;
    if (n->get_utilization && n->get_utilization(h, &use) == 0)
        s->busy = use.gpu / 100.0, s->memory_busy = use.memory / 100.0;
    if (n->get_clock && n->get_clock(h, CLOCK_SM, &u) == 0) s->sm_mhz = u;
    if (n->get_clock && n->get_clock(h, CLOCK_MEMORY, &u) == 0) s->memory_mhz = u;
    if (n->get_temperature && n->get_temperature(h, SENSOR_GPU, &u) == 0) s->celsius = u;
    if (n->get_limit && n->get_limit(h, &u) == 0) s->limit_watts = u / 1000.0;
    if (n->get_energy && n->get_energy(h, &v) == 0) s->joules = (double)v / 1000;
    link_and_errors(n, h, s);
    processes(n, h, s);
    if (n->get_throttle && n->get_throttle(h, &v) == 0) throttle(s, v);
    if (n->get_capability) n->get_capability(h, &s->cc_major, &s->cc_minor);
    return INFER_OK;
}
