#include "tools/machine/doctor_advice.h"
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add(json_t *all, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(json_t *all, const char *format, ...) {
    char text[512];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    json_array_append_new(all, json_string(text));
}

static const char *text_of(const json_t *j, const char *key) {
    const char *text = json_string_value(json_object_get(j, key));
    return text ? text : "";
}

static bool is(const json_t *j, const char *key) { return json_is_true(json_object_get(j, key)); }

static void of_driver(json_t *all, const json_t *gpu, const json_t *build) {
    const char *driver = text_of(gpu, "driver"), *needed = text_of(build, "driver_needed");
    if (is(gpu, "on_bus") && !*driver)
        add(all,
            "install NVIDIA's driver%s%s%s: the system's package of it, or in a container the host's (--gpus all, the NVIDIA container toolkit)",
            *needed ? ", " : "", needed, *needed ? " or newer" : "");
    else if (*driver && atoi(driver) < atoi(needed))
        add(all, "update NVIDIA's driver: it is %s, this build needs %s or newer", driver, needed);
}

static void of_cards(json_t *all, const json_t *cards, const json_t *build) {
    json_t *card;
    size_t i;
    if (json_array_size(cards) && !json_is_object(build)) {
        add(all,
            "take a build with CUDA, or the card stays idle: cmake -DINFER_CUDA=ON (docs/installing.md)");
        return;
    }
    json_array_foreach(cards, i, card) {
        const double gib = json_number_value(json_object_get(card, "memory_gib")),
                     free = json_number_value(json_object_get(card, "free_gib"));
        if (strcmp(text_of(card, "image"), "none") == 0)
            add(all, "card %zu: build with its kernels, -DINFER_CUDA_ARCHS=%s, or leave it out: --device cpu",
                i, text_of(card, "chip") + strspn(text_of(card, "chip"), "sm_"));
        if (free < gib / 2)
            add(all,
                "card %zu: others hold %.1f of its %.1f GiB: nvidia-smi says who, --vram-reserve leaves them room",
                i, gib - free, gib);
    }
}

static void of_devices(json_t *all, const json_t *devices, const json_t *self) {
    const char *name;
    json_t *v;
    bool untested = false;
    if (!is(json_object_get(devices, "cpu"), "usable"))
        add(all, "--device ref computes on any processor, slowly; the kernels need AVX2 and FMA");
    json_object_foreach((json_t *)self, name, v) {
        if (json_is_false(json_object_get(v, "well")))
            add(all,
                "do not use %s: --device NAME chooses another; update driver and program, and tell the maintainers what doctor says",
                name);
        untested |= json_is_null(json_object_get(v, "well"));
    }
    const char *tmp = getenv("TMPDIR");
    if (untested)
        add(all,
            "make room for tiny models in %.300s, so that devices can be tested; $TMPDIR names another folder",
            tmp && *tmp ? tmp : "/tmp");
}

static void of_model(json_t *all, const json_t *model) {
    const char *file = text_of(model, "file"), *problem = text_of(model, "problem");
    const json_t *place = json_object_get(model, "place");
    if (place && !is(place, "fits"))
        add(all,
            "make the model fit: a smaller -c, --kv-type q8_0 or a type of fewer bits; infer plan says what each takes");
    if (strncmp(problem, "no model", 8) == 0)
        add(all,
            "get a model: scripts/get-model brings the default one to %.300s, infer pull hf:ORG/REPO another one",
            file);
    else if (*problem)
        add(all,
            "name a model that can be read, -m FILE or $INFER_MODEL; of a damaged one: infer inspect --check %.300s",
            file);
}

json_t *doctor_advice(const json_t *j) {
    const json_t *gpu = json_object_get(j, "gpu"), *build = json_object_get(j, "cuda_build");
    json_t *all = json_array();
    if (!all) return NULL;
    of_driver(all, gpu, build);
    of_cards(all, json_object_get(gpu, "cards"), build);
    of_devices(all, json_object_get(j, "devices"), json_object_get(j, "self_test"));
    of_model(all, json_object_get(j, "model"));
    return all;
}
