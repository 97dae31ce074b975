#include "tools/machine/doctor_cuda.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *cuda_driver_needed(const char *build) {
    int major = atoi(build);
    return major >= 13 ? "580" : major == 12 ? "525" : "";
}

void cuda_image_for(const char *build, int major, int minor, char *out, size_t n) {
    int best = -1, ptx = -1, chip = major * 10 + minor;
    char suffix = 0;
    for (const char *p = strchr(build, ' '); p; p = strchr(p + 1, ' ')) {
        int number;
        char mark = 0;
        if (sscanf(p, " compute_%d", &number) == 1) {
            if (number <= chip && number > ptx) ptx = number;
        } else if (sscanf(p, " sm_%d%c", &number, &mark) >= 1) {
            bool runs = mark == 'a' ? number == chip : number / 10 == major && number <= chip;
            if (!runs || number <= best) continue;
            best = number;
            suffix = mark == 'a' || mark == 'f' ? mark : 0;
        }
    }
    if (best >= 0)
        snprintf(out, n, suffix ? "sm_%d%c" : "sm_%d", best, suffix);
    else if (ptx >= 0)
        snprintf(out, n, "compute_%d, compiled by the driver at first start", ptx);
    else
        snprintf(out, n, "none");
}
