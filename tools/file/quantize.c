/* infer quantize: a model file with its matrices in another type. */
#include "tools/file/quantize.h"
#include "tools/file/mix.h"
#include "tools/term.h"
#include "tools/tool.h"

static void show(void *user, double done, double total) { progress_show(user, "writing", done, total, "B"); }

int cmd_quantize(const struct options *o) {
    struct progress p;
    struct quantize_report r;
    progress_start(&p, o->quiet);
    struct quantize_options q = {o->arg[0], o->arg[1], o->type, o->only,
                                 o->pure,   show,      &p,      {o->ignore_keys.text, o->ignore_keys.n}};
    enum infer_status status = quantize_file(&q, &r);
    progress_clear(&p);
    if (status) return tool_fail(o, status);
    if (!o->quiet) {
        char line[512];
        tool_say("%s: %d of %d tensors changed, %.1f MB from %.1f MB", q.out, r.n_changed, r.n_tensor,
                 (double)r.bytes_out * 1e-6, (double)r.bytes_in * 1e-6);
        if (*mix_fallback_line(line, sizeof line, r.fallback, r.n_matrix)) tool_say("%s", line);
        if (r.n_lossy)
            tool_say("%d of them came from a quantised type; from the original weights they would be better",
                     r.n_lossy);
    }
    return EXIT_DONE;
}

/* A folder is read as a model like any other: its names and rows become GGUF's on the way. */
int cmd_convert(const struct options *o) { return cmd_quantize(o); }
