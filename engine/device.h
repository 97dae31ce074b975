/* Which backend runs: the device that was asked for, or a clear refusal. */
#pragma once
#include "backend.h"

/* name: NULL or "auto", "cpu", "cuda", "ref". auto takes a usable card, else the CPU; a card that the machine has and
 * that is not used is named with the reason in one warning. errors: INFER_E_DEVICE (asked for and not usable: why),
 * INFER_E_INPUT (unknown name) */
enum infer_status device_pick(const char *name, const struct backend_type **out);

/* Looks for an NVIDIA display device on the PCI bus, which the kernel lists even without a driver: address such as
 * "0000:01:00.0" and PCI device id. False when there is none. */
bool device_pci_nvidia(char *address, size_t n, unsigned *id);
