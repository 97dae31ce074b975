/* The read bandwidth of this machine's memory, measured here and now. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "base/status.h"

/* Memory that a read probe streams. */
struct memory_probe {
    uint64_t *data; /* data[n] */
    size_t n;
    int n_thread;
};
/* For tests, to which the figure is nothing: probes of so many bytes at most, which are read once; 0: as it should be. */
void probe_pretend(size_t most);
/* errors: INFER_E_MEMORY */
enum infer_status probe_open(struct memory_probe *p, int n_thread);
void probe_close(struct memory_probe *p);
/* Read bandwidth in GB/s (1e9 bytes): the median of the passes of about this many seconds, every thread reading
 * its own part. */
double probe_read(struct memory_probe *p, double seconds);
