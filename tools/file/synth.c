/* infer synth: a file of a real model's shape with random weights. */
#include "tools/file/mix.h"
#include "tools/file/synth.h"
#include "tools/term.h"
#include "tools/tool.h"

static void show(void *user, double done, double total) { progress_show(user, "writing", done, total, "B"); }

static int write_adapter(const struct options *o) {
    uint64_t bytes;
    const enum infer_status s =
        o->shape ? err_set(INFER_E_INPUT, "--adapter-of takes shapes from a file: not with --shape")
                 : synth_adapter(o->adapter_of, o->lora_rank, o->fixed_seed, o->output, &bytes);
    if (s) return tool_fail(o, s);
    if (!o->quiet) tool_say("%s: %.1f MB", o->output, (double)bytes * 1e-6);
    return EXIT_DONE;
}

int cmd_synth(const struct options *o) {
    if (o->adapter_of) return write_adapter(o);
    struct progress p;
    struct synth_report report;
    progress_start(&p, o->quiet);
    struct synth_options s = {.arch = o->arch,
                              .shape = o->shape,
                              .type = o->type,
                              .path = o->output,
                              .seed = o->fixed_seed,
                              .layers = o->layers,
                              .draft = o->draft_layer,
                              .progress = show,
                              .user = &p};
    enum infer_status status = synth_write(&s, &report);
    progress_clear(&p);
    if (status) return tool_fail(o, status);
    if (!o->quiet) {
        char line[512];
        tool_say("%s: %.1f MB", s.path, (double)report.bytes * 1e-6);
        if (*mix_fallback_line(line, sizeof line, report.fallback, report.n_matrix)) tool_say("%s", line);
    }
    return EXIT_DONE;
}
