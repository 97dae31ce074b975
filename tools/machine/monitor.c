/* infer monitor: what the cards are doing, sampled from NVML, one line a card and sample. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "files/json.h"
#include "base/mem.h"
#include "tools/machine/nvml.h"
#include "tools/session.h"
#include "tools/tool.h"

int cmd_monitor(const struct options *o);

static json_t *real_or_null(double x) { return isfinite(x) ? json_real(x) : json_null(); }

static enum infer_status print_json(int device, const struct nvml_sample *s, double seconds) {
    uint64_t failed = mem_failed();
    json_t *j = json_pack("{s:f, s:i, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:s}",
                          "time", seconds, "device", device, "name", s->name, "pci", s->pci, "memory_used",
                          real_or_null(s->used_bytes), "memory_total", real_or_null(s->total_bytes), "busy",
                          real_or_null(s->busy), "memory_busy", real_or_null(s->memory_busy), "sm_mhz",
                          real_or_null(s->sm_mhz), "memory_mhz", real_or_null(s->memory_mhz), "celsius",
                          real_or_null(s->celsius), "watts", real_or_null(s->watts), "limit_watts",
                          real_or_null(s->limit_watts), "throttled", s->throttled, "reasons", s->reasons);
    char *line;
    TRY(json_write(&line, j, failed, JSON_COMPACT | JSON_REAL_PRECISION(10), "a sample as JSON"));
    printf("%s\n", line);
    mem_free(line);
    return tool_flush();
}

/* x in a column, "-" when it cannot be read */
static void column(const char *format, double x, int width) {
    if (isfinite(x))
        printf(format, width, x);
    else
        printf("%*s", width, "-");
}

static enum infer_status print_line(int device, const struct nvml_sample *s, bool heading) {
    if (heading)
        printf("card  use   mem use    used GiB  of GiB  SM MHz  mem MHz    C      W  of W  throttled by\n");
    printf("%4d", device);
    column("%*.0f%%", 100 * s->busy, 5);
    column("%*.0f%%", 100 * s->memory_busy, 8);
    column("%*.2f", s->used_bytes / (1 << 30), 12);
    column("%*.1f", s->total_bytes / (1 << 30), 8);
    column("%*.0f", s->sm_mhz, 8);
    column("%*.0f", s->memory_mhz, 9);
    column("%*.0f", s->celsius, 5);
    column("%*.0f", s->watts, 7);
    column("%*.0f", s->limit_watts, 6);
    printf("  %s\n", s->throttled ? s->reasons : "-");
    return tool_flush();
}

/* What deserves a word on stderr. */
static void alert(int device, const struct nvml_sample *s) {
    if (s->throttled) tool_say("card %d is held back by %s", device, s->reasons);
    if (s->used_bytes > 0.97 * s->total_bytes)
        tool_say("card %d: %.1f of %.1f GiB of memory are in use", device, s->used_bytes / (1 << 30),
                 s->total_bytes / (1 << 30));
}

static enum infer_status sample_all(const struct nvml *n, const struct options *o, double seconds,
                                    bool heading) {
    for (int d = 0; d < nvml_count(n); d++) {
        struct nvml_sample s;
        TRY(nvml_sample(n, d, &s));
        TRY(o->json ? print_json(d, &s, seconds) : print_line(d, &s, heading && d == 0));
        if (!o->quiet) alert(d, &s);
    }
    return INFER_OK;
}

int cmd_monitor(const struct options *o) {
    struct nvml *n;
    enum infer_status st = nvml_open(&n);
    if (!st && nvml_count(n) == 0)
        st = err_set(INFER_E_DEVICE, "the driver %s knows no card", nvml_driver(n));
    double begin = term_seconds();
    for (int i = 0; !st && (o->samples == 0 || i < o->samples); i++) {
        if (i) {
            struct timespec wait = {(time_t)o->interval, (long)((o->interval - floor(o->interval)) * 1e9)};
            nanosleep(&wait, NULL);
        }
        st = sample_all(n, o, term_seconds() - begin, i == 0);
    }
    int code = st ? tool_fail(o, st) : EXIT_DONE;
    nvml_close(n);
    return code;
}
