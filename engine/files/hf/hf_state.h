/* Layers with a state in folders of Hugging Face: the keys of config.json (hf_config.h), and tensors by heads. */
#pragma once
#include "arch/arch.h"
#include "files/hf/hf_config.h"

/* delta: key heads, value heads, width of a key and of a value (struct hf_config). out[2]: queries, keys and values, of all heads each, and
 * gates, of from [key heads][query, key, values, gates][k], in copies. errors: INFER_E_INPUT (another size), INFER_E_UNSUPPORTED
 * (blocks), INFER_E_MEMORY */
enum infer_status hf_qkvz(struct tensor out[2], const struct tensor *from, const int delta[4],
                          struct arena *arena, const char *path);
/* What HF_VALUE_* say (arch.h), in copies where elements change or move; tiled: value head j of key head g becomes j * key heads + g.
 * Nothing for other operations. errors: as hf_qkvz */
enum infer_status hf_by_value(struct tensor *t, enum hf_op op, const int delta[4], bool tiled,
                              struct arena *arena, const char *path);
