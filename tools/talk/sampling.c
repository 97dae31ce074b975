#include "tools/talk/sampling.h"
#include <string.h>
#include "tools/tool.h"

/* The keys are llama.cpp's (gguf-py/gguf/constants.py, Keys.General); own: where the file has none of them. */
static const struct {
    const char *option, *key, *own;
} rows[] = {
    {"temp", "general.sampling.temp", "0.5"},
    {"top-k", "general.sampling.top_k", NULL},
    {"top-p", "general.sampling.top_p", NULL},
    {"min-p", "general.sampling.min_p", "0.1"},
    {"repeat-penalty", "general.sampling.penalty_repeat", "1.1"},
    {"repeat-last", "general.sampling.penalty_last_n", NULL},
    {"xtc-probability", "general.sampling.xtc_probability", NULL},
    {"xtc-threshold", "general.sampling.xtc_threshold", NULL},
};
enum { N_ROW = sizeof rows / sizeof *rows };

void sampling_recommended(struct options *o, const struct infer_model *m, char *line, size_t n) {
    double value;
    bool any = false;
    size_t used = 0;
    *line = 0;
    if (options_given(o, "temp") && o->temp == 0) return;
    for (int i = 0; i < N_ROW; i++) any |= infer_model_number(m, rows[i].key, &value);
    for (int i = 0; i < N_ROW; i++) {
        char text[32] = "";
        if (infer_model_number(m, rows[i].key, &value))
            snprintf(text, sizeof text, "%g", value);
        else if (any && i == 0)
            snprintf(text, sizeof text, "1"); /* generation_config.json leaves 1 out */
        else if (!any && rows[i].own)
            snprintf(text, sizeof text, "%s", rows[i].own);
        if (!*text || options_given(o, rows[i].option)) continue;
        if (options_set(o, G_SAMPLE, rows[i].option, text))
            tool_say("not taken from the file's sampling: %s", err_message());
        else if (used < n)
            used += (size_t)snprintf(line + used, n - used, "%s%s %s",
                                     used ? ", " : "sampling: ", rows[i].option, text);
    }
    if (used && used < n)
        snprintf(line + used, n - used, " (%s; --temp 0 for greedy)",
                 any ? "recommended by the file" : "chat's own, the file recommends nothing");
}
