/* Which files of a repository are the model that a name means. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/mem.h"
#include "tools/hub/hub_impl.h"

enum { MOST = 200 };

static bool ends(const char *s, const char *with) {
    const size_t n = strlen(s), k = strlen(with);
    return n >= k && !strcasecmp(s + n - k, with);
}
static const char *base_of(const char *path) { return strrchr(path, '/') ? strrchr(path, '/') + 1 : path; }
static bool has_word(const char *path, const char *word) { return strcasestr(base_of(path), word) != NULL; }
static bool is_tower(const char *path) { return ends(path, ".gguf") && has_word(path, "mmproj"); }

/* "-00002-of-00005.gguf": the number of the part, 0 of a whole file; *stem: bytes before it. */
static int part_of(const char *path, size_t *stem) {
    const size_t n = strlen(path);
    int part, of, used = 0;
    *stem = n - 5;
    if (n < 21 || sscanf(path + n - 20, "-%5d-of-%5d.gguf%n", &part, &of, &used) != 2 || used != 20) return 0;
    *stem = n - 20;
    return part;
}
/* The type that a file's name tells: its last word that is one, and UD- in front of it. */
static void type_of(const char *path, char *to, size_t n) {
    size_t stem;
    const char *base = base_of(path);
    part_of(path, &stem);
    const char *end = path + stem;
    to[0] = 0;
    for (const char *p = end; p > base;) {
        const char *from = p;
        while (from > base && !strchr("-.", from[-1])) from--;
        const size_t len = (size_t)(p - from);
        const bool quant = (!strncasecmp(from, "q", 1) && len > 1 && isdigit((unsigned char)from[1])) ||
                           ((!strncasecmp(from, "iq", 2) || !strncasecmp(from, "tq", 2)) && len > 2 &&
                            isdigit((unsigned char)from[2])) ||
                           !strncasecmp(from, "mxfp4", 5) || !strncasecmp(from, "nvfp4", 5);
        const bool plain = (len == 3 && (!strncasecmp(from, "f16", 3) || !strncasecmp(from, "f32", 3))) ||
                           (len == 4 && !strncasecmp(from, "bf16", 4));
        if (quant || plain) {
            if (from - base >= 3 && !strncasecmp(from - 3, "ud-", 3)) from -= 3;
            snprintf(to, n, "%.*s", (int)(p - from), from);
            return;
        }
        p = from > base ? from - 1 : base;
    }
}
static int larger_first(const void *a, const void *b) {
    const struct hub_variant *x = a, *y = b;
    return x->bytes < y->bytes ? 1 : x->bytes > y->bytes ? -1 : strcmp(x->first, y->first);
}
/* Whether a file belongs to the model whose first file is named. */
static bool same_model(const char *path, const char *first) {
    size_t a, b;
    const int part = part_of(path, &a), one = part_of(first, &b);
    return one ? part > 0 && a == b && !strncmp(path, first, a) : !strcmp(path, first);
}
void hub_variants(const struct hub_repo *r, struct hub_variant *v, int most, int *n) {
    size_t stem;
    *n = 0;
    for (int i = 0; i < r->n && *n < most; i++) {
        const char *path = r->file[i].path;
        if (!ends(path, ".gguf") || is_tower(path) || has_word(path, "imatrix") || part_of(path, &stem) > 1)
            continue;
        v[*n] = (struct hub_variant){.first = path};
        type_of(path, v[*n].type, sizeof v->type);
        for (int k = 0; k < r->n; k++)
            if (same_model(r->file[k].path, path)) v[*n].bytes += r->file[k].size;
        (*n)++;
    }
    qsort(v, (size_t)*n, sizeof *v, larger_first);
}

/* ---- a type or a file that is named ---- */
/* By its file, by its type, by its type without UD-. */
static bool names(const struct hub_variant *v, const char *asked, int rule) {
    if (rule == 0) return !strcmp(v->first, asked) || !strcmp(base_of(v->first), asked);
    if (rule == 1) return !strcasecmp(v->type, asked);
    return !strncasecmp(v->type, "ud-", 3) && !strcasecmp(v->type + 3, asked);
}
static void list_variants(const struct hub_variant *v, int n, char *to, size_t room) {
    size_t at = 0;
    to[0] = 0;
    for (int i = 0; i < n && at + 80 < room; i++)
        at += (size_t)snprintf(to + at, room - at, "%s%s (%.1f GB)", i ? ", " : "",
                               v[i].type[0] ? v[i].type : base_of(v[i].first), (double)v[i].bytes / 1e9);
}
static enum infer_status by_name(const struct hub_name *name, const struct hub_variant *v, int n,
                                 const char **first) {
    char list[1500];
    const struct hub_variant *found = NULL;
    for (int rule = 0; rule < 3 && !found; rule++)
        for (int i = 0; i < n && !found; i++)
            if (names(&v[i], name->part, rule)) found = &v[i];
    list_variants(v, n, list, sizeof list);
    if (!found)
        return err_set(INFER_E_INPUT, "hf:%s has no %s; there are %s", name->repo, name->part,
                       n ? list : "no GGUF files");
    *first = found->first;
    return INFER_OK;
}

/* ---- the best one for this machine ---- */
static bool wider_than_8_bits(const char *type) {
    return !strncasecmp(type, "f16", 3) || !strncasecmp(type, "f32", 3) || !strncasecmp(type, "bf16", 4);
}
struct ask {
    const struct hub_repo *r;
    const struct hub_calls *c;
    enum infer_status (*header)(void *user, const struct hub_file *f, char *path, size_t n);
    void *user;
};
static enum infer_status fits(const struct ask *a, const struct hub_variant *v, uint64_t *bytes, bool *yes) {
    char path[HUB_PATH];
    size_t stem;
    if (part_of(v->first, &stem)) return a->c->fits(a->c->user, NULL, v->bytes, bytes, yes);
    for (int i = 0; i < a->r->n; i++)
        if (!strcmp(a->r->file[i].path, v->first)) {
            TRY(a->header(a->user, &a->r->file[i], path, sizeof path));
            return a->c->fits(a->c->user, path, v->bytes, bytes, yes);
        }
    infer_bug("%s is no file", v->first);
}
static void tell_choice(const struct hub_name *name, const struct hub_calls *c, const struct hub_variant *v,
                        int n, int at, uint64_t bytes, bool yes) {
    char line[600];
    int len = snprintf(line, sizeof line, "hf:%s: %s is %s: it takes %.1f GB", name->repo, v[at].type,
                       yes ? "the most exact that fits here" : "the smallest, and does not fit whole",
                       (double)bytes / 1e9);
    if (at > 0 && len > 0)
        len += snprintf(line + len, sizeof line - (size_t)len, "; one up %s (%.1f GB of weights)",
                        v[at - 1].type, (double)v[at - 1].bytes / 1e9);
    if (at + 1 < n && len > 0)
        len += snprintf(line + len, sizeof line - (size_t)len, "; one down %s (%.1f GB)", v[at + 1].type,
                        (double)v[at + 1].bytes / 1e9);
    if (c->say) c->say(c->user, line);
}
/* The largest of at most 8 bits whose plan fits. */
static enum infer_status best(const struct hub_name *name, const struct ask *a, const struct hub_variant *v,
                              int n, const char **first) {
    int at = 0;
    uint64_t bytes = 0;
    bool yes = false;
    *first = v[0].first;
    if (n == 1 || !a->c->fits) return INFER_OK;
    while (at + 1 < n && wider_than_8_bits(v[at].type)) at++;
    for (; at < n; at++) {
        TRY(fits(a, &v[at], &bytes, &yes));
        if (yes || at + 1 == n) break;
    }
    *first = v[at].first;
    tell_choice(name, a->c, v, n, at, bytes, yes);
    return INFER_OK;
}

/* ---- a folder of Hugging Face ---- */
static bool of_folder(const char *path) {
    static const char *const kinds[] = {
        ".safetensors", ".safetensors.index.json", ".json", ".model", ".jinja", "merges.txt", "vocab.txt"};
    if (strchr(path, '/') || !strncmp(path, "consolidated", 12)) return false;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (ends(path, kinds[i])) return true;
    return false;
}
static enum infer_status folder(const struct hub_name *name, const struct hub_repo *r,
                                struct hub_choice *out) {
    bool config = false, weights = false;
    for (int i = 0; i < r->n; i++) {
        out->wanted[i] = of_folder(r->file[i].path);
        config |= !strcmp(r->file[i].path, "config.json");
        weights |= out->wanted[i] && ends(r->file[i].path, ".safetensors");
    }
    out->main = -1;
    if (name->part[0])
        return err_set(INFER_E_INPUT, "hf:%s has no %s: it has no GGUF files", name->repo, name->part);
    if (!config || !weights)
        return err_set(
            INFER_E_INPUT,
            "hf:%s holds no model that is read here: neither .gguf files nor config.json with .safetensors",
            name->repo);
    return INFER_OK;
}

/* The tower that is beside a model: the one of 16 bits, else the first. */
static int tower_of(const struct hub_repo *r) {
    int found = -1;
    for (int i = 0; i < r->n; i++)
        if (is_tower(r->file[i].path) &&
            (found < 0 || (ends(r->file[i].path, "F16.gguf") && !ends(r->file[i].path, "BF16.gguf"))))
            found = i;
    return found;
}
enum infer_status hub_choose(const struct hub_name *name, const struct hub_repo *r, const struct hub_calls *c,
                             enum infer_status (*header)(void *user, const struct hub_file *f, char *path,
                                                         size_t n),
                             void *user, struct hub_choice *out) {
    struct hub_variant *v;
    const char *first = NULL;
    const struct ask a = {r, c, header, user};
    int n;
    *out = (struct hub_choice){.main = -1};
    TRY(mem_new(&out->wanted, (size_t)r->n + 1, "a choice"));
    TRY(mem_new(&v, MOST * sizeof *v, "a choice"));
    hub_variants(r, v, MOST, &n);
    enum infer_status st = !n              ? folder(name, r, out)
                           : name->part[0] ? by_name(name, v, n, &first)
                                           : best(name, &a, v, n, &first);
    for (int i = 0; st == INFER_OK && n && i < r->n; i++) {
        out->wanted[i] = same_model(r->file[i].path, first);
        if (!strcmp(r->file[i].path, first)) out->main = i;
    }
    const int tower = tower_of(r);
    if (st == INFER_OK && n && tower >= 0) out->wanted[tower] = true;
    mem_free(v);
    return st;
}
