/* Adapters as the options name them. */
#pragma once
#include "infer.h"
#include "tools/options.h"

enum { ADAPTERS_MAX = 2 * OPTION_MAX_TEXTS + 64 };

/* adapter[n], those of --lora first, n_lora of them. */
struct adapter_list {
    struct infer_adapter *adapter[ADAPTERS_MAX];
    float scale[ADAPTERS_MAX];
    int n, n_lora;
    int n_room; /* places behind them, for those that come (--lora-dir) */
};

/* "FILE:SCALE", SCALE a number, or "FILE" (1): path[n]. errors: INFER_E_INPUT */
enum infer_status adapter_named(const char *text, char *path, size_t n, float *scale);
/* Opens those of the options for m, which outlives them. errors: those of infer_adapter_open, INFER_E_INPUT (layers, scales); the list is
 * empty then */
enum infer_status adapters_open(struct adapter_list *l, const struct options *o, const struct infer_model *m);
void adapters_close(struct adapter_list *l);
