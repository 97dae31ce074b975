#include "wire/wire.h"

#include <sha2.h>
#include <string.h>
#include <sys/random.h>

static const char magic[8] = "infrank1"; /* the last is the version of all that ranks say */

enum verdict { VERDICT_WELL = 1, VERDICT_SECRET };
struct greeting {
    char magic[8];
    unsigned char nonce[WIRE_MAC];
};
struct visit {
    char magic[8];
    struct wire_guest guest;
    uint32_t pad;
    unsigned char nonce[WIRE_MAC], mac[WIRE_MAC];
};
struct answer {
    uint32_t verdict, pad;
    unsigned char mac[WIRE_MAC];
};

void wire_random(void *bytes, size_t n) {
    for (size_t at = 0; at < n;) {
        const ssize_t k = getrandom((char *)bytes + at, n - at, 0);
        if (k > 0) at += (size_t)k;
    }
}
void wire_hash(const void *bytes, size_t n, unsigned char out[WIRE_MAC]) {
    SHA2_CTX c;
    SHA256Init(&c);
    SHA256Update(&c, bytes, n);
    SHA256Final(out, &c);
}
void wire_sample(const unsigned char *file, size_t n, const unsigned char before[WIRE_MAC],
                 unsigned char out[WIRE_MAC]) {
    enum { PIECE = 4096, PIECES = 256, FIRST = 1 << 20, WHOLE = 16 << 20 };
    const uint64_t size = n;
    SHA2_CTX c;
    SHA256Init(&c);
    if (before) SHA256Update(&c, before, WIRE_MAC);
    SHA256Update(&c, (const uint8_t *)&size, sizeof size);
    SHA256Update(&c, file, n > WHOLE ? FIRST : n);
    for (size_t i = 1; n > WHOLE && i <= PIECES; i++)
        SHA256Update(&c, file + (n - PIECE) / PIECES * i, PIECE);
    if (n > WHOLE) SHA256Update(&c, file + n - PIECE, PIECE);
    SHA256Final(out, &c);
}
void wire_mac(const struct wire_secret *s, const void *bytes, size_t n, unsigned char out[WIRE_MAC]) {
    unsigned char key[SHA256_BLOCK_LENGTH] = {0}, pad[SHA256_BLOCK_LENGTH];
    SHA2_CTX c;
    if (s->n > sizeof key)
        wire_hash(s->bytes, s->n, key);
    else
        memcpy(key, s->bytes, s->n);
    for (size_t i = 0; i < sizeof key; i++) pad[i] = key[i] ^ 0x36;
    SHA256Init(&c);
    SHA256Update(&c, pad, sizeof pad);
    SHA256Update(&c, bytes, n);
    SHA256Final(out, &c);
    for (size_t i = 0; i < sizeof key; i++) pad[i] = key[i] ^ 0x5c;
    SHA256Init(&c);
    SHA256Update(&c, pad, sizeof pad);
    SHA256Update(&c, out, WIRE_MAC);
    SHA256Final(out, &c);
}

/* Of one end of a connection: who comes and what both threw. */
static void proof(const struct wire_secret *s, char end, const struct greeting *g, const struct visit *v,
                  unsigned char out[WIRE_MAC]) {
    struct {
        char end[8], magic[8];
        unsigned char host[WIRE_MAC], guest[WIRE_MAC];
        struct wire_guest who;
    } said = {.end = {end}, .who = v->guest};
    memcpy(said.magic, magic, sizeof magic);
    memcpy(said.host, g->nonce, WIRE_MAC);
    memcpy(said.guest, v->nonce, WIRE_MAC);
    wire_mac(s, &said, sizeof said, out);
}
/* Takes as long whatever differs. */
static bool same(const unsigned char *a, const unsigned char *b) {
    unsigned char differs = 0;
    for (int i = 0; i < WIRE_MAC; i++) differs |= a[i] ^ b[i];
    return !differs;
}

enum infer_status wire_host(int fd, const struct wire_secret *s, struct wire_guest *guest, int64_t until) {
    struct greeting g;
    struct visit v;
    struct answer a = {.verdict = VERDICT_WELL};
    unsigned char want[WIRE_MAC];
    memcpy(g.magic, magic, sizeof magic);
    wire_random(g.nonce, sizeof g.nonce);
    TRY(wire_put(fd, &g, sizeof g, until));
    TRY(wire_get(fd, &v, sizeof v, until));
    if (memcmp(v.magic, magic, sizeof magic)) return err_set(INFER_E_IO, "what came is no rank's word");
    proof(s, 'g', &g, &v, want);
    if (!same(want, v.mac)) {
        a.verdict = VERDICT_SECRET;
        (void)wire_put(fd, &a, sizeof a, until);
        return err_set(INFER_E_INPUT, "it says that it is rank %u, and has another secret", v.guest.rank);
    }
    proof(s, 'h', &g, &v, a.mac);
    TRY(wire_put(fd, &a, sizeof a, until));
    *guest = v.guest;
    return INFER_OK;
}

enum infer_status wire_visit(int fd, const struct wire_secret *s, const struct wire_guest *guest,
                             int64_t until) {
    struct greeting g;
    struct visit v = {.guest = *guest};
    struct answer a;
    unsigned char want[WIRE_MAC];
    TRY(wire_get(fd, &g, sizeof g, until));
    if (memcmp(g.magic, magic, sizeof magic - 1)) return err_set(INFER_E_IO, "no rank listens there");
    if (memcmp(g.magic, magic, sizeof magic))
        return err_set(INFER_E_INPUT, "the other rank speaks version %c of what ranks say, this one %c",
                       g.magic[sizeof magic - 1], magic[sizeof magic - 1]);
    memcpy(v.magic, magic, sizeof magic);
    wire_random(v.nonce, sizeof v.nonce);
    proof(s, 'g', &g, &v, v.mac);
    TRY(wire_put(fd, &v, sizeof v, until));
    TRY(wire_get(fd, &a, sizeof a, until));
    proof(s, 'h', &g, &v, want);
    if (a.verdict == VERDICT_WELL && same(want, a.mac)) return INFER_OK;
    return err_set(INFER_E_INPUT, "the other rank has another secret");
}
