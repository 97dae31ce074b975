/* Models by name: hf:ORG/REPO[:TYPE|:FILE][@REVISION], fetched from the hub of Hugging Face (or the one that $HF_ENDPOINT names) into its own
 * cache, where other programs find them, and this one theirs. Only what a name asks for goes over the network. Environment, as
 * huggingface_hub has it: HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME, HF_TOKEN, HF_TOKEN_PATH, HF_ENDPOINT, HF_HUB_OFFLINE.
 * source: huggingface_hub's guide "Understand caching", hub API /api/models. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/status.h"

struct hub_name {
    char repo[200];     /* org/name */
    char part[256];     /* a type as Q4_K_M, a file of the repository, or "" */
    char revision[128]; /* branch, tag or commit */
};
/* Whether a text is a name and no path. */
bool hub_is_name(const char *text);
/* "hf:org/repo:Q4_K_M@main"; errors: INFER_E_INPUT says what a name is */
enum infer_status hub_parse(const char *text, struct hub_name *out);

/* What whoever asks does meanwhile; members may be NULL. */
struct hub_calls {
    void *user;
    void (*progress)(void *user, const char *what, double done, double total); /* bytes */
    void (*say)(void *user, const char *line);
    /* Bytes that a model takes on this machine, and whether that fits. file: it, whose weights need not be there yet; NULL: it is in
     * several parts, of so many bytes. */
    enum infer_status (*fits)(void *user, const char *file, uint64_t weights, uint64_t *bytes, bool *fits);
};

/* Fetches what is missing of a name and gives the path of its model: a file (the first of several) or a folder. Looks for a newer
 * commit. errors: INFER_E_INPUT (no such repository, revision, file or type: names those that are near; gated, not allowed: says where to
 * ask), INFER_E_IO (network, wrong size or hash), INFER_E_WRITE (no room, before anything is fetched) */
enum infer_status hub_pull(const struct hub_name *name, const struct hub_calls *c, char *path, size_t n);
/* The same from the cache alone. errors: INFER_E_IO (it is not there whole) */
enum infer_status hub_find(const struct hub_name *name, const struct hub_calls *c, char *path, size_t n);

/* A model on this disk. */
struct hub_model {
    char *name;     /* as -m takes it: hf:org/repo:TYPE or a path */
    char *path;     /* of the file, or the folder */
    const char *of; /* whose: "hf", "ollama", "lm-studio", "infer" */
    uint64_t bytes; /* of all its files */
    int64_t used;   /* seconds since 1970: last read or written */
};
struct hub_models {
    struct hub_model *model; /* model[n], the newest first */
    int n;
};
/* All that the caches of this user hold whole. */
enum infer_status hub_list(struct hub_models *out);
void hub_list_free(struct hub_models *m);
/* Whether a name means a model of the list; exact: by its file or type, else by its type without UD-. A revision other than main is the
 * model's own. */
bool hub_means(const struct hub_name *name, const struct hub_model *m, bool exact);
/* Takes a model's files out of the cache of the hub; blobs that other files of the repository share stay. *freed: bytes. errors:
 * INFER_E_INPUT (it is not there, or another program's) */
enum infer_status hub_remove(const struct hub_name *name, uint64_t *freed);
