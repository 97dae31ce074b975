#include "models/registry.h"

#include <string.h>

#define ARCH(id) extern const struct arch arch_##id;
#include "models/registry.def"
#undef ARCH

static const struct arch *const table[] = {
#define ARCH(id) &arch_##id,
#include "models/registry.def"
#undef ARCH
};
enum { N_ARCH = sizeof table / sizeof *table };

const struct arch *arch_at(int i) { return i >= 0 && i < (int)N_ARCH ? table[i] : NULL; }

const struct arch *arch_find(const char *name, size_t len) {
    for (int i = 0; i < (int)N_ARCH; i++)
        if (strlen(table[i]->name) == len && memcmp(table[i]->name, name, len) == 0) return table[i];
    const char *head = arch_eagle3.name;
    return strlen(head) == len && memcmp(head, name, len) == 0 ? &arch_eagle3 : NULL;
}

const struct arch *arch_find_hf(const char *model_type, const char *inner, const char *class) {
    const struct arch *first = NULL, *whole = NULL;
    for (int i = 0; i < (int)N_ARCH; i++)
        for (const struct arch_hf *hf = table[i]->hf.models; hf->model_type; hf++) {
            if (strcmp(hf->model_type, model_type) != 0) continue;
            const bool is = !hf->inner || (inner && strcmp(hf->inner, inner) == 0);
            if (is && (hf->inner || !class || strcmp(hf->class, class) == 0)) return table[i];
            if (is && !whole) whole = table[i];
            if (!first) first = table[i];
        }
    return whole ? whole : first;
}

/* Bytes that both begin with. */
static size_t common(const char *a, const char *b, size_t nb) {
    size_t n = 0;
    while (n < nb && a[n] && a[n] == b[n]) n++;
    return n;
}

enum infer_status arch_unsupported(const char *path, const char *name, size_t len) {
    enum { NEAR = 4 }; /* qwen, mist */
    const struct arch *nearest = NULL;
    size_t best = NEAR - 1;
    int shown = (int)(len < 64 ? len : 64);
    if (len == 4 && memcmp(name, "clip", 4) == 0)
        return err_set(
            INFER_E_UNSUPPORTED,
            "%s: a tower for pictures (architecture 'clip'): it goes beside a text model, as its mmproj",
            path);
    for (int i = 0; i < (int)N_ARCH; i++) {
        size_t n = common(table[i]->name, name, len);
        for (const struct arch_hf *hf = table[i]->hf.models; hf->model_type; hf++) {
            size_t m = common(hf->model_type, name, len);
            if (m > n) n = m;
        }
        if (n <= best) continue;
        best = n;
        nearest = table[i];
    }
    return err_set(INFER_E_UNSUPPORTED,
                   "%s: architecture '%.*s' is not supported; %s%s%s%s; 'infer help models' lists what runs",
                   path, shown, name, nearest ? "the nearest that is: " : "nothing near it is",
                   nearest ? nearest->name : "", nearest ? ", " : "", nearest ? nearest->families : "");
}
