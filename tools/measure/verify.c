/* infer verify: whether a model file still gives what it gave, or what another device or file gives: tokenizer, template, and every
 * operation of 24 rows of a prompt and 6 decoded ones. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "cache/snapshot.h"
#include "files/json.h"
#include "tools/measure/verify_compare.h"
#include "tools/session.h"
#include "tools/tool.h"

int cmd_verify(const struct options *o);

/* ---- what becomes of texts ---- */

static const char plain[] =
    "The quick brown fox jumps over 13 lazy dogs; isn't that 1,234.5 times?\n\tint main(void) { return 0; }\n"
    "Größe, naïve, Ελλάδα, привет, 你好世界, 日本語, العربية, 🙂👍🏽 — \"quoted\" …  two  blanks\r\n";
static const struct {
    const char *name, *message[5]; /* user first; or system, when there are more than one */
} chats[] = {{"chat", {"Hello <b>there</b>, what is 2+2?"}},
             {"turns", {"Answer briefly.", "Name a colour.", "Blue.", "Another one, please."}}};
enum { N_CHAT = sizeof chats / sizeof *chats };

/* A failure becomes the text: a template may refuse a conversation, and does so again. */
static enum infer_status keep_text(struct verify_record *r, const char *name, const struct infer_prompt *p,
                                   enum infer_status st, bool rendered) {
    struct verify_text *t = &r->text[r->n_text];
    *t = (struct verify_text){.name = name, .n_id = p->n};
    int32_t *ids = arena_alloc(&r->arena, (size_t)p->n * sizeof *ids + 1);
    if (rendered)
        t->text =
            arena_strndup(&r->arena, st ? err_message() : p->text, st ? strlen(err_message()) : p->n_text);
    if (!ids || (rendered && !t->text)) return err_set(INFER_E_MEMORY, "out of memory for a record");
    if (p->n) memcpy(ids, p->ids, (size_t)p->n * sizeof *ids);
    t->ids = ids;
    r->n_text++;
    return INFER_OK;
}

static enum infer_status chat_text(struct verify_record *r, const struct session *s, int which) {
    json_t *now = json_pack("{s:s}", "now", "2026-01-02T03:04:05"), *messages = json_array();
    const struct infer_prompt_template t = {
        .text = s->info.chat_template, .n = s->info.chat_template_len, .variables = now};
    struct infer_prompt p = {0};
    const int n = chats[which].message[1] ? 4 : 1;
    enum infer_status st = now && messages ? INFER_OK : err_set(INFER_E_MEMORY, "out of memory for a record");
    for (int i = 0; i < n && !st; i++) {
        const char *text = chats[which].message[i], *role = i == 0 && n > 1     ? "system"
                                                            : i % 2 == (n == 1) ? "assistant"
                                                                                : "user";
        st = infer_prompt_add_message(messages, role, text, strlen(text));
    }
    if (!st) {
        st = infer_prompt_render(&p, s->model, &t, messages, true);
        st = st == INFER_E_MEMORY ? st : keep_text(r, chats[which].name, &p, st, true);
    }
    infer_prompt_free(&p);
    json_decref(messages);
    json_decref(now);
    return st;
}

/* The texts, and the tokens that the operations are run with. */
static enum infer_status texts_of(struct verify_record *r, const struct session *s) {
    struct infer_prompt p = {0};
    int32_t *ids = arena_alloc(&r->arena, (VERIFY_PROMPT + VERIFY_DECODE) * sizeof *ids);
    r->text = arena_alloc(&r->arena, (1 + N_CHAT) * sizeof *r->text);
    if (!r->text || !ids) return err_set(INFER_E_MEMORY, "out of memory for a record");
    enum infer_status st = INFER_OK;
    if (s->info.has_tokenizer) {
        st = infer_prompt_text(&p, s->model, plain, sizeof plain - 1, false);
        if (!st) st = keep_text(r, "plain", &p, st, false);
    }
    for (int i = 0; i < VERIFY_PROMPT + VERIFY_DECODE; i++) {
        const int32_t id = i < p.n ? p.ids[i] : i * 7 + 1;
        ids[i] = id % s->info.n_vocab;
    }
    infer_prompt_free(&p);
    for (int i = 0; i < N_CHAT && !st && s->info.has_tokenizer && s->info.chat_template; i++)
        st = chat_text(r, s, i);
    if (!r->n_id) r->ids = ids, r->n_id = VERIFY_PROMPT + VERIFY_DECODE;
    return st;
}

/* ---- running ---- */

static enum infer_status run_rows(struct verify_record *r, struct session *s) {
    struct infer_row row[VERIFY_PROMPT];
    struct infer_output out;
    int seq;
    for (int i = 0; i < r->n_id; i++)
        if (r->ids[i] >= s->info.n_vocab)
            return err_set(INFER_E_INPUT, "the record has token %d, the model %d tokens", r->ids[i],
                           s->info.n_vocab);
    TRY(infer_seq_open(s->engine, &seq));
    for (int at = 0, n; at < r->n_id; at += n) {
        n = at ? 1 : VERIFY_PROMPT;
        for (int i = 0; i < n; i++)
            row[i] = (struct infer_row){.id = r->ids[at + i],
                                        .pos = at + i,
                                        .seq = seq,
                                        .decode = at > 0,
                                        .want = i + 1 == n ? INFER_WANT_LOGITS : INFER_WANT_NONE};
        TRY(infer_step(s->engine, row, n, &out));
        TRY(r->status);
    }
    return INFER_OK;
}

static enum infer_status place_of(struct verify_record *r, const struct session *s) {
    struct tensorfile *f;
    const struct infer_model_info *info = &s->info;
    TRY(tensorfile_open(&f, s->path, &(struct tensorfile_options){.sparse_ok = true}));
    r->model = snapshot_fingerprint(f);
    tensorfile_close(f);
    r->device = arena_strndup(&r->arena, s->place.device, strlen(s->place.device));
    r->isa =
        arena_strndup(&r->arena, s->place.isa ? s->place.isa : "", s->place.isa ? strlen(s->place.isa) : 0);
    r->arch = arena_strndup(&r->arena, info->arch, strlen(info->arch));
    r->type = arena_strndup(&r->arena, info->type_name, strlen(info->type_name));
    r->version = infer_version();
    r->bits =
        (float)(8 * (double)info->token_bytes / (double)(info->n_param_token ? info->n_param_token : 1));
    r->exact = strcmp(s->place.device, "ref") == 0;
    if (!r->device || !r->isa || !r->arch || !r->type)
        return err_set(INFER_E_MEMORY, "out of memory for a record");
    return INFER_OK;
}

/* Of the file and device of o, with the tokens of r->ids where there are some. s stays open. errors: INFER_E_NAN: what was watched until then is
 * in r */
static enum infer_status run(struct verify_record *r, struct session *s, const struct options *o) {
    struct options local = *o;
    if (local.device && strcmp(local.device, "auto") == 0) local.device = "cpu";
    TRY(session_open(
        s, &local,
        &(struct session_need){
            .slots = 1, .ctx = 64, .batch = VERIFY_PROMPT, .watch = verify_watch, .watch_user = r}));
    if (s->place.n_ctx < VERIFY_PROMPT + VERIFY_DECODE || s->place.n_batch < VERIFY_PROMPT)
        return err_set(INFER_E_INPUT, "verify takes %d positions and %d rows a step (--ctx, --batch)",
                       VERIFY_PROMPT + VERIFY_DECODE, VERIFY_PROMPT);
    TRY(r->status);
    TRY(place_of(r, s));
    TRY(texts_of(r, s));
    return run_rows(r, s);
}

/* ---- what is said ---- */

static void op_text(char out[96], const struct verify_op *o) {
    if (o->layer >= 0)
        snprintf(out, 96, "%s of layer %d", o->name, o->layer);
    else
        snprintf(out, 96, "%s", o->name);
}

/* What became one with the operation on this device, whose rows nobody saw: "attn_norm + " before "attn_qkv". */
static void print_folded(const struct verify_record *r, const struct verify_op *o) {
    const struct verify_op *first = o;
    while (first > r->op && !first[-1].n_row && first[-1].decode == o->decode) first--;
    for (; first < o; first++) printf("%s + ", first->name);
}

static void print_difference(const struct verify_record *is, const struct verify_difference *d,
                             const struct verify_limits *limits) {
    char op[96];
    op_text(op, d->is ? d->is : d->was);
    if (!d->is || !d->was || d->is->width != d->was->width || strcmp(d->is->name, d->was->name)) {
        char other[96] = "";
        if (d->is && d->was) op_text(other, d->was);
        printf("DIFFERS: %s %s%s; %d operations before it agree\n", op,
               !d->was  ? "is new here"
               : !d->is ? "is gone"
                        : "stands where another was: ",
               other, d->before);
        return;
    }
    printf("DIFFERS: ");
    print_folded(is, d->is);
    printf("%s, %s row %d: ", op, d->is->decode ? "decoded" : "prompt", d->pos);
    if (d->at >= 0) printf("value %d was %.6g and is %.6g", d->at, (double)d->was_value, (double)d->is_value);
    if (d->at < 0)
        printf("the greatest value was %.6g and is %.6g", (double)d->was_value, (double)d->is_value);
    printf(
        "; the row is %.2g of its size apart, its size by %.2g (%s: at most %.2g and %.2g); %d operations before it agree\n",
        d->apart, d->size, limits->why, d->limit, d->limit / 2, d->before);
}

static void print_report(const struct verify_report *p, const struct verify_record *was,
                         const struct verify_limits *limits) {
    char op[96] = "";
    if (p->most) op_text(op, p->most);
    printf("agrees with %s %s (%s): %d texts, %d operations, middle rows at most %.2g apart%s%s\n",
           was->device, was->type, limits->why, was->n_text, p->compared, p->apart, p->most ? ", in " : "",
           op);
    if (p->left) {
        op_text(op, p->left);
        printf(
            "%s chose other experts at position %d, as close scores may: behind it rows from there on were not compared\n",
            op, p->left_pos);
    }
}

/* 0: they agree. */
static int tell(const struct infer_model *m, const struct verify_record *was, const struct verify_record *is,
                struct verify_difference *d) {
    char line[512];
    struct verify_report report;
    const struct verify_limits limits = verify_limits_of(was, is);
    int wrong = 0;
    if (strcmp(was->arch, is->arch) != 0)
        tool_say("the other one is a %s, this one a %s", was->arch, is->arch);
    else if (was->model != is->model)
        tool_say("the other one is another file: %s, %.1f bits a weight; here %s, %.1f", was->type,
                 (double)was->bits, is->type, (double)is->bits);
    if (!verify_texts(m, was, is, line, sizeof line)) {
        wrong++;
        fputs("DIFFERS: ", stdout);
        term_write_safe(stdout, line, strlen(line));
        putchar('\n');
    }
    if (!verify_compare(was, is, limits, d, &report)) {
        wrong++;
        print_difference(is, d, &limits);
    } else if (!wrong) {
        print_report(&report, was, &limits);
    }
    return wrong;
}

/* The value of the whole row that is furthest apart. */
static void print_whole(const struct verify_record *was, const struct verify_record *is, int width) {
    int at = 0;
    for (int i = 1; i < width; i++)
        if (!(fabsf(was->x[i] - is->x[i]) <= fabsf(was->x[at] - is->x[at]))) at = i;
    printf("of its %d values number %d is furthest apart: %.9g and %.9g\n", width, at, (double)was->x[at],
           (double)is->x[at]);
}

/* ---- the command ---- */

enum { WAS, IS, SIDES };
struct sides {
    struct verify_record record[SIDES];
    struct session session[SIDES];
    struct options options[SIDES];
};

/* Runs one side, again with `whole` of it kept. */
static enum infer_status run_side(struct sides *v, int which, const struct verify_difference *whole) {
    struct verify_record *r = &v->record[which];
    struct session *s = &v->session[which];
    struct verify_record again = {.ids = r->ids, .n_id = r->n_id};
    if (!whole) return run(r, s, &v->options[which]);
    session_close(s);
    *s = (struct session){0};
    again.whole = whole->is, again.whole_pos = whole->pos;
    r->x = arena_alloc(&r->arena, (size_t)whole->is->width * sizeof *r->x);
    if (!r->x) return err_set(INFER_E_MEMORY, "out of memory for a row");
    again.x = r->x;
    enum infer_status st = run(&again, s, &v->options[which]);
    arena_free(&again.arena);
    return st == INFER_E_NAN ? INFER_OK : st;
}

static void record_path(const struct options *o, const char *model, char path[4096]) {
    if (o->record_file)
        snprintf(path, 4096, "%s", o->record_file);
    else
        snprintf(path, 4096, "%.*s.verify",
                 (int)(strlen(model) - (strlen(model) > 1 && model[strlen(model) - 1] == '/')), model);
}

static enum infer_status verify(struct sides *v, const struct options *o, int *wrong) {
    char path[4096], model[4096];
    const bool other = o->against || o->against_file;
    struct verify_difference d = {0};
    TRY(session_model_path(&v->options[IS], model, sizeof model));
    record_path(o, model, path);
    if (o->record && other)
        return err_set(INFER_E_INPUT, "--record writes what --against and --against-file are instead of");
    if (o->record_file && other)
        return err_set(INFER_E_INPUT, "--record-file is not looked at with --against and --against-file");
    if (access(model, R_OK) != 0) return err_set(INFER_E_IO, "%s: %s", model, strerror(errno));
    if (o->record) TRY(tool_check_output(&v->options[IS], model, path));
    if (!o->record && !other && access(path, F_OK) != 0)
        return err_set(
            INFER_E_IO,
            "%s is not there: 'infer verify --record' writes it, --against cpu or ref does without", path);
    if (!o->record) TRY(other ? run_side(v, WAS, NULL) : verify_read(&v->record[WAS], path));
    v->record[IS].ids = v->record[WAS].ids, v->record[IS].n_id = v->record[WAS].n_id;
    enum infer_status st = run_side(v, IS, NULL);
    if (o->record) {
        if (!st) st = verify_write(&v->record[IS], path);
        if (!st && !o->quiet)
            tool_say("%s: %d texts, %d operations of %s", path, v->record[IS].n_text, v->record[IS].n_op,
                     v->record[IS].device);
        return st;
    }
    if (st && st != INFER_E_NAN) return st;
    if (st) printf("DIFFERS: %s\n", err_message());
    *wrong = (st != INFER_OK) + tell(v->session[IS].model, &v->record[WAS], &v->record[IS], &d);
    if (!other || !d.is || !d.was || d.is->width != d.was->width) return tool_flush();
    TRY(run_side(v, WAS, &d));
    TRY(run_side(v, IS, &d));
    print_whole(&v->record[WAS], &v->record[IS], d.is->width);
    return tool_flush();
}

int cmd_verify(const struct options *o) {
    struct sides v = {.options = {*o, *o}};
    int wrong = 0;
    if (o->n_arg && options_origin(o, "model") == ORIGIN_FLAG) {
        err_set(INFER_E_INPUT, "%s and -m %s: one of them is the model", o->arg[0], o->model);
        return tool_fail(o, INFER_E_INPUT);
    }
    for (int i = 0; i < SIDES && o->n_arg; i++) v.options[i].model = o->arg[0], v.options[i].hf_repo = NULL;
    if (o->against) v.options[WAS].device = o->against;
    if (o->against_file) v.options[WAS].model = o->against_file;
    const enum infer_status st = verify(&v, o, &wrong);
    progress_clear(&v.session[IS].progress);
    const int code = st ? tool_fail(o, st) : wrong ? EXIT_CHECK : EXIT_DONE;
    for (int i = 0; i < SIDES; i++) {
        session_close(&v.session[i]);
        verify_free(&v.record[i]);
    }
    return code;
}
