/* infer doctor -m: what a model's chat template knows of tools and reasoning, as infer serve finds it. */
#pragma once
#include <jansson.h>
#include "infer.h"

/* {format, from, shown_by_template, thinking_switch, reasoning_effort, thinking_ends}, null without a template. */
json_t *doctor_tools(const struct infer_model *m, const struct infer_model_info *info);
void print_tools(const json_t *t);
