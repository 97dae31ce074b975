/* GGUF: header, parts of a split file, order of the checks. */
#include "files/gguf_impl.h"

#include <stdio.h>
#include <string.h>

/* ---- header ---- */

static enum infer_status read_header(struct gguf_part *p) {
    struct gguf_cursor *c = &p->c;
    if (c->size < GGUF_HEADER)
        return gguf_fail(c, INFER_E_INPUT, "the file has %zu bytes, its header alone has %d", c->size,
                         GGUF_HEADER);
    if (memcmp(c->data, "GGUF", 4) != 0) return gguf_fail(c, INFER_E_INPUT, "does not begin with 'GGUF'");
    c->pos = 4;
    TRY(gguf_u32(c, &p->version, "the version"));
    uint32_t swapped = __builtin_bswap32(p->version);
    c->pos = 4;
    if (swapped >= 1 && swapped <= GGUF_VERSION)
        return gguf_fail(c, INFER_E_UNSUPPORTED, "GGUF of a big-endian machine is not supported");
    if (p->version == 1)
        return gguf_fail(c, INFER_E_UNSUPPORTED, "GGUF version 1 is not supported; convert the model again");
    if (p->version < 2 || p->version > GGUF_VERSION)
        return gguf_fail(c, p->version ? INFER_E_UNSUPPORTED : INFER_E_INPUT,
                         "GGUF version %u is not supported (2 and 3 are)", p->version);
    c->pos = 8;
    TRY(gguf_u64(c, &p->n_tensor, "the number of tensors"));
    TRY(gguf_u64(c, &p->n_key, "the number of keys"));
    return gguf_count(c, p->n_tensor, GGUF_TENSOR_MIN, "tensors");
}

static enum infer_status read_alignment(struct gguf_part *p) {
    bool present;
    p->alignment = GGUF_ALIGNMENT;
    TRY(meta_u32(&p->keys, "general.alignment", &p->alignment, &present));
    uint32_t a = p->alignment;
    if (a < GGUF_ALIGNMENT_MIN || a > GGUF_ALIGNMENT_MAX || (a & (a - 1)))
        return err_set(INFER_E_INPUT, "%s: key 'general.alignment' is %u, not a power of two from %d to %d",
                       p->c.path, a, GGUF_ALIGNMENT_MIN, GGUF_ALIGNMENT_MAX);
    return INFER_OK;
}

static enum infer_status read_part(struct gguf_part *p, const struct mapfile *m, struct arena *a) {
    p->c = (struct gguf_cursor){.data = m->data, .size = m->size, .path = m->path};
    TRY(read_header(p));
    TRY(gguf_read_keys(p, a));
    return read_alignment(p);
}

/* ---- split files: PREFIX-00001-of-00003.gguf ---- */

enum { SPLIT_MAX = 99999, SPLIT_SUFFIX = 20 }; /* "-00001-of-00003.gguf" */

/* Number of parts that the part's keys declare, 1 when it is not split. */
static enum infer_status split_count(const struct gguf_part *p, uint32_t *count) {
    bool present;
    *count = 1;
    TRY(meta_u32(&p->keys, "split.count", count, &present));
    if (*count == 0) *count = 1;
    if (*count > SPLIT_MAX)
        return err_set(INFER_E_INPUT, "%s: key 'split.count' is %u, more than %d", p->c.path, *count,
                       SPLIT_MAX);
    return INFER_OK;
}

/* Part number no (from 0) of count: what p's keys must say. */
static enum infer_status check_split(const struct gguf_part *p, uint32_t no, uint32_t count) {
    uint32_t its_no, its_count;
    TRY(meta_u32(&p->keys, "split.no", &its_no, NULL));
    TRY(split_count(p, &its_count));
    if (its_no == no && its_count == count) return INFER_OK;
    if (no == 0)
        return err_set(INFER_E_INPUT, "%s: is part %llu of %u; name the first part", p->c.path,
                       (unsigned long long)its_no + 1, its_count);
    return err_set(INFER_E_INPUT, "%s: says it is part %llu of %u, its name says part %u of %u", p->c.path,
                   (unsigned long long)its_no + 1, its_count, no + 1, count);
}

/* Path of part no in the arena; the first part's own name must fit the pattern. */
static enum infer_status split_path(struct tensorfile *f, uint32_t no, uint32_t count, char **out) {
    size_t n = strlen(f->path);
    char suffix[SPLIT_SUFFIX + 1];
    snprintf(suffix, sizeof suffix, "-%05u-of-%05u.gguf", 1u, count);
    if (n < SPLIT_SUFFIX || strcmp(f->path + n - SPLIT_SUFFIX, suffix) != 0)
        return err_set(INFER_E_INPUT, "%s: is the first of %u parts, but its name does not end in '%s'",
                       f->path, count, suffix);
    char *path = arena_strndup(&f->arena, f->path, n);
    if (!path) return err_set(INFER_E_MEMORY, "%s: out of memory", f->path);
    snprintf(path + n - SPLIT_SUFFIX, SPLIT_SUFFIX + 1, "-%05u-of-%05u.gguf", no + 1, count);
    *out = path;
    return INFER_OK;
}

/* Opens the parts after the first into f->part and parts[]. */
static enum infer_status open_split(struct tensorfile *f, struct gguf_part *parts, uint32_t count,
                                    bool no_mmap) {
    TRY(check_split(&parts[0], 0, count));
    for (uint32_t i = 1; i < count; i++) {
        char *path;
        TRY(split_path(f, i, count, &path));
        enum infer_status s = mapfile_open(&f->part[i], path, no_mmap);
        if (s == INFER_E_IO) err_prefix(s, "part %u of %u cannot be opened", i + 1, count);
        TRY(s);
        f->n_part++;
        TRY(read_part(&parts[i], &f->part[i], &f->arena));
        TRY(check_split(&parts[i], i, count));
    }
    return INFER_OK;
}

/* parts[count] in the arena: the first was read, the rest is opened here. */
static enum infer_status read_parts(struct tensorfile *f, struct gguf_part **out, uint32_t *count,
                                    bool no_mmap) {
    struct gguf_part first = {0}, *parts;
    struct mapfile *maps;
    char *path;
    TRY(read_part(&first, &f->part[0], &f->arena));
    TRY(split_count(&first, count));
    if (*count > 1) {
        TRY(check_split(&first, 0, *count));
        TRY(split_path(f, 0, *count, &path));
    }
    TRY(gguf_alloc(&f->arena, &parts, *count, sizeof *parts));
    TRY(gguf_alloc(&f->arena, &maps, *count, sizeof *maps));
    parts[0] = first;
    maps[0] = f->part[0];
    f->part = maps;
    *out = parts;
    return *count > 1 ? open_split(f, parts, *count, no_mmap) : INFER_OK;
}

/* ---- the whole ---- */

static enum infer_status count_tensors(struct tensorfile *f, const struct gguf_part *parts, uint32_t count,
                                       const struct tensorfile_options *options) {
    uint64_t n = 0; /* each is bounded by the bytes of its part: no wrap */
    uint32_t declared;
    bool present;
    for (uint32_t i = 0; i < count; i++) {
        n += parts[i].n_tensor;
        f->file_bytes += f->part[i].size;
    }
    if (count > 1) {
        TRY(meta_u32(&parts[0].keys, "split.tensors.count", &declared, &present));
        if (present && declared != n)
            return err_set(INFER_E_INPUT,
                           "%s: key 'split.tensors.count' is %u, the %u parts hold %llu tensors", f->path,
                           declared, count, (unsigned long long)n);
    }
    if (n == 0 && !options->vocab_only)
        return err_set(INFER_E_INPUT, "%s: holds no tensors (a vocabulary alone), so it cannot be run",
                       f->path);
    f->n_tensor = (size_t)n;
    return gguf_alloc(&f->arena, &f->tensor, n, sizeof *f->tensor);
}

enum infer_status gguf_read(struct tensorfile *f, const struct tensorfile_options *options) {
    struct gguf_part *parts;
    struct strmap *index;
    uint32_t count;
    TRY(read_parts(f, &parts, &count, options->no_mmap));
    f->format = parts[0].version == 2 ? "gguf v2" : "gguf v3";
    f->alignment = parts[0].alignment;
    f->meta = parts[0].keys.meta;
    f->n_meta = parts[0].keys.n_meta;
    f->meta_index = parts[0].keys.meta_index;
    TRY(count_tensors(f, parts, count, options));
    TRY(strmap_new(&index, &f->arena));
    f->tensor_index = index;
    size_t first = 0;
    for (uint32_t i = 0; i < count; i++) {
        TRY(gguf_read_tensors(f, &parts[i], (int)i, first, options));
        first += (size_t)parts[i].n_tensor;
    }
    return INFER_OK;
}
