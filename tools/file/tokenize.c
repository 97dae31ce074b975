/* infer tokenize: text on stdin, ids on stdout, or back (--decode).
 *
 *     one text      stdin whole -> one line of ids; --decode: ids in any number of lines -> the bytes
 *     --jsonl       each line a JSON string -> a line with a JSON array of ids; --decode: the other way. Bytes
 *                   that are no UTF-8 cannot stand in JSON: each becomes U+FFFD. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "infer.h"
#include "files/json.h"
#include "base/mem.h"
#include "tools/session.h"
#include "files/textfile.h"
#include "tools/tool.h"

struct job {
    const struct infer_model *model;
    const struct options *o;
    int n_vocab;
    int32_t *ids; /* ids[cap] */
    size_t n, cap;
};

static enum infer_status room_for(struct job *j, size_t n) {
    size_t bytes;
    if (n <= j->cap) return INFER_OK;
    if (!size_mul(n, sizeof *j->ids, &bytes)) return err_set(INFER_E_MEMORY, "%zu ids", n);
    int32_t *ids = mem_realloc(j->ids, bytes);
    if (!ids) return err_set(INFER_E_MEMORY, "out of memory: %zu bytes for ids", bytes);
    j->ids = ids;
    j->cap = n;
    return INFER_OK;
}

/* ---- text to ids ---- */
static enum infer_status encode(struct job *j, const char *text, size_t n) {
    unsigned flags = (j->o->special ? INFER_TOK_SPECIAL : 0) | (j->o->add_special ? INFER_TOK_ADD : 0);
    TRY(room_for(j, n / 2 + 64)); /* most texts need less, and the second try is for the others */
    TRY(infer_tokenize(j->model, text, NULL, n, flags, j->ids, j->cap, &j->n));
    if (j->n <= j->cap) return INFER_OK;
    TRY(room_for(j, j->n));
    return infer_tokenize(j->model, text, NULL, n, flags, j->ids, j->cap, &j->n);
}

/* The digits of id, which is not negative, at d; returns their number. */
static size_t put_id(char *d, int32_t id) {
    char digits[10];
    size_t n = 0;
    do {
        digits[n++] = (char)('0' + id % 10);
    } while (id /= 10);
    for (size_t i = 0; i < n; i++) d[i] = digits[n - 1 - i];
    return n;
}

static enum infer_status write_ids(const struct job *j, const char *open, char between, const char *close) {
    char line[4096];
    TRY(tool_write(open, strlen(open)));
    for (size_t i = 0; i < j->n;) {
        size_t n = 0;
        for (; i < j->n && n + 12 < sizeof line; i++) {
            if (i) line[n++] = between;
            n += put_id(line + n, j->ids[i]);
        }
        TRY(tool_write(line, n));
    }
    return tool_write(close, strlen(close));
}

/* ---- ids to text ---- */
static enum infer_status add_id(struct job *j, long long id) {
    if (id < 0 || id >= j->n_vocab)
        return err_set(INFER_E_INPUT, "%lld is no token: the vocabulary has %d", id, j->n_vocab);
    if (j->n == j->cap) TRY(room_for(j, j->cap ? 2 * j->cap : 1024));
    j->ids[j->n++] = (int32_t)id;
    return INFER_OK;
}

static enum infer_status parse_ids(struct job *j, const char *text, size_t n) {
    j->n = 0;
    for (const char *s = text, *end = text + n; s < end;) {
        char *stop;
        if (strchr(" \t\r\n,", *s)) { /* the text ends with a 0, which strchr finds too */
            if (!*s) return err_set(INFER_E_INPUT, "byte %zu: 0 where an id is expected", (size_t)(s - text));
            s++;
            continue;
        }
        errno = 0;
        long long id = strtoll(s, &stop, 10);
        if (stop == s || errno || (*stop && !strchr(" \t\r\n,", *stop)))
            return err_set(INFER_E_INPUT, "byte %zu: an id is expected, there is '%.16s'", (size_t)(s - text),
                           s);
        TRY(add_id(j, id));
        s = stop;
    }
    return INFER_OK;
}

/* The bytes of the ids; free with mem_free. */
static enum infer_status decode(const struct job *j, char **text, size_t *n_text) {
    size_t total = 0;
    for (size_t i = 0; i < j->n; i++) {
        size_t n;
        infer_piece(j->model, j->ids[i], j->o->special, i == 0, &n);
        if (!size_add(total, n, &total)) return err_set(INFER_E_MEMORY, "the text is too long");
    }
    TRY(mem_new(text, total + 1, "the text"));
    *n_text = 0;
    for (size_t i = 0; i < j->n; i++) {
        size_t n;
        const char *piece = infer_piece(j->model, j->ids[i], j->o->special, i == 0, &n);
        if (n) memcpy(*text + *n_text, piece, n);
        *n_text += n;
    }
    return INFER_OK;
}

/* ---- JSON lines ---- */
static enum infer_status line_to_ids(struct job *j, const json_t *v) {
    if (!json_is_string(v)) return err_set(INFER_E_INPUT, "a JSON string is expected");
    TRY(encode(j, json_string_value(v), json_string_length(v)));
    return write_ids(j, "[", ',', "]\n");
}

/* s[n] with every byte that is not part of UTF-8 as U+FFFD; free with mem_free */
static enum infer_status valid_utf8(char **out, size_t *n_out, const char *s, size_t n) {
    char *d;
    TRY(mem_new(&d, 3 * n + 1, "the text"));
    size_t o = 0;
    for (size_t i = 0; i < n;) {
        size_t len = text_utf8_len(s + i, n - i);
        memcpy(d + o, len ? s + i : "\xef\xbf\xbd", len ? len : 3);
        o += len ? len : 3;
        i += len ? len : 1;
    }
    *out = d;
    *n_out = o;
    return INFER_OK;
}

static enum infer_status line_to_text(struct job *j, const json_t *v) {
    char *text = NULL, *valid = NULL, *line = NULL;
    size_t n;
    if (!json_is_array(v)) return err_set(INFER_E_INPUT, "a JSON array of ids is expected");
    j->n = 0;
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *id = json_array_get(v, i);
        if (!json_is_integer(id)) return err_set(INFER_E_INPUT, "element %zu is not an integer", i);
        TRY(add_id(j, json_integer_value(id)));
    }
    TRY(decode(j, &text, &n));
    enum infer_status st = valid_utf8(&valid, &n, text, n);
    mem_free(text);
    if (st == INFER_OK) {
        st = json_write(&line, json_stringn(valid, n), mem_failed(), JSON_ENCODE_ANY, "a line of JSON");
        if (st == INFER_OK) st = tool_write(line, strlen(line));
        if (st == INFER_OK) st = tool_write("\n", 1);
    }
    mem_free(line); /* main gives jansson our allocator */
    mem_free(valid);
    return st;
}

static enum infer_status run_lines(struct job *j, const char *text, size_t n) {
    size_t number = 1;
    for (const char *s = text, *end = text + n, *next; s < end; s = next, number++) {
        const char *nl = memchr(s, '\n', (size_t)(end - s));
        next = nl ? nl + 1 : end;
        char where[32];
        json_t *v;
        snprintf(where, sizeof where, "line %zu", number);
        TRY(json_read(&v, where, s, (size_t)((nl ? nl : end) - s), JSON_DECODE_ANY | JSON_ALLOW_NUL));
        enum infer_status st = j->o->decode ? line_to_text(j, v) : line_to_ids(j, v);
        json_decref(v);
        if (st != INFER_OK) return err_prefix(st, "%s", where);
    }
    return INFER_OK;
}

/* ---- the command ---- */
static enum infer_status run_text(struct job *j, const char *text, size_t n) {
    if (!j->o->decode) {
        TRY(encode(j, text, n));
        return write_ids(j, "", ' ', "\n");
    }
    char *out;
    TRY(parse_ids(j, text, n));
    TRY(decode(j, &out, &n));
    enum infer_status st = tool_write(out, n);
    mem_free(out);
    return st;
}

int cmd_tokenize(const struct options *o) {
    char path[4096];
    char *text = NULL;
    size_t n = 0;
    struct infer_model *m = NULL;
    struct infer_model_options mo = {.vocab_only = true, .no_mmap = o->no_mmap};
    struct job j = {.o = o};
    enum infer_status st = session_model_path(o, path, sizeof path);
    if (st == INFER_OK) st = infer_model_open(&m, path, &mo);
    struct infer_model_info info;
    if (st == INFER_OK) {
        infer_model_info(m, &info);
        if (!info.has_tokenizer) st = err_set(INFER_E_UNSUPPORTED, "%s has no tokenizer", path);
    }
    if (st == INFER_OK) st = text_read(&text, &n, "-", TEXT_CORPUS);
    j.model = m;
    if (st == INFER_OK) j.n_vocab = info.n_vocab;
    if (st == INFER_OK) st = o->jsonl ? run_lines(&j, text, n) : run_text(&j, text, n);
    if (st == INFER_OK) st = tool_flush();
    mem_free(text);
    mem_free(j.ids);
    infer_model_close(m);
    return st == INFER_OK ? EXIT_DONE : tool_fail(o, st);
}
