/* SHA-256 of files that Git LFS has, SHA-1 of git's blobs ("blob SIZE\0", then the bytes). */
#include <sha1.h>
#include <sha2.h>
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "tools/hub/hub_impl.h"

struct hub_hash {
    SHA2_CTX large;
    SHA1_CTX small;
    bool is_large;
};
enum infer_status hub_hash_new(struct hub_hash **out, const struct hub_file *f) {
    char head[64];
    struct hub_hash *h;
    TRY(mem_new(&h, sizeof *h, "a hash"));
    h->is_large = f->large;
    SHA256Init(&h->large);
    SHA1Init(&h->small);
    const int n = snprintf(head, sizeof head, "blob %llu", (unsigned long long)f->size);
    SHA1Update(&h->small, (const uint8_t *)head, (size_t)n + 1);
    *out = h;
    return INFER_OK;
}
void hub_hash_add(struct hub_hash *h, const void *data, size_t n) {
    if (h->is_large)
        SHA256Update(&h->large, data, n);
    else
        SHA1Update(&h->small, data, n);
}
bool hub_hash_end(struct hub_hash *h, const struct hub_file *f) {
    uint8_t sum[SHA256_DIGEST_LENGTH];
    char hex[HUB_ID] = "";
    const size_t n = h->is_large ? SHA256_DIGEST_LENGTH : SHA1_DIGEST_LENGTH;
    if (h->is_large)
        SHA256Final(sum, &h->large);
    else
        SHA1Final(sum, &h->small);
    for (size_t i = 0; i < n; i++) snprintf(hex + 2 * i, 3, "%02x", sum[i]);
    mem_free(h);
    return !strcmp(hex, f->id);
}
