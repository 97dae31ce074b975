/* What the APIs of OpenAI have in common: errors, usage, log probabilities, tools. */
#pragma once
#include "serve/api/fields.h"
#include "serve/core/frontend.h"

/* {"error": {message, type, param, code}}; in a stream as `data:` */
void openai_error(const struct job *j, const struct refusal *r, const char *request_id, bool in_stream,
                  struct buf *out);
/* Members of an answer: usage:{..}; timings:{..} with llama.cpp's names; warnings:[..]; infer:{seed, queue_ms, warnings}. */
void openai_usage(const struct job *j, struct buf *out);
/* energy_joules:.. of a usage, where the request asks for it (include_energy); null: nobody counts. */
void openai_energy(const struct job *j, struct buf *out);
void openai_timings(const struct job *j, struct buf *out);
void openai_warnings(const struct job *j, struct buf *out);
void openai_infer(const struct job *j, struct buf *out);
/* How many tokens a prompt has. */
enum infer_status openai_count_reply(struct job *j, struct buf *out);
/* The beginning of a whole answer or chunk, {id, object, created, model, system_fingerprint; and the end of the first behind its choices:
 * ], usage, timings, infer}. */
void openai_head(const struct job *j, const char *object, struct buf *out);
void openai_end(const struct job *j, struct buf *out);
/* The end of a chunk behind its choices; e: what it is of, NULL: nothing. An answer that was stopped for a loop says so. */
void openai_chunk_end(const struct job *j, const struct event *e, struct buf *out);
/* The end of a stream: the chunk of usage where it is asked for, and [DONE]. */
void openai_done(const struct job *j, const char *object, struct buf *out);
/* A token as JSON text: its bytes, or "bytes:\\xe2" where they are no UTF-8. */
void openai_token(struct buf *out, const char *piece, size_t n);
/* name:[ids] */
void openai_ids(const char *name, const struct event_token *t, int n, struct buf *out);
/* [{token, logprob, bytes, top_logprobs: [..]}] */
void openai_logprobs(const struct job *j, const struct event_token *t, int n, struct buf *out);
/* finish_reason:"stop", FINISH_NONE: null */
void openai_finish(enum job_finish f, struct buf *out);
/* stop_reason: "NAME" or 12 or null: what ended it */
void openai_stop_reason(const char *stop_text, int32_t stop_id, struct buf *out);

/* tools: [{type function, function {..}}], as templates take them; custom ones become functions of one text. */
enum infer_status openai_tools(struct job *j, const char *at, const json_t *v);
enum infer_status openai_tool_choice(struct job *j, const char *at, const json_t *v);
/* Behind the fields of body: with tools the model chooses where tool_choice says nothing; a call that has to come needs tools. */
enum infer_status openai_tool_mode(struct job *j, const json_t *body);
/* The parts of a prompt whose middle is to be filled in. */
struct fim_parts {
    const char *prefix, *suffix; /* prefix[n_prefix], suffix[n_suffix] */
    size_t n_prefix, n_suffix;
    const json_t *extra; /* [{filename, text}] that stand in front; NULL: none */
    const json_t *begun; /* a text with which the middle begins; NULL: none */
};
/* The prompt of them, in place of *out, with the vocabulary's tokens for it; what begins another file ends the answer. */
enum infer_status fim_prompt(struct job *j, const char *at, const struct fim_parts *parts,
                             struct ask_prompt *out);
/* native.c: answers in the shape of llama.cpp's own routes, for front ends that have .stream. */
void native_event(struct job *j, const struct event *e, struct buf *out);
void native_whole(struct job *j, struct buf *out);
/* A prompt or up to `most`: texts, or lists of ids, into ask.prompt. */
enum infer_status openai_prompts(struct job *j, const char *at, const json_t *v, size_t most);
/* response_format */
enum infer_status openai_format(struct job *j, const char *at, const json_t *v);
/* reasoning_effort, and an object {effort, max_tokens, exclude} */
enum infer_status openai_effort(struct job *j, const char *at, const json_t *v);
/* thinking as Anthropic has it: {type, budget_tokens} */
enum infer_status openai_thinking(struct job *j, const char *at, const json_t *v);
enum infer_status openai_stream_options(struct job *j, const char *at, const json_t *v);
/* chat_template_kwargs */
enum infer_status openai_variables(struct job *j, const char *at, const json_t *v);
/* {role, content, ..} of a chat completion, checked and appended to ask.messages. */
enum infer_status openai_message(struct job *j, const char *at, const json_t *v);
/* messages: each by `read`, with its place. */
enum infer_status openai_messages(struct job *j, const char *at, const json_t *v,
                                  enum infer_status (*read)(struct job *j, const char *at, const json_t *v));
