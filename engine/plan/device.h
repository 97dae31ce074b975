/* Which backend runs: the device that was asked for, or a clear refusal. */
#pragma once
#include "seam/backend.h"
#include "seam/comm.h"
#include "plan/card.h"

enum device_kind { DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA, DEVICE_REF, DEVICE_NONE };

/* What is asked for. */
struct device_wish {
    int card;                      /* 1 ..: "cuda:0" ..; 0: the one that has most memory left */
    enum device_kind device, host; /* host: of the layers that are not on the device; NONE: decided by auto */
    bool by_name;                  /* the device was named, not left to auto */
    int n_layer;                   /* on a card; -1: all that fit */
    int n_cpu_experts; /* the first layers of those on a card whose experts are on the host; -1: decided by the plan */
    uint8_t rank_card
        [RANKS_MAX]; /* rank_card[n_rank_card]: cuda:N of each rank; n_rank_card 0: rank r has cuda:r */
    int n_rank_card;
};

/* Where the layers of a model may go. */
struct placement {
    int card;                          /* as wished */
    int n_share;                       /* ranks that have the card's memory together; 0: one */
    const struct backend_type *device; /* all layers, or the last ones */
    const struct backend_type *host;   /* the layers before those; NULL: all are on the device */
    struct backend_memory memory;      /* of a card; total_bytes 0: the device's memory is the host's */
    int sm;                            /* of a card that is not here; 0: unknown */
    double device_gb_s; /* a card's read bandwidth as rated or measured (card.def); 0: unknown */
};

/* auto takes a usable card, else the CPU; a card that the machine has and that is not used is named with the reason in one
 * warning. host NONE: the CPU where auto took a card, else nobody. errors: INFER_E_DEVICE (asked for and not usable: why) */
enum infer_status device_pick(const struct device_wish *w, struct placement *out);
/* Where the model is not one for the card that was picked: the CPU in its place, told aloud, if the choice was free; else false. Reads
 * err_message. */
bool device_leave_card(const struct device_wish *w, struct placement *out);
/* The same for a card that is not here: only sizes are asked of the backend. A host takes what the card has no room for where auto is
 * asked for by name, or of a model that has experts; else the question is whether the card holds all. */
void device_pick_card(const struct device_wish *w, const struct card *card, bool experts,
                      struct placement *out);

/* The card of one rank of n, and its part of that. errors: INFER_E_INPUT (another number of cards was named, or one for all),
 * INFER_E_DEVICE (it is not there) */
enum infer_status device_pick_rank(const struct device_wish *w, int rank, int n, struct placement *out);

/* The cards of this machine, or those that the wish names for ranks, with the memory that is free; no[n]: which cuda:N. One that card.def has
 * not is taken to read as much as any card does. errors: INFER_E_DEVICE (one is not there), INFER_E_INPUT (one is named twice) */
enum infer_status device_cards(const struct device_wish *w, struct card card[RANKS_MAX], int no[RANKS_MAX],
                               int *n);

/* The card of a rank that is a process, before device_pick: of the wish's, else the one of its number among the ranks of its machine; where
 * the process sees one card alone, that one. *share: ranks that have it together. errors: INFER_E_INPUT (another number of cards was
 * named) */
enum infer_status device_pick_process(struct device_wish *w, int rank, int n, int local, int *share);

/* Looks for an NVIDIA display device on the PCI bus, which the kernel lists even without a driver: address such as
 * "0000:01:00.0" and PCI device id. False when there is none. */
bool device_pci_nvidia(char *address, size_t n, unsigned *id);
