/* Memory of a card as the driver's management library sees it, without making a context, which takes memory itself. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif
/* pci: "0000:01:00.0". False when libnvidia-ml.so.1 is not here or does not know the card. */
bool card_memory(const char *pci, size_t *free_bytes, size_t *total_bytes);
#ifdef __cplusplus
}
#endif
