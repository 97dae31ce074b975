/* infer serve --models: which models there are, and how each is measured, loaded and let go (house.h). */
#include "serve/http/serve_models.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/host.h"
#include "base/mem.h"
#include "serve/core/engine_port.h"
#include "tools/config.h"
#include "tools/named.h"
#include "tools/session.h"
#include "tools/sight.h"
#include "tools/tool.h"

struct entry {
    char name[257], path[4096];
    struct options o;
    bool opened; /* o is there */
    struct session session;
    struct session_draft draft;
};
struct serve_models {
    const struct options *o;
    struct entry *entry; /* entry[n] */
    int n;
    struct house *house;
};

static const struct session_need need = {
    .slots = SERVE_SLOTS, .contexts = SERVE_CONTEXTS, .text = true, .hidden = true};

/* ---- which there are ---- */

/* The place of a new one; NULL: no memory. */
static struct entry *add(struct serve_models *m) {
    struct entry *more = mem_realloc(m->entry, (size_t)(m->n + 1) * sizeof *more);
    if (!more) return NULL;
    m->entry = more;
    more[m->n] = (struct entry){.opened = false};
    return &more[m->n++];
}

static bool ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), k = strlen(end);
    return n > k && strcasecmp(text + n - k, end) == 0;
}

/* A file of a model, and of several parts the first: "-00001-of-00003.gguf". */
static bool is_model_file(const char *name) {
    int part, of;
    const char *dash = strstr(name, "-of-");
    if (!ends_with(name, ".gguf") || *name == '.' || strcasestr(name, "mmproj")) return false;
    if (!dash || dash - name < 6 || sscanf(dash - 6, "-%5d-of-%5d", &part, &of) != 2) return true;
    return part == 1;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

/* folder/name into path[n]; false: it is too long. */
static bool join(char *path, size_t n, const char *folder, const char *name) {
    const int len = snprintf(path, n, "%s/%s", folder, name);
    return len > 0 && (size_t)len < n;
}

/* A folder that is a model, or that holds one with its parts: the first file by its name. */
static bool in_folder(const char *folder, char *path, size_t n) {
    char best[257] = "";
    if (!join(path, n, folder, "config.json")) return false;
    if (access(path, F_OK) == 0) {
        path[strlen(folder)] = 0;
        return true;
    }
    DIR *d = opendir(folder);
    for (const struct dirent *e; d && (e = readdir(d));)
        if (is_model_file(e->d_name) && (!*best || strcmp(e->d_name, best) < 0))
            snprintf(best, sizeof best, "%s", e->d_name);
    if (d) closedir(d);
    return *best && join(path, n, folder, best);
}

static enum infer_status add_found(struct serve_models *m, const char *folder, const char *file) {
    struct stat st;
    char path[4096], inside[4096];
    if (*file == '.' || !join(path, sizeof path, folder, file)) return INFER_OK;
    const bool is_folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    if (is_folder ? !in_folder(path, inside, sizeof inside) : !is_model_file(file)) return INFER_OK;
    struct entry *e = add(m);
    if (!e) return err_set(INFER_E_MEMORY, "out of memory: the list of models");
    snprintf(e->name, sizeof e->name, "%.*s", (int)(strlen(file) - (is_folder ? 0 : 5)), file);
    memcpy(e->path, is_folder ? inside : path, sizeof e->path);
    return INFER_OK;
}

/* Of a file beside a folder of its name the file keeps its ending. */
static void tell_apart(struct serve_models *m) {
    for (int i = 1; i < m->n; i++) {
        struct entry *e = &m->entry[i], *before = e - 1;
        if (strcmp(e->name, before->name) != 0) continue;
        struct entry *file = strrchr(e->path, '/') && strstr(strrchr(e->path, '/') + 1, e->name) ? e : before;
        const size_t n = strlen(file->name);
        snprintf(file->name + n, sizeof file->name - n, ".gguf");
    }
}

static enum infer_status list_folder(struct serve_models *m, const char *folder) {
    DIR *d = opendir(folder);
    enum infer_status st = INFER_OK;
    if (!d) return err_set(INFER_E_IO, "--models %s: it cannot be read", folder);
    for (const struct dirent *e; !st && (e = readdir(d));) st = add_found(m, folder, e->d_name);
    closedir(d);
    if (!st && !m->n)
        st = err_set(INFER_E_INPUT, "--models %s: no model is in it (a .gguf file, or a folder with one)",
                     folder);
    if (!st) qsort(m->entry, (size_t)m->n, sizeof *m->entry, by_name);
    if (!st) tell_apart(m);
    return st;
}

static enum infer_status add_section(void *user, const char *name) {
    struct serve_models *m = user;
    if (strlen(name) > 256)
        return err_set(INFER_E_INPUT, "[%.40s..]: a model's name has at most 256 bytes", name);
    for (int i = 0; i < m->n; i++)
        if (strcmp(m->entry[i].name, name) == 0) return INFER_OK; /* sections of one name are one */
    struct entry *e = add(m);
    if (!e) return err_set(INFER_E_MEMORY, "out of memory: the list of models");
    snprintf(e->name, sizeof e->name, "%s", name);
    return INFER_OK;
}

/* The options of each; of a section the model that it says, or that it is called as. */
static enum infer_status open_options(struct serve_models *m, const char *file) {
    for (int i = 0; i < m->n; i++) {
        struct entry *e = &m->entry[i];
        e->opened = true;
        TRY(config_member(&e->o, m->o, file, e->name, file ? NULL : e->path));
        struct stat st;
        const char *named = e->o.model ? e->o.model : e->o.hf_repo ? e->o.hf_repo : e->name;
        if (file && e->o.model && e->o.hf_repo)
            return err_set(INFER_E_INPUT, "%s: [%s] says model and hf-repo, and one is the model", file,
                           e->name);
        if (file && !e->o.model && !e->o.hf_repo && strncmp(named, "hf:", 3) != 0 && stat(named, &st) != 0)
            return err_set(INFER_E_INPUT, "%s: [%s] says no model: model = FILE, or model = hf:ORG/REPO:TYPE",
                           file, e->name);
        if (file) snprintf(e->path, sizeof e->path, "%s", named);
        if (file && !e->o.hf_repo) e->o.model = e->path;
    }
    return INFER_OK;
}

/* --pin NAME of the command line, or pin = on of a section. */
static bool is_pinned(const struct options *o, const struct entry *e) {
    static const char *const yes[] = {"on", "true", "yes", "1"};
    for (int i = 0; i < o->pin.n; i++)
        if (strcmp(o->pin.text[i], e->name) == 0) return true;
    for (int i = 0; i < e->o.pin.n; i++)
        for (int k = 0; k < 4; k++)
            if (strcasecmp(e->o.pin.text[i], yes[k]) == 0) return true;
    return false;
}

static enum infer_status check_pins(const struct serve_models *m) {
    for (int i = 0; i < m->o->pin.n; i++) {
        bool found = false;
        for (int k = 0; k < m->n; k++) found |= strcmp(m->o->pin.text[i], m->entry[k].name) == 0;
        if (!found)
            return err_set(INFER_E_INPUT, "--pin %s: --models has none of that name", m->o->pin.text[i]);
    }
    return INFER_OK;
}

/* ---- what the house calls ---- */

/* Nothing is fetched while others wait for their models. */
static enum infer_status check_here(const struct entry *e) {
    char name[700];
    const char *repo = e->o.hf_repo;
    snprintf(name, sizeof name, "%s%.600s", repo ? "hf:" : "", repo ? repo : e->o.model);
    return model_is_here(name)
               ? INFER_OK
               : err_set(INFER_E_IO, "it is not on this disk: 'infer pull %s' fetches it", name);
}

static enum infer_status measure(void *user, int i, struct house_info *out) {
    struct entry *e = &((struct serve_models *)user)->entry[i];
    struct session s;
    struct session_size size;
    struct session_need n = need;
    n.draft = &e->draft;
    TRY(check_here(e));
    TRY(session_drafter(&e->o, &e->draft));
    TRY(session_measure(&s, &e->o, &n, &size));
    const struct infer_model_info *m = &s.info;
    *out = (struct house_info){.n_ctx = size.n_ctx,
                               .n_slot = size.n_slot,
                               .n_ctx_train = m->n_ctx_train,
                               .n_embd = m->n_embd,
                               .n_vocab = m->n_vocab,
                               .n_layer = m->n_layer,
                               .n_param = m->n_param,
                               .file_bytes = m->file_bytes,
                               .sees = size.sees,
                               .talks = m->chat_template != NULL,
                               .need = {size.host, size.card},
                               .card_room = size.card_limit};
    snprintf(out->arch, sizeof out->arch, "%s", m->arch);
    snprintf(out->type, sizeof out->type, "%s", m->type_name);
    return INFER_OK;
}

static void progress(void *user, const char *what, double done, double total) {
    house_progress(user, what, done, total);
}

static void unload(void *user, int i, struct server *s) {
    struct entry *e = &((struct serve_models *)user)->entry[i];
    server_leave_model(s);
    infer_vision_close(s->vision);
    s->vision = NULL;
    session_close(&e->session);
}

static enum infer_status open_parts(struct server *s, struct entry *e) {
    struct engine_port *port;
    const struct options *o = &e->o;
    s->o.cache_exact = o->cache ? strcmp(o->cache, "exact") == 0 : e->session.place.async;
    TRY(sight_open(&s->vision, &e->session, o, o->mmproj && strcmp(o->mmproj, "none") != 0));
    TRY(serve_port(&port, o, &e->session, s->vision, &e->draft));
    s->adapters = &e->session.adapters;
    return server_begin_model(s, e->session.model, port, e->session.path);
}

static enum infer_status load(void *user, int i, struct server *s) {
    struct entry *e = &((struct serve_models *)user)->entry[i];
    struct session_need n = need;
    char why[640];
    n.draft = &e->draft;
    n.progress = progress;
    n.progress_user = s;
    TRY(session_open(&e->session, &e->o, &n));
    const enum infer_status st = open_parts(s, e);
    if (!st) return INFER_OK;
    snprintf(why, sizeof why, "%s", err_message());
    unload(user, i, s);
    return err_set(st, "%s", why);
}

/* ---- all of them ---- */

static enum infer_status open_house(struct serve_models *m, struct server *front,
                                    struct serve_options (*options)(const struct options *o)) {
    struct house_model *of;
    const struct house_calls calls = {m, measure, load, unload};
    const struct fleet_bytes room = {m->o->mem ? m->o->mem : host_memory_available() / 8 * 7, 0};
    TRY(mem_new(&of, (size_t)m->n * sizeof *of, "the models"));
    for (int i = 0; i < m->n; i++) {
        struct entry *e = &m->entry[i];
        const double idle = e->o.idle;
        of[i] = (struct house_model){.aliases = e->o.model_name,
                                     .path = e->path,
                                     .o = options(&e->o),
                                     .pinned = is_pinned(m->o, e),
                                     .keep = idle > 0 ? idle : -1};
        memcpy(of[i].name, e->name, sizeof of[i].name);
        of[i].o.model_name = NULL;
    }
    const enum infer_status st = house_open(&m->house, front, of, m->n, &calls, room);
    mem_free(of);
    return st;
}

enum infer_status serve_models_asked(const struct options *o, bool *several) {
    const enum option_origin models = options_origin(o, "models"), file = options_origin(o, "model"),
                             repo = options_origin(o, "hf-repo"), one = file > repo ? file : repo;
    *several = o->models && models >= one;
    return *several && one == ORIGIN_FLAG
               ? err_set(INFER_E_INPUT, "--model and --models are both given, and one says what is served")
               : INFER_OK;
}

enum infer_status serve_models_open(struct serve_models **out, struct server *front, const struct options *o,
                                    struct serve_options (*options)(const struct options *o)) {
    struct stat st;
    struct serve_models *m;
    *out = NULL;
    if (options_given(o, "model-name"))
        return err_set(INFER_E_INPUT,
                       "--model-name is of one model; with --models it stands in a model's section");
    if (stat(o->models, &st))
        return err_set(INFER_E_IO, "--models %s: there is no such file or folder", o->models);
    TRY(mem_new(&m, sizeof *m, "the models"));
    *out = m;
    *m = (struct serve_models){.o = o};
    const bool folder = S_ISDIR(st.st_mode);
    TRY(folder ? list_folder(m, o->models) : config_presets(o, o->models, add_section, m));
    if (!m->n) return err_set(INFER_E_INPUT, "--models %s: it has no section of a model, [NAME]", o->models);
    TRY(open_options(m, folder ? NULL : o->models));
    TRY(check_pins(m));
    TRY(open_house(m, front, options));
    return server_open_house(front, m->house);
}

int serve_models_count(const struct serve_models *m) { return m->n; }

bool serve_models_close(struct serve_models *m) {
    if (!m) return true;
    if (!house_close(m->house)) return false;
    for (int i = 0; i < m->n; i++)
        if (m->entry[i].opened) options_free(&m->entry[i].o);
    mem_free(m->entry);
    mem_free(m);
    return true;
}
