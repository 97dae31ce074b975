/* Latent attention in folders of Hugging Face: the keys of config.json, and the tensor that has a latent's keys and values of each head. */
#pragma once
#include "files/hf/hf_config.h"

struct hf_latent_sizes {
    int n_head, n_nope, n_value, rank;
};
/* out[2]: keys [n_head][rank][n_nope] and values [n_head][n_value][rank] of from [n_head * (n_nope + n_value)][rank], in copies.
 * errors: INFER_E_INPUT (another size), INFER_E_UNSUPPORTED (blocks), INFER_E_MEMORY */
enum infer_status hf_latent(struct tensor out[2], const struct tensor *from, const struct hf_latent_sizes *s,
                            struct arena *arena, const char *path);
