/* The parser of calls and reasoning between a job and its answer. */
#pragma once
#include "serve/core/answer_log.h"
#include "serve/core/server.h"

/* Finds what the model's template knows of tools (server.tools). errors: INFER_E_MEMORY */
enum infer_status tool_job_server(struct server *s);
/* What a model's template text[n] knows, without a server. errors: INFER_E_MEMORY */
enum infer_status tool_job_probe(struct tool_probe *out, const struct infer_model *m, const char *text,
                                 size_t n);
/* Before rendering: for a template that shows no tools, and what else tools change in messages. errors: INFER_E_MEMORY */
enum infer_status tool_job_messages(struct job *j);
/* True when the answer has to be a call: its form is fixed by a grammar. */
bool tool_job_forced(const struct job *j);
/* After rendering: whether and from where the answer is parsed, its grammar, what it may not begin with. errors: refusals, INFER_E_MEMORY */
enum infer_status tool_job_prepare(struct job *j);
/* A choice's parser, when its job is parsed. errors: INFER_E_MEMORY */
enum infer_status tool_job_choice(struct choice *c);
/* A token of the answer; c->stopped: nothing more is wanted. */
void tool_job_token(struct choice *c, int32_t id);
/* The answer has ended; what is held back goes out. Returns why it ended, *stop which of job.stop it was, or -1. */
enum job_finish tool_job_end(struct choice *c, enum job_finish finish, int *stop);
