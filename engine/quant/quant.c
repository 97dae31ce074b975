#include "quant/quant_impl.h"

static const struct quant_info table[QUANT_COUNT] = {
#define QUANT(id, gguf, name, elems, bytes)                                                                  \
    {QUANT_##id, gguf, name, elems, bytes, quant_##id##_decode, quant_##id##_encode, NULL},
#define QUANT_CODES(id, gguf, name, elems, bytes)                                                            \
    {QUANT_##id, gguf, name, elems, bytes, quant_##id##_decode, quant_##id##_encode, quant_##id##_codes},
#include "quant/quant.def"
};

const struct quant_info *quant_info(enum quant_type type) {
    if ((unsigned)type >= QUANT_COUNT) infer_bug("element type %d is outside the table", (int)type);
    return &table[type];
}

const struct quant_info *quant_by_gguf(uint32_t gguf) {
    for (int i = 0; i < QUANT_COUNT; i++)
        if (table[i].gguf >= 0 && (uint32_t)table[i].gguf == gguf) return &table[i];
    return NULL;
}

const struct quant_info *quant_by_name(const char *name) {
    for (int i = 0; i < QUANT_COUNT; i++)
        if (strcmp(table[i].name, name) == 0) return &table[i];
    return NULL;
}
