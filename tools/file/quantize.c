/* infer quantize: a model file with its matrices in another type. */
#include "tools/file/quantize.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "tools/adapters.h"
#include "tools/file/merge.h"
#include "tools/file/mix.h"
#include "tools/term.h"
#include "tools/tool.h"

enum { KINDS = 64 };
struct show {
    struct progress progress;
    struct quantize_error sum; /* of all tensors that changed */
    struct kind {              /* the matrices of a name but for their layer, with --bpw */
        char name[64];
        int count[QUANT_COUNT];
    } kind[KINDS];
    int n_kind;
};

static void chose(void *user, const char *name, enum quant_type type) {
    struct show *s = user;
    int layer, end = 0, i = 0;
    if (sscanf(name, "blk.%d.%n", &layer, &end) != 1) end = 0;
    while (i < s->n_kind && strcmp(s->kind[i].name, name + end)) i++;
    if (i == KINDS) i--; /* never so many: the rest in one line */
    if (i == s->n_kind) snprintf(s->kind[s->n_kind++].name, sizeof s->kind->name, "%s", name + end);
    s->kind[i].count[type]++;
}

static void say_mix(const struct show *s) {
    for (int i = 0; i < s->n_kind; i++) {
        char line[256];
        int used = snprintf(line, sizeof line, "%-28s", s->kind[i].name);
        for (int t = 0; t < QUANT_COUNT && used < (int)sizeof line; t++)
            if (s->kind[i].count[t])
                used += snprintf(line + used, sizeof line - (size_t)used, " %d %s", s->kind[i].count[t],
                                 quant_info((enum quant_type)t)->name);
        tool_say("%s", line);
    }
}

static void show(void *user, const char *what, double done, double total, const char *unit) {
    progress_show(&((struct show *)user)->progress, what, done, total, unit);
}

static double relative(const struct quantize_error *e) {
    return e->square > 0 ? sqrt(e->error2 / e->square) : 0;
}

static void check(void *user, const struct quantize_error *e) {
    struct show *s = user;
    progress_clear(&s->progress);
    if (s->sum.square == 0) printf("%-44s %-8s %-8s %10s %12s\n", "tensor", "from", "to", "error", "largest");
    printf("%-44s %-8s %-8s %9.4f%% %12.6g\n", e->name, quant_info(e->from)->name, quant_info(e->to)->name,
           100 * relative(e), e->largest);
    s->sum.error2 += e->error2;
    s->sum.square += e->square;
    if (e->largest > s->sum.largest) s->sum.largest = e->largest;
}

static enum infer_status end_check(const struct show *s) {
    if (s->sum.square > 0)
        printf("%-62s %9.4f%% %12.6g\n", "all that changed", 100 * relative(&s->sum), s->sum.largest);
    return tool_flush();
}

static void say_done(const struct quantize_options *q, const struct quantize_report *r) {
    char line[512];
    if (r->bpw > 0) tool_say("%.4f bits a weight", r->bpw);
    tool_say("%s: %d of %d tensors changed, %.1f MB from %.1f MB", q->out, r->n_changed, r->n_tensor,
             (double)r->bytes_out * 1e-6, (double)r->bytes_in * 1e-6);
    if (*mix_fallback_line(line, sizeof line, r->fallback, r->n_matrix)) tool_say("%s", line);
    if (r->n_lossy)
        tool_say("%d of them came from a quantised type; from the original weights they would be better",
                 r->n_lossy);
    if (r->n_rounded)
        tool_say(
            "%d matrices have types that GGUF lacks and became f16, with relative errors of at most %.2g",
            r->n_rounded, r->rounded);
    if (r->n_unweighed)
        tool_say("%d of %d matrices have no entry in %s", r->n_unweighed, r->n_matrix, q->imatrix);
}

/* The type may stand behind the files, as llama-quantize takes it. */
static enum infer_status choose_type(struct options *o) {
    const char *command = o->command->name;
    const bool bpw = o->bpw > 0;
    if (o->n_arg > 2) {
        struct options swapped = *o;
        if (o->type)
            return err_set(INFER_E_INPUT, "the type is given twice: %s and --type %s", o->arg[2], o->type);
        if (options_set(o, G_QUANT, "type", o->arg[2])) {
            if (options_set(&swapped, G_QUANT, "type", o->arg[1]))
                return options_set(o, G_QUANT, "type", o->arg[2]);
            return err_set(INFER_E_INPUT, "the type comes last: infer %s %s %s %s", command, o->arg[0],
                           o->arg[2], o->arg[1]);
        }
    }
    if (o->type && bpw)
        return err_set(INFER_E_INPUT, "--type and --bpw are both given, and one can choose the types");
    if (o->type || bpw) return INFER_OK;
    return err_set(INFER_E_INPUT, "TYPE%s is missing: infer %s %s %s q8_0; 'infer help %s' lists the types",
                   strcmp(command, "quantize") == 0 ? " or --bpw X" : "", command, o->arg[0], o->arg[1],
                   command);
}

static int write_again(const struct options *given, const struct merge *merge) {
    struct options own = *given;
    const struct options *o = &own;
    struct show s = {0};
    enum infer_status status = choose_type(&own);
    if (status) return tool_fail(o, status);
    struct quantize_report r;
    progress_start(&s.progress, o->quiet);
    struct quantize_options q = {.in = o->arg[0],
                                 .out = o->arg[1],
                                 .type = o->type,
                                 .bpw = o->bpw,
                                 .chose = chose,
                                 .only = o->only,
                                 .pure = o->pure,
                                 .tower = o->tower,
                                 .progress = show,
                                 .user = &s,
                                 .force = o->force,
                                 .sparse_ok = o->sparse_ok,
                                 .task = o->task,
                                 .ignore = {o->ignore_keys.text, o->ignore_keys.n},
                                 .imatrix = o->imatrix,
                                 .merge = merge,
                                 .check = o->check_error ? check : NULL};
    status = quantize_file(&q, &r);
    progress_clear(&s.progress);
    if (!status) status = end_check(&s);
    if (status) return tool_fail(o, status);
    if (!o->quiet) say_mix(&s);
    if (!o->quiet) say_done(&q, &r);
    return EXIT_DONE;
}

int cmd_quantize(const struct options *o) { return write_again(o, NULL); }

/* A folder is read as a model like any other: its names and rows become GGUF's on the way. */
int cmd_convert(const struct options *o) { return cmd_quantize(o); }

/* The type of what is merged stays, unless one is named. */
int cmd_merge(const struct options *given) {
    struct options o = *given;
    struct merge_named adapter[OPTION_MAX_TEXTS];
    char path[OPTION_MAX_TEXTS][1024];
    struct merge *m;
    if (!o.type && o.n_arg < 3) o.type = "keep";
    enum infer_status s = INFER_OK;
    for (int i = 0; !s && i < o.lora.n; i++) {
        adapter[i].path = path[i];
        s = adapter_named(o.lora.text[i], path[i], sizeof path[i], &adapter[i].scale);
    }
    const struct tensorfile_options to = {
        .sparse_ok = o.sparse_ok, .task = o.task, .ignore = {o.ignore_keys.text, o.ignore_keys.n}};
    if (!s) s = merge_open(&m, o.arg[0], &to, adapter, o.lora.n);
    if (s) return tool_fail(&o, s);
    const int code = write_again(&o, m);
    merge_close(m);
    return code;
}
