/* infer doctor: what this machine has, what this build can use of it, what would be used and why. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tools/measure/bench.h"
#include "cpu/cpu_isa.h"
#include "base/host.h"
#include "plan/device.h"
#include "tools/machine/doctor_advice.h"
#include "tools/machine/doctor_cuda.h"
#include "base/mem.h"
#include "tools/sense/nvml.h"
#include "tools/measure/probe.h"
#include "tools/machine/doctor_routes.h"
#include "tools/machine/doctor_self.h"
#include "tools/machine/doctor_tools.h"
#include "tools/session.h"
#include "tools/tool.h"
#include "base/numa.h"

int cmd_doctor(const struct options *o);

/* Features of the processor that kernels ask for, as /proc/cpuinfo spells them. */
static const char *const features[] = {"avx2",        "fma",         "f16c",     "avx_vnni",
                                       "avx512f",     "avx512bw",    "avx512vl", "avx512_vnni",
                                       "avx512_bf16", "avx512_fp16", "amx_int8", "amx_bf16"};
enum { N_FEATURE = sizeof features / sizeof *features };

/* The line of a file that begins with key, behind its colon; "" when there is none. */
static void file_line(const char *path, const char *key, char *buf, size_t n) {
    char *line = NULL;
    size_t cap = 0;
    FILE *f = fopen(path, "r");
    buf[0] = 0;
    while (f && getline(&line, &cap, f) > 0) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, key, strlen(key)) != 0 || !colon) continue;
        snprintf(buf, n, "%s", colon + 1 + strspn(colon + 1, " \t"));
        buf[strcspn(buf, "\n")] = 0;
        break;
    }
    if (f) fclose(f);
    free(line); /* getline's own */
}

static bool has_word(const char *line, const char *word) {
    size_t n = strlen(word);
    for (const char *p = line; (p = strstr(p, word)); p += n)
        if ((p == line || p[-1] == ' ') && (p[n] == ' ' || p[n] == 0)) return true;
    return false;
}

static double memory_gib(const char *key) {
    char line[64];
    file_line("/proc/meminfo", key, line, sizeof line);
    return strtod(line, NULL) / (1 << 20);
}

/* A limit of the control group that this process runs in, GiB; NAN: none. */
static double cgroup_gib(void) {
    static const char *const paths[] = {"/sys/fs/cgroup/memory.max",
                                        "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
    for (int i = 0; i < 2; i++) {
        FILE *f = fopen(paths[i], "r");
        double bytes;
        int got = f ? fscanf(f, "%lf", &bytes) : 0;
        if (f) fclose(f);
        if (got == 1 && bytes < 1e15) return bytes / (1 << 30);
    }
    return NAN;
}

/* The NUMA nodes, and the threads that would be bound to each: "0-3", "" where nothing is bound. */
static json_t *doctor_nodes(const struct topology *t, int n_thread) {
    struct topology_cpu place[TOPOLOGY_CPUS];
    json_t *list = json_array();
    topology_place(t, n_thread, place);
    for (int i = 0; i < t->n; i++) {
        int node = t->at[i].node, cores = 1, first = 0, last;
        char threads[32] = "", first_to_last[32];
        if (i && t->at[i - 1].node == node) continue;
        for (int k = i + 1; k < t->n && t->at[k].node == node; k++)
            cores += t->at[k].core != t->at[k - 1].core;
        while (first < n_thread && place[first].node != node) first++;
        for (last = first; last < n_thread && place[last].node == node;) last++;
        snprintf(first_to_last, sizeof first_to_last, last - first > 1 ? "%d-%d" : "%d", first, last - 1);
        if (last > first && t->n_node > 1) snprintf(threads, sizeof threads, "%s", first_to_last);
        json_array_append_new(list,
                              json_pack("{s:i, s:i, s:s}", "node", node, "cores", cores, "threads", threads));
    }
    return json_pack("{s:s, s:b, s:i, s:o}", "source", t->source, "here", t->here, "threads", n_thread,
                     "nodes", list);
}

static json_t *doctor_cpu(void) {
    char name[256], flags[8192];
    bench_cpu_name(name, sizeof name);
    file_line("/proc/cpuinfo", "flags", flags, sizeof flags);
    json_t *list = json_array();
    for (int i = 0; i < N_FEATURE; i++)
        if (has_word(flags, features[i])) json_array_append_new(list, json_string(features[i]));
    struct memory_probe p;
    double gb_s = NAN;
    int cores = tool_core_count();
    if (probe_open(&p, cores) == INFER_OK) {
        gb_s = probe_read(&p, 0.2);
        probe_close(&p);
    }
    double limit = cgroup_gib();
    struct topology t;
    topology_read(&t);
    json_t *nodes = doctor_nodes(&t, t.here ? host_threads_pick(0) : t.n_core);
    return json_pack("{s:s, s:i, s:o, s:f, s:f, s:o, s:o, s:o}", "name", name, "cores", cores, "features",
                     list, "memory_gib", memory_gib("MemTotal"), "available_gib", memory_gib("MemAvailable"),
                     "limit_gib", isfinite(limit) ? json_real(limit) : json_null(), "read_gb_s",
                     isfinite(gb_s) ? json_real(gb_s) : json_null(), "placement", nodes);
}

/* Cards: what the PCI bus shows, and what the driver says about them. */
static json_t *doctor_cards(void) {
    char address[64] = "";
    unsigned id = 0;
    struct nvml *n = NULL;
    bool on_bus = device_pci_nvidia(address, sizeof address, &id);
    enum infer_status st = nvml_open(&n);
    json_t *cards = json_array();
    for (int i = 0; !st && i < nvml_count(n); i++) {
        struct nvml_sample s;
        if (nvml_sample(n, i, &s)) continue;
        char cc[16], image[64];
        snprintf(cc, sizeof cc, "sm_%d%d", s.cc_major, s.cc_minor);
        cuda_image_for(infer_cuda_build(), s.cc_major, s.cc_minor, image, sizeof image);
        json_array_append_new(cards,
                              json_pack("{s:s, s:s, s:s, s:s, s:f, s:f}", "name", s.name, "pci", s.pci,
                                        "chip", cc, "image", image, "memory_gib", s.total_bytes / (1 << 30),
                                        "free_gib", (s.total_bytes - s.used_bytes) / (1 << 30)));
    }
    json_t *j = json_pack("{s:b, s:s, s:i, s:s, s:o}", "on_bus", on_bus, "pci", address, "pci_id", (int)id,
                          "driver", st ? "" : nvml_driver(n), "cards", cards);
    if (st && on_bus) json_object_set_new(j, "driver_problem", json_string(err_message()));
    nvml_close(n);
    return j;
}

/* device -> {usable, reason} */
static json_t *doctor_devices(void) {
    static const char *const names[] = {"cuda", "cpu"};
    static const enum device_kind kinds[] = {DEVICE_CUDA, DEVICE_CPU};
    json_t *j = json_object();
    for (int i = 0; i < 2; i++) {
        struct placement place;
        enum infer_status st = device_pick(
            &(struct device_wish){.device = kinds[i], .host = DEVICE_NONE, .n_layer = -1}, &place);
        json_object_set_new(
            j, names[i],
            json_pack("{s:b, s:s}", "usable", st == INFER_OK, "reason", st ? err_message() : ""));
    }
    return j;
}

/* What the CUDA backend in this program was built with, and the driver that it needs. */
static json_t *doctor_build(void) {
    const char *build = infer_cuda_build(), *colon = strchr(build, ':');
    if (!*build) return json_null();
    return json_pack("{s:s%, s:s, s:s}", "toolkit", build, colon - build, "images", colon + 2,
                     "driver_needed", cuda_driver_needed(build));
}

/* The model that would be taken, and where it would run; *status: why one that was asked for would not. */
static json_t *doctor_model(const struct options *o, enum infer_status *status) {
    char path[4096] = "";
    struct infer_model *m = NULL;
    struct infer_model_info info;
    struct infer_plan_report r = {0};
    enum infer_status st = session_model_path(o, path, sizeof path);
    if (!st) st = infer_model_open(&m, path, NULL);
    if (!st)
        st = infer_plan(m, &(struct infer_engine_options){.gpu_layers = -1, .cpu_experts = -1}, NULL, &r);
    char problem[1024];
    json_t *j = json_pack("{s:s, s:s}", "file", path, "problem",
                          st ? tool_flags(problem, sizeof problem, err_message()) : "");
    if (o->model || o->hf_repo)
        *status = st || r.fits ? st : err_set(INFER_E_MEMORY, "%s does not fit", path);
    if (!st) {
        infer_model_info(m, &info);
        json_t *place = json_pack("{s:s, s:b, s:i, s:i, s:i, s:f, s:f}", "device", r.size.device, "fits",
                                  r.fits, "layers_there", r.size.device_layers, "layers", info.n_layer, "ctx",
                                  r.size.n_ctx, "taken_gib", (double)r.size.device_bytes / (1 << 30),
                                  "available_gib", (double)r.limit_bytes / (1 << 30));
        json_object_set_new(j, "place", place);
        json_object_set_new(j, "tools", doctor_tools(m, &info));
    }
    infer_plan_free(&r);
    infer_model_close(m);
    return j;
}

static void print_model(json_t *model) {
    const char *file = json_string_value(json_object_get(model, "file")),
               *problem = json_string_value(json_object_get(model, "problem"));
    json_t *p = json_object_get(model, "place");
    const char *shown = strncmp(problem, file, strlen(file)) == 0 ? "" : file; /* it begins with the name */
    printf("model      %s%s%s\n", shown, *problem && *shown ? ": " : "", problem);
    if (!p) return;
    printf("           %s on %s: %d of %d layers, %d positions, %.2f GiB of %.2f\n",
           json_is_true(json_object_get(p, "fits")) ? "would run" : "does NOT fit",
           json_string_value(json_object_get(p, "device")),
           (int)json_integer_value(json_object_get(p, "layers_there")),
           (int)json_integer_value(json_object_get(p, "layers")),
           (int)json_integer_value(json_object_get(p, "ctx")),
           json_number_value(json_object_get(p, "taken_gib")),
           json_number_value(json_object_get(p, "available_gib")));
    print_tools(json_object_get(model, "tools"));
}

static void print_nodes(json_t *p) {
    json_t *nodes = json_object_get(p, "nodes"), *v;
    size_t i;
    bool several = json_array_size(nodes) > 1;
    printf("nodes      %d (%s%s)", (int)json_array_size(nodes),
           json_string_value(json_object_get(p, "source")),
           json_is_true(json_object_get(p, "here")) ? "" : ", not this machine");
    printf(several ? "; %d threads, bound:\n" : ": threads are not bound\n",
           (int)json_integer_value(json_object_get(p, "threads")));
    json_array_foreach(nodes, i, v) if (several)
        printf("  node %-3d %d cores, threads %s\n", (int)json_integer_value(json_object_get(v, "node")),
               (int)json_integer_value(json_object_get(v, "cores")),
               json_string_value(json_object_get(v, "threads")));
}

static void print_text(json_t *j) {
    json_t *cpu = json_object_get(j, "cpu"), *gpu = json_object_get(j, "gpu"),
           *devices = json_object_get(j, "devices");
    json_t *v;
    size_t i;
    const char *name;
    printf("infer      %s\n", json_string_value(json_object_get(j, "version")));
    printf("processor  %s, %d cores\n", json_string_value(json_object_get(cpu, "name")),
           (int)json_integer_value(json_object_get(cpu, "cores")));
    printf("           ");
    json_array_foreach(json_object_get(cpu, "features"), i, v)
        printf("%s%s", i ? " " : "", json_string_value(v));
    printf("\nmemory     %.1f GiB, %.1f available", json_number_value(json_object_get(cpu, "memory_gib")),
           json_number_value(json_object_get(cpu, "available_gib")));
    if (json_is_real(v = json_object_get(cpu, "limit_gib")))
        printf(", control group limit %.1f", json_number_value(v));
    if (json_is_real(v = json_object_get(cpu, "read_gb_s")))
        printf("; read at %.1f GB/s (measured now)", json_number_value(v));
    printf("\n");
    print_nodes(json_object_get(cpu, "placement"));
    printf("NVIDIA     ");
    if (json_is_true(json_object_get(gpu, "on_bus")))
        printf("display device 10de:%04x at %s", (int)json_integer_value(json_object_get(gpu, "pci_id")),
               json_string_value(json_object_get(gpu, "pci")));
    else
        printf("no display device on the PCI bus");
    const char *driver = json_string_value(json_object_get(gpu, "driver"));
    if (*driver) printf("; driver %s", driver);
    if ((v = json_object_get(gpu, "driver_problem"))) printf("; %s", json_string_value(v));
    printf("\n");
    json_array_foreach(json_object_get(gpu, "cards"), i, v) printf(
        "  card %d   %s, %s (image %s), %.1f GiB, %.1f free, %s\n", (int)i,
        json_string_value(json_object_get(v, "name")), json_string_value(json_object_get(v, "chip")),
        json_string_value(json_object_get(v, "image")), json_number_value(json_object_get(v, "memory_gib")),
        json_number_value(json_object_get(v, "free_gib")), json_string_value(json_object_get(v, "pci")));
    if (json_is_object(v = json_object_get(j, "cuda_build")))
        printf("CUDA       built with %s: %s; needs driver %s or newer\n",
               json_string_value(json_object_get(v, "toolkit")),
               json_string_value(json_object_get(v, "images")),
               json_string_value(json_object_get(v, "driver_needed")));
    else
        printf("CUDA       not in this build\n");
    json_object_foreach(devices, name, v) {
        bool usable = json_is_true(json_object_get(v, "usable"));
        printf("%-10s %s%s\n", name, usable ? "can be used" : "no: ",
               usable ? "" : json_string_value(json_object_get(v, "reason")));
    }
    bool cuda = json_is_true(json_object_get(json_object_get(devices, "cuda"), "usable"));
    printf("auto       uses %s\n", cuda ? "the card" : "the processor");
    print_self(json_object_get(j, "self_test"));
    print_model(json_object_get(j, "model"));
    json_array_foreach(json_object_get(j, "advice"), i, v)
        printf("%-10s %s\n", i ? "" : "to do", json_string_value(v));
}

static enum infer_status print_report(const struct options *o, json_t *j) {
    if (!o->json) {
        print_text(j);
        return INFER_OK;
    }
    char *text = json_dumps(j, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
    if (!text) return err_set(INFER_E_MEMORY, "the report");
    printf("%s\n", text);
    mem_free(text);
    return INFER_OK;
}

int cmd_doctor(const struct options *o) {
    enum infer_status of_model = INFER_OK;
    if (o->routes) {
        routes_print(stdout);
        return EXIT_DONE;
    }
    json_t *j = json_pack("{s:s, s:o, s:o, s:o, s:o}", "version", infer_version(), "cpu", doctor_cpu(), "gpu",
                          doctor_cards(), "cuda_build", doctor_build(), "devices", doctor_devices());
    if (j) json_object_set_new(j, "self_test", doctor_self(json_object_get(j, "devices")));
    const int failed = j ? doctor_self_failed(json_object_get(j, "self_test")) : 0;
    if (j)
        json_object_set_new(j, "model", doctor_model(o, &of_model)); /* behind all else: its message stays */
    if (j) json_object_set_new(j, "advice", doctor_advice(j));
    enum infer_status st = j ? print_report(o, j) : err_set(INFER_E_MEMORY, "the report");
    json_decref(j);
    if (!st) st = of_model;
    return st ? tool_fail(o, st) : failed ? EXIT_CHECK : EXIT_DONE;
}
