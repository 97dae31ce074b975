/* infer serve with an engine that recites: protocol, queue and signals can be tested at any speed, without computing.
 * usage: serve_fake -m MODEL [--listen ADDRESS] [--step MS] [--say TEXT] [--then TEXT] [--ctx N] [--trace FILE] [--slots N] [--lost STEP] [--idle STEPS] [--queue N] [--key-max N] [--body-memory MIB] [--cors-origin ORIGIN] [--api-key-file FILE] [--timeout S] [--drain S] [--slow S] [--several N] ..
 * FILE gets a line of each request as it begins, its id: who came before whom is known there, and not by clients.
 * --several N: that many models f1 .. fN, each of which takes --load MS to load, with room for --room of them (2).
 * TEXT is said (with --then: that, behind the result of a tool) over and over until max_tokens, or ends the turn where that is not given; of a prompt a step reads 16 tokens. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/mem.h"
#include "files/json.h"
#include "serve/core/engine_port.h"
#include "serve/core/house.h"
#include "serve/http/web.h"

enum { SLOTS_MAX = 1024, SAY_MAX = 4096, PROMPT_STEP = 16, EMBEDDING = 6 };

struct script {
    int32_t id[SAY_MAX];
    size_t n;
};
struct fake {
    const struct infer_model *model;
    struct script say, then; /* then.n 0: say, always */
    double step_ms;
    FILE *trace;                      /* NULL: none */
    int slots, lost_at, n_step, idle; /* idle: so many steps have nothing to compute */
    struct fake_run *run[SLOTS_MAX];
};
struct fake_run {
    struct choice *choice;
    const struct script *script;
    int prompt, said;
    bool cancelled, ended;
    enum infer_request_why why;
    enum infer_status status;
};

/* Whether the conversation ends with the result of a tool. */
static bool has_result(const struct choice *c) {
    const json_t *messages = c->job->ask.messages,
                 *m = json_array_get(messages, json_array_size(messages) - 1);
    const char *role = json_string_value(json_object_get(m, "role")),
               *text = json_string_value(json_object_get(m, "content"));
    /* a template that knows no tools has it as text */
    return (role && strcmp(role, "tool") == 0) || (text && strstr(text, "<tool_response>"));
}

static enum infer_status fake_start(struct engine_port *m, struct choice *c) {
    struct fake *f = m->state;
    struct fake_run *r;
    TRY(mem_new(&r, sizeof *r, "a run"));
    r->choice = c;
    r->script = f->then.n && has_result(c) ? &f->then : &f->say;
    c->run = r;
    if (f->trace) fprintf(f->trace, "%s\n", c->job->request_id);
    if (f->trace) fflush(f->trace);
    for (int i = 0; i < f->slots; i++)
        if (!f->run[i]) {
            f->run[i] = r;
            return INFER_OK;
        }
    infer_bug("more choices than slots");
}

/* Numbers that say which prompt they are of: its length, and twos. */
static enum infer_status recite_numbers(struct choice *c) {
    TRY(mem_new(&c->made, EMBEDDING * sizeof *c->made, "an embedding"));
    for (int i = 0; i < EMBEDDING; i++) c->made[i] = i ? 2 : (float)c->prompt->n;
    c->n_made = EMBEDDING;
    return INFER_OK;
}

static void go_on(struct fake *f, struct fake_run *r) {
    struct choice *c = r->choice;
    size_t n;
    if (r->ended) return;
    if (r->cancelled) {
        r->ended = true;
        r->why = INFER_REQUEST_CANCELLED;
    } else if (f->n_step == f->lost_at) {
        r->ended = true;
        r->why = INFER_REQUEST_FAILED;
        r->status = INFER_E_DEVICE;
    } else if (r->prompt < c->prompt->n) {
        r->prompt += PROMPT_STEP;
        port_prompt(c, r->prompt < c->prompt->n ? r->prompt : c->prompt->n, c->prompt->n);
    } else if (c->job->ask.params.make) {
        r->ended = true;
        r->why = INFER_REQUEST_LIMIT;
        r->status = recite_numbers(c);
    } else if (r->said == c->job->n_predict ||
               (c->job->ask.params.n_predict < 0 && r->said == (int)r->script->n)) {
        r->ended = true;
        r->why = r->said == c->job->n_predict ? INFER_REQUEST_LIMIT : INFER_REQUEST_TURN;
    } else {
        const int32_t id = r->script->id[(size_t)r->said % r->script->n];
        const char *piece = infer_piece(f->model, id, false, r->said == 0, &n);
        r->said++;
        port_token(c, id, NULL);
        port_text(c, piece, n, false);
    }
}

static bool fake_step(struct engine_port *m) {
    struct fake *f = m->state;
    if (f->idle > 0) {
        f->idle--;
        for (int i = 0; i < f->slots; i++)
            if (f->run[i] && f->run[i]->cancelled) go_on(f, f->run[i]);
        return false;
    }
    const struct timespec t = {(time_t)(f->step_ms / 1e3), (long)(1e6 * f->step_ms) % 1000000000};
    if (f->step_ms > 0) nanosleep(&t, NULL);
    f->n_step++;
    for (int i = 0; i < f->slots; i++)
        if (f->run[i]) go_on(f, f->run[i]);
    return true;
}

static void fake_cancel(struct engine_port *m, struct choice *c) {
    (void)m;
    ((struct fake_run *)c->run)->cancelled = true;
}

static bool fake_ended(struct engine_port *m, struct choice *c, struct port_end *end, enum infer_status *st) {
    struct fake_run *r = c->run;
    (void)m;
    if (!r->ended) return false;
    *end = (struct port_end){.lane = -1,
                             .why = r->why,
                             .n_prompt = c->prompt->n,
                             .n_answer = r->said,
                             .n_decoded = r->said,
                             .stop = -1,
                             .stop_id = -1,
                             .lost = r->status == INFER_E_DEVICE};
    *st = r->status ? err_set(r->status, "the script says so") : INFER_OK;
    return true;
}

static void fake_close(struct engine_port *m, struct choice *c) {
    struct fake *f = m->state;
    for (int i = 0; i < f->slots; i++)
        if (f->run[i] == c->run) f->run[i] = NULL;
    mem_free(c->run);
    c->run = NULL;
}

static void fake_free(struct engine_port *m) { (void)m; }

static struct engine_port port_of(struct fake *f, int n_ctx) {
    return (struct engine_port){.n_slot = f->slots,
                                .n_ctx = n_ctx,
                                .n_embd = EMBEDDING,
                                .state = f,
                                .start = fake_start,
                                .step = fake_step,
                                .cancel = fake_cancel,
                                .ended = fake_ended,
                                .close = fake_close,
                                .free = fake_free};
}

/* ---- several models, which differ in their names ---- */

struct several {
    int n, load_ms, room, n_ctx;
    const char *path;
    const struct fake *like;
    struct fake fake[FLEET_MODELS];
    struct engine_port port[FLEET_MODELS];
};

static enum infer_status several_measure(void *user, int i, struct house_info *out) {
    const struct several *v = user;
    (void)i;
    *out = (struct house_info){.arch = "llama", .type = "f32", .n_ctx = v->n_ctx, .need = {100, 0}};
    return INFER_OK;
}
static enum infer_status several_load(void *user, int i, struct server *s) {
    struct several *v = user;
    enum { PARTS = 20 };
    for (int k = 0; k < PARTS; k++) {
        const struct timespec t = {v->load_ms / PARTS / 1000, v->load_ms / PARTS % 1000 * 1000000L};
        nanosleep(&t, NULL);
        house_progress(s, "weights", k + 1, PARTS);
    }
    v->fake[i] = *v->like;
    v->port[i] = port_of(&v->fake[i], v->n_ctx);
    return server_begin_model(s, v->like->model, &v->port[i], v->path);
}
static void several_unload(void *user, int i, struct server *s) {
    (void)user, (void)i;
    server_leave_model(s);
}

static enum infer_status open_several(struct several *v, struct server *s, struct house **h) {
    static struct house_model m[FLEET_MODELS];
    const struct house_calls calls = {v, several_measure, several_load, several_unload};
    for (int i = 0; i < v->n && i < FLEET_MODELS; i++) {
        m[i] = (struct house_model){.path = v->path, .o = s->o, .keep = -1};
        snprintf(m[i].name, sizeof m[i].name, "f%d", i + 1);
    }
    const enum infer_status st =
        house_open(h, s, m, v->n, &calls, (struct fleet_bytes){100 * (uint64_t)v->room, 0});
    return st ? st : server_open_house(s, *h);
}

static int fail(void) {
    fprintf(stderr, "serve_fake: %s\n", err_message());
    return 1;
}

int main(int argc, char **argv) {
    static struct fake f = {.slots = 4, .lost_at = -1};
    static struct server s;
    struct serve_options o = {.listen = {"127.0.0.1:0"},
                              .n_listen = 1,
                              .queue = 256,
                              .timeout = 600,
                              .drain = 10,
                              .metrics = true,
                              .log_off = true};
    const char *path = "", *say = "one two three four five six seven eight nine ten", *then = "";
    static struct several several = {.room = 2};
    struct house *house = NULL;
    int ctx = 8192;
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        if (strcmp(name, "-m") == 0) path = value;
        if (strcmp(name, "--listen") == 0) o.listen[0] = value;
        if (strcmp(name, "--step") == 0) f.step_ms = atof(value);
        if (strcmp(name, "--say") == 0) say = value;
        if (strcmp(name, "--then") == 0) then = value;
        if (strcmp(name, "--ctx") == 0) ctx = atoi(value);
        if (strcmp(name, "--trace") == 0) f.trace = fopen(value, "w");
        if (strcmp(name, "--slots") == 0) f.slots = atoi(value);
        if (strcmp(name, "--idle") == 0) f.idle = atoi(value);
        if (strcmp(name, "--lost") == 0) f.lost_at = atoi(value);
        if (strcmp(name, "--key-max") == 0) o.key_max = atoi(value);
        if (strcmp(name, "--body-memory") == 0) o.body_memory = (uint64_t)atoll(value) << 20;
        if (strcmp(name, "--cors-origin") == 0) o.cors_origin[o.n_cors_origin++] = value;
        if (strcmp(name, "--api-key-file") == 0) o.api_key_file = value;
        if (strcmp(name, "--log-prompts") == 0) o.log_prompts = value;
        if (strcmp(name, "--queue") == 0) o.queue = atoi(value);
        if (strcmp(name, "--timeout") == 0) o.timeout = atof(value);
        if (strcmp(name, "--drain") == 0) o.drain = atof(value);
        if (strcmp(name, "--slow") == 0) o.head_seconds = o.body_seconds = atof(value);
        if (strcmp(name, "--log") == 0) o.log_off = strcmp(value, "off") == 0;
        if (strcmp(name, "--several") == 0) several.n = atoi(value);
        if (strcmp(name, "--load") == 0) several.load_ms = atoi(value);
        if (strcmp(name, "--room") == 0) several.room = atoi(value);
        if (strcmp(name, "--tls-cert") == 0) o.tls_cert = value;
        if (strcmp(name, "--tls-key") == 0) o.tls_key = value;
    }
    struct infer_model *model;
    char where[256];
    struct engine_port port = port_of(&f, ctx);
    json_use_mem();
    if (f.slots < 1 || f.slots > SLOTS_MAX) return 2;
    if (infer_model_open(&model, path, NULL) ||
        infer_tokenize(model, say, NULL, strlen(say), 0, f.say.id, SAY_MAX, &f.say.n) ||
        infer_tokenize(model, then, NULL, strlen(then), 0, f.then.id, SAY_MAX, &f.then.n))
        return fail();
    f.model = model;
    several.path = path, several.like = &f, several.n_ctx = ctx;
    if (server_open(&s, &o)) return fail();
    if (several.n ? open_several(&several, &s, &house) : server_ready(&s, model, &port, path)) return fail();
    web_where(s.web, where, sizeof where);
    if (*web_note(s.web)) fprintf(stderr, "%s\n", web_note(s.web));
    fprintf(stderr, "serving at %s: %s\n", where, "recited");
    int code = server_run(&s);
    server_close(&s);
    if (!house_close(house)) _exit(code);
    infer_model_close(model);
    return code;
}
