/* --log-prompts FILE: the texts of prompts and answers, a line of JSON a request, in a file that its owner alone can read. */
#pragma once
#include "serve/core/answer_log.h"

struct prompt_log;
/* path NULL: *out is. errors: INFER_E_IO, INFER_E_INPUT (others can read it), INFER_E_MEMORY */
enum infer_status prompt_log_open(struct prompt_log **out, const char *path);
void prompt_log_close(struct prompt_log *l);
/* A request that was answered, whole or in part; l NULL: nothing. */
void prompt_log_add(struct prompt_log *l, struct job *j, const char *key, const char *route, int status);
