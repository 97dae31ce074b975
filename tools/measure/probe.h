/* Ceilings of this machine, and what disturbs a measurement. */
#pragma once
#include "base/bandwidth.h"

/* Seconds that the threads of this process have been ready and waited for a processor, so far (schedstat of Linux);
 * NAN: the kernel does not say. */
double probe_waited(void);
/* Seconds of processors that this process has taken, so far. */
double probe_ran(void);
