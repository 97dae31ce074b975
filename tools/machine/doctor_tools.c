#include "tools/machine/doctor_tools.h"
#include <stdio.h>
#include <string.h>
#include "serve/core/tool_job.h"

json_t *doctor_tools(const struct infer_model *m, const struct infer_model_info *info) {
    struct tool_probe p;
    if (!info->has_tokenizer || !info->chat_template ||
        tool_job_probe(&p, m, info->chat_template, info->chat_template_len))
        return json_null();
    return json_pack("{s:s, s:s, s:b, s:s?, s:b, s:s?}", "format", p.format.row ? p.format.row->name : "none",
                     "from",
                     p.rendered    ? "template"
                     : p.described ? "default"
                                   : "marks",
                     "shown_by_template", !p.described, "thinking_switch", p.thinking, "reasoning_effort",
                     p.effort, "thinking_ends", p.think[1]);
}

void print_tools(const json_t *t) {
    const char *from = json_string_value(json_object_get(t, "from")),
               *off = json_string_value(json_object_get(t, "thinking_switch")),
               *end = json_string_value(json_object_get(t, "thinking_ends"));
    if (!json_is_object(t)) return;
    printf("           tools: calls like '%s' (%s)%s; thinking: %s%s%s%s\n",
           json_string_value(json_object_get(t, "format")),
           strcmp(from, "template") == 0 ? "the template writes them so"
           : strcmp(from, "marks") == 0  ? "by marks in the template"
                                         : "the template knows none",
           json_is_true(json_object_get(t, "shown_by_template")) ? "" : ", described in the system message",
           end ? end : "none", off ? ", switched by " : "", off ? off : "",
           json_is_true(json_object_get(t, "reasoning_effort")) ? ", reasoning_effort" : "");
}
