#include "cache/prefix.h"

#include <sys/random.h>
#include <time.h>

struct prefix_secret prefix_secret(void) {
    struct prefix_secret s;
    struct timespec t;
    if (getrandom(&s, sizeof s, GRND_NONBLOCK) == (ssize_t)sizeof s) return s;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (struct prefix_secret){(uint64_t)t.tv_nsec, (uint64_t)(uintptr_t)&s};
}

/* SipHash-2-4 with 128 bits of result, over words. source: Aumasson & Bernstein 2012, and its variant of 2014 */
struct sip {
    uint64_t v0, v1, v2, v3;
};
static uint64_t turn(uint64_t x, int n) { return x << n | x >> (64 - n); }
static void sip_rounds(struct sip *s, int n) {
    while (n--) {
        s->v0 += s->v1, s->v1 = turn(s->v1, 13) ^ s->v0, s->v0 = turn(s->v0, 32);
        s->v2 += s->v3, s->v3 = turn(s->v3, 16) ^ s->v2;
        s->v0 += s->v3, s->v3 = turn(s->v3, 21) ^ s->v0;
        s->v2 += s->v1, s->v1 = turn(s->v1, 17) ^ s->v2, s->v2 = turn(s->v2, 32);
    }
}
static void sip_word(struct sip *s, uint64_t w) {
    s->v3 ^= w;
    sip_rounds(s, 2);
    s->v0 ^= w;
}

struct prefix_key prefix_extend(const struct prefix_secret *k, struct prefix_key before, const int32_t *ids,
                                int n, enum prefix_kind kind) {
    struct sip s = {k->k0 ^ UINT64_C(0x736f6d6570736575), k->k1 ^ UINT64_C(0x646f72616e646f6d) ^ 0xee,
                    k->k0 ^ UINT64_C(0x6c7967656e657261), k->k1 ^ UINT64_C(0x7465646279746573)};
    sip_word(&s, before.a);
    sip_word(&s, before.b);
    for (int i = 0; i + 1 < n; i += 2) sip_word(&s, (uint32_t)ids[i] | (uint64_t)(uint32_t)ids[i + 1] << 32);
    uint64_t last = n % 2 ? (uint32_t)ids[n - 1] : 0;
    sip_word(&s, last | (uint64_t)kind << 48 | (uint64_t)(4 * n & 0xff) << 56);
    struct prefix_key out;
    s.v2 ^= 0xee;
    sip_rounds(&s, 4);
    out.a = s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
    s.v1 ^= 0xdd;
    sip_rounds(&s, 4);
    out.b = s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
    return out;
}
