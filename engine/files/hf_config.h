/* Private to hf_config.c and hf_rope.c: config.json while it is read. */
#pragma once
#include <jansson.h>
#include "files/hf.h"
#include "files/model_keys.h"

struct config {
    const char *path;
    json_t *root;
    struct hf_config *out;
    struct hf_keys *keys;
    const struct key_ignore *ignore;
};

/* Values of a key; absent (v NULL) or null: fallback, where -1 and NAN stand for a key that must be there.
 * errors: INFER_E_INPUT names path and key */
enum infer_status config_u32(const struct config *c, const char *key, const json_t *v, int64_t fallback,
                             uint32_t *out);
enum infer_status config_f32(const struct config *c, const char *key, const json_t *v, float fallback,
                             float *out);
enum infer_status config_bool(const struct config *c, const char *key, const json_t *v, bool fallback,
                              bool *out);
enum infer_status config_wrong(const struct config *c, const char *key, const char *want);

/* rope_theta, rope_scaling, rope_parameters and what is in them; dim: the head size. */
enum infer_status config_rope(const struct config *c, uint32_t dim);
