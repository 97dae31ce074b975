#include "serve/core/api_keys.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/mem.h"
#include "files/textfile.h"

struct keys {
    int n;
    struct {
        char name[65];
        int class, max;               /* max 0: not said */
        unsigned char key[KEY_BYTES]; /* with zeros behind */
    } of[];
};

static enum infer_status add_key(struct keys **k, const char *name, size_t n_name, const char *key,
                                 size_t n) {
    if (n < 8 || n > KEY_BYTES)
        return err_set(INFER_E_INPUT, "a key has %zu bytes, and must have 8 to %d", n, KEY_BYTES);
    if (n_name > 64) return err_set(INFER_E_INPUT, "the name of a key has %zu bytes, at most 64", n_name);
    const int at = *k ? (*k)->n : 0;
    struct keys *grown = mem_realloc(*k, sizeof *grown + (size_t)(at + 1) * sizeof grown->of[0]);
    if (!grown) return err_set(INFER_E_MEMORY, "out of memory: keys");
    *k = grown;
    grown->n = at + 1;
    memset(&grown->of[at], 0, sizeof grown->of[at]);
    memcpy(grown->of[at].name, name, n_name);
    memcpy(grown->of[at].key, key, n);
    return INFER_OK;
}

/* Takes ":class" and ":class:max" off the end of key[n]. */
static size_t take_class(const char *key, size_t n, int *class, int *max) {
    static const char *const names[] = {"flex", "default", "priority"};
    size_t end = n, digits = n;
    while (digits && key[digits - 1] >= '0' && key[digits - 1] <= '9') digits--;
    const bool number = digits < n && n - digits < 9 && digits > 1 && key[digits - 1] == ':';
    if (number) end = digits - 1;
    for (int i = 0; i < 3; i++) {
        const size_t len = strlen(names[i]);
        if (end <= len + 1 || key[end - len - 1] != ':' || memcmp(key + end - len, names[i], len) != 0)
            continue;
        *class = i + CLASS_FLEX;
        if (number) *max = atoi(key + digits);
        return end - len - 1;
    }
    return n;
}

static enum infer_status read_keys(struct keys **k, const char *path, const char *text) {
    int line = 1;
    for (const char *p = text; *p; line++) {
        size_t n = strcspn(p, "\n"), end = n;
        if (end && p[end - 1] == '\r') end--;
        const char *colon = memchr(p, ':', end);
        if (end && *p != '#') {
            if (!colon) return err_set(INFER_E_INPUT, "%s: line %d is not like name:key", path, line);
            int class = CLASS_DEFAULT, max = 0;
            const size_t n_key = take_class(colon + 1, end - (size_t)(colon + 1 - p), &class, &max);
            enum infer_status st = add_key(k, p, (size_t)(colon - p), colon + 1, n_key);
            if (!st) (*k)->of[(*k)->n - 1].class = class, (*k)->of[(*k)->n - 1].max = max;
            if (st) return err_prefix(st, "%s: line %d", path, line);
        }
        p += n + (p[n] == '\n');
    }
    return *k ? INFER_OK : err_set(INFER_E_INPUT, "%s holds no key", path);
}

/* Mode bits that give a file to others. systemd 254 and later give a service's credentials to its user by an access list, whose mask stands where the
 * group's bits are; the folder is the service's own. */
static mode_t others(const char *path) {
    const char *dir = getenv("CREDENTIALS_DIRECTORY");
    const size_t n = dir ? strlen(dir) : 0;
    return n && !strncmp(path, dir, n) && path[n] == '/' ? 007 : 077;
}

enum infer_status keys_open(struct keys **out, const char *path) {
    const char *env = getenv("INFER_API_KEY");
    struct stat st;
    *out = NULL;
    if (path) {
        char *text;
        size_t n;
        if (stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_mode & others(path))
            return err_set(INFER_E_INPUT, "%s can be read by others: chmod 600 %s", path, path);
        TRY(text_read(&text, &n, path, TEXT_PROMPT));
        enum infer_status s = read_keys(out, path, text);
        mem_free(text);
        if (s) return s;
    }
    if (env && *env) {
        enum infer_status s = add_key(out, "INFER_API_KEY", 13, env, strlen(env));
        if (s) return err_prefix(s, "INFER_API_KEY");
        (*out)->of[(*out)->n - 1].class = CLASS_PRIORITY;
    }
    return INFER_OK;
}

void keys_close(struct keys *k) { mem_free(k); }
uint64_t keys_salt(const struct keys *k, int i) {
    uint64_t h = 14695981039346656037ull;
    for (int b = 0; b < KEY_BYTES; b++) h = (h ^ k->of[i].key[b]) * 1099511628211ull;
    return h | 1;
}

const char *keys_name(const struct keys *k, int i) { return k && i >= 0 ? k->of[i].name : ""; }

int keys_count(const struct keys *k) { return k ? k->n : 0; }
int keys_class(const struct keys *k, int i) { return i >= 0 ? k->of[i].class : CLASS_PRIORITY; }
int keys_max(const struct keys *k, int i, int most) {
    return k && i >= 0 && k->of[i].max ? k->of[i].max : most;
}

int keys_find(const struct keys *k, const char *key, size_t n) {
    unsigned char given[KEY_BYTES] = {0};
    int found = -1;
    if (n <= KEY_BYTES) memcpy(given, key, n);
    for (int i = 0; i < k->n; i++) { /* always all of them, all of their bytes */
        unsigned char differs = n > KEY_BYTES;
        for (int b = 0; b < KEY_BYTES; b++) differs |= given[b] ^ k->of[i].key[b];
        if (!differs) found = i;
    }
    return found;
}
