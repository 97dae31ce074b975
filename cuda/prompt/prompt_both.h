// Attention of steps in which some rows see what follows them: a picture's, which see each other (struct step.until). Kernels of their
// own, so that those of texts are what they were; a row that sees nothing behind itself has the same bits from both.
#pragma once
#include "cuda/prompt/prompt_kernels.h"

struct prompt_attend_both : prompt_attend_job {
    const int32_t *until; // until[n_row]: the last position that a row sees
};
cudaError_t prompt_attend_both_launch(const prompt_attend_both &j, int n, bool mma, cudaStream_t s);
// Heads above 128, see flash_wide_launch.
cudaError_t flash_wide_both_launch(const prompt_attend_both &j, int n, cudaStream_t s);
