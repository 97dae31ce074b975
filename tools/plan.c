/* infer plan: every byte that running the model would take, before anything is loaded. */
#include <stdio.h>
#include "session.h"
#include "tool.h"

int cmd_plan(const struct options *o);

int cmd_plan(const struct options *o) {
    struct session s = {0};
    char *text = NULL;
    bool fits = false;
    enum infer_status st = session_open_model(&s, o);
    if (!st) {
        struct infer_engine_options eo = session_engine_options(o, &(struct session_need){.slots = 1});
        st = infer_plan(s.model, &eo, &text, &fits);
    }
    if (!st) {
        fputs(text, stdout);
        st = tool_flush();
    }
    int code = st ? tool_fail(o, st) : fits ? EXIT_DONE : EXIT_CANNOT;
    infer_text_free(text);
    session_close(&s);
    return code;
}
