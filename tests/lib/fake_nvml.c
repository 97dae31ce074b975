/* libnvidia-ml.so.1 for tests: a card of which a file ($FAKE_NVML, lines NAME NUMBER) says what it is doing, read at every question. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int ask(const char *name, double *out) {
    char line[128], key[64];
    const char *path = getenv("FAKE_NVML");
    FILE *f = path ? fopen(path, "re") : NULL;
    int there = 0;
    double x;
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "%63s %lf", key, &x) == 2 && strcmp(key, name) == 0) *out = x, there = 1;
    if (f) fclose(f);
    return there ? 0 : 3; /* NVML_ERROR_NOT_SUPPORTED */
}
static int ask_unsigned(const char *name, unsigned *out) {
    double x = 0;
    const int code = ask(name, &x);
    if (!code) *out = (unsigned)x;
    return code;
}
static int ask_long(const char *name, unsigned long long *out) {
    double x = 0;
    const int code = ask(name, &x);
    if (!code) *out = (unsigned long long)x;
    return code;
}

int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned n) { return snprintf(text, n, "1.2.3") < 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { return ask_unsigned("cards", n); }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) {
    *h = (void *)(size_t)(i + 1);
    return 0;
}
int nvmlDeviceGetName(void *h, char *text, unsigned n) { return !h || snprintf(text, n, "Fake 9000") < 0; }
int nvmlDeviceGetMemoryInfo(void *h, unsigned long long *m) {
    (void)h;
    return ask_long("total", &m[0]) | ask_long("used", &m[2]);
}
int nvmlDeviceGetUtilizationRates(void *h, unsigned *u) {
    (void)h;
    return ask_unsigned("busy", &u[0]) | ask_unsigned("memory_busy", &u[1]);
}
int nvmlDeviceGetClockInfo(void *h, int which, unsigned *u) {
    (void)h;
    return ask_unsigned(which == 1 ? "sm" : "memory_clock", u);
}
int nvmlDeviceGetTemperature(void *h, int which, unsigned *u) {
    (void)h, (void)which;
    return ask_unsigned("celsius", u);
}
int nvmlDeviceGetPowerUsage(void *h, unsigned *u) {
    (void)h;
    return ask_unsigned("milliwatts", u);
}
int nvmlDeviceGetTotalEnergyConsumption(void *h, unsigned long long *v) {
    (void)h;
    return ask_long("millijoules", v);
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void *h, unsigned long long *v) {
    (void)h;
    return ask_long("throttle", v);
}
int nvmlDeviceGetCurrPcieLinkGeneration(void *h, unsigned *u) {
    (void)h;
    return ask_unsigned("generation", u);
}
int nvmlDeviceGetCurrPcieLinkWidth(void *h, unsigned *u) {
    (void)h;
    return ask_unsigned("lanes", u);
}
int nvmlDeviceGetPcieThroughput(void *h, int which, unsigned *u) {
    (void)h;
    return ask_unsigned(which ? "received" : "sent", u);
}
int nvmlDeviceGetTotalEccErrors(void *h, int which, int since, unsigned long long *v) {
    (void)h, (void)since;
    return ask_long(which ? "uncorrected" : "corrected", v);
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned *n, void *p) {
    struct {
        unsigned pid;
        unsigned long long bytes;
        unsigned gi, ci;
    } *out = p;
    unsigned pid;
    (void)h;
    const int code = ask_unsigned("pid", &pid);
    *n = code == 0;
    if (!code) out->pid = pid, out->bytes = 1ull << 30;
    return code;
}
