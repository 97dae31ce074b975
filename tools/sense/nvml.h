/* NVIDIA's management library, found at run time (libnvidia-ml.so.1): what a card is doing. The declarations are
 * ours, from NVIDIA's NVML API reference; a machine without the library simply has no card to ask. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "base/status.h"

enum { NVML_PROCESSES = 16 };
struct nvml;

/* errors: INFER_E_DEVICE (no library: the driver is not installed, or it does not answer) */
enum infer_status nvml_open(struct nvml **out);
void nvml_close(struct nvml *n);
const char *nvml_driver(const struct nvml *n); /* "580.95.05" */
int nvml_count(const struct nvml *n);

struct nvml_sample { /* a value that cannot be read is NAN */
    char name[96], pci[32];
    double used_bytes, total_bytes; /* memory */
    double busy, memory_busy;       /* share of the last sampling period, 0 to 1 */
    double sm_mhz, memory_mhz;      /* clocks */
    double celsius, watts, limit_watts;
    double joules;                         /* energy since the driver was loaded */
    int cc_major, cc_minor;                /* compute capability, 0 unknown */
    double pcie_generation, pcie_lanes;    /* of the link now */
    double pcie_sent, pcie_received;       /* bytes a second, seen from the card */
    double ecc_corrected, ecc_uncorrected; /* errors since the driver was loaded */
    int n_process;                         /* that compute on it; at most NVML_PROCESSES are listed */
    struct nvml_process {
        unsigned pid;
        double bytes; /* NAN: not told */
    } process[NVML_PROCESSES];
    bool throttled;   /* clocks held back by power, heat or hardware */
    char reasons[96]; /* which: "power, heat" */
};
/* Energy of a card since the driver was loaded; NAN: it does not count. */
double nvml_joules(const struct nvml *n, int device);
/* Memory in use and power alone, which are asked for often; NAN: not told. */
void nvml_level(const struct nvml *n, int device, double *used_bytes, double *watts);
enum infer_status nvml_sample(const struct nvml *n, int device, struct nvml_sample *out);
