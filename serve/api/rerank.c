/* POST /v1/rerank, /v2/rerank and /v1/score, as Jina, Cohere and vLLM have it. A cross-encoder scores query and document together. With a chat model as the judge
 * each document is put before it in the words that Qwen3-Reranker was trained on, and the score is p(yes) of its logits for yes and no.
 * source: the model card of Qwen3-Reranker */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "serve/core/answer_log.h"
#include "serve/api/openai.h"
#include "serve/api/routes.h"
#include "serve/core/server.h"

enum { DOCUMENTS = 1024 };
struct rerank_state {
    char *query, *task;
    json_t *queries; /* of each document one, or of all of them; NULL: query */
    json_t *documents;
    int top; /* results that are told; 0: all */
    bool returned;
};

/* ---- fields ---- */

/* Texts, or objects with one, kept in *to. */
static enum infer_status read_texts(struct job *j, const char *at, const json_t *v, json_t **to) {
    size_t i;
    json_t *d;
    if (!json_is_array(v) || json_array_size(v) < 1 || json_array_size(v) > DOCUMENTS)
        return job_invalid(j, at, "'%s' must be an array of 1 to %d documents", at, DOCUMENTS);
    json_array_foreach((json_t *)v, i, d) {
        if (!json_is_string(d) && !json_is_string(json_object_get(d, "text")))
            return job_invalid(j, at, "'%s[%zu]' must be a string or have a text", at, i);
    }
    json_decref(*to);
    *to = json_incref((json_t *)v);
    return INFER_OK;
}
static enum infer_status read_documents(struct job *j, const char *at, const json_t *v) {
    struct rerank_state *s = j->state;
    return read_texts(j, at, v, &s->documents);
}
#define OWN(field) .offset = offsetof(struct rerank_state, field), .own = true
static const struct field rows[] = {
    {"query", FIELD_KEEP, 0, 32 << 20, OWN(query)},
    {"documents", FIELD_HAND, .hand = read_documents},
    {"top_n", FIELD_INT, 1, 1e9, OWN(top)},
    {"return_documents", FIELD_BOOL, OWN(returned)},
    {"instruction", FIELD_KEEP, 0, 4096, OWN(task)},
    {"model", FIELD_TEXT, 0, 256, .offset = offsetof(struct ask, model)},
    {"user priority", .type = FIELD_SILENT},
    {"max_tokens_per_doc", FIELD_WARN,
     .why = "a document that is longer than the context is refused, not cut off"},
    {.name = NULL},
};

/* text_1, text_2: a text or several; newer clients call them queries and documents. */
static enum infer_status read_one_or_more(struct job *j, const char *at, const json_t *v, json_t **to) {
    json_t *all = json_is_array(v) ? json_incref((json_t *)v) : json_pack("[O]", v);
    enum infer_status st = all ? read_texts(j, at, all, to) : err_set(INFER_E_MEMORY, "out of memory: texts");
    json_decref(all);
    return st;
}
static enum infer_status read_first(struct job *j, const char *at, const json_t *v) {
    struct rerank_state *s = j->state;
    return read_one_or_more(j, at, v, &s->queries);
}
static enum infer_status read_second(struct job *j, const char *at, const json_t *v) {
    struct rerank_state *s = j->state;
    return read_one_or_more(j, at, v, &s->documents);
}
static const struct field of_score[] = {
    {"text_1 queries", FIELD_HAND, .hand = read_first},
    {"text_2 documents", FIELD_HAND, .hand = read_second},
    {"instruction", FIELD_KEEP, 0, 4096, OWN(task)},
    {"model", FIELD_TEXT, 0, 256, .offset = offsetof(struct ask, model)},
    {"user priority", .type = FIELD_SILENT},
    {.name = NULL},
};

/* ---- prompts ---- */

static const char *text_of(const json_t *document) {
    return json_string_value(json_is_string(document) ? document : json_object_get(document, "text"));
}

static int32_t word(const struct infer_model *m, const char *text) {
    int32_t ids[4];
    size_t n;
    return infer_tokenize(m, text, NULL, strlen(text), 0, ids, 4, &n) || n != 1 ? -1 : ids[0];
}

static json_t *question(const struct rerank_state *s, const char *query, const char *document) {
    static const char task[] = "Given a web search query, retrieve relevant passages that answer the query",
                      judge[] =
                          "Judge whether the Document meets the requirements based on the Query and the "
                          "Instruct provided. Note that the answer can only be \"yes\" or \"no\".";
    json_t *text = json_sprintf("<Instruct>: %s\n<Query>: %s\n<Document>: %s", s->task ? s->task : task,
                                query, document);
    return json_pack("[{s:s, s:s}, {s:s, s:o}]", "role", "system", "content", judge, "role", "user",
                     "content", text);
}

/* One document's prompt; what the client said is text, and no special token in it is one. */
static enum infer_status ask_about(struct job *j, const char *query, const char *document,
                                   struct ask_prompt *out) {
    json_t *switches = json_pack("{s:b, s:b}", "enable_thinking", 0, "thinking", 0),
           *messages = question(j->state, query, document);
    struct infer_prompt_template t = j->server->template;
    struct infer_prompt p = {0};
    char tail[64];
    t.variables = switches;
    enum infer_status st = messages ? infer_prompt_render(&p, j->server->model, &t, messages, true)
                                    : err_set(INFER_E_MEMORY, "out of memory: a document");
    const char *closing = st ? NULL : infer_prompt_closing(p.text, p.n_text);
    if (closing) { /* a template without a switch */
        snprintf(tail, sizeof tail, "\n%s\n\n", closing);
        t.tail = tail;
        t.n_tail = t.n_own = strlen(tail);
        infer_prompt_free(&p);
        st = infer_prompt_render(&p, j->server->model, &t, messages, true);
    }
    json_decref(messages);
    json_decref(switches);
    if (st == INFER_E_INPUT) return job_refuse(j, 400, "template_error", "documents", "%s", err_message());
    if (st) return st;
    *out = (struct ask_prompt){.ids = p.ids, .n_id = p.n};
    p.ids = NULL;
    infer_prompt_free(&p);
    return INFER_OK;
}

/* Of document i. */
static const char *query_of(const struct rerank_state *s, size_t i) {
    return s->queries ? text_of(json_array_get(s->queries, json_array_size(s->queries) > 1 ? i : 0))
                      : s->query;
}

/* Of a cross-encoder a pair of texts for each document; what is too long is cut off, as the models were trained. */
static enum infer_status pairs(struct job *j) {
    struct ask *a = &j->ask;
    const struct server *s = j->server;
    const struct rerank_state *r = j->state;
    size_t i;
    json_t *d;
    if (s->info.n_label != 1)
        return job_refuse(j, 400, "unsupported_parameter", NULL,
                          "the model gives %d scores, and one is known", s->info.n_label);
    a->params.make = infer_model_makes(&s->info);
    a->params.n_predict = 0;
    TRY(mem_new(&a->prompt, json_array_size(r->documents) * sizeof *a->prompt, "documents"));
    json_array_foreach(r->documents, i, d) {
        struct infer_text t;
        struct infer_text_options o = {.a = query_of(r, i), .b = text_of(d)};
        o.n_a = strlen(o.a), o.n_b = strlen(o.b);
        o.most = s->info.n_text < s->n_ctx ? s->info.n_text : s->n_ctx;
        TRY(infer_text_ids(s->model, &o, &t));
        a->prompt[a->n_prompt++] = (struct ask_prompt){.ids = t.ids, .n_id = t.n, .n_first = t.n_first};
    }
    return INFER_OK;
}

/* A prompt of each document, and what its logits are asked for. */
static enum infer_status judge(struct job *j) {
    struct ask *a = &j->ask;
    const struct rerank_state *s = j->state;
    size_t i;
    json_t *d;
    if (j->server->info.n_label) return pairs(j);
    a->params.make = INFER_MAKE_LOGITS;
    a->params.make_id = a->make_id;
    a->params.n_make_id = 2;
    a->params.n_predict = 0;
    a->make_id[0] = word(j->server->model, "yes");
    a->make_id[1] = word(j->server->model, "no");
    if (!j->server->template.text || a->make_id[0] < 0 || a->make_id[1] < 0)
        return job_refuse(
            j, 400, "unsupported_parameter", NULL,
            "documents are judged by cross-encoders and by chat models that have a token for 'yes' and one for 'no', "
            "and this is none");
    TRY(mem_new(&a->prompt, json_array_size(s->documents) * sizeof *a->prompt, "documents"));
    json_array_foreach(s->documents, i, d) {
        TRY(ask_about(j, query_of(s, i), text_of(d), &a->prompt[a->n_prompt]));
        a->n_prompt++;
    }
    return INFER_OK;
}

static enum infer_status begin_read(struct job *j, const json_t *body, const struct field *fields) {
    return fields_read(j, "", body, FIELDS(fields));
}

static enum infer_status rerank_read(struct job *j, const json_t *body) {
    TRY(begin_read(j, body, rows));
    const struct rerank_state *s = j->state;
    if (!s->query) return job_invalid(j, "query", "'query' is missing");
    if (!s->documents) return job_invalid(j, "documents", "'documents' is missing");
    return judge(j);
}

static enum infer_status score_read(struct job *j, const json_t *body) {
    TRY(begin_read(j, body, of_score));
    const struct rerank_state *s = j->state;
    if (!s->queries) return job_invalid(j, "text_1", "'text_1' is missing");
    if (!s->documents) return job_invalid(j, "text_2", "'text_2' is missing");
    if (json_array_size(s->queries) != 1 && json_array_size(s->queries) != json_array_size(s->documents))
        return job_invalid(j, "text_1",
                           "'text_1' has %zu texts and 'text_2' %zu: one for all, or one for each",
                           json_array_size(s->queries), json_array_size(s->documents));
    return judge(j);
}

/* ---- the answer ---- */

struct result {
    int index;
    double score;
};
static int better(const void *a, const void *b) {
    const struct result *x = a, *y = b;
    return x->score != y->score ? (x->score < y->score ? 1 : -1) : x->index - y->index;
}

/* p(yes) of document i, or a sigmoid of what a cross-encoder gives. */
static double score(const struct job *j, int i) {
    const struct choice *c = &j->choice[i];
    if (!c->made) return 0;
    return 1 / (1 + exp((c->n_made > 1 ? (double)c->made[1] : 0) - (double)c->made[0]));
}

static void rerank_whole(struct job *j, struct buf *out) {
    const struct rerank_state *s = j->state;
    struct result *r = mem_piece((size_t)j->n_choice * sizeof *r);
    if (!r) {
        out->failed = true;
        return;
    }
    for (int i = 0; i < j->n_choice; i++) r[i] = (struct result){i, score(j, i)};
    qsort(r, (size_t)j->n_choice, sizeof *r, better);
    json_put(out, "{id:%s object:'list' model:%s results:[", j->id, j->server->name);
    for (int i = 0; i < j->n_choice && (!s->top || i < s->top); i++) {
        json_put(out, "{index:%d relevance_score:%.9g", r[i].index, r[i].score);
        if (s->returned)
            json_put(out, "document:{text:%s}", text_of(json_array_get(s->documents, (size_t)r[i].index)));
        json_put(out, "}");
    }
    json_put(out, "] usage:{prompt_tokens:%d total_tokens:%d}}\n", j->counts.prompt, j->counts.prompt);
    mem_free(r);
}

/* As vLLM has it: in the order of the texts. */
static void score_whole(struct job *j, struct buf *out) {
    json_put(out, "{id:%s object:'list' created:%ld model:%s data:[", j->id, j->created, j->server->name);
    for (int i = 0; i < j->n_choice; i++)
        json_put(out, "{index:%d object:'score' score:%.9g}", i, score(j, i));
    json_put(out, "] usage:{prompt_tokens:%d total_tokens:%d}}\n", j->counts.prompt, j->counts.prompt);
}

static void rerank_done(struct job *j) {
    struct rerank_state *s = j->state;
    mem_free(s->query);
    mem_free(s->task);
    json_decref(s->queries);
    json_decref(s->documents);
}

const struct front_end rerank_api = {.prefix = "rerank-",
                                     .state = sizeof(struct rerank_state),
                                     .read = rerank_read,
                                     .whole = rerank_whole,
                                     .error = openai_error,
                                     .done = rerank_done};
const struct front_end score_api = {.prefix = "score-",
                                    .state = sizeof(struct rerank_state),
                                    .read = score_read,
                                    .whole = score_whole,
                                    .error = openai_error,
                                    .done = rerank_done};
