/* Memory read bandwidth of this machine: the ceiling that decoding is measured against.
 *
 *     membw [-t THREADS] [-m MIB] [-s SECONDS]    prints GB/s (1e9 bytes), once
 *     membw ... -i                                once for each line of stdin (the buffer stays)
 *
 * Every thread reads its own contiguous part of a buffer much larger than the caches, again and again for the given
 * time; the figure is the median pass, so a short disturbance does not count. */
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sys/mman.h>

enum { MAX_PASSES = 4096 };
static volatile uint64_t sink; /* takes the sums, so that the reads are not left out */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

/* Sum of n words (a multiple of 32): the loads are what counts, the compiler makes vectors of them. */
__attribute__((target("avx2"))) static uint64_t sum(const uint64_t *x, size_t n) {
    uint64_t s[32] = {0};
    for (size_t i = 0; i < n; i += 32)
        for (int j = 0; j < 32; j++) s[j] += x[i + j];
    uint64_t r = 0;
    for (int j = 0; j < 32; j++) r += s[j];
    return r;
}

static int compare_double(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Reads buf[n] with n_thread threads for about seconds; median GB/s of the passes. */
static double measure(const uint64_t *buf, size_t n, int n_thread, double seconds) {
    static double pass[MAX_PASSES];
    size_t share = n / (size_t)n_thread / 32 * 32;
    int passes = 0;
    double begin = now();
    do {
        uint64_t total = 0;
        double t0 = now();
#pragma omp parallel num_threads(n_thread) reduction(+ : total)
        total += sum(buf + share * (size_t)omp_get_thread_num(), share);
        pass[passes++] = (double)(share * (size_t)n_thread * 8) / (now() - t0) / 1e9;
        sink += total;
    } while (passes < MAX_PASSES && now() - begin < seconds);
    qsort(pass, (size_t)passes, sizeof pass[0], compare_double);
    return pass[passes / 2];
}

int main(int argc, char **argv) {
    int n_thread = omp_get_max_threads(), interactive = 0, c;
    double seconds = 0.3;
    long mib = 512;
    while ((c = getopt(argc, argv, "t:m:s:i")) != -1) {
        switch (c) {
        case 't':
            n_thread = atoi(optarg);
            break;
        case 'm':
            mib = atol(optarg);
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
    if (n_thread < 1 || n_thread > 1024 || mib < 1 || mib > 1 << 20 || optind != argc) {
        fprintf(stderr, "usage: membw [-t THREADS] [-m MIB] [-s SECONDS] [-i]\n");
        return 2;
    }
    size_t bytes = (size_t)mib << 20;
    uint64_t *buf = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buf == MAP_FAILED) {
        perror("membw: mmap");
        return 1;
    }
    madvise(buf, bytes, MADV_HUGEPAGE);
    memset(buf, 1, bytes);
    char line[256];
    do {
        if (interactive && !fgets(line, sizeof line, stdin)) break;
        printf("%.2f\n", measure(buf, bytes / 8, n_thread, seconds));
        fflush(stdout);
    } while (interactive);
    return 0;
}
