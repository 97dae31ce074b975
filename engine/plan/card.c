#include "plan/card.h"
#include "base/status.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tensor cores beside their rate for halves with float32 sums: GeForce cards have half of that rate and the whole of the
 * others. */
#define RATES(f16, int8, tf32) .f16_tflops = (f16), .int8_tops = (int8), .tf32_tflops = (tf32)
#define GEFORCE(f16)           RATES(f16, 4 * (f16), (f16) / 2)
#define PRO(f16)               RATES(f16, 2 * (f16), (f16) / 2)

#define GEFORCE_PAGES "as NVIDIA's pages of the GeForce series rate it"
#define PRO_SHEETS    "as NVIDIA's data sheet of the workstation card rates it"
#define CENTRE_SHEETS "as NVIDIA's data sheet of the data-centre card rates it"
#define MEASURED_5090 "bandwidth, f16 and int8 as others measured them on that card; tf32 as rated"
#define MEASURED_H200 "bandwidth, f16 and tf32 measured; int8 as others measured it on that card"

static const struct card table[] = {
#define CARD(name_, sm_, n_sm_, mib, gb_s, rates, source_)                                                   \
    {.name = name_,                                                                                          \
     .sm = sm_,                                                                                              \
     .n_sm = n_sm_,                                                                                          \
     .memory_bytes = (uint64_t)(mib) << 20,                                                                  \
     .read_gb_s = gb_s,                                                                                      \
     rates,                                                                                                  \
     .source = source_},
#include "plan/card.def"
#undef CARD
};
enum { N_CARD = sizeof table / sizeof *table, SM_LEAST = 80, NEAR = 5 };

const struct card *card_table(int *n) {
    *n = N_CARD;
    return table;
}

/* What is left of a name in small letters and digits: "NVIDIA GeForce RTX 4070 Ti SUPER" is "4070tisuper". */
static void shorten(char *out, size_t size, const char *name) {
    static const char *const words[] = {"nvidia", "geforce",   "rtx",        "gpu",         "tesla",
                                        "quadro", "blackwell", "generation", "workstation", "edition"};
    size_t n = 0;
    while (*name && n + 1 < size) {
        bool skipped = false;
        for (size_t i = 0; i < sizeof words / sizeof *words && !skipped; i++) {
            size_t length = strlen(words[i]);
            skipped = strncasecmp(name, words[i], length) == 0;
            if (skipped) name += length;
        }
        if (skipped) continue;
        if (strncasecmp(name, "sxm", 3) == 0 && (name[3] == '4' || name[3] == '5')) { /* SXM4, SXM5 */
            n += (size_t)snprintf(out + n, size - n, "sxm");
            name += 4;
            if (n >= size) n = size - 1;
            continue;
        }
        if (isalnum((unsigned char)*name)) out[n++] = (char)tolower((unsigned char)*name);
        name++;
    }
    out[n] = 0;
}

/* The same card, with its memory's size named or not: 24 GB are 22.5 GiB to the driver of some. */
static bool same(const char *given, const struct card *c) {
    char name[64];
    double gb, gib = (double)c->memory_bytes / (1 << 30);
    int end = 0;
    shorten(name, sizeof name, c->name);
    size_t n = strlen(name);
    if (!*given || strncmp(given, name, n) != 0) return false;
    if (!given[n]) return true;
    return sscanf(given + n, "%lfgb%n", &gb, &end) == 1 && end && !given[n + (size_t)end] &&
           gb > gib * 0.98 && gb < gib * 1.08;
}

/* How near a name is: 0 not at all. */
static size_t nearness(const char *given, const struct card *c) {
    char name[64];
    size_t n = 0;
    shorten(name, sizeof name, c->name);
    while (given[n] && given[n] == name[n]) n++;
    if (strlen(given) >= 2 && strstr(name, given)) return 100 + n;
    return n >= 2 ? n : 0;
}

/* No such card: the nearest ones, best first. */
static enum infer_status unknown(const char *name, const char *given) {
    char text[256] = "";
    size_t length = 0, best[NEAR] = {0};
    int which[NEAR], n = 0;
    for (int i = 0; i < N_CARD; i++) {
        size_t near = table[i].sm >= SM_LEAST ? nearness(given, &table[i]) : 0;
        int at = n;
        if (!near) continue;
        while (at > 0 && best[at - 1] < near) at--;
        if (at == NEAR) continue;
        if (n < NEAR) n++;
        for (int k = n - 1; k > at; k--) best[k] = best[k - 1], which[k] = which[k - 1];
        best[at] = near, which[at] = i;
    }
    for (int i = 0; i < n; i++)
        length += (size_t)snprintf(text + length, sizeof text - length, "%s%s",
                                   i ? ", " : "; near it: ", table[which[i]].name);
    return err_set(INFER_E_INPUT, ".as '%s' is no known card%s, nor GIB,sm_XX like 24,sm_89", name, text);
}

static enum infer_status too_old(const char *name, int sm) {
    return err_set(INFER_E_UNSUPPORTED, ".as %s: sm_%d is older than sm_%d, the oldest with kernels", name,
                   sm, SM_LEAST);
}

enum infer_status card_find(const char *name, struct card *out) {
    char given[64];
    double gib;
    int sm, end = 0;
    shorten(given, sizeof given, name);
    for (int i = 0; i < N_CARD; i++)
        if (same(given, &table[i])) {
            *out = table[i];
            return out->sm < SM_LEAST ? too_old(out->name, out->sm) : INFER_OK;
        }
    if (sscanf(name, "%lf,sm_%d%n", &gib, &sm, &end) != 2 || name[end]) return unknown(name, given);
    if (!(gib > 0 && gib <= 4096)) return err_set(INFER_E_INPUT, ".as: %g GiB is not within 0 to 4096", gib);
    if (sm < SM_LEAST) return too_old(name, sm);
    *out = (struct card){.sm = sm, .memory_bytes = (uint64_t)(gib * (1 << 30)), .source = "memory as given"};
    snprintf(out->name, sizeof out->name, "%.*s", (int)sizeof out->name - 1, name);
    return INFER_OK;
}

bool card_of_driver(const char *name, struct card *out) {
    char given[64], of_driver[128];
    snprintf(of_driver, sizeof of_driver, "%.*s", (int)strcspn(name, ","), name);
    shorten(given, sizeof given, of_driver);
    /* the one card whose name to the driver says nothing of its board */
    const char *known = strcmp(given, "h10080gbhbm3") == 0 ? "h100-sxm" : of_driver;
    return card_find(known, out) == INFER_OK;
}

/* A comma before sm_XX is one of GIB,sm_XX. */
enum infer_status cards_find(const char *names, struct card *card, int most, int *n) {
    char name[128];
    *n = 0;
    for (const char *at = names, *end; at; at = *end ? end + 1 : NULL) {
        end = at + strcspn(at, ",");
        if (strncmp(end, ",sm_", 4) == 0) end += 1 + strcspn(end + 1, ",");
        if (*n == most) return err_set(INFER_E_INPUT, ".as: more than %d cards", most);
        snprintf(name, sizeof name, "%.*s", (int)(end - at), at);
        TRY(card_find(name, &card[*n]));
        ++*n;
    }
    return INFER_OK;
}
