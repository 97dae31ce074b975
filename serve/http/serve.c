/* infer serve: answers requests over HTTP. */
#include <string.h>
#include "serve/core/default_slots.h"
#include "serve/core/engine_port.h"
#include "serve/http/systemd.h"
#include "serve/http/web.h"
#include "tools/session.h"
#include "tools/sight.h"
#include "tools/tool.h"

int cmd_serve(const struct options *o);

enum { SLOTS = 16, WHOLE_CONTEXTS = 4 };

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
        .has_temp = options_given(o, "temp"),
        .temp = (float)o->house_temp,
        .system = o->house_system,
        .template_file = o->house_template,
        .quiet = o->quiet,
    };
    static const char *const thinking[] = {"", "on", "off", "show", "hide"};
    for (int i = 0; o->house_thinking && i < 5; i++)
        if (strcmp(o->house_thinking, thinking[i]) == 0) s.thinking = (enum serve_thinking)i;
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

static enum infer_status start(struct server *s, struct session *session, const struct options *o) {
    const struct session_need need = {
        .slots = SLOTS, .contexts = WHOLE_CONTEXTS, .size = default_slots, .text = true, .hidden = true};
    struct engine_port *port;
    char where[700];
    if (o->listen.n > SERVE_LISTEN)
        return err_set(INFER_E_INPUT, "--listen is given %d times, at most %d", o->listen.n, SERVE_LISTEN);
    TRY(session_open(session, o, &need));
    s->o.cache_exact = o->cache ? strcmp(o->cache, "exact") == 0 : session->place.async;
    const double gap = o->itl_goal > 0 ? o->itl_goal : session->place.async ? 50 : 250;
    TRY(sight_open(&s->vision, session, o, o->mmproj && strcmp(o->mmproj, "none") != 0));
    TRY(engine_port_open(&port, session->engine, session->model, gap));
    TRY(server_ready(s, session->model, port, session->path));
    web_where(s->web, where, sizeof where);
    tool_say("serving %s at %s: %d requests at once, %d tokens each%s", s->name, where, s->n_slot, s->n_ctx,
             s->template.text ? "" : "; the file has no chat template, so /v1/completions alone answers");
    say_vision(s->vision);
    if (*web_note(s->web)) tool_say("%s", web_note(s->web));
    systemd_notify("READY=1\nSTATUS=serving");
    if (s->keys && !s->o.tls_cert) tool_say("keys go over the network in clear text without --tls-cert");
    return INFER_OK;
}

int cmd_serve(const struct options *o) {
    struct server s;
    struct session session = {0};
    const struct serve_options so = options_of(o);
    enum infer_status st = server_open(&s, &so);
    if (!st) st = start(&s, &session, o);
    int code = st ? tool_fail(o, st) : server_run(&s);
    struct infer_vision *vision = s.vision;
    server_close(&s);
    infer_vision_close(vision);
    session_close(&session);
    return code;
}
