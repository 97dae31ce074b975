#include "tools/talk/recommended.h"
#include "tools/sampling.h"
#include "tools/tool.h"

void sampling_recommended(struct options *o, const struct infer_model *m, char *line, size_t n) {
    const bool any = sampling_from_file(m);
    size_t used = 0;
    const char *option;
    char text[32];
    *line = 0;
    if (options_given(o, "temp") && o->temp == 0) return;
    for (int i = 0; (option = sampling_setting(m, i, text)); i++) {
        if (!*text || options_given(o, option)) continue;
        if (options_set(o, G_SAMPLE, option, text))
            tool_say("not taken from the file's sampling: %s", err_message());
        else if (used < n)
            used +=
                (size_t)snprintf(line + used, n - used, "%s%s %s", used ? ", " : "sampling: ", option, text);
    }
    if (used && used < n)
        snprintf(line + used, n - used, " (%s; --temp 0 for greedy)",
                 any ? "recommended by the file" : "our own, the file recommends nothing");
}
