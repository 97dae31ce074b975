#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "files/outfile.h"
#include "tools/file/quantize_impl.h"

/* ---- what the mix wants to know ---- */

const struct meta *quantize_meta(const struct tensorfile *f, const char *key) {
    struct str arch = {"", 0};
    bool present;
    char full[160];
    if (meta_str(f, "general.architecture", &arch, &present) != INFER_OK || !present) return NULL;
    snprintf(full, sizeof full, "%.*s.%s", (int)(arch.len < 96 ? arch.len : 96), arch.data, key);
    return tensorfile_meta(f, full);
}

int64_t quantize_parameter(const struct tensorfile *f, const char *key) {
    const struct meta *m = quantize_meta(f, key);
    if (!m || m->n == 0 || m->type == META_STRING || (m->type == META_ARRAY && m->elem >= META_STRING))
        return 0;
    int64_t v = meta_elem_i64(m, 0);
    return v > 0 && v < 1 << 20 ? v : 0;
}

static struct mix_model describe(const struct tensorfile *f) {
    int64_t heads = quantize_parameter(f, "attention.head_count");
    int64_t kv = quantize_parameter(f, "attention.head_count_kv");
    struct mix_model m = {
        .n_layer = (int)quantize_parameter(f, "block_count"),
        .n_gqa = heads && kv ? (int)(heads / kv) : 1,
        .n_expert = (int)quantize_parameter(f, "expert_count"),
        .tied = !tensorfile_find(f, "output.weight"),
    };
    m.extra_v = m.n_layer == 80 && m.n_gqa > 1;
    return m;
}

/* ---- the list ---- */

static bool chosen(const struct quantize_options *o, const char *name) {
    return !o->only || fnmatch(o->only, name, 0) == 0;
}

bool quantize_is_free(const struct job *j, const struct tensor *t) {
    return chosen(j->o, t->name) && mix_is_matrix(t->name, t->n_dim);
}

/* Where a tensor of values stands among the others: not every layer of a hybrid has one. */
static void place_value(struct job *j, const char *name) {
    int layer = 0, other = 0;
    j->model.n_value = j->model.i_value = 0;
    if (sscanf(name, "blk.%d.", &layer) != 1 || !mix_is_value(name)) return;
    for (size_t i = 0; i < j->n_list; i++) {
        if (!mix_is_value(j->list[i].name) || sscanf(j->list[i].name, "blk.%d.", &other) != 1) continue;
        j->model.n_value++;
        j->model.i_value += other < layer;
    }
}

static enum quant_type target_type(struct job *j, const struct tensor *t) {
    if (!chosen(j->o, t->name)) return t->type;
    if (!mix_is_matrix(t->name, t->n_dim)) return QUANT_F32;
    if (!j->mix) {
        j->report->n_matrix++;
        return t->type;
    }
    if (mix_keeps(j->mix) && quant_info(t->type)->gguf >= 0) {
        j->report->n_matrix++;
        return t->type;
    }
    place_value(j, t->name);
    enum quant_type wanted, type = mix_type(j->mix, &j->model, t->name, t->shape[3], &wanted);
    j->report->n_matrix++;
    if (type != wanted) j->report->fallback[wanted][type]++;
    return type;
}

/* Below 2.5 bits an encoder that does not know what columns are for makes a model that says nothing. */
static enum infer_status check_importance(const struct job *j, const struct tensor *t, enum quant_type type) {
    const bool needs = type == QUANT_IQ2_XXS || type == QUANT_IQ2_XS || type == QUANT_IQ2_S ||
                       type == QUANT_IQ1_S || type == QUANT_IQ1_M;
    const struct imatrix_entry *e;
    if (!mix_is_matrix(t->name, t->n_dim)) return INFER_OK;
    TRY(quantize_importance(j, t, &e));
    j->report->n_unweighed += j->o->imatrix && !e && type != t->type && strncmp(t->name, "blk.", 4) == 0;
    if (!needs || e || type == t->type || strncmp(t->name, "blk.", 4) != 0) return INFER_OK;
    return err_set(INFER_E_INPUT,
                   "%s: tensor %s would become %s, which needs an importance matrix%s%s: "
                   "infer imatrix makes one (--imatrix FILE)",
                   j->f->path, t->name, quant_info(type)->name,
                   j->o->imatrix ? "; there is none for it in " : "", j->o->imatrix ? j->o->imatrix : "");
}

static enum infer_status choose_types(struct job *j) {
    struct quantize_report *r = j->report;
    bool any = false;
    for (size_t i = 0; i < j->n_list; i++) {
        const struct tensor *t = &j->list[i].t;
        any |= chosen(j->o, t->name);
        j->target[i] = target_type(j, t);
    }
    if (!any) return err_set(INFER_E_INPUT, "%s: no tensor's name matches '%s'", j->f->path, j->o->only);
    if (!j->mix) TRY(quantize_best(j));
    for (size_t i = 0; i < j->n_list; i++) {
        const struct tensor *t = &j->list[i].t;
        if (!j->mix && j->o->chose && quantize_is_free(j, t)) j->o->chose(j->o->user, t->name, j->target[i]);
        TRY(check_importance(j, t, j->target[i]));
        if (j->target[i] == t->type && !merge_has(j->o->merge, t->name)) continue;
        r->n_changed++;
        r->n_lossy += quant_info(t->type)->elems > 1;
    }
    r->n_tensor = (int)j->n_list;
    r->bytes_in = j->f->file_bytes;
    return INFER_OK;
}

static bool key_is(const struct meta *m, const char *key) {
    return m->key.len == strlen(key) && memcmp(m->key.data, key, m->key.len) == 0;
}

const struct meta *quantize_in_halves(const struct tensorfile *f) {
    const struct meta *m = quantize_meta(f, "rope.neox");
    return m && (meta_elem_i64(m, 0) || quantize_meta(f, "rope.dimension_sections")) ? m : NULL;
}

static void put_imatrix(struct job *j) {
    const struct imatrix *m = &j->imatrix;
    if (m->n_entry == 0) return;
    gguf_writer_str(j->w, "quantize.imatrix.file", j->o->imatrix);
    if (*m->dataset) gguf_writer_str(j->w, "quantize.imatrix.dataset", m->dataset);
    gguf_writer_u32(j->w, "quantize.imatrix.entries_count", (uint32_t)m->n_entry);
    if (m->n_chunk) gguf_writer_u32(j->w, "quantize.imatrix.chunks_count", m->n_chunk);
}

static bool begins(const struct meta *m, const char *front) {
    size_t n = strlen(front);
    return m->key.len > n && memcmp(m->key.data, front, n) == 0;
}

/* That of the type which most of the elements have. */
static const struct mix *main_mix(const struct job *j) {
    double elements[QUANT_COUNT] = {0};
    int best = 0;
    for (size_t i = 0; i < j->n_list; i++) {
        const int64_t *s = j->list[i].t.shape;
        elements[j->target[i]] += (double)(s[0] * s[1] * s[2] * s[3]);
    }
    for (int t = 1; t < QUANT_COUNT; t++)
        if (elements[t] > elements[best]) best = t;
    return mix_find(quant_info((enum quant_type)best)->name, false);
}

static void put_head(struct job *j) {
    const struct meta *halves = quantize_in_halves(j->f);
    for (size_t i = 0; i < j->f->n_meta; i++) {
        const struct meta *m = &j->f->meta[i];
        bool split = begins(m, "split."); /* the parts become one file */
        bool own =
            (!j->o->only && (key_is(m, "general.file_type") || key_is(m, "general.quantization_version"))) ||
            (j->imatrix.n_entry && begins(m, "quantize.imatrix."));
        if (!split && !own && m != halves) gguf_writer_meta(j->w, m);
    }
    if (!j->o->only) {
        gguf_writer_u32(j->w, "general.file_type",
                        mix_file_type(j->mix && !mix_keeps(j->mix) ? j->mix : main_mix(j)));
        gguf_writer_u32(j->w, "general.quantization_version", 2);
    }
    put_imatrix(j);
    for (size_t i = 0; i < j->n_list; i++) {
        const struct tensor *t = &j->list[i].t;
        gguf_writer_tensor(j->w, t->name, j->target[i], t->n_dim, t->shape);
    }
}

/* What the file will lack of a folder, one line each. */
static void say_left_out(const struct job *j) {
    const struct tensorfile *f = j->f;
    const char *in = j->o->in, *out = j->o->out;
    if (f->senses.n)
        log_line(LOG_WARN,
                 "%s: %zu tensors for images or sound (%.1f MB) are left out: %s is of the text model alone",
                 in, f->senses.n, (double)f->senses.bytes * 1e-6, out);
    if (f->drafts.n)
        log_line(LOG_WARN,
                 "%s: %zu tensors of layers that draft tokens (%.1f MB) are left out: %s drafts none", in,
                 f->drafts.n, (double)f->drafts.bytes * 1e-6, out);
    if (!j->o->tower && strcmp(f->format, "safetensors") == 0 && !tensorfile_meta(f, "tokenizer.ggml.tokens"))
        log_line(
            LOG_WARN,
            "%s has no tokenizer.json and no tokenizer.model: %s reads and writes token ids alone, no text",
            in, out);
}

/* ---- the call ---- */

static enum infer_status write_file(struct job *j) {
    put_head(j);
    TRY(gguf_writer_begin(j->w));
    j->report->bytes_out = gguf_writer_bytes(j->w);
    for (size_t i = 0; i < j->n_list; i++) TRY(quantize_tensor(j, &j->list[i], j->target[i]));
    return INFER_OK;
}

static enum infer_status take_memory(struct job *j) {
    TRY(mem_new(&j->target, j->n_list * sizeof *j->target, "list of types"));
    TRY(mem_new(&j->values, CHUNK * sizeof *j->values, "decoded weights"));
    TRY(mem_new(&j->blocks, 4 * CHUNK, "encoded weights"));
    TRY(mem_new(&j->share_loss, SHARES * sizeof *j->share_loss, "sums of errors"));
    if (j->o->imatrix) TRY(mem_new(&j->importance, CHUNK * sizeof *j->importance, "importance"));
    if (j->o->check || !j->mix || mix_keeps(j->mix))
        TRY(mem_new(&j->again, CHUNK * sizeof *j->again, "weights decoded again"));
    return INFER_OK;
}

/* A larger model under the name of the output is the one to start from: IN and OUT are the wrong way round. A folder is not mistaken. */
static enum infer_status keep_larger(const struct job *j) {
    struct stat in, out;
    char magic[4] = "";
    if (j->o->force || stat(j->o->in, &in) != 0 || S_ISDIR(in.st_mode) || stat(j->o->out, &out) != 0 ||
        !S_ISREG(out.st_mode) || (uint64_t)out.st_size <= j->f->file_bytes)
        return INFER_OK;
    FILE *f = fopen(j->o->out, "rb");
    const bool is_model = f && fread(magic, 1, 4, f) == 4 && memcmp(magic, "GGUF", 4) == 0;
    if (f) fclose(f);
    if (!is_model) return INFER_OK;
    return err_set(
        INFER_E_INPUT,
        "%s is a larger model (%.1f MB) than %s (%.1f MB), from which it would be replaced: IN comes "
        "before OUT; --force replaces it",
        j->o->out, (double)out.st_size * 1e-6, j->o->in, (double)j->f->file_bytes * 1e-6);
}

static enum infer_status run(struct job *j) {
    struct str arch = {"", 0};
    bool present;
    TRY(tensorfile_differs(j->o->out, j->o->in));
    TRY(meta_str(j->f, "general.architecture", &arch, &present));
    if (str_is(arch, "eagle3"))
        return err_set(INFER_E_UNSUPPORTED, "%s is a head that drafts for another model; it is read as it is",
                       j->o->in);
    TRY(keep_larger(j));
    if (j->o->imatrix) {
        TRY(outfile_differs(j->o->out, j->o->imatrix));
        TRY(imatrix_read(&j->imatrix, j->o->imatrix));
    }
    j->model = describe(j->f);
    j->model.importance = j->o->imatrix != NULL;
    TRY(stacks_list(j->f, &j->list, &j->n_list));
    TRY(take_memory(j));
    TRY(choose_types(j));
    TRY(gguf_writer_open(&j->w, j->o->out));
    say_left_out(j);
    return write_file(j);
}

enum infer_status quantize_file(const struct quantize_options *o, struct quantize_report *report) {
    struct job j = {.o = o, .report = report};
    char names[512];
    memset(report, 0, sizeof *report);
    j.mix = o->type ? mix_find(o->type, o->pure) : NULL;
    if (!j.mix && !(o->bpw > 0 && !o->type))
        return err_set(INFER_E_INPUT, "no type '%s'; there are: %s", o->type ? o->type : "",
                       mix_names(names, sizeof names));
    TRY(tensorfile_open(&j.f, o->in,
                        &(struct tensorfile_options){.tower = o->tower,
                                                     .for_gguf = true,
                                                     .sparse_ok = o->sparse_ok,
                                                     .task = o->task,
                                                     .ignore = o->ignore}));
    enum infer_status s = run(&j);
    if (s)
        gguf_writer_abort(j.w);
    else
        s = gguf_writer_close(j.w);
    stacks_free(j.list, j.n_list);
    mem_free(j.target);
    mem_free(j.values);
    mem_free(j.blocks);
    mem_free(j.share_loss);
    mem_free(j.importance);
    mem_free(j.again);
    imatrix_free(&j.imatrix);
    tensorfile_close(j.f);
    return s;
}
