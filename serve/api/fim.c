/* Filling in the middle: POST /infill as llama.cpp's server has it (llama.vim, llama.vscode), and `suffix` of /v1/completions. */
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "serve/api/openai.h"
#include "serve/api/routes.h"
#include "serve/core/server.h"

/* ---- the vocabulary's tokens for it ---- */

enum { FIM_PRE, FIM_SUF, FIM_MID, FIM_REP, FIM_SEP, N_FIM };
struct fim {
    int32_t id[N_FIM]; /* -1: none */
};

static int32_t token_named(const struct infer_model *m, const char *text) {
    int32_t ids[4];
    size_t n, len;
    if (infer_tokenize(m, text, NULL, strlen(text), INFER_TOK_SPECIAL, ids, 4, &n) || n < 1 || n > 2)
        return -1;
    const char *piece = infer_piece(m, ids[n - 1], true, false, &len);
    return len == strlen(text) && memcmp(piece, text, len) == 0 ? ids[n - 1] : -1;
}

/* By the file's keys (those of today, then those of before), else by names: Qwen and CodeGemma, StarCoder and Granite, DeepSeek, CodeLlama,
 * GLM. */
static void find(const struct server *s, struct fim *f) {
    static const struct {
        const char *key[2], *name[5];
    } of[N_FIM] = {
        {{"fim_pre", "prefix"},
         {"<|fim_prefix|>", "<fim_prefix>",
          "<\xef\xbd\x9c"
          "fim\xe2\x96\x81"
          "begin\xef\xbd\x9c>",
          "\xe2\x96\x81<PRE>", "<|code_prefix|>"}},
        {{"fim_suf", "suffix"},
         {"<|fim_suffix|>", "<fim_suffix>",
          "<\xef\xbd\x9c"
          "fim\xe2\x96\x81"
          "hole\xef\xbd\x9c>",
          "\xe2\x96\x81<SUF>", "<|code_suffix|>"}},
        {{"fim_mid", "middle"},
         {"<|fim_middle|>", "<fim_middle>",
          "<\xef\xbd\x9c"
          "fim\xe2\x96\x81"
          "end\xef\xbd\x9c>",
          "\xe2\x96\x81<MID>", "<|code_middle|>"}},
        {{"fim_rep", "fim_rep"}, {"<|repo_name|>", "<repo_name>", "<reponame>"}},
        {{"fim_sep", "fim_sep"}, {"<|file_sep|>", "<file_sep>", "<filename>"}},
    };
    for (int i = 0; i < N_FIM; i++) {
        double x = -1;
        char key[64];
        for (int k = 0; k < 2 && x < 0; k++) {
            snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", of[i].key[k]);
            if (!infer_model_number(s->model, key, &x)) x = -1;
        }
        f->id[i] = x >= 0 && x < s->info.n_vocab ? (int32_t)x : -1;
        for (int k = 0; k < 5 && of[i].name[k] && f->id[i] < 0; k++)
            f->id[i] = token_named(s->model, of[i].name[k]);
    }
}

/* ---- the prompt ---- */

struct ids {
    int32_t *p; /* p[n] */
    size_t n;
};

static enum infer_status add_id(struct ids *to, int32_t id) {
    int32_t *grown = mem_realloc(to->p, (to->n + 1) * sizeof *grown);
    if (!grown) return err_set(INFER_E_MEMORY, "out of memory: a prompt");
    to->p = grown;
    to->p[to->n++] = id;
    return INFER_OK;
}

/* Text, in which special tokens are text. */
static enum infer_status add_text(struct ids *to, const struct infer_model *m, const char *text, size_t n) {
    size_t cap = n + 16, count = 0;
    if (!n) return INFER_OK;
    for (int round = 0; round < 2; round++) {
        int32_t *grown = mem_realloc(to->p, (to->n + cap) * sizeof *grown);
        if (!grown) return err_set(INFER_E_MEMORY, "out of memory: a prompt");
        to->p = grown;
        TRY(infer_tokenize(m, text, NULL, n, 0, to->p + to->n, cap, &count));
        if (count <= cap) break;
        cap = count;
    }
    to->n += count;
    return INFER_OK;
}

static enum infer_status add_json(struct ids *to, const struct infer_model *m, const json_t *text) {
    return add_text(to, m, json_is_string(text) ? json_string_value(text) : "", json_string_length(text));
}

/* Other files that the text may refer to: [{filename, text}]. */
static enum infer_status add_extra(struct ids *to, const struct server *s, const struct fim *f,
                                   const json_t *extra) {
    static const char snippet[] = "\n\n--- snippet ---\n\n";
    size_t i;
    json_t *file;
    if (!json_array_size(extra)) return INFER_OK;
    if (f->id[FIM_REP] >= 0) {
        TRY(add_id(to, f->id[FIM_REP]));
        TRY(add_text(to, s->model, "project\n", 8));
    }
    json_array_foreach((json_t *)extra, i, file) {
        const json_t *name = json_object_get(file, "filename");
        if (f->id[FIM_SEP] >= 0) {
            TRY(add_id(to, f->id[FIM_SEP]));
            TRY(json_is_string(name) ? add_json(to, s->model, name) : add_text(to, s->model, "file", 4));
            TRY(add_text(to, s->model, "\n", 1));
        } else {
            TRY(add_text(to, s->model, snippet, sizeof snippet - 1));
        }
        TRY(add_json(to, s->model, json_object_get(file, "text")));
    }
    if (f->id[FIM_SEP] < 0) return INFER_OK;
    TRY(add_id(to, f->id[FIM_SEP]));
    return add_text(to, s->model, "this\n", 5);
}

static enum infer_status fill(struct job *j, struct ids *to, const struct fim *f, const struct fim_parts *p) {
    const struct server *s = j->server;
    int32_t first[4];
    size_t n;
    TRY(infer_tokenize(s->model, "", NULL, 0, INFER_TOK_ADD, first, 4, &n));
    if (n && first[0] == infer_bos(s->model)) TRY(add_id(to, first[0]));
    TRY(add_extra(to, s, f, p->extra));
    TRY(add_id(to, f->id[FIM_PRE]));
    TRY(add_text(to, s->model, p->prefix, p->n_prefix));
    TRY(add_id(to, f->id[FIM_SUF]));
    TRY(add_text(to, s->model, p->suffix, p->n_suffix));
    TRY(add_id(to, f->id[FIM_MID]));
    return add_json(to, s->model, p->begun);
}

enum infer_status fim_prompt(struct job *j, const char *at, const struct fim_parts *parts,
                             struct ask_prompt *out) {
    struct ask *a = &j->ask;
    struct fim f;
    struct ids to = {0};
    find(j->server, &f);
    if (f.id[FIM_PRE] < 0 || f.id[FIM_SUF] < 0 || f.id[FIM_MID] < 0)
        return job_refuse(j, 400, "unsupported_parameter", at,
                          "the model's vocabulary has no tokens for filling in the middle");
    enum infer_status st = fill(j, &to, &f, parts);
    if (st) {
        mem_free(to.p);
        return st;
    }
    mem_free(out->text);
    *out = (struct ask_prompt){.ids = to.p, .n_id = (int)to.n};
    for (int i = FIM_REP; i < N_FIM; i++) /* another file begins */
        if (f.id[i] >= 0 && a->params.n_end_id < JOB_STOP_IDS) a->stop_id[a->params.n_end_id++] = f.id[i];
    return INFER_OK;
}

/* ---- POST /infill ---- */

struct infill_state {
    char *prefix, *suffix;
    json_t *extra, *begun;
};

static enum infer_status read_begun(struct job *j, const char *at, const json_t *v) {
    struct infill_state *s = j->state;
    if (!json_is_string(v)) return job_invalid(j, at, "'%s' must be a string", at);
    s->begun = json_incref((json_t *)v);
    return INFER_OK;
}
static enum infer_status read_extra(struct job *j, const char *at, const json_t *v) {
    struct infill_state *s = j->state;
    size_t i;
    json_t *file;
    json_array_foreach((json_t *)v, i, file) if (
        !json_is_string(json_object_get(file, "text"))) return job_invalid(j, at,
                                                                           "'%s[%zu].text' must be a string",
                                                                           at, i);
    if (!json_is_array(v)) return job_invalid(j, at, "'%s' must be an array of files", at);
    s->extra = json_incref((json_t *)v);
    return INFER_OK;
}

#define OWN(field) .offset = offsetof(struct infill_state, field), .own = true
#define ASK(field) .offset = offsetof(struct ask, field)
static const struct field rows[] = {
    {"input_prefix", FIELD_KEEP, 0, 32 << 20, OWN(prefix)},
    {"input_suffix", FIELD_KEEP, 0, 32 << 20, OWN(suffix)},
    {"input_extra", FIELD_HAND, .hand = read_extra},
    {"prompt", FIELD_HAND, .hand = read_begun},
    {"model", FIELD_TEXT, 0, 256, ASK(model)},
    {"n_predict max_tokens", FIELD_INT, -1, 1e9, ASK(params.n_predict)},
    {"stream", FIELD_BOOL, ASK(stream)},
    {"n_indent t_max_prompt_ms t_max_predict_ms cache_prompt id_slot response_fields", .type = FIELD_SILENT},
    {.name = NULL},
};
#undef ASK

static enum infer_status infill_read(struct job *j, const json_t *body) {
    struct infill_state *s = j->state;
    TRY(fields_read(j, "", body, FIELDS(rows, fields_sampling, fields_grammar, fields_undone)));
    if (!s->prefix && !s->suffix)
        return job_invalid(j, "input_prefix", "'input_prefix' and 'input_suffix' are missing");
    const struct fim_parts parts = {.prefix = s->prefix ? s->prefix : "",
                                    .n_prefix = s->prefix ? strlen(s->prefix) : 0,
                                    .suffix = s->suffix ? s->suffix : "",
                                    .n_suffix = s->suffix ? strlen(s->suffix) : 0,
                                    .extra = s->extra,
                                    .begun = s->begun};
    TRY(mem_new(&j->ask.prompt, sizeof *j->ask.prompt, "a prompt"));
    j->ask.n_prompt = 1;
    return fim_prompt(j, "input_prefix", &parts, &j->ask.prompt[0]);
}

static void infill_done(struct job *j) {
    struct infill_state *s = j->state;
    mem_free(s->prefix);
    mem_free(s->suffix);
    json_decref(s->extra);
    json_decref(s->begun);
}

const struct front_end infill_api = {.prefix = "cmpl-",
                                     .state = sizeof(struct infill_state),
                                     .read = infill_read,
                                     .event = native_event,
                                     .whole = native_whole,
                                     .error = openai_error,
                                     .done = infill_done};
