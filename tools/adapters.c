#include "tools/adapters.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum infer_status adapter_named(const char *text, char *path, size_t n, float *scale) {
    const char *colon = strrchr(text, ':');
    char *end = NULL;
    const double x = colon ? strtod(colon + 1, &end) : 1;
    const bool scaled = colon && end != colon + 1 && !*end; /* else it is a part of the name */
    const size_t len = scaled ? (size_t)(colon - text) : strlen(text);
    *scale = scaled ? (float)x : 1;
    if (!isfinite(*scale)) return err_set(INFER_E_INPUT, "%s: the scale is no finite number", text);
    if (!len || len >= n) return err_set(INFER_E_INPUT, "'%.80s' names no file", text);
    memcpy(path, text, len);
    path[len] = 0;
    return INFER_OK;
}

static enum infer_status add(struct adapter_list *l, const struct infer_model *m, const char *text,
                             bool vectors, const struct infer_adapter_options *o) {
    char path[4096];
    struct infer_adapter_info info;
    TRY(adapter_named(text, path, sizeof path, &l->scale[l->n]));
    TRY(infer_adapter_open(&l->adapter[l->n], m, path, o));
    infer_adapter_info(l->adapter[l->n++], &info);
    if (info.vectors == vectors) return INFER_OK;
    return err_set(INFER_E_INPUT,
                   vectors ? "%s is no control vector: --lora adds it"
                           : "%s is a control vector: --control-vector adds it",
                   path);
}

static enum infer_status layers_of(const char *text, struct infer_adapter_options *out) {
    int used = 0;
    *out = (struct infer_adapter_options){0};
    if (!text) return INFER_OK;
    if (sscanf(text, "%6d-%6d%n", &out->first_layer, &out->last_layer, &used) == 2 && used && !text[used] &&
        out->first_layer >= 1 && out->last_layer >= out->first_layer)
        return INFER_OK;
    return err_set(INFER_E_INPUT, "--control-vector-layers is '%.40s', must be N-M with 1 <= N <= M", text);
}

enum infer_status adapters_open(struct adapter_list *l, const struct options *o,
                                const struct infer_model *m) {
    struct infer_adapter_options layers;
    enum infer_status s = layers_of(o->control_vector_layers, &layers);
    *l = (struct adapter_list){0};
    for (int i = 0; !s && i < o->lora.n; i++) s = add(l, m, o->lora.text[i], false, NULL);
    l->n_lora = l->n;
    l->n_room = o->lora_dir ? o->max_loras : 0;
    for (int i = 0; !s && i < o->control_vector.n; i++)
        s = add(l, m, o->control_vector.text[i], true, &layers);
    if (s) adapters_close(l);
    return s;
}

void adapters_close(struct adapter_list *l) {
    for (int i = 0; i < l->n; i++) infer_adapter_close(l->adapter[i]);
    *l = (struct adapter_list){0};
}
