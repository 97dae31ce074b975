#include "tools/interrupt.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include "files/outfile.h"
#include "infer_request.h"
#include "tools/term.h"
#include "tools/tool.h"

/* Of the handler, which gets no argument. */
static struct {
    struct infer_engine *volatile engine;
    struct infer_request *volatile request;
    struct infer_vision *volatile vision;
    volatile sig_atomic_t count, idle;
    bool serves, follows;
    volatile int64_t
        last;  /* of a rank that follows: milliseconds at which a signal came that rank 0 hears, too */
    int woken; /* an eventfd that can be read once a Ctrl-C came; -1: none could be made */
} on = {.woken = -1};

/* Ends the program here, in a handler; tool_interrupted says the same where there is time. */
static void end_interrupted(void) {
    static const char said[] = "\ninfer: interrupted\n";
    size_t skip = isatty(STDERR_FILENO) ? 0 : 1; /* on a terminal something stands in the line: ^C at least */
    outfile_remove_unfinished();
    term_echo(true);
    ssize_t written = write(STDERR_FILENO, said + skip, sizeof said - 1 - skip);
    (void)written;
    _exit(EXIT_CANCEL);
}

/* Whoever waits in interrupt_wait_for goes on, also one who is just about to wait. */
static void wake(void) {
    const uint64_t one = 1;
    int e = errno;
    ssize_t written = write(on.woken, &one, sizeof one);
    (void)written;
    errno = e;
}

/* Of a rank that follows: the second within a second. */
static bool once_more(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    const int64_t now = (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000, before = on.last;
    on.last = now;
    return before && now - before < 1000;
}

static void on_interrupt(int signal_number) {
    (void)signal_number;
    if (on.follows && once_more()) end_interrupted();
    if (on.follows) return;
    on.count++;
    wake();
    if (on.idle) return;
    if (!on.engine || on.count > 1) end_interrupted();
    if (on.vision) infer_vision_cancel(on.vision);
    if (on.request) infer_request_cancel(on.request);
    infer_cancel(on.engine);
}

bool interrupted(void) { return on.count != 0; }
void interrupt_clear(void) {
    uint64_t n;
    on.count = 0;
    ssize_t got = read(on.woken, &n, sizeof n);
    (void)got;
}

bool interrupt_wait_for(int fd) {
    struct pollfd p[2] = {{.fd = fd, .events = POLLIN}, {.fd = on.woken, .events = POLLIN}};
    int n = on.count ? -1 : poll(p, 2, -1);
    if (n > 0 && !p[1].revents) return true;
    errno = EINTR;
    return false;
}
void interrupt_follows(void) { on.follows = true; }
void interrupt_idle(bool idle) { on.idle = idle; }

void interrupt_stops(struct infer_engine *e, struct infer_request *r) {
    on.engine = e;
    on.request = r;
    if (r && on.count) infer_request_cancel(r); /* it came before there was a request to cancel */
}

void interrupt_stops_picture(struct infer_vision *v) { on.vision = v; }

void interrupt_ends_at_once(void) {
    interrupt_stops(NULL, NULL);
    if (on.count) end_interrupted();
}

/* Ends the program as the signal does by default, without a file half written or a terminal without echo; a server well. */
static void on_end(int signal_number) {
    if (on.follows && on.serves && signal_number == SIGTERM && !once_more())
        return; /* rank 0 answers what it has */
    outfile_remove_unfinished();
    term_echo(true);
    if (on.serves && signal_number == SIGTERM) _exit(EXIT_DONE);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

void interrupt_install(bool serves) {
    on.serves = serves;
    on.woken = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    static const int ends[] = {SIGTERM, SIGHUP, SIGQUIT, SIGABRT, SIGPIPE};
    struct sigaction a = {.sa_handler = on_interrupt},
                     old; /* no SA_RESTART: a read of the next line is woken */
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
    a.sa_handler = on_end;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        sigaction(ends[i], NULL, &old);
        if (ends[i] == SIGPIPE || old.sa_handler != SIG_IGN) sigaction(ends[i], &a, NULL); /* nohup */
    }
    signal(SIGXFSZ, SIG_IGN); /* write says that a file is too large */
}
