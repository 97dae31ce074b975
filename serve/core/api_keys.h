/* API keys: whose a request is, and what it may ask for. */
#pragma once
#include "serve/core/job.h"

enum { KEY_BYTES = 256 };
struct keys;
/* Lines "name:key", "name:key:class" and "name:key:class:max" of a file that only its owner reads, and INFER_API_KEY. *out NULL: there are none. errors: INFER_E_IO,
 * INFER_E_INPUT (line), INFER_E_MEMORY */
enum infer_status keys_open(struct keys **out, const char *path);
void keys_close(struct keys *k);
/* Which key this is, in constant time; -1: none. */
int keys_find(const struct keys *k, const char *key, size_t n);
/* A number for whose prompts share pages: by the key itself, so that it is the same in other processes; never 0. */
uint64_t keys_salt(const struct keys *k, int i);
const char *keys_name(const struct keys *k, int i);
int keys_count(const struct keys *k);
/* The best class that it may ask for; how many requests it may have here, `most` where its line does not say. */
int keys_class(const struct keys *k, int i);
int keys_max(const struct keys *k, int i, int most);
