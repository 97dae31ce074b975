#include "plan/device.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A hexadecimal attribute of a PCI device; 0 when it cannot be read. */
static unsigned pci_attribute(const char *address, const char *name) {
    char path[320];
    unsigned v = 0;
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/%s", address, name);
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    if (fscanf(f, "%x", &v) != 1) v = 0;
    fclose(f);
    return v;
}

bool device_pci_nvidia(char *address, size_t n, unsigned *id) {
    bool found = false;
    DIR *d = opendir("/sys/bus/pci/devices");
    if (!d) return false;
    for (const struct dirent *e; !found && (e = readdir(d));) {
        if (e->d_name[0] == '.' || pci_attribute(e->d_name, "vendor") != 0x10de) continue;
        if (pci_attribute(e->d_name, "class") >> 16 != 0x03) continue; /* display controllers */
        snprintf(address, n, "%s", e->d_name);
        *id = pci_attribute(e->d_name, "device");
        found = true;
    }
    closedir(d);
    return found;
}

static enum infer_status probe(const struct backend_type *b) { return b->probe ? b->probe() : INFER_OK; }

static enum infer_status pick_cuda(int card_no, struct placement *out) {
#ifdef INFER_CUDA
    struct card card;
    TRY(probe(&backend_cuda));
    out->device = &backend_cuda;
    out->card = card_no;
    TRY(backend_cuda.memory(card_no, &out->memory));
    out->device_gb_s = card_of_driver(out->memory.name, &card) ? card.read_gb_s : 0;
    return INFER_OK;
#else
    (void)card_no, (void)out;
    return err_set(INFER_E_DEVICE, "this build has no CUDA backend (configure with INFER_CUDA=ON)");
#endif
}

static enum infer_status pick_cpu(const struct backend_type **out) {
    TRY(probe(&backend_cpu));
    *out = &backend_cpu;
    return INFER_OK;
}

/* A number of layers on the card, or of layers whose experts alone are not, asks for a card: NULL, or its name. */
static const char *asks_for_card(const struct device_wish *w, int *n) {
    *n = w->n_layer > 0 ? w->n_layer : w->n_cpu_experts;
    return w->n_layer > 0 ? ".gpu_layers" : w->n_cpu_experts > 0 && w->n_layer ? ".cpu_experts" : NULL;
}

static enum infer_status pick_auto(const struct device_wish *w, struct placement *out) {
    char address[64], reason[400];
    unsigned id;
    int n;
    const char *asked = asks_for_card(w, &n);
    if (w->n_layer == 0 || !device_pci_nvidia(address, sizeof address, &id)) {
        if (asked) return err_set(INFER_E_DEVICE, "%s %d: this machine has no NVIDIA card", asked, n);
        return pick_cpu(&out->device);
    }
    if (pick_cuda(w->card, out) == INFER_OK) return pick_cpu(&out->host);
    if (asked)
        return err_prefix(INFER_E_DEVICE, "%s %d: the NVIDIA card %s (10de:%04x) cannot be used", asked, n,
                          address, id);
    snprintf(reason, sizeof reason, "%s", err_message());
    TRY(pick_cpu(&out->device));
    log_line(LOG_WARN,
             "the NVIDIA card %s (10de:%04x) is NOT used: %s; running on the CPU, which is much slower",
             address, id, reason);
    return INFER_OK;
}

static enum infer_status pick_host(enum device_kind kind, const struct backend_type **out) {
    if (kind == DEVICE_CPU) return pick_cpu(out);
    *out = &backend_ref;
    return INFER_OK;
}

enum infer_status device_pick(const struct device_wish *w, struct placement *out) {
    *out = (struct placement){0};
    if (w->device != DEVICE_AUTO && w->device != DEVICE_CUDA && w->host == DEVICE_NONE && w->n_layer > 0)
        return err_set(INFER_E_INPUT, ".device cpu has no card; .gpu_layers %d goes with .device auto",
                       w->n_layer);
    if (w->device == DEVICE_AUTO)
        TRY(pick_auto(w, out));
    else if (w->device == DEVICE_CUDA)
        TRY(pick_cuda(w->card, out));
    else
        TRY(pick_host(w->device, &out->device));
    return w->host != DEVICE_NONE ? pick_host(w->host, &out->host) : INFER_OK;
}

static int card_of_rank(const struct device_wish *w, int rank) {
    return w->n_rank_card ? w->rank_card[rank] : rank;
}
enum infer_status device_pick_rank(const struct device_wish *w, int rank, int n, struct placement *out) {
    if (w->card)
        return err_set(
            INFER_E_INPUT,
            ".device cuda:%d is one card, %d ranks or stages may have several: .device cuda and .devices",
            w->card - 1, n);
    if (w->n_rank_card && w->n_rank_card != n)
        return err_set(INFER_E_INPUT, ".devices names %d cards, one for each of %d ranks or stages is wanted",
                       w->n_rank_card, n);
    const int card = card_of_rank(w, rank);
    out->card = card + 1;
    out->n_share = 0;
    for (int r = 0; r < n; r++) out->n_share += card_of_rank(w, r) == card;
    enum infer_status st = out->device->memory(out->card, &out->memory);
    if (st == INFER_OK || w->n_rank_card) return st;
    return err_prefix(st, "rank %d has card %d; .devices 0,0.. puts several ranks on one", rank, card);
}

static bool there(int card) {
#ifdef INFER_CUDA
    struct backend_memory memory;
    return backend_cuda.memory(card, &memory) == INFER_OK;
#else
    (void)card;
    return false;
#endif
}
enum infer_status device_pick_process(struct device_wish *w, int rank, int n, int local, int *share) {
    *share = 1;
    if (w->card || (w->device != DEVICE_AUTO && w->device != DEVICE_CUDA) || w->n_layer == 0) return INFER_OK;
    if (w->n_rank_card && w->n_rank_card != n)
        return err_set(INFER_E_INPUT, ".devices names %d cards, one for each of %d ranks is wanted",
                       w->n_rank_card, n);
    if (w->n_rank_card) {
        *share = 0;
        for (int r = 0; r < n; r++) *share += w->rank_card[r] == w->rank_card[rank];
        w->card = w->rank_card[rank] + 1;
    } else if (there(local + 1) || there(2)) {
        w->card = local + 1;
    } else if (there(1)) {
        w->card = 1;
    }
    return INFER_OK;
}

#ifdef INFER_CUDA
static enum infer_status look_at(int no, struct card *out) {
    enum { ANY_GB_S = 500 };
    struct backend_memory memory;
    TRY(backend_cuda.memory(no + 1, &memory));
    if (!card_of_driver(memory.name, out)) {
        const char *sm = strstr(memory.name, ", sm_");
        *out = (struct card){
            .sm = sm ? atoi(sm + 5) : 90, .read_gb_s = ANY_GB_S, .source = "taken for any card's"};
        snprintf(out->name, sizeof out->name, "%.*s", (int)strcspn(memory.name, ","), memory.name);
    }
    out->memory_bytes = memory.free_bytes;
    return INFER_OK;
}
enum infer_status device_cards(const struct device_wish *w, struct card card[RANKS_MAX], int no[RANKS_MAX],
                               int *n) {
    *n = 0;
    for (int i = 0; i < (w->n_rank_card ? w->n_rank_card : RANKS_MAX); i++) {
        no[i] = card_of_rank(w, i);
        for (int k = 0; k < i; k++)
            if (no[k] == no[i])
                return err_set(INFER_E_INPUT, ".devices names card %d twice; .ranks %d would divide it",
                               no[i], w->n_rank_card);
        const enum infer_status st = look_at(no[i], &card[i]);
        if (st != INFER_OK && w->n_rank_card) return st;
        if (st != INFER_OK) break;
        ++*n;
    }
    return INFER_OK;
}
#else
enum infer_status device_cards(const struct device_wish *w, struct card card[RANKS_MAX], int no[RANKS_MAX],
                               int *n) {
    (void)w, (void)card, (void)no;
    *n = 0;
    return INFER_OK;
}
#endif

bool device_leave_card(const struct device_wish *w, struct placement *out) {
    char reason[400];
    struct placement cpu = {0};
    int n;
    if (w->device != DEVICE_AUTO || asks_for_card(w, &n) || strcmp(out->device->name, "cuda") != 0)
        return false;
    snprintf(reason, sizeof reason, "%s", err_message());
    if (pick_cpu(&cpu.device) != INFER_OK) return false;
    log_line(LOG_WARN, "%s is NOT used: %s; running on the CPU, which is much slower", out->memory.name,
             reason);
    *out = cpu;
    return true;
}

void device_pick_card(const struct device_wish *w, const struct card *card, bool experts,
                      struct placement *out) {
    static const struct backend_type sizes_only = {.name = "cuda", .sizes = cuda_sizes};
    *out = (struct placement){.device = &sizes_only};
    out->memory.total_bytes = out->memory.free_bytes = (size_t)card->memory_bytes;
    snprintf(out->memory.name, sizeof out->memory.name, "%s", card->name);
    out->sm = card->sm;
    out->device_gb_s = card->read_gb_s;
    if (w->n_layer >= 0 || (w->device == DEVICE_AUTO && (w->by_name || (experts && w->n_cpu_experts))))
        out->host = &backend_cpu;
}
