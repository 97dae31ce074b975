#include "tools/serve/tool_job.h"
#include "tools/serve/server.h"
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/mem.h"
#include "files/outfile.h"
#include "files/textfile.h"
#include "tools/serve/guard.h"
#include "tools/serve/mill.h"
#include "tools/serve/prompt_log.h"
#include "tools/serve/web.h"
#include "tools/sampling.h"
#include "tools/serve/systemd.h"

enum { BODY_BYTES = 32 << 20, BODY_MEMORY = 256 << 20 };
enum { EXIT_WELL = 0, EXIT_DEVICE_LOST = 70, EXIT_AT_ONCE = 130, WRITE_SECONDS = 3 };

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

/* ---- signals ---- */

static int signal_pipe[2] = {-1, -1};
static volatile sig_atomic_t n_signal, starting;

static void on_signal(int number) {
    (void)number;
    if (starting) { /* nobody was promised an answer */
        web_remove_sockets();
        outfile_remove_unfinished();
        _exit(EXIT_WELL);
    }
    if (++n_signal > 1) _exit(EXIT_AT_ONCE);
    int e = errno;
    if (write(signal_pipe[1], "", 1) < 0) _exit(EXIT_AT_ONCE);
    errno = e;
}

static void take_signal(int number) {
    struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&a.sa_mask);
    sigaction(number, &a, NULL);
}

/* From here on SIGTERM ends the server well: at once until server_ready, which lets it be told to server_run. A reader of the log that goes
 * away ends nothing. */
static enum infer_status take_signals(void) {
    if (signal_pipe[0] < 0 && pipe(signal_pipe))
        return err_set(INFER_E_MEMORY, "no descriptors for a pipe: %s", strerror(errno));
    starting = true;
    signal(SIGPIPE, SIG_IGN);
    take_signal(SIGTERM);
    return INFER_OK;
}

/* Opens the HTTP side, whose threads never take the signal; it waits meanwhile: a socket has a name before it is known here. */
static enum infer_status open_web(struct server *s) {
    sigset_t term, old;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &term, &old);
    enum infer_status st = web_open(&s->web, s);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return st;
}

/* ---- open and close ---- */

enum infer_status server_open(struct server *s, const struct serve_options *o) {
    *s = (struct server){.o = *o, .created = time(NULL)};
    if (s->o.head_seconds <= 0) s->o.head_seconds = 10;
    if (s->o.body_seconds <= 0) s->o.body_seconds = 30;
    atomic_init(&s->state, SERVER_LOADING);
    pthread_mutex_init(&s->vocab_lock, NULL);
    TRY(take_signals());
    TRY(keys_open(&s->keys, o->api_key_file));
    TRY(prompt_log_open(&s->prompts, o->log_prompts));
    return open_web(s);
}

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

enum infer_status server_take_model(struct server *s, const struct infer_model *m, struct mill *mill,
                                    const char *file) {
    s->model = m;
    s->mill = mill; /* freed with the server, also where what follows fails */
    infer_model_info(m, &s->info);
    s->template =
        (struct infer_prompt_template){.text = s->info.chat_template, .n = s->info.chat_template_len};
    TRY(take_template(s));
    s->end = s->template.text ? infer_prompt_turn_end(m, &s->template) : (struct infer_turn_end){.id = -1};
    TRY(tool_job_server(s));
    TRY(grammars_open(&s->grammars, &s->metrics));
    s->sample = sampling_params(m);
    if (s->o.has_temp) s->sample.temp = s->o.temp;
    s->n_ctx = mill->n_ctx;
    s->n_slot = mill->n_slot;
    TRY(set_names(s, file));
    set_fingerprint(s, file);
    return INFER_OK;
}

enum infer_status server_ready(struct server *s, const struct infer_model *m, struct mill *mill,
                               const char *file) {
    TRY(server_take_model(s, m, mill, file));
    TRY(lanes_open(&s->lanes, s));
    TRY(prepare_open(&s->prepare, s));
    starting = false; /* before there is anybody whose answer a signal could break off */
    atomic_store(&s->state, SERVER_READY);
    return INFER_OK;
}

void server_close(struct server *s) {
    prepare_close(s->prepare);
    if (s->lanes) lanes_drain(s->lanes, 0);
    if (s->web) web_finish(s->web, WRITE_SECONDS);
    lanes_close(s->lanes);
    web_close(s->web);
    if (s->mill) s->mill->free(s->mill);
    mem_free(s->template_text);
    infer_grammar_vocab_close(s->vocab);
    grammars_close(s->grammars);
    prompt_log_close(s->prompts);
    keys_close(s->keys);
    pthread_mutex_destroy(&s->vocab_lock);
}

/* ---- until the end ---- */

/* Tells the service manager that steps go on, or that there is nothing to do. */
struct pulse {
    double every, told; /* seconds; every 0: nobody asks */
    unsigned long long steps;
};
static void keep_alive(struct server *s, struct pulse *p) {
    int running, waiting;
    if (p->every <= 0 || serve_seconds() - p->told < p->every / 4) return;
    const unsigned long long steps = atomic_load(&s->metrics.steps);
    lanes_count(s->lanes, &running, &waiting);
    if (running && steps == p->steps) return;
    if (systemd_notify("WATCHDOG=1")) p->told = serve_seconds();
    p->steps = steps;
}

void server_lost(struct server *s) {
    atomic_store(&s->state, SERVER_LOST);
    if (write(signal_pipe[1], "", 1) < 0) return; /* nobody waits there */
}

int server_run(struct server *s) {
    take_signal(SIGINT);
    struct pollfd p = {.fd = signal_pipe[0], .events = POLLIN};
    struct pulse pulse = {.every = (double)systemd_watchdog() * 1e-6};
    const int look_ms = pulse.every > 0 ? (int)fmin(fmax(125 * pulse.every, 10), 10000) : -1;
    while (poll(&p, 1, look_ms) <= 0 && atomic_load(&s->state) == SERVER_READY) keep_alive(s, &pulse);
    systemd_notify("STOPPING=1");
    const bool lost = atomic_load(&s->state) == SERVER_LOST;
    if (!lost) atomic_store(&s->state, SERVER_DRAINING);
    web_quiet(s->web);
    lanes_drain(s->lanes, lost ? 0 : s->o.drain);
    web_finish(s->web, WRITE_SECONDS);
    return lost ? EXIT_DEVICE_LOST : EXIT_WELL;
}
