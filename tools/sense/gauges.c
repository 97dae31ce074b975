#include "tools/sense/gauges.h"
#include <math.h>
#include <string.h>

void card_gauges(const struct nvml_sample *s, struct card_gauge out[CARD_GAUGES]) {
    static const struct nvml_sample none;
    const struct nvml_sample *k = s ? s : &none;
    const struct card_gauge all[CARD_GAUGES] = {{"busy_ratio", k->busy},
                                                {"memory_busy_ratio", k->memory_busy},
                                                {"memory_used_bytes", k->used_bytes},
                                                {"memory_total_bytes", k->total_bytes},
                                                {"sm_hertz", 1e6 * k->sm_mhz},
                                                {"memory_hertz", 1e6 * k->memory_mhz},
                                                {"temperature_celsius", k->celsius},
                                                {"power_watts", k->watts},
                                                {"power_limit_watts", k->limit_watts},
                                                {"energy_joules_total", k->joules},
                                                {"throttled", k->throttled},
                                                {"pcie_generation", k->pcie_generation},
                                                {"pcie_lanes", k->pcie_lanes},
                                                {"pcie_sent_bytes_per_second", k->pcie_sent},
                                                {"pcie_received_bytes_per_second", k->pcie_received},
                                                {"ecc_corrected_total", k->ecc_corrected},
                                                {"ecc_uncorrected_total", k->ecc_uncorrected},
                                                {"processes", k->n_process}};
    memcpy(out, all, sizeof all);
    for (int i = 0; !s && i < CARD_GAUGES; i++) out[i].x = NAN;
}
