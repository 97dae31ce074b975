#include "model/model_impl.h"
#include "models/registry.h"

#include <math.h>
#include <stdio.h>

/* Whether every element is one of the row's neutral values. */
static bool is_neutral(const struct key_row *row, const struct meta *meta) {
    enum meta_type type = meta->type == META_ARRAY ? meta->elem : meta->type;
    for (size_t i = 0; i < meta->n; i++) {
        struct key_value v = {.is_number = type != META_STRING && type != META_BOOL && type != META_ARRAY};
        if (v.is_number) v.number = meta_elem_f64(meta, i);
        if (type == META_STRING)
            v = (struct key_value){.text = meta->strings[i].data, .len = meta->strings[i].len};
        if (type == META_BOOL) v.text = meta_elem_i64(meta, i) ? "true" : "false", v.len = strlen(v.text);
        if (type == META_ARRAY || !key_is_one_of(row->words, &v)) return false;
    }
    return true;
}

/* No number of the file is NaN or infinite, also where nothing reads it; but -infinity leaves no gate out. */
static enum infer_status check_finite(const struct model *m, const struct meta *meta, const char *key) {
    const enum meta_type type = meta->type == META_ARRAY ? meta->elem : meta->type;
    const bool leaves = strcmp(key, "gemma3n.activation_sparsity_scale") == 0;
    for (uint64_t i = 0; (type == META_F32 || type == META_F64) && i < meta->n; i++)
        if (!isfinite(meta_elem_f64(meta, (size_t)i)) && !(leaves && meta_elem_f64(meta, (size_t)i) < 0))
            return err_set(INFER_E_INPUT, "%s: key '%s' holds %g", m->file->path, key,
                           meta_elem_f64(meta, (size_t)i));
    return INFER_OK;
}

enum infer_status model_check_keys(const struct model *m, const struct key_ignore *ignore) {
    size_t prefix = strlen(m->arch->name) + 1;
    struct str type;
    bool present;
    TRY(meta_str(m->file, "general.type", &type, &present));
    if (present && !str_is(type, "model"))
        return err_set(INFER_E_UNSUPPORTED, "%s: general.type is '%.*s', which is no model by itself",
                       m->file->path, (int)(type.len < 64 ? type.len : 64), type.data);
    for (size_t i = 0; i < m->file->n_meta; i++) {
        const struct meta *meta = &m->file->meta[i];
        char key[256];
        size_t len =
            meta->key.len < sizeof key ? meta->key.len : sizeof key - 1; /* no known one is as long */
        if (len <= prefix || memcmp(meta->key.data, m->arch->name, prefix - 1) != 0 ||
            meta->key.data[prefix - 1] != '.')
            continue;
        memcpy(key, meta->key.data, len);
        key[len] = 0;
        const struct key_row *row = key_find(KEYS_GGUF, key + prefix);
        TRY(check_finite(m, meta, key));
        if (m->arch->keys && key_names(m->arch->keys, key + prefix, strlen(key + prefix))) continue;
        if (!row) TRY(key_unknown(ignore, m->file->path, key));
        if (row && row->use == KEY_OFF && !is_neutral(row, meta))
            return err_set(INFER_E_UNSUPPORTED, "%s: key '%s' has a value that is not supported (%s is)",
                           m->file->path, key, row->words);
    }
    return INFER_OK;
}

static enum infer_status bind(struct model *m, const struct key_ignore *ignore, const struct rope_given *rope,
                              const struct model *target) {
    struct str name;
    TRY(meta_str(m->file, "general.architecture", &name, NULL));
    m->arch = arch_find(name.data, name.len);
    if (!m->arch) return arch_unsupported(m->file->path, name.data, name.len);
    if (m->arch->drafts) m->target = target;
    TRY(model_check_keys(m, ignore));
    TRY(model_give_rope(m, rope));
    TRY(tok_open(&m->tok, m->file));
    TRY(model_read_hparams(m));
    TRY(model_bind_tensors(m));
    model_reach_rope(m, rope);
    return INFER_OK;
}

enum infer_status model_open(struct model **out, const char *path, const struct tensorfile_options *options) {
    return model_open_beside(out, path, options, NULL);
}

enum infer_status model_open_beside(struct model **out, const char *path,
                                    const struct tensorfile_options *options, const struct model *target) {
    struct model *m;
    *out = NULL;
    TRY(mem_new(&m, sizeof *m, "a model"));
    enum infer_status s = tensorfile_open(&m->file, path, options);
    if (s == INFER_OK) {
        if (options && options->vocab_only)
            s = tok_open(&m->tok, m->file);
        else
            s = bind(m, options ? &options->ignore : &(struct key_ignore){0},
                     options ? &options->rope : &(struct rope_given){0}, target);
    }
    if (s != INFER_OK) {
        model_close(m);
        return s;
    }
    *out = m;
    return INFER_OK;
}

/* The layer has the sizes of the last one with attention, and with experts where one has both. */
static enum infer_status bind_draft(struct model *m) {
    TRY(model_read_hparams(m));
    int like = -1;
    for (int i = 0; i < m->n_layer; i++) {
        const struct layer *l = &m->layer[i];
        if (l->mixer.kind == MIX_ATTENTION && (like < 0 || l->moe.n_expert || !m->layer[like].moe.n_expert))
            like = i;
    }
    if (like < 0)
        return err_set(INFER_E_UNSUPPORTED, "%s: a layer that drafts has attention, and no other has",
                       m->file->path);
    m->layer[0] = m->layer[like];
    m->first = m->n_layer;
    m->n_layer = 1;
    m->whole = true;
    return model_bind_tensors(m);
}

enum infer_status model_open_draft(struct model **out, const struct model *of) {
    char name[80];
    struct model *m;
    *out = NULL;
    snprintf(name, sizeof name, slot_info[SLOT_DRAFT_PROJ].name, of->n_layer);
    if (of->file->drafts.n)
        return err_set(INFER_E_UNSUPPORTED, "%s: its %zu tensors of layers that draft are not read of a %s",
                       of->file->path, of->file->drafts.n, of->arch->name);
    if (of->first || !of->n_draft || !of->arch->slot[SLOT_DRAFT_PROJ] || !tensorfile_find(of->file, name))
        return err_set(INFER_E_UNSUPPORTED, "%s has no layers that draft (%s)", of->file->path, name);
    TRY(mem_new(&m, sizeof *m, "a model"));
    m->file = of->file, m->tok = of->tok, m->arch = of->arch;
    m->borrows = true;
    enum infer_status s = bind_draft(m);
    if (s)
        model_close(m);
    else
        *out = m;
    return s;
}

void model_close(struct model *m) {
    if (!m) return;
    if (!m->borrows) tok_close(m->tok);
    if (!m->borrows) tensorfile_close(m->file);
    arena_free(&m->arena);
    mem_free(m);
}
