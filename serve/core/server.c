#include "serve/core/server.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/mem.h"
#include "files/textfile.h"
#include "serve/core/engine_port.h"
#include "serve/core/tool_job.h"
#include "tools/sampling.h"

enum { BODY_BYTES = 32 << 20, BODY_MEMORY = 256 << 20 };

/* ---- the model ---- */

/* --model-name NAME,ALIAS,.., else the file's name without its ending. */
static enum infer_status set_names(struct server *s, const char *file) {
    const char *slash = strrchr(file, '/'), *base = slash ? slash + 1 : file;
    const char *dot = strrchr(base, '.');
    char own[257];
    snprintf(own, sizeof own, "%.*s", dot && dot != base ? (int)(dot - base) : (int)strlen(base), base);
    const char *p = s->o.model_name ? s->o.model_name : own;
    for (s->n_name = 0; *p && s->n_name < SERVE_NAMES;) {
        const size_t n = strcspn(p, ",");
        if (n == 0 || n > 256)
            return err_set(INFER_E_INPUT, "--model-name %s: a name has 1 to 256 bytes", s->o.model_name);
        snprintf(s->names[s->n_name++], sizeof s->names[0], "%.*s", (int)n, p);
        p += n + (p[n] == ',' && s->o.model_name);
        if (!s->o.model_name) break;
    }
    if (!s->n_name) return err_set(INFER_E_INPUT, "--model-name is empty");
    memcpy(s->name, s->names[0], sizeof s->name);
    return INFER_OK;
}

/* Changes when the bits of answers may. */
static void set_fingerprint(struct server *s, const char *file) {
    char text[1024];
    uint64_t h = 14695981039346656037ull;
    snprintf(text, sizeof text, "%s|%s|%llu|%d|%s", infer_version(), file,
             (unsigned long long)s->info.file_bytes, s->info.n_layer, s->info.type_name);
    for (const char *p = text; *p; p++) h = (h ^ (unsigned char)*p) * 1099511628211ull;
    snprintf(s->fingerprint, sizeof s->fingerprint, "fp_%016llx", (unsigned long long)h);
}

bool server_knows_model(const struct server *s, const char *name) {
    for (int i = 0; i < s->n_name; i++)
        if (strcmp(s->names[i], name) == 0) return true;
    return false;
}

enum infer_status server_vocab(struct server *s, struct infer_grammar_vocab **out) {
    enum infer_status st = INFER_OK;
    pthread_mutex_lock(&s->vocab_lock);
    if (!s->vocab) st = infer_grammar_vocab_open(&s->vocab, s->model);
    *out = s->vocab;
    pthread_mutex_unlock(&s->vocab_lock);
    return st;
}

/* ---- memory for bodies ---- */

static size_t memory_for_bodies(const struct server *s) {
    return s->o.body_memory ? (size_t)s->o.body_memory : BODY_MEMORY;
}

size_t server_body_most(const struct server *s) {
    const size_t all = memory_for_bodies(s);
    return all < BODY_BYTES ? all : BODY_BYTES;
}

bool server_bodies_fit(const struct server *s, size_t n) {
    return atomic_load(&s->body_bytes) + n <= memory_for_bodies(s);
}

bool server_bodies_take(struct server *s, size_t n) {
    if (atomic_fetch_add(&s->body_bytes, n) + n <= memory_for_bodies(s)) return true;
    server_bodies_give(s, n);
    return false;
}

void server_bodies_give(struct server *s, size_t n) { atomic_fetch_sub(&s->body_bytes, n); }

/* A template of the house: it has to make a prompt of something before anybody is served. */
static enum infer_status take_template(struct server *s) {
    const char *path = s->o.template_file;
    struct infer_prompt p;
    if (!path) return INFER_OK;
    TRY(text_read(&s->template_text, &s->template.n, path, TEXT_TEMPLATE));
    s->template.text = s->template_text;
    json_t *hello = json_pack("[{s:s, s:s}]", "role", "user", "content", "hello");
    enum infer_status st = hello ? infer_prompt_render(&p, s->model, &s->template, hello, true)
                                 : err_set(INFER_E_MEMORY, "out of memory: a template");
    json_decref(hello);
    if (st) return err_prefix(st, "--template %s", path);
    infer_prompt_free(&p);
    return INFER_OK;
}

static enum infer_status check_slot_folder(const char *folder) {
    if (!folder || !access(folder, R_OK | W_OK | X_OK)) return INFER_OK;
    return err_set(INFER_E_WRITE, "--slot-save-path %s: %s", folder, strerror(errno));
}

enum infer_status server_scales(struct server *s, float **out) {
    const size_t n = s->adapters ? (size_t)(s->adapters->n + s->adapters->n_room) : 0;
    *out = NULL;
    if (!n) return INFER_OK;
    TRY(mem_new(out, n * sizeof **out, "scales of adapters"));
    pthread_mutex_lock(&s->vocab_lock);
    memcpy(*out, s->scale, n * sizeof **out);
    pthread_mutex_unlock(&s->vocab_lock);
    return INFER_OK;
}
void server_set_scales(struct server *s, const float *scale) {
    pthread_mutex_lock(&s->vocab_lock);
    memcpy(s->scale, scale, (size_t)(s->adapters->n + s->adapters->n_room) * sizeof *scale);
    pthread_mutex_unlock(&s->vocab_lock);
}

enum infer_status server_take_model(struct server *s, const struct infer_model *m, struct engine_port *port,
                                    const char *file) {
    s->model = m;
    s->port = port; /* freed with the server, also where what follows fails */
    infer_model_info(m, &s->info);
    if (s->adapters) server_set_scales(s, s->adapters->scale);
    s->template =
        (struct infer_prompt_template){.text = s->info.chat_template, .n = s->info.chat_template_len};
    TRY(take_template(s));
    TRY(check_slot_folder(s->o.slot_folder));
    s->end = s->template.text ? infer_prompt_turn_end(m, &s->template) : (struct infer_turn_end){.id = -1};
    TRY(tool_job_server(s));
    TRY(grammars_open(&s->grammars, &s->metrics));
    s->sample = sampling_params(m);
    if (s->o.sampling) s->o.sampling(s->o.given, &s->sample);
    TRY(infer_sample_check(&s->sample));
    s->n_ctx = port->n_ctx;
    s->n_slot = port->n_slot;
    s->guesses = port->guesses;
    if (!s->house) TRY(set_names(s, file));
    set_fingerprint(s, file);
    return INFER_OK;
}

enum infer_status server_begin_model(struct server *s, const struct infer_model *m, struct engine_port *port,
                                     const char *file) {
    TRY(server_take_model(s, m, port, file));
    TRY(scheduler_open(&s->scheduler, s));
    return prepare_open(&s->prepare, s);
}

void server_leave_model(struct server *s) {
    prepare_close(s->prepare);
    if (s->scheduler) scheduler_drain(s->scheduler, 0);
    scheduler_close(s->scheduler);
    if (s->port) s->port->free(s->port);
    mem_free(s->template_text);
    infer_grammar_vocab_close(s->vocab);
    grammars_close(s->grammars);
    s->prepare = NULL, s->scheduler = NULL, s->port = NULL;
    s->template_text = NULL, s->vocab = NULL, s->grammars = NULL;
    s->model = NULL, s->adapters = NULL;
}
