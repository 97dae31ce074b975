/* Whether tests can use a card. */
#pragma once
#include "tests/lib/test.h"
#include "plan/device.h"

/* false: left out, with the reason printed. *must: INFER_REQUIRE_CUDA=1 makes that a failure. */
static inline bool cuda_there(bool *must) {
    const char *wish = getenv("INFER_REQUIRE_CUDA");
    *must = wish && *wish == '1';
#ifdef INFER_CUDA
    struct placement place;
    if (device_pick(&(struct device_wish){.device = DEVICE_CUDA, .host = DEVICE_NONE, .n_layer = -1},
                    &place) == INFER_OK)
        return true;
    print_message("skipped on cuda: %s\n", err_message());
#endif
    return false;
}

/* Whether a part of the steps will do, as under memcheck (scripts/gpu-check). */
static inline bool few_steps(void) {
    const char *few = getenv("INFER_FEW_STEPS");
    return few && *few == '1';
}
