#include "tools/named.h"
#include <stdio.h>
#include <string.h>
#include "base/host.h"
#include "infer.h"
#include "tools/hub/hub.h"
#include "tools/session.h"
#include "tools/term.h"
#include "tools/tool.h"

static void show(void *user, const char *what, double done, double total) {
    progress_show(user, what, done, total, "B");
}
static void say(void *user, const char *line) {
    progress_clear(user);
    tool_say("%s", line);
}

/* What a model takes: as the engine would plan it; on a host with the file, which is read in place, of memory that is free. */
static enum infer_status plan(void *user, const char *file, uint64_t weights, uint64_t *bytes, bool *fits) {
    const size_t host = host_memory_available();
    struct infer_model *m;
    struct infer_plan_report r;
    (void)user;
    *bytes = weights + weights / 8;
    *fits = *bytes < host;
    if (!file) return INFER_OK;
    const struct infer_model_options mo = {.sparse_ok = true};
    TRY(infer_model_open(&m, file, &mo));
    enum infer_status st =
        infer_plan(m, &(struct infer_engine_options){.gpu_layers = -1, .cpu_experts = -1}, NULL, &r);
    infer_model_close(m);
    if (st != INFER_OK) return st;
    *bytes = r.size.device_bytes + r.map_bytes + r.host_bytes;
    *fits = r.fits && r.map_bytes + r.host_bytes < host - host / 8 && (!r.map_bytes || *bytes < host);
    infer_plan_free(&r);
    return INFER_OK;
}

static enum infer_status by_name(const struct options *o, const char *text, bool cached, char *path,
                                 size_t n) {
    struct progress p;
    struct hub_name name;
    const struct hub_calls calls = {.user = &p, .progress = show, .say = say, .fits = plan};
    TRY(hub_parse(text, &name));
    progress_start(&p, o->quiet);
    enum infer_status st = cached ? hub_find(&name, &calls, path, n) : INFER_E_IO;
    if (st == INFER_E_IO) st = hub_pull(&name, &calls, path, n);
    progress_clear(&p);
    return st;
}
enum infer_status model_path_of(const struct options *o, const char *text, char *path, size_t n) {
    if (hub_is_name(text)) return by_name(o, text, true, path, n);
    const int len = snprintf(path, n, "%s", text);
    return len < 0 || (size_t)len >= n ? err_set(INFER_E_INPUT, "the model's path has over %zu bytes", n - 1)
                                       : INFER_OK;
}
enum infer_status model_pull(const struct options *o, const char *text, char *path, size_t n) {
    return by_name(o, text, false, path, n);
}
bool model_is_here(const char *text) {
    struct hub_name name;
    char path[4096];
    const struct hub_calls calls = {.fits = plan};
    if (!hub_is_name(text)) return true;
    return hub_parse(text, &name) == INFER_OK && hub_find(&name, &calls, path, sizeof path) == INFER_OK;
}
