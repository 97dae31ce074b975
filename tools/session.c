#include "tools/session.h"
#include "tools/sight.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tools/interrupt.h"
#include "tools/world.h"
#include "tools/tool.h"

/* ---- which file ---- */

enum { DEFAULT_CTX = 8192 };                            /* as the engine's */
#define DEFAULT_MODEL "SmolLM2-135M-Instruct.Q4_1.gguf" /* scripts/get-model installs it */

enum infer_status session_model_path(const struct options *o, char *path, size_t n) {
    const char *env = getenv("INFER_MODEL"), *cache = getenv("XDG_CACHE_HOME");
    int len;
    if (o->model || (env && *env)) {
        len = snprintf(path, n, "%s", o->model ? o->model : env);
    } else {
        bool xdg = cache && *cache;
        len = snprintf(path, n, "%s%s/infer/models/" DEFAULT_MODEL, xdg ? cache : tool_home(),
                       xdg ? "" : "/.cache");
        if (len > 0 && (size_t)len < n && access(path, F_OK) != 0)
            return err_set(INFER_E_IO,
                           "no model: give one with -m FILE or $INFER_MODEL, or let scripts/get-model "
                           "install the default one");
    }
    if (len < 0 || (size_t)len >= n)
        return err_set(INFER_E_INPUT, "the model's path has over %zu bytes", n - 1);
    return INFER_OK;
}

/* ---- opening ---- */

static void show_progress(void *user, const char *what, double done, double total) {
    progress_show(user, what, done, total, "B");
}

/* The value of --matmul-precision that names a format; NULL: none. */
static const char *block_scaled(const char *precision) {
    return precision && strncmp(precision, "high", 4) != 0 ? precision : NULL;
}

struct infer_engine_options session_engine_options(const struct options *o, const struct session_need *need) {
    struct infer_engine_options eo = {
#define INFER_OPTION(reader, type, field, ...) .field = o->field,
#include "infer_options.def"
        .decode_rows = need->decode_rows,
        .repack_after = need->repack_after,
        .block_scaled = block_scaled(o->matmul_precision),
        .strict_fp32 = o->matmul_precision && strcmp(o->matmul_precision, "highest") == 0,
        .all_logits = need->all_logits,
        .tap = need->tap,
        .tap_user = need->tap_user,
        .group = world_group(),
    };
    if (!eo.ctx) eo.ctx = need->ctx;
    if (!eo.slots) eo.slots = need->slots;
    if (!eo.batch) eo.batch = need->batch;
    return eo;
}

enum infer_status session_open_model(struct session *s, const struct options *o) {
    TRY(session_model_path(o, s->path, sizeof s->path));
    struct infer_model_options mo = {.no_mmap = o->no_mmap,
                                     .mlock = o->mlock,
                                     .sparse_ok = o->sparse_ok,
                                     .ignore_keys = o->ignore_keys.text,
                                     .n_ignore_key = o->ignore_keys.n};
    TRY(infer_model_open(&s->model, s->path, &mo));
    infer_model_info(s->model, &s->info);
    return INFER_OK;
}

enum infer_status session_drafter(const struct options *o, struct session_draft *out) {
    const char *draft = o->draft.n ? o->draft.text[0] : "";
    const bool own = strncmp(draft, "mtp", 3) == 0 && (!draft[3] || draft[3] == ':');
    char *end = NULL;
    *out = (struct session_draft){o->lookup    ? INFER_DRAFT_LOOKUP
                                  : o->draft.n ? INFER_DRAFT_MODEL
                                               : INFER_DRAFT_NONE,
                                  own ? NULL : draft, 0};
    if (o->draft.n > 1)
        return err_set(INFER_E_INPUT, "--draft is given %d times, and one model can guess", o->draft.n);
    if (o->lookup && o->draft.n)
        return err_set(INFER_E_INPUT, "--lookup and --draft are both given, and one can guess");
    if (!own || !draft[3]) return INFER_OK;
    long most = strtol(draft + 4, &end, 10);
    if (!draft[4] || *end || most < 1 || most > INFER_REQUEST_DRAFT)
        return err_set(INFER_E_INPUT,
                       "--draft %s: behind mtp: stands how many tokens are guessed at most, 1 to %d", draft,
                       INFER_REQUEST_DRAFT);
    out->most = (int)most;
    return INFER_OK;
}

/* Layers of the model's own file, or the file's model. */
static enum infer_status open_draft_model(struct session *s, const struct options *o, const char *file) {
    const struct infer_model_options mo = {.no_mmap = o->no_mmap,
                                           .mlock = o->mlock,
                                           .sparse_ok = o->sparse_ok,
                                           .ignore_keys = o->ignore_keys.text,
                                           .n_ignore_key = o->ignore_keys.n};
    if (file) TRY(infer_model_open(&s->draft_model, file, &mo));
    enum infer_status st =
        file ? infer_vocab_same(s->model, s->draft_model) : infer_model_draft(&s->draft_model, s->model);
    return st ? err_prefix(st, file ? "--draft" : "--draft mtp") : INFER_OK;
}

enum infer_status session_open_draft(struct session *s, const struct options *o,
                                     const struct session_draft *draft, const char *as,
                                     struct infer_engine_options *of, struct infer_engine_options *out) {
    struct infer_model_info info;
    struct infer_plan_report r;
    TRY(open_draft_model(s, o, draft->file));
    infer_model_info(s->draft_model, &info);
    TRY(infer_plan(s->model, of, as, &r));
    const int n_ctx = r.size.n_ctx, n_slot = r.size.n_slot;
    const bool card = strstr(r.size.device, "cuda") != NULL;
    infer_plan_free(&r);
    if (card && !draft->file)
        return err_set(
            INFER_E_UNSUPPORTED,
            "--draft mtp is not computed on a card yet; --draft FILE and --lookup are, or --device cpu");
    of->decode_rows = INFER_REQUEST_DRAFT + 1;
    of->hidden = !draft->file;
    *out = *of;
    out->ctx = draft->file && info.n_ctx_train < n_ctx ? info.n_ctx_train : n_ctx;
    out->slots = n_slot, out->kv_tokens = 0;
    out->group = NULL; /* what drafts is small: rank 0 has it, in one stage; it may have no experts */
    out->stages = 0, out->ep = false;
    out->gpu_layers = out->cpu_experts = -1;
    return INFER_OK;
}

/* The model that drafts comes first: what it takes of a card the other one finds taken. */
static enum infer_status open_engines(struct session *s, const struct options *o,
                                      const struct session_need *need, struct infer_engine_options *eo) {
    struct infer_engine_options draft;
    if (need->draft && need->draft->by == INFER_DRAFT_MODEL) {
        TRY(session_open_draft(s, o, need->draft, NULL, eo, &draft));
        TRY(infer_engine_create(&s->drafter, s->draft_model, &draft));
    }
    return infer_engine_create(&s->engine, s->model, eo);
}

/* What does not fit is refused with the table; the message that is there stays. */
static void show_plan(struct session *s, const struct infer_engine_options *eo) {
    char why[512];
    struct infer_plan_report r;
    snprintf(why, sizeof why, "%s", infer_error());
    if (infer_plan(s->model, eo, NULL, &r) == INFER_OK && !r.fits) tool_report(stderr, r.text);
    infer_plan_free(&r);
    err_set(INFER_E_MEMORY, "%s", why);
}

enum infer_status session_open(struct session *s, const struct options *o, const struct session_need *need) {
    *s = (struct session){0};
    double start = term_seconds();
    TRY(session_open_model(s, o));
    if (need->text && !s->info.has_tokenizer) {
        enum infer_status none = err_set(INFER_E_UNSUPPORTED, "%s has no tokenizer", s->path);
        session_close(s);
        return none;
    }
    struct infer_engine_options eo = session_engine_options(o, need);
    char tower[4096];
    eo.inputs = sight_path(tower, sizeof tower, s->path, o);
    progress_start(&s->progress, o->quiet || need->quiet);
    if (need->contexts && !o->slots && !o->kv_tokens && o->ctx >= 0) {
        const int n_ctx = eo.ctx                              ? eo.ctx
                          : s->info.n_ctx_train < DEFAULT_CTX ? s->info.n_ctx_train
                                                              : DEFAULT_CTX;
        eo.kv_tokens = need->contexts * n_ctx;
    } else if (need->contexts && !o->slots && o->ctx < 0) {
        eo.slots = need->contexts;
    }
    eo.hidden = need->hidden;
    enum infer_status st = INFER_OK;
    if (need->size && !o->slots && !o->kv_tokens && o->ctx >= 0) st = need->size(s->model, NULL, &eo);
    eo.progress = show_progress;
    eo.user = &s->progress;
    if (!st) st = open_engines(s, o, need, &eo);
    progress_clear(&s->progress);
    if (st) {
        if (st == INFER_E_MEMORY && (s->drafter || !s->draft_model)) show_plan(s, &eo);
        session_close(s);
        return st;
    }
    infer_engine_info(s->engine, &s->place);
    s->load_seconds = term_seconds() - start;
    interrupt_stops(s->engine, NULL);
    return INFER_OK;
}

void session_close(struct session *s) {
    interrupt_stops(NULL, NULL);
    infer_engine_free(s->engine);
    infer_engine_free(s->drafter);
    infer_model_close(s->draft_model);
    infer_model_close(s->model);
    s->engine = s->drafter = NULL;
    s->model = s->draft_model = NULL;
}
