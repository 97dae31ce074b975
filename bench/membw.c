/* Memory read bandwidth of this machine, the ceiling that decoding is measured against: the probe of infer bench as a
 * program of its own, for bench/compare-peers.
 *
 *     membw [-t THREADS] [-s SECONDS]    prints GB/s (1e9 bytes), once
 *     membw ... -i                       once for each line of stdin (the buffer stays) */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "tools/measure/probe.h"

int main(int argc, char **argv) {
    int n_thread = omp_get_max_threads(), interactive = 0, c;
    double seconds = 0.3;
    while ((c = getopt(argc, argv, "t:s:i")) != -1) {
        switch (c) {
        case 't':
            n_thread = atoi(optarg);
            break;
        case 's':
            seconds = atof(optarg);
            break;
        case 'i':
            interactive = 1;
            break;
        default:
            n_thread = 0;
        }
    }
    if (n_thread < 1 || n_thread > 1024 || optind != argc) {
        fprintf(stderr, "usage: membw [-t THREADS] [-s SECONDS] [-i]\n");
        return 2;
    }
    struct memory_probe probe;
    if (probe_open(&probe, n_thread) != INFER_OK) {
        fprintf(stderr, "membw: %s\n", err_message());
        return 1;
    }
    char line[256];
    do {
        if (interactive && !fgets(line, sizeof line, stdin)) break;
        printf("%.2f\n", probe_read(&probe, seconds));
        fflush(stdout);
    } while (interactive);
    probe_close(&probe);
    return 0;
}
