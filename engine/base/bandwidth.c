#include "base/bandwidth.h"
#include "base/host.h"
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static size_t pretended;
void probe_pretend(size_t most) { pretended = most; }

/* 512 MiB: more than the last level of cache of any one socket so far; less where a model is to fit beside it. */
static size_t probe_bytes(void) {
    const size_t most = (size_t)512 << 20, least = (size_t)16 << 20;
    size_t n = host_memory_available() / 4 / least * least;
    if (pretended) return pretended;
    return n < least ? least : n < most ? n : most;
}

enum infer_status probe_open(struct memory_probe *p, int n_thread) {
    size_t n = probe_bytes();
    void *data = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return err_set(INFER_E_MEMORY, "%zu bytes for the bandwidth probe", n);
    madvise(data, n, MADV_HUGEPAGE);
    *p = (struct memory_probe){data, n / 8, n_thread};
    size_t share = p->n / (size_t)n_thread;
#pragma omp parallel num_threads(n_thread)
    memset(p->data + share * (size_t)omp_get_thread_num(), 1,
           share * 8); /* each thread touches its own part first */
    return INFER_OK;
}

void probe_close(struct memory_probe *p) {
    if (p->data) munmap(p->data, p->n * 8);
    *p = (struct memory_probe){0};
}

/* Sum of n words, n a multiple of 32: the loads count, the compiler makes vectors of the additions. */
__attribute__((target("avx2"))) static uint64_t sum_words(const uint64_t *x, size_t n) {
    uint64_t s[32] = {0}, total = 0;
    for (size_t i = 0; i < n; i += 32)
        for (int j = 0; j < 32; j++) s[j] += x[i + (size_t)j];
    for (int j = 0; j < 32; j++) total += s[j];
    return total;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static volatile uint64_t sink; /* takes the sums, so that the reads are not left out */

double probe_read(struct memory_probe *p, double seconds) {
    enum { MAX = 256 };
    double pass[MAX];
    size_t share = p->n / (size_t)p->n_thread / 32 * 32;
    int n = 0;
    double begin = host_seconds();
    if (pretended) seconds = 0;
    do {
        uint64_t total = 0;
        double start = host_seconds();
#pragma omp parallel num_threads(p->n_thread) reduction(+ : total)
        total += sum_words(p->data + share * (size_t)omp_get_thread_num(), share);
        pass[n++] = (double)(share * (size_t)p->n_thread * 8) / (host_seconds() - start) * 1e-9;
        sink += total;
    } while (n < MAX && host_seconds() - begin < seconds);
    qsort(pass, (size_t)n, sizeof *pass, compare);
    return pass[n / 2];
}
