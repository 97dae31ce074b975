#include "serve/api/pictures.h"
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "serve/core/server.h"
#include "files/json.h"
#include "tools/net/listed.h"

bool content_is_picture(const char *type) {
    return strcmp(type, "image_url") == 0 || strcmp(type, "input_image") == 0 || strcmp(type, "image") == 0;
}

enum infer_status content_refuse(struct job *j, const char *at, const char *type) {
    const struct server *s = j->server;
    if (content_is_picture(type) && !s->vision)
        return job_refuse(
            j, 400, "unsupported_content", at,
            "'%s' is of type '%.40s', and %s reads text alone here: no tower was loaded with it (--mmproj)",
            at, type, s->name);
    return job_refuse(j, 400, "unsupported_content", at, "'%s' is of type '%.40s', and here stands %s alone",
                      at, type,
                      s->vision && !content_is_picture(type) ? "what is text or a picture" : "text");
}

/* ---- base64 (RFC 4648, also its alphabet for URLs; line ends are passed over) ---- */

static int sextet(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' || c == '-' ? 62 : c == '/' || c == '_' ? 63 : -1;
}

/* to[(n + 3) / 4 * 3]; false: it is none. */
static bool decode_base64(const char *s, size_t n, uint8_t *to, size_t *n_to) {
    uint32_t bits = 0;
    int n_bit = 0;
    size_t i = 0;
    *n_to = 0;
    for (; i < n && s[i] != '='; i++) {
        if (s[i] == '\n' || s[i] == '\r') continue;
        const int x = sextet(s[i]);
        if (x < 0) return false;
        bits = bits << 6 | (uint32_t)x;
        n_bit += 6;
        if (n_bit < 8) continue;
        n_bit -= 8;
        to[(*n_to)++] = (uint8_t)(bits >> n_bit);
    }
    for (; i < n; i++)
        if (s[i] != '=' && s[i] != '\n' && s[i] != '\r') return false;
    return n_bit < 6;
}

/* ---- a picture ---- */

static enum infer_status keep(struct job *j, const char *at, struct infer_picture *p) {
    struct ask *a = &j->ask;
    struct ask_picture *grown = mem_realloc(a->picture, (size_t)(a->n_picture + 1) * sizeof *grown);
    if (!grown) {
        infer_picture_free(p);
        return err_set(INFER_E_MEMORY, "out of memory: a picture");
    }
    a->picture = grown;
    grown[a->n_picture].picture = p;
    snprintf(grown[a->n_picture].at, sizeof grown->at, "%s", at);
    a->n_picture++;
    return INFER_OK;
}

/* What was said so far becomes a part. */
static bool close_text(struct content *c) {
    if (!c->parts) c->parts = json_array();
    if (!c->text.n) return c->parts != NULL;
    json_t *part = json_pack("{s:s, s:o}", "type", "text", "text", json_stringn(c->text.p, c->text.n));
    c->text.n = 0;
    return !c->text.failed && json_array_append_new(c->parts, part) == 0;
}

/* The picture of a file's bytes[n], as a part behind what was said. */
static enum infer_status add_picture(struct job *j, const char *at, const void *bytes, size_t n,
                                     unsigned flags, struct content *c) {
    struct infer_picture *p = NULL;
    enum infer_status st = infer_picture_open(&p, j->server->vision, bytes, n, flags);
    if (st == INFER_E_INPUT || st == INFER_E_UNSUPPORTED)
        return job_invalid(j, at, "'%s': %s", at, err_message());
    TRY(st);
    TRY(keep(j, at, p));
    json_t *part = json_pack("{s:s, s:i}", "type", "image", "picture", j->ask.n_picture - 1);
    if (close_text(c) && json_array_append_new(c->parts, part) == 0) return INFER_OK;
    return err_set(INFER_E_MEMORY, "out of memory: a message");
}

/* Whether there is room for one more. */
static enum infer_status check_room(struct job *j, const char *at) {
    if (!j->server->vision) return content_refuse(j, at, "image");
    if (j->ask.n_picture < JOB_PICTURES) return INFER_OK;
    return job_invalid(j, at, "'%s': a request may have %d pictures", at, JOB_PICTURES);
}

enum infer_status content_base64(struct job *j, const char *at, const char *base64, size_t n, unsigned flags,
                                 struct content *c) {
    uint8_t *bytes;
    size_t n_byte;
    TRY(check_room(j, at));
    TRY(mem_new(&bytes, n / 4 * 3 + 3, "a picture"));
    const enum infer_status st = decode_base64(base64, n, bytes, &n_byte)
                                     ? add_picture(j, at, bytes, n_byte, flags, c)
                                     : job_invalid(j, at, "'%s' is not base64", at);
    mem_free(bytes);
    return st;
}

/* Where the operator's list names its host, else refused. A file that is not here yet ends the reading (job.fetches). */
static enum infer_status of_address(struct job *j, const char *at, const char *url, unsigned flags,
                                    struct content *c) {
    const char *urls = j->server->o.image_urls;
    if (!urls)
        return job_invalid(
            j, at,
            "'%s': addresses are not fetched here: the picture itself is sent, as data:image/png;base64,..",
            at);
    if (!http_listed(urls, url))
        return job_invalid(j, at, "'%s': pictures are not fetched from that address (--image-urls)", at);
    TRY(check_room(j, at));
    const struct job_file *f = job_file(j, url);
    if (!f) return err_set(INFER_E_MEMORY, "out of memory: an address");
    if (f->bytes) return add_picture(j, at, f->bytes, f->n, flags, c);
    if (f->why) return job_invalid(j, at, "'%s': %s", at, f->why);
    j->fetches = true;
    return err_set(INFER_E_CANCEL, "a picture is fetched first");
}

/* data:image/png;base64,.. */
static enum infer_status of_url(struct job *j, const char *at, const char *url, unsigned flags,
                                struct content *c) {
    const char *comma = strchr(url, ',');
    if (strncmp(url, "data:", 5) != 0) return of_address(j, at, url, flags, c);
    if (!comma || comma - url < 7 || strncmp(comma - 7, ";base64", 7) != 0)
        return job_invalid(j, at, "'%s' is no data:image/png;base64,..", at);
    return content_base64(j, at, comma + 1, strlen(comma + 1), flags, c);
}

static enum infer_status read_detail(struct job *j, const char *at, const char *word, unsigned *flags) {
    static const char *const words[] = {"", "auto", "low", "high", "original"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i], word) == 0) {
            *flags = strcmp(word, "low") == 0 ? INFER_PICTURE_LOW : 0;
            return INFER_OK;
        }
    return job_invalid(j, at, "'%s': detail is none of auto, low, high", at);
}

/* {type: image, source: {type: base64, data}} */
static enum infer_status of_source(struct job *j, const char *at, const json_t *source, struct content *c) {
    const json_t *data = json_object_get(source, "data");
    const char *type = json_text_of(source, "type");
    if (strcmp(type, "url") == 0) return of_url(j, at, json_text_of(source, "url"), 0, c);
    if (strcmp(type, "base64") != 0 || !json_is_string(data))
        return job_invalid(j, at, "'%s.source' must be {\"type\": \"base64\", \"media_type\", \"data\"}", at);
    return content_base64(j, at, json_string_value(data), json_string_length(data), 0, c);
}

enum infer_status content_picture(struct job *j, const char *at, const json_t *part, struct content *c) {
    const char *type = json_text_of(part, "type");
    const json_t *image = json_object_get(part, "image_url"), *source = json_object_get(part, "source");
    const json_t *url = json_is_object(image) ? json_object_get(image, "url") : image;
    unsigned flags = 0;
    if (!content_is_picture(type) || !j->server->vision) return content_refuse(j, at, type);
    if (source) return of_source(j, at, source, c);
    TRY(read_detail(j, at, json_text_of(json_is_object(image) ? image : part, "detail"), &flags));
    if (json_object_get(part, "file_id") && !json_is_null(json_object_get(part, "file_id")))
        return job_invalid(j, at, "'%s.file_id': no files are stored here", at);
    if (!json_is_string(url)) return job_invalid(j, at, "'%s' has no URL of a picture", at);
    return of_url(j, at, json_string_value(url), flags, c);
}

json_t *content_take(struct content *c) {
    json_t *out = NULL;
    if (c->parts) {
        if (close_text(c)) out = json_incref(c->parts);
    } else if (!c->text.failed) {
        out = json_stringn(c->text.p ? c->text.p : "", c->text.n);
    }
    json_decref(c->parts);
    c->parts = NULL;
    c->text.n = 0;
    return out;
}

void content_free(struct content *c) {
    buf_free(&c->text);
    json_decref(c->parts);
    c->parts = NULL;
}
