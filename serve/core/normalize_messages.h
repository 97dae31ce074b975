/* Messages of clients -> what the chat template of the file can read. */
#pragma once
#include "serve/core/job.h"

/* Renders ask.messages into p and sets job->start. A template that refuses them is tried once more with system messages behind the first
 * folded into the user's and equal roles joined. errors: INFER_E_INPUT after job_refuse (template_error, no template), INFER_E_MEMORY */
enum infer_status normalize_and_render(struct job *j, struct infer_prompt *p);
