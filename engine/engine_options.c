#include "engine_options.h"
#include "wire/group.h"

#include <stdlib.h>
#include <string.h>

static enum infer_status host_of(const char *option, const char *name, enum device_kind *out) {
    *out = !strcmp(name, "cpu") ? DEVICE_CPU : DEVICE_REF;
    if (*out == DEVICE_REF && strcmp(name, "ref"))
        return err_set(INFER_E_INPUT, "%s is '%s', must be auto, cpu, cuda or ref", option, name);
    return INFER_OK;
}

/* "cuda:N", N from 0 on. */
static enum infer_status card_of(const char *device, int *card) {
    char *end;
    const long n = strtol(device + 5, &end, 10);
    if (device[5] < '0' || device[5] > '9' || *end || n > 255)
        return err_set(INFER_E_INPUT, ".device is '%s', must be cuda:0, cuda:1 ..", device);
    *card = (int)n + 1;
    return INFER_OK;
}

/* "0,1,1": the card of each rank. */
static enum infer_status cards_of_ranks(struct device_wish *out, const char *list) {
    for (const char *at = list; list && *at; at += *at == ',') {
        char *end;
        const long n = strtol(at, &end, 10);
        if (*at < '0' || *at > '9' || (*end && *end != ',') || (*end && !end[1]) || n > 255 ||
            out->n_rank_card == RANKS_MAX)
            return err_set(INFER_E_INPUT,
                           ".devices is '%s', must be the number of a card for each rank: 0,1,..", list);
        out->rank_card[out->n_rank_card++] = (uint8_t)n;
        at = end;
    }
    return INFER_OK;
}

static enum infer_status wish_of(struct device_wish *out, const struct infer_engine_options *o) {
    const char *device = o->device ? o->device : "auto";
    *out = (struct device_wish){.device = DEVICE_AUTO,
                                .host = DEVICE_NONE,
                                .by_name = o->device != NULL,
                                .n_layer = o->gpu_layers,
                                .n_cpu_experts = o->cpu_experts};
    if (!strncmp(device, "cuda", 4) && (!device[4] || device[4] == ':')) {
        out->device = DEVICE_CUDA;
        if (device[4]) TRY(card_of(device, &out->card));
    } else if (strcmp(device, "auto")) {
        TRY(host_of(".device", device, &out->device));
    }
    TRY(cards_of_ranks(out, o->devices));
    return o->host_device ? host_of(".host_device", o->host_device, &out->host) : INFER_OK;
}

/* A number of the options, its bounds, and the word that flags have for -1; NULL: there is none. */
struct number {
    const char *field;
    double value, least, most;
    const char *word;
};
/* 0 is everywhere the default. -1 of .slots is a word of the library alone: the most that fit. */
static enum infer_status numbers_in_range(const struct infer_engine_options *o) {
    const struct number numbers[] = {
#define NUMBER_INT(field, least, most, word)    {"." #field, o->field, least, most, word},
#define NUMBER_NUMBER(field, least, most, word) {"." #field, o->field, least, most, word},
#define NUMBER_BYTES(...)
#define NUMBER_FLAG(...)
#define NUMBER_SWITCH(...)
#define NUMBER_TEXT(...)
#define INFER_OPTION(reader, type, field, letter, flag, metavar, groups, def, least, most, choices, help)    \
    NUMBER_##type(field, least, most, choices)
#include "infer_options.def"
        {".decode_rows", o->decode_rows, 0, 65536, NULL},
        {".repack_after", o->repack_after, 0, INT32_MAX, NULL},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const struct number *n = &numbers[i];
        const char *word = strcmp(n->field, ".slots") == 0 ? "the most that fit" : n->word;
        if (n->value == 0 || (n->value >= n->least && n->value <= n->most) || (word && n->value == -1))
            continue;
        return err_set(INFER_E_INPUT, "%s is %.9g, must be %.9g to %.9g%s%s%s", n->field, n->value, n->least,
                       n->most, word ? ", or -1 (" : "", word ? word : "", word ? ")" : "");
    }
    return INFER_OK;
}

static enum infer_status known_format(const char *name) {
    static const char *const known[] = {"fp8", "mxfp8", "mxfp4", "nvfp4"};
    for (size_t i = 0; name && i < sizeof known / sizeof *known; i++)
        if (!strcmp(name, known[i])) return INFER_OK;
    return name ? err_set(INFER_E_INPUT, ".block_scaled is '%s', must be fp8, mxfp8, mxfp4, nvfp4", name)
                : INFER_OK;
}

enum infer_status engine_options_read(struct plan_options *out, const struct infer_engine_options *o) {
    static const struct infer_engine_options defaults = {.gpu_layers = -1, .cpu_experts = -1};
    if (!o) o = &defaults;
    TRY(numbers_in_range(o));
    *out = (struct plan_options){
#define INFER_FOR_PLAN(type, field)     .field = o->field,
#define INFER_FOR_BACKENDS(type, field) .field = o->field,
#define INFER_FOR_CPU(type, field)      .cpu.field = o->field,
#define INFER_FOR_CUDA(type, field)     .cuda.field = o->field,
#include "infer_options.def"
        .progress = o->progress, .user = o->user};
    const int world = o->group ? group_world(o->group) : 0;
    if (world && out->ranks > 0 && out->ranks != world)
        return err_set(INFER_E_INPUT, ".ranks is %d, and the group has %d ranks", out->ranks, world);
    if (world) out->ranks = world;
    TRY(wish_of(&out->wish, o));
    return known_format(o->block_scaled);
}
