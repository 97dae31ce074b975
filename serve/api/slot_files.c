/* POST /slots/ID?action=save|restore|erase as llama.cpp's server has it: files of what a lane holds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "serve/api/openai.h"
#include "serve/api/routes.h"
#include "serve/core/lanes.h"
#include "serve/core/server.h"

struct slots_state {
    char name[200];
};

/* A name that stays in its folder, on every file system. */
static enum infer_status read_name(struct job *j, const char *at, const json_t *v) {
    struct slots_state *s = j->state;
    const char *name = json_string_value(v);
    const size_t n = json_string_length(v);
    bool ok = name && n && n < sizeof s->name && strlen(name) == n && name[0] != '.' && name[n - 1] != '.' &&
              name[0] != ' ' && name[n - 1] != ' ';
    for (size_t i = 0; ok && i < n; i++)
        ok = (unsigned char)name[i] >= 32 && name[i] != 127 && !strchr("/\\:*?\"<>|", name[i]);
    if (!ok) return job_invalid(j, at, "'%s' is no name of a file without a folder", at);
    memcpy(s->name, name, n + 1);
    return INFER_OK;
}

static enum infer_status slots_read(struct job *j, const json_t *body) {
    static const struct field rows[] = {
        {"filename", FIELD_HAND, .hand = read_name},
        {"model", FIELD_TEXT, 0, 256, .offset = offsetof(struct ask, model)},
        {.name = NULL},
    };
    return fields_read(j, "", body, FIELDS(rows));
}

/* What is asked, of the path and the body. */
static enum infer_status order_of(struct job *j, struct lane_order *o) {
    static const char *const actions[] = {"save", "restore", "erase"};
    const struct slots_state *s = j->state;
    const char *folder = j->server->o.slot_folder;
    char *end;
    if (!folder)
        return job_refuse(
            j, 501, "not_supported", NULL,
            "files of slots are not kept here: the server is to be started with --slot-save-path");
    int action = 0;
    while (action < 3 && strcmp(actions[action], j->action) != 0) action++;
    if (action == 3) return job_invalid(j, "action", "'action' is none of save, restore, erase");
    const long lane = strtol(j->rest, &end, 10);
    if (*end || end == j->rest || lane < 0 || lane >= j->server->n_slot)
        return job_invalid(j, "id_slot", "'%s' is no slot: there are 0 to %d", j->rest,
                           j->server->n_slot - 1);
    *o = (struct lane_order){
        .action = (enum lane_action)action, .lane = (int)lane, .salt = j->salt, .adapter = j->ask.adapter};
    if (o->action == LANE_ERASE) return INFER_OK;
    if (!*s->name) return job_invalid(j, "filename", "'filename' is missing");
    /* a key's files are its own */
    const int n = j->salt ? snprintf(o->file, sizeof o->file, "%s/%016llx-%s", folder,
                                     (unsigned long long)j->salt, s->name)
                          : snprintf(o->file, sizeof o->file, "%s/%s", folder, s->name);
    return n < (int)sizeof o->file ? INFER_OK : job_invalid(j, "filename", "'filename' is too long");
}

static enum infer_status slots_reply(struct job *j, struct buf *out) {
    const struct slots_state *s = j->state;
    struct lane_order o;
    TRY(order_of(j, &o));
    const enum infer_status st = scheduler_order(j->server->scheduler, &o);
    if (st == INFER_E_IO || st == INFER_E_INPUT || st == INFER_E_UNSUPPORTED || st == INFER_E_FULL)
        return job_refuse(j, 400, "invalid_value", o.action == LANE_ERASE ? NULL : "filename", "%s",
                          err_message());
    TRY(st);
    json_put(out, "{id_slot:%d", o.lane);
    if (o.action == LANE_SAVE)
        json_put(out, "filename:%s n_saved:%d n_written:%llu timings:{save_ms:%g}", s->name, o.n,
                 (unsigned long long)o.bytes, o.ms);
    else if (o.action == LANE_RESTORE)
        json_put(out, "filename:%s n_restored:%d n_read:%llu timings:{restore_ms:%g}", s->name, o.n,
                 (unsigned long long)o.bytes, o.ms);
    else
        json_put(out, "n_erased:%d", o.n);
    json_put(out, "}\n");
    return INFER_OK;
}

const struct front_end slots_api = {.prefix = "",
                                    .state = sizeof(struct slots_state),
                                    .bodyless = true,
                                    .read = slots_read,
                                    .reply = slots_reply,
                                    .error = openai_error};
