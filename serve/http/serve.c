/* infer serve: answers requests over HTTP. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "serve/core/default_slots.h"
#include "serve/core/engine_port.h"
#include "serve/core/timeline.h"
#include "serve/http/serve_models.h"
#include "serve/http/systemd.h"
#include "serve/http/web.h"
#include "tools/net/http.h"
#include "tools/session.h"
#include "tools/sight.h"
#include "tools/tool.h"
#include "tools/world.h"

int cmd_serve(const struct options *o);

static void sampling(const struct options *o, struct infer_sample_params *p) {
    const float temp = p->temp;
#define READ_NUMBER(x) (float)(x)
#define READ_INT(x)    (x)
#define INFER_SAMPLE(type, field, def, least, most, request, at_least, at_most, flag, ...)                   \
    if (options_given(o, flag)) p->field = READ_##type(o->field);
#include "infer_sample.def"
    p->temp = options_given(o, "temp") ? (float)o->house_temp : temp; /* the server's is a row of its own */
}

static struct serve_options options_of(const struct options *o) {
    int fd;
    struct serve_options s = {
        .api_key_file = o->api_key_file,
        .insecure = o->insecure,
        .n_host_name = o->host_name.n,
        .n_cors_origin = o->cors_origin.n,
        .tls_cert = o->tls_cert,
        .tls_key = o->tls_key,
        .model_name = o->model_name,
        .image_urls = o->image_urls,
        .strict_model = o->strict_model,
        .strict_fields = o->strict_fields,
        .queue = o->queue,
        .key_max = o->key_max,
        .body_memory = o->body_memory,
        .timeout = o->timeout,
        .drain = o->drain,
        .metrics = o->metrics,
        .no_page = o->no_page,
        .log_json = strcmp(o->log, "json") == 0,
        .log_off = strcmp(o->log, "off") == 0,
        .log_prompts = o->log_prompts,
        .think_budget = o->think_budget > 0 ? o->think_budget : 0,
        .think_seconds = o->think_seconds,
        .slot_folder = o->slot_save_path,
        .sampling = sampling,
        .given = o,
        .system = o->house_system,
        .template_file = o->house_template,
        .quiet = o->quiet,
    };
    static const char *const thinking[] = {"", "on", "off", "show", "hide"};
    for (int i = 0; o->house_thinking && i < 5; i++)
        if (strcmp(o->house_thinking, thinking[i]) == 0) s.thinking = (enum serve_thinking)i;
    if (!s.thinking && o->think_budget == 0) s.thinking = THINKING_OFF;
    for (int i = 0; i < o->listen.n && i < SERVE_LISTEN; i++) s.listen[s.n_listen++] = o->listen.text[i];
    if (!s.n_listen && !systemd_sockets(&fd)) s.listen[s.n_listen++] = "127.0.0.1:8080";
    for (int i = 0; i < o->host_name.n; i++) s.host_name[i] = o->host_name.text[i];
    for (int i = 0; i < o->cors_origin.n; i++) s.cors_origin[i] = o->cors_origin.text[i];
    return s;
}

static void say_vision(const struct infer_vision *v) {
    struct infer_vision_info i;
    if (!v) return;
    infer_vision_info(v, &i);
    tool_say("pictures by %s (%s), at most %d tokens each", i.path, i.projector, i.max_tokens);
}

static void say_kept(const struct infer_engine *e) {
    struct infer_kept_info k;
    infer_kept_info(e, &k);
    if (k.folder)
        tool_say("what is computed is kept in %s: %.1f of %.1f GB", k.folder, (double)k.bytes * 1e-9,
                 (double)k.most * 1e-9);
}

static void say_drafts(const struct session *s, const struct session_draft *d) {
    struct infer_model_info info;
    if (!d->by) return;
    if (s->draft_model) infer_model_info(s->draft_model, &info);
    tool_say("tokens are guessed %s%.*s, where that is quicker, in steps of up to %d rows",
             d->by == INFER_DRAFT_LOOKUP ? "from the text so far"
             : d->file                   ? "by "
                                         : "by the model's own layer",
             d->by == INFER_DRAFT_MODEL && d->file ? (int)info.name_len : 0, s->draft_model ? info.name : "",
             s->place.n_decode_rows);
}

enum infer_status serve_port(struct engine_port **out, const struct options *o, const struct session *s,
                             struct infer_vision *vision, const struct session_draft *draft) {
    const double gap = o->itl_goal > 0 ? o->itl_goal : s->place.async ? 50 : 250;
    return engine_port_open(out, &(struct port_engine){.engine = s->engine,
                                                       .model = s->model,
                                                       .vision = vision,
                                                       .gap_ms = gap,
                                                       .drafter = s->drafter,
                                                       .draft_model = s->draft_model,
                                                       .draft = draft->by,
                                                       .most = draft->most,
                                                       .lanes = o->slot_save_path != NULL});
}

/* The line with the address comes last: who waits for it may read the others. */
static void say_more(const struct server *s) {
    if (*web_note(s->web)) tool_say("%s", web_note(s->web));
    systemd_notify("READY=1\nSTATUS=serving");
    if (s->keys && !s->o.tls_cert) tool_say("keys go over the network in clear text without --tls-cert");
}

/* What goes with several models, where one is served. */
static enum infer_status check_one(const struct options *o) {
    static const char *const of_several[] = {"mem", "idle", "pin"};
    for (int i = 0; i < 3; i++)
        if (options_origin(o, of_several[i]) == ORIGIN_FLAG)
            return err_set(INFER_E_INPUT, "--%s goes with --models", of_several[i]);
    return INFER_OK;
}

static enum infer_status start(struct server *s, struct session *session, const struct options *o) {
    struct session_draft draft;
    const struct session_need need = {.slots = SERVE_SLOTS,
                                      .contexts = SERVE_CONTEXTS,
                                      .size = default_slots,
                                      .text = true,
                                      .hidden = true,
                                      .draft = &draft};
    struct engine_port *port;
    char where[700];
    TRY(check_one(o));
    TRY(session_drafter(o, &draft));
    TRY(session_open(session, o, &need));
    s->profile = session->profile;
    if (s->profile) TRY(timeline_open(&s->timeline));
    if (s->profile) session->trace_extra = (struct trace_extra){timeline_write, s->timeline, NULL};
    s->counters = &session->counters;
    s->o.cache_exact = o->cache ? strcmp(o->cache, "exact") == 0 : session->place.async;
    TRY(sight_open(&s->vision, session, o, o->mmproj && strcmp(o->mmproj, "none") != 0));
    TRY(serve_port(&port, o, session, s->vision, &draft));
    s->adapters = &session->adapters;
    TRY(loras_open(s, o->lora_dir));
    TRY(server_ready(s, session->model, port, session->path));
    say_drafts(session, &draft);
    say_vision(s->vision);
    say_kept(session->engine);
    if (session->adapters.n_lora) tool_say("%d adapters (/lora-adapters)", session->adapters.n_lora);
    if (o->lora_dir) tool_say("up to %d adapters of %s (/lora-adapters/load)", o->max_loras, o->lora_dir);
    if (s->vision && o->image_urls) tool_say("pictures are fetched from %s", o->image_urls);
    say_more(s);
    web_where(s->web, where, sizeof where);
    tool_say("serving %s at %s: %d requests at once, %d tokens each%s", s->name, where, s->n_slot, s->n_ctx,
             s->template.text ? "" : "; the file has no chat template, so /v1/completions alone answers");
    return INFER_OK;
}

static enum infer_status start_several(struct server *s, struct serve_models **models,
                                       const struct options *o) {
    char where[700];
    if (world_group()) return err_set(INFER_E_UNSUPPORTED, "--models: ranks compute one model");
    if (o->lora_dir) return err_set(INFER_E_UNSUPPORTED, "--lora-dir is of a server of one model");
    TRY(serve_models_open(models, s, o, options_of));
    say_more(s);
    web_where(s->web, where, sizeof where);
    const int n = serve_models_count(*models);
    tool_say("serving %d model%s of %s at %s, loaded when a request names one", n, n == 1 ? "" : "s",
             o->models, where);
    return INFER_OK;
}

static enum infer_status check(const struct options *o) {
    if (o->listen.n > SERVE_LISTEN)
        return err_set(INFER_E_INPUT, "--listen is given %d times, at most %d", o->listen.n, SERVE_LISTEN);
    if (o->models && (o->profile || o->trace))
        return err_set(INFER_E_UNSUPPORTED, "%s is of one model: -m, not --models",
                       o->trace ? "--trace" : "--profile");
    return o->image_urls ? err_prefix(http_open(), "--image-urls") : INFER_OK;
}

int cmd_serve(const struct options *o) {
    struct server s;
    struct session session = {0};
    struct serve_models *models = NULL;
    const struct serve_options so = options_of(o);
    enum infer_status st = server_open(&s, &so);
    bool several = false;
    if (!st) st = check(o);
    if (!st) st = serve_models_asked(o, &several);
    if (!st) st = several ? start_several(&s, &models, o) : start(&s, &session, o);
    int code = st ? tool_fail(o, st) : server_run(&s);
    struct infer_vision *vision = s.vision;
    struct timeline *timeline = s.timeline;
    server_close(&s);
    if (!serve_models_close(models)) { /* a load goes on, of which nobody was promised anything */
        fflush(NULL);
        _exit(code);
    }
    infer_vision_close(vision);
    session_close(&session);
    timeline_close(timeline);
    return code;
}
