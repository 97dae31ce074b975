/* POST /tokenize and /detokenize. */
#include "base/mem.h"
#include "serve/api/openai.h"
#include "serve/api/routes.h"
#include "serve/core/server.h"

static enum infer_status read_content(struct job *j, const char *at, const json_t *v) {
    if (j->ask.n_prompt) return job_invalid(j, at, "'content' and 'prompt' are both given");
    if (json_is_array(v)) return job_invalid(j, at, "'%s' must be a string, and is an array", at);
    return openai_prompts(j, at, v, 1);
}

static enum infer_status read_messages(struct job *j, const char *at, const json_t *v) {
    return openai_messages(j, at, v, openai_message);
}

static enum infer_status tokenize_read(struct job *j, const json_t *body) {
    static const struct field rows[] = {
        {"content prompt", FIELD_HAND, .hand = read_content},
        {"messages", FIELD_HAND, .hand = read_messages},
        {"tools", FIELD_HAND, .hand = openai_tools},
        {"chat_template_kwargs", FIELD_HAND, .hand = openai_variables},
        {"model", FIELD_TEXT, 0, 256, .offset = offsetof(struct ask, model)},
        {"add_special add_special_tokens", FIELD_BOOL, .offset = offsetof(struct ask, add_special)},
        {"parse_special", FIELD_NOT, .offset = offsetof(struct ask, plain_text)},
        {"with_pieces return_token_strs", FIELD_BOOL, .offset = offsetof(struct ask, return_ids)},
        {"add_generation_prompt", .type = FIELD_SILENT},
        {.name = NULL},
    };
    TRY(fields_read(j, "", body, FIELDS(rows)));
    if (!j->ask.messages == !j->ask.n_prompt)
        return job_invalid(j, "content", "one of 'content', 'prompt' and 'messages' is needed");
    return INFER_OK;
}

/* ids of the text with or without what the model adds */
static enum infer_status tokens_of(const struct job *j, int32_t **ids, size_t *n) {
    const struct ask_prompt *p = j->ask.prompt;
    const unsigned flags =
        (j->ask.add_special ? INFER_TOK_ADD : 0) | (j->ask.plain_text ? 0 : INFER_TOK_SPECIAL);
    size_t cap = p->n + 16;
    *ids = NULL;
    for (int round = 0; round < 2; round++) {
        mem_free(*ids);
        TRY(mem_new(ids, cap * sizeof **ids, "token ids"));
        TRY(infer_tokenize(j->server->model, p->text, NULL, p->n, flags, *ids, cap, n));
        if (*n <= cap) break;
        cap = *n;
    }
    return INFER_OK;
}

static enum infer_status tokenize_reply(struct job *j, struct buf *out) {
    int32_t *ids = j->n_prompt ? j->prompt[0].ids : NULL, *own = NULL;
    size_t n = j->n_prompt ? (size_t)j->prompt[0].n : 0;
    if (!j->ask.messages) {
        enum infer_status st = tokens_of(j, &own, &n);
        if (st) mem_free(own);
        if (st) return st;
        ids = own;
    }
    json_put(out, "{tokens:[");
    for (size_t i = 0; i < n; i++) {
        size_t len;
        const char *piece = infer_piece(j->server->model, ids[i], true, false, &len);
        json_put(out, j->ask.return_ids ? "{id:%d piece:" : "%d", ids[i]);
        if (!j->ask.return_ids) continue;
        openai_token(out, piece, len);
        json_put(out, "}");
    }
    json_put(out, "] count:%zu max_model_len:%d}\n", n, j->server->n_ctx);
    mem_free(own);
    return INFER_OK;
}

static enum infer_status read_tokens(struct job *j, const char *at, const json_t *v) {
    TRY(mem_new(&j->ask.prompt, sizeof *j->ask.prompt, "ids"));
    j->ask.n_prompt = 1;
    return field_ids(j, at, v, &j->ask.prompt->ids, &j->ask.prompt->n_id);
}

static enum infer_status detokenize_read(struct job *j, const json_t *body) {
    static const struct field rows[] = {
        {"tokens", FIELD_HAND, .hand = read_tokens},
        {"model", FIELD_TEXT, 0, 256, .offset = offsetof(struct ask, model)},
        {.name = NULL},
    };
    TRY(fields_read(j, "", body, FIELDS(rows)));
    return j->ask.n_prompt ? INFER_OK : job_invalid(j, "tokens", "'tokens' is missing");
}

static enum infer_status detokenize_reply(struct job *j, struct buf *out) {
    struct buf text = {0};
    for (int i = 0; i < j->prompt[0].n; i++) {
        size_t n;
        const char *piece = infer_piece(j->server->model, j->prompt[0].ids[i], true, i == 0, &n);
        buf_add(&text, piece, n);
    }
    json_put(out, "{content:%.*s prompt:%.*s}\n", BUF_TEXT(text), BUF_TEXT(text));
    out->failed |= text.failed;
    buf_free(&text);
    return INFER_OK;
}

const struct front_end rest_tokenize = {
    .prefix = "", .read = tokenize_read, .reply = tokenize_reply, .error = openai_error};
const struct front_end rest_detokenize = {
    .prefix = "", .read = detokenize_read, .reply = detokenize_reply, .error = openai_error};
