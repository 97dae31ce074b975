#include "card.h"
#include "status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* memory_bytes: what the driver shows as the total. Rates are ceilings: read_gb_s a read-only stream, the others dense
 * matrix products with 32-bit sums. */
static const struct infer_card table[] = {
    {.name = "rtx-5090",
     .sm = 120,
     .memory_bytes = 32607ull << 20,
     .read_gb_s = 1690,
     .f16_tflops = 246,
     .int8_tops = 726,
     .tf32_tflops = 104.8,
     .source = "bandwidth, f16 and int8 as others measured them on that card; tf32 as rated"},
    {.name = "h200",
     .sm = 90,
     .memory_bytes = 143771ull << 20,
     .read_gb_s = 4540,
     .f16_tflops = 755,
     .int8_tops = 1160,
     .tf32_tflops = 388,
     .source = "bandwidth, f16 and tf32 measured; int8 as others measured it on that card"},
};

enum infer_status card_find(const char *name, struct infer_card *out) {
    double gib;
    int sm, end = 0;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(name, table[i].name)) {
            *out = table[i];
            return INFER_OK;
        }
    if (sscanf(name, "%lf,sm_%d%n", &gib, &sm, &end) != 2 || name[end])
        return err_set(INFER_E_INPUT,
                       "--as '%s' is no known card: rtx-5090, h200, or GIB,sm_XX like 24,sm_89", name);
    if (!(gib > 0 && gib <= 4096)) return err_set(INFER_E_INPUT, "--as: %g GiB is not within 0 to 4096", gib);
    if (sm < 80)
        return err_set(INFER_E_UNSUPPORTED, "--as: sm_%d is older than sm_80, the oldest with kernels", sm);
    *out = (struct infer_card){
        .sm = sm, .memory_bytes = (uint64_t)(gib * (1 << 30)), .source = "memory as given"};
    snprintf(out->name, sizeof out->name, "%.*s", (int)sizeof out->name - 1, name);
    return INFER_OK;
}
