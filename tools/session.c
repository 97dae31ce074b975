#include "tools/session.h"
#include "tools/named.h"
#include "tools/peak.h"
#include "tools/trace.h"
#include "tools/sight.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tools/interrupt.h"
#include "tools/world.h"
#include "tools/trace_levels.h"
#include "cuda/bench/cuda_bench.h"
#include "base/bandwidth.h"
#include "plan/device.h"
#include "tools/tool.h"

/* ---- which file ---- */

enum { DEFAULT_CTX = 8192 }; /* as the engine's */

enum infer_status session_model_path(const struct options *o, char *path, size_t n) {
    const char *cache = getenv("XDG_CACHE_HOME");
    int len;
    if (o->model && o->hf_repo)
        return err_set(INFER_E_INPUT, "--model and --hf-repo are both given, and one is the model");
    if (o->hf_repo) {
        char name[600];
        snprintf(name, sizeof name, "hf:%.500s", o->hf_repo);
        return model_path_of(o, name, path, n);
    }
    if (o->model) {
        return model_path_of(o, o->model, path, n);
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
        .watch = need->watch,
        .watch_user = need->watch_user,
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
                                     .task = o->task,
                                     .ignore_keys = o->ignore_keys.text,
                                     .n_ignore_key = o->ignore_keys.n,
                                     .rope_scaling = o->rope_scaling,
                                     .rope_scale = (float)o->rope_scale,
                                     .rope_freq_base = (float)o->rope_freq_base,
                                     .yarn_orig_ctx = o->yarn_orig_ctx,
                                     .yarn_beta_fast = (float)o->yarn_beta_fast,
                                     .yarn_beta_slow = (float)o->yarn_beta_slow,
                                     .yarn_attn_factor = (float)o->yarn_attn_factor};
    TRY(infer_model_open(&s->model, s->path, &mo));
    infer_model_info(s->model, &s->info);
    return INFER_OK;
}

enum infer_status session_drafter(const struct options *o, struct session_draft *out) {
    const char *draft = o->draft.n ? o->draft.text[0] : "";
    const bool own = strncmp(draft, "mtp", 3) == 0 && (!draft[3] || draft[3] == ':');
    char *end = NULL;
    /* of what several places say the upper one holds */
    const int by_text = o->lookup ? (int)o->origin[OPTION_ROW_lookup] : -1,
              by_model = o->draft.n ? (int)o->origin[OPTION_ROW_draft] : -1;
    const bool lookup = by_text > by_model, model = by_model > by_text;
    *out = (struct session_draft){lookup  ? INFER_DRAFT_LOOKUP
                                  : model ? INFER_DRAFT_MODEL
                                          : INFER_DRAFT_NONE,
                                  own ? NULL : draft, 0};
    if (model && o->draft.n > 1)
        return err_set(INFER_E_INPUT, "--draft is given %d times, and one model can guess", o->draft.n);
    if (by_text >= 0 && by_text == by_model)
        return err_set(INFER_E_INPUT, "--lookup and --draft are both given, and one can guess");
    if (!model || !own || !draft[3]) return INFER_OK;
    long most = strtol(draft + 4, &end, 10);
    if (!draft[4] || *end || most < 1 || most > INFER_REQUEST_DRAFT)
        return err_set(INFER_E_INPUT,
                       "--draft %s: behind mtp: stands how many tokens are guessed at most, 1 to %d", draft,
                       INFER_REQUEST_DRAFT);
    out->most = (int)most;
    return INFER_OK;
}

enum { PAGE = 64 };    /* positions: guesses behind a text may need one more */
enum { GUESSING = 8 }; /* requests that guess all they may in one step */

int session_draft_rows(const struct infer_engine_info *size) {
    const int n = size->n_slot, guesses = INFER_REQUEST_DRAFT * (n < GUESSING ? n : GUESSING);
    return n + guesses * (size->state_bytes ? 2 : 1);
}

/* Layers of the model's own file, or the file's model. */
static enum infer_status open_draft_model(struct session *s, const struct options *o, const char *file) {
    const struct infer_model_options mo = {.no_mmap = o->no_mmap,
                                           .mlock = o->mlock,
                                           .sparse_ok = o->sparse_ok,
                                           .ignore_keys = o->ignore_keys.text,
                                           .n_ignore_key = o->ignore_keys.n};
    char path[4096];
    if (file) TRY(model_path_of(o, file, path, sizeof path));
    enum infer_status st = file ? infer_model_open_drafter(&s->draft_model, path, &mo, s->model)
                                : infer_model_draft(&s->draft_model, s->model);
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
    const int n_ctx = r.size.n_ctx, n_slot = r.size.n_slot, all = r.size.kv_tokens,
              n_row = session_draft_rows(&r.size);
    const bool card = strstr(r.size.device, "cuda") != NULL;
    infer_plan_free(&r);
    if (card && info.n_tapped)
        return err_set(INFER_E_UNSUPPORTED,
                       "--draft with a head (EAGLE-3) is not computed on a card yet; another model that "
                       "drafts, --draft mtp and --lookup are, or --device cpu");
    of->decode_rows = n_row;
    if (info.n_tapped) of->hidden_for = s->draft_model;
    of->hidden |= info.wants_hidden && !info.n_tapped;
    *out = *of;
    out->hidden = false;
    out->hidden_for = NULL;
    if (of->kv_type && draft->file && (strpbrk(of->kv_type, ",:/") || !strcmp(of->kv_type, "auto")))
        out->kv_type = NULL; /* the other model's layers */
    out->ctx = !info.wants_hidden && info.n_ctx_train < n_ctx ? info.n_ctx_train : n_ctx;
    out->slots = n_slot;
    out->kv_tokens =
        all < n_ctx * n_slot ? all + n_slot * PAGE : 0; /* sequences that share pages do so here */
    if (out->kv_tokens > out->ctx * n_slot) out->kv_tokens = 0;
    out->profile = NULL;
    out->n_adapter = out->adapter_room = 0;
    out->group = NULL; /* what drafts is small: rank 0 has it, in one stage; it may have no experts */
    out->stages = 0, out->ep = false;
    out->gpu_layers = out->cpu_experts = -1;
    return INFER_OK;
}

/* Room for guesses in the model's engine; a model that drafts is opened, with its engine's options. */
static enum infer_status drafts_of(struct session *s, const struct options *o,
                                   const struct session_need *need, struct infer_engine_options *eo,
                                   struct infer_engine_options *draft) {
    struct infer_plan_report r;
    if (!need->draft || !need->draft->by) return INFER_OK;
    if (need->draft->by == INFER_DRAFT_MODEL) return session_open_draft(s, o, need->draft, NULL, eo, draft);
    TRY(infer_plan(s->model, eo, NULL, &r));
    eo->decode_rows = session_draft_rows(&r.size);
    infer_plan_free(&r);
    return INFER_OK;
}

/* The model that drafts comes first: what it takes of a card the other one finds taken. */
static enum infer_status open_engines(struct session *s, const struct options *o,
                                      const struct session_need *need, struct infer_engine_options *eo) {
    struct infer_engine_options draft;
    TRY(drafts_of(s, o, need, eo, &draft));
    if (s->draft_model) TRY(infer_engine_create(&s->drafter, s->draft_model, &draft));
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

/* Whether an engine as asked for is one of a card. */
static bool on_card(const struct infer_model *m, const struct infer_engine_options *eo) {
    struct infer_plan_report r = {0};
    const bool card = infer_plan(m, eo, NULL, &r) == INFER_OK && strstr(r.size.device, "cuda");
    infer_plan_free(&r);
    return card;
}

/* The engine's options for a model that is open, with room for its tower where it has one. */
static enum infer_status engine_options(struct session *s, const struct options *o,
                                        const struct session_need *need, struct infer_engine_options *eo) {
    char tower[4096];
    *eo = session_engine_options(o, need);
    TRY(adapters_open(&s->adapters, o, s->model));
    eo->adapter = (const struct infer_adapter *const *)s->adapters.adapter;
    eo->adapter_scale = s->adapters.scale, eo->n_adapter = s->adapters.n;
    eo->adapter_room = s->adapters.n_room, eo->adapter_rank = o->max_lora_rank;
    eo->inputs = sight_path(tower, sizeof tower, s->path, o);
    if (eo->inputs && need->text)
        eo->vram_reserve += sight_reserve(s->model, tower, o, on_card(s->model, eo));
    if (need->contexts && !o->slots && !o->kv_tokens && o->ctx >= 0) {
        const int n_ctx = eo->ctx                             ? eo->ctx
                          : s->info.n_ctx_train < DEFAULT_CTX ? s->info.n_ctx_train
                                                              : DEFAULT_CTX;
        eo->kv_tokens = need->contexts * n_ctx;
    } else if (need->contexts && !o->slots && o->ctx < 0) {
        eo->slots = need->contexts;
    }
    eo->hidden = need->hidden;
    return need->size && !o->slots && !o->kv_tokens && o->ctx >= 0 ? need->size(s->model, NULL, eo)
                                                                   : INFER_OK;
}

/* The model alone, which is to have a tokenizer where the command needs one. */
static enum infer_status open_model_for(struct session *s, const struct options *o,
                                        const struct session_need *need) {
    *s = (struct session){0};
    TRY(session_open_model(s, o));
    if (!need->text || s->info.has_tokenizer) return INFER_OK;
    enum infer_status none = err_set(INFER_E_UNSUPPORTED, "%s has no tokenizer", s->path);
    session_close(s);
    return none;
}

enum { TRACE_SPANS = 1 << 20, PROFILE_SPANS = 1 << 16 };

static enum infer_status open_profile(struct session *s, const struct options *o) {
    s->show_profile = o->profile;
    if (!o->profile && !o->trace) return INFER_OK;
    if (o->trace) {
        TRY(tool_check_output(o, s->path, o->trace));
        TRY(outfile_open(&s->trace, o->trace, OUTFILE_DEFAULT));
        TRY(levels_open(&s->levels));
    }
    if (o->trace) s->counters = (struct trace_extra){levels_write, s->levels, NULL};
    TRY(infer_profile_new(&s->profile, o->trace ? TRACE_SPANS : PROFILE_SPANS));
    return o->trace ? infer_profile_threads(s->profile, TRACE_SPANS) : INFER_OK;
}

/* What the card that is to be taken does at most, while its memory is there to measure with. */
static void measure_card(struct session *s) {
#ifdef INFER_CUDA
    struct cuda_ceiling *card;
    if (cuda_ceiling_open(&card)) return;
    s->roof_gb_s = cuda_ceiling_read(card, 0.05);
    s->roof_flops = cuda_ceiling_products(card, 0.05);
    cuda_ceiling_close(card);
#else
    (void)s;
#endif
}

/* The trace takes its place where all of it could be written. */
static void write_trace(struct session *s) {
    s->trace_extra.more = &s->counters;
    FILE *f = outfile_stream(s->trace);
    enum infer_status st = f ? trace_write(f, s->profile, 0, &s->trace_extra) : INFER_E_MEMORY;
    if (f) fclose(f);
    if (!st)
        st = outfile_close(s->trace);
    else
        outfile_abort(s->trace);
    s->trace = NULL;
    if (st) tool_say_late("%s", infer_error());
}

/* What the engine did, before it goes. */
static void tell_profile(struct session *s) {
    struct memory_probe m;
    const int threads = s->place.n_thread > 0 ? s->place.n_thread : 1;
    double gb_s = NAN;
    if (!s->show_profile || !s->engine) return;
    const struct peak *peak = peak_of_isa(s->place.isa ? s->place.isa : "");
    if (s->roof_gb_s != 0) {
        profile_show(stderr, s->profile, s->roof_gb_s, s->roof_flops);
        return;
    }
    if (probe_open(&m, threads) == INFER_OK) gb_s = probe_read(&m, 0.2), probe_close(&m);
    profile_show(stderr, s->profile, gb_s, peak ? peak_measure(peak, threads, 0.05) : NAN);
}

/* Of a build for cards on a machine without one; of a card that is there and cannot be used the engine says why. */
static void say_no_card(const struct options *o, const struct infer_engine_info *place) {
#ifdef INFER_CUDA
    char address[64];
    unsigned id;
    const bool asked = options_given(o, "device") || o->gpu_layers == 0;
    if (!asked && strcmp(place->device, "cpu") == 0 && !device_pci_nvidia(address, sizeof address, &id))
        tool_say("this machine has no NVIDIA card: running on the CPU (--device cpu: without this line)");
#else
    (void)o, (void)place;
#endif
}

static void wait_pace(void *user) {
    struct session *s = user;
    if (!s->pace || energy_pace_wait(s->pace) || s->pace_told) return;
    s->pace_told = true;
    tool_say("--watts: without a step it takes more than that already");
}

enum infer_status session_open(struct session *s, const struct options *o, const struct session_need *need) {
    struct infer_engine_options eo;
    TRY(open_model_for(s, o, need));
    progress_start(&s->progress, o->quiet || need->quiet || need->progress);
    enum infer_status st = engine_options(s, o, need, &eo);
    if (!st) st = open_profile(s, o);
    eo.profile = s->profile;
    if (!st && o->profile && on_card(s->model, &eo)) measure_card(s);
    if (o->watts > 0) eo.before_step = wait_pace, eo.before_user = s;
    eo.progress = need->progress ? need->progress : show_progress;
    eo.user = need->progress ? need->progress_user : &s->progress;
    if (!st) st = open_engines(s, o, need, &eo);
    if (!st) infer_engine_info(s->engine, &s->place);
    if (!st && o->watts > 0)
        st = energy_pace_open(&s->pace, o->watts,
                              s->place.device_layers > 0 && strstr(s->place.device, "cuda"));
    progress_clear(&s->progress);
    if (st) {
        if (st == INFER_E_MEMORY && (s->drafter || !s->draft_model)) show_plan(s, &eo);
        s->show_profile =
            false; /* of nothing; and what it asks the machine would take the place of the reason */
        session_close(s);
        return st;
    }
    if (!o->quiet && !need->quiet) say_no_card(o, &s->place);
    interrupt_stops(s->engine, NULL);
    return INFER_OK;
}

/* Of a tower beside the model: what it takes of the card, and of the host with its file. */
static void add_tower(const struct session *s, const struct options *o, bool card, struct session_size *out) {
    char tower[4096];
    struct infer_vision_info info;
    if (!sight_path(tower, sizeof tower, s->path, o)) return;
    const struct infer_vision_options vo = {.max_tokens = o->image_max_tokens, .threads = o->threads};
    if (infer_vision_plan(s->model, tower, &vo, card, &info)) return;
    out->sees = true;
    out->card += info.device_bytes;
    out->host += info.weight_bytes + info.memory_bytes - info.device_bytes;
}

/* Of who drafts: the rows of a step that check guesses, and what a model for it takes. */
static enum infer_status add_drafter(struct session *s, const struct options *o,
                                     const struct session_need *need, struct infer_engine_options *eo,
                                     struct session_size *out) {
    struct infer_engine_options draft;
    struct infer_plan_report r;
    TRY(drafts_of(s, o, need, eo, &draft));
    if (!s->draft_model) return INFER_OK;
    TRY(infer_plan(s->draft_model, &draft, NULL, &r));
    const bool card = strstr(r.size.device, "cuda") != NULL;
    const uint64_t map = need->draft->file ? r.map_bytes : 0;
    out->host += map + r.host_bytes + r.pinned_bytes + (card ? 0 : r.size.device_bytes);
    out->card += card ? r.size.device_bytes : 0;
    infer_plan_free(&r);
    return INFER_OK;
}

enum infer_status session_measure(struct session *s, const struct options *o, const struct session_need *need,
                                  struct session_size *out) {
    struct infer_engine_options eo;
    struct infer_plan_report r;
    *out = (struct session_size){0};
    TRY(open_model_for(s, o, need));
    enum infer_status st = engine_options(s, o, need, &eo);
    if (!st) st = add_drafter(s, o, need, &eo, out);
    if (!st) st = infer_plan(s->model, &eo, NULL, &r);
    if (!st) {
        const bool card = strstr(r.size.device, "cuda") != NULL;
        out->host += r.map_bytes + r.host_bytes + r.pinned_bytes + (card ? 0 : r.size.device_bytes);
        out->card += card ? r.size.device_bytes + r.driver_bytes : 0;
        add_tower(s, o, card, out);
        out->card_limit = card && r.limit_bytes != UINT64_MAX ? r.limit_bytes : 0;
        out->n_ctx = r.size.n_ctx, out->n_slot = r.size.n_slot;
        infer_plan_free(&r);
    }
    infer_model_close(s->draft_model);
    adapters_close(&s->adapters);
    infer_model_close(s->model);
    s->model = s->draft_model = NULL;
    return st;
}

void session_close(struct session *s) {
    interrupt_stops(NULL, NULL);
    if (s->profile) tell_profile(s);
    if (s->trace && s->engine) write_trace(s);
    outfile_abort(s->trace);
    levels_close(s->levels);
    infer_engine_free(s->engine);
    infer_engine_free(s->drafter);
    infer_model_close(s->draft_model);
    adapters_close(&s->adapters);
    infer_model_close(s->model);
    infer_profile_free(s->profile);
    energy_pace_close(s->pace);
    s->pace = NULL, s->profile = NULL, s->trace = NULL, s->levels = NULL;
    s->engine = s->drafter = NULL;
    s->model = s->draft_model = NULL;
}
