/* The server as a process: sockets and signals, from its start to its end. */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "files/outfile.h"
#include "serve/core/engine_port.h"
#include "serve/core/api_keys.h"
#include "serve/core/house.h"
#include "serve/core/prompt_log.h"
#include "serve/http/systemd.h"
#include "serve/http/web.h"
#include "base/host.h"

enum { EXIT_WELL = 0, EXIT_DEVICE_LOST = 70, EXIT_AT_ONCE = 130, WRITE_SECONDS = 3 };

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

enum infer_status server_ready(struct server *s, const struct infer_model *m, struct engine_port *port,
                               const char *file) {
    TRY(server_begin_model(s, m, port, file));
    starting = false; /* before there is anybody whose answer a signal could break off */
    atomic_store(&s->state, SERVER_READY);
    return INFER_OK;
}

enum infer_status server_open_house(struct server *s, struct house *h) {
    s->house = h;
    s->member = -1;
    TRY(prepare_open(&s->prepare, s));
    TRY(house_begin(h));
    starting = false;
    atomic_store(&s->state, SERVER_READY);
    return INFER_OK;
}

/* Ends what waits, and after `seconds` what runs. */
static void drain(struct server *s, double seconds) {
    if (s->house) house_drain(s->house, seconds);
    if (s->scheduler) scheduler_drain(s->scheduler, seconds);
}

void server_close(struct server *s) {
    prepare_close(s->prepare);
    s->prepare = NULL;
    drain(s, 0);
    if (s->web) web_finish(s->web, WRITE_SECONDS);
    if (s->house) house_end(s->house);
    scheduler_close(s->scheduler);
    s->scheduler = NULL;
    web_close(s->web);
    server_leave_model(s);
    loras_close(s);
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
    if (p->every <= 0 || host_seconds() - p->told < p->every / 4) return;
    unsigned long long steps = atomic_load(&s->metrics.steps);
    if (s->house)
        house_totals(s->house, &running, &waiting, &steps);
    else
        scheduler_count(s->scheduler, &running, &waiting);
    if (running && steps == p->steps) return;
    if (systemd_notify("WATCHDOG=1")) p->told = host_seconds();
    p->steps = steps;
}

void server_lost(struct server *s) {
    if (s->house && s->member >= 0) {
        house_lost(s);
        return;
    }
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
    drain(s, lost ? 0 : s->o.drain);
    web_finish(s->web, WRITE_SECONDS);
    return lost ? EXIT_DEVICE_LOST : EXIT_WELL;
}
