/* Thresholds of infer monitor: an event is told when it begins, and again only when it had ended. */
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include "base/host.h"
#include "tools/machine/monitor_impl.h"

extern char **environ;

/* The command has the event in its environment; it may take its time, and what it prints goes to stderr. */
static void run_command(const char *command, int card, const char *event, const char *text) {
    char number[16];
    pid_t pid;
    posix_spawn_file_actions_t files;
    snprintf(number, sizeof number, "%d", card);
    setenv("INFER_ALERT_CARD", number, 1);
    setenv("INFER_ALERT_EVENT", event, 1);
    setenv("INFER_ALERT_TEXT", text, 1);
    while (waitpid(-1, NULL, WNOHANG) > 0) { /* those that have ended */
    }
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, 2, 1);
    const int failed =
        posix_spawn(&pid, "/bin/sh", &files, NULL, (char *[]){"sh", "-c", (char *)command, NULL}, environ);
    posix_spawn_file_actions_destroy(&files);
    if (failed) tool_say("--alert: %s", strerror(failed));
}

/* An event that comes and goes at its threshold is one: it ends where it is no more by so much, or for so long. */
static const double COOLER = 3, EMPTIER = 0.02, SECONDS = 10;

/* now: it is there; near: not, but it has not ended. */
static void event(struct monitor *m, int card, enum monitor_event which, bool now, bool near,
                  const char *text) {
    static const char *const names[] = {"heat", "memory", "throttled"};
    const bool begins = now && !m->on[card][which];
    m->on[card][which] = now || (near && m->on[card][which]);
    if (!begins) return;
    m->n_alert++;
    monitor_tell(m, text);
    if (m->o->alert) run_command(m->o->alert, card, names[which], text);
}

void monitor_alerts(struct monitor *m, int card) {
    const struct nvml_sample *s = &m->card[card];
    const double time = host_seconds(), hot = m->o->max_celsius,
                 full = m->o->max_memory / 100 * s->total_bytes;
    char text[256];
    snprintf(text, sizeof text, "card %d is %.0f degrees hot", card, s->celsius);
    event(m, card, EVENT_HEAT, s->celsius >= hot, s->celsius > hot - COOLER, text);
    snprintf(text, sizeof text, "card %d: %.1f of %.1f GiB of memory are in use", card,
             s->used_bytes / (1 << 30), s->total_bytes / (1 << 30));
    event(m, card, EVENT_MEMORY, s->used_bytes >= full, s->used_bytes > full - EMPTIER * s->total_bytes,
          text);
    snprintf(text, sizeof text, "card %d is held back by %s", card, s->reasons);
    if (s->throttled) m->throttled[card] = time;
    event(m, card, EVENT_THROTTLED, s->throttled, time < m->throttled[card] + SECONDS, text);
}
