/* Answers of a server, byte by byte: the head, chunks, lines of events. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "tools/measure/bench_serve.h"

enum { PART_HEAD, PART_SIZE, PART_DATA, PART_AFTER, PART_TRAILER, PART_PLAIN };

void load_answer_start(struct load_answer *a) { *a = (struct load_answer){.left = -1, .n_token = -1}; }

static void add(struct load_answer *a, char c) {
    if (a->n + 1 < sizeof a->line) a->line[a->n++] = c;
    a->line[a->n] = 0;
}

/* The value of a header of the head in a->line, NULL: it has none. */
static const char *header(const struct load_answer *a, const char *name) {
    const size_t n = strlen(name);
    for (const char *at = strchr(a->line, '\n'); at; at = strchr(at, '\n')) {
        at++;
        if (strncasecmp(at, name, n) == 0 && at[n] == ':') return at + n + 1 + strspn(at + n + 1, " ");
    }
    return NULL;
}

static void head_ended(struct load_answer *a) {
    const char *length = header(a, "Content-Length"), *coding = header(a, "Transfer-Encoding"),
               *connection = header(a, "Connection");
    if (strncmp(a->line, "HTTP/1.", 7) != 0 || strlen(a->line) < 12) {
        a->failed = a->whole = a->close = true;
        return;
    }
    a->status = atoi(a->line + 9);
    a->failed = a->status != 200;
    a->chunked = coding && strncasecmp(coding, "chunked", 7) == 0;
    a->close = (connection && strncasecmp(connection, "close", 5) == 0) || (!length && !a->chunked);
    a->left = length ? atoll(length) : -1;
    a->part = a->chunked ? PART_SIZE : PART_PLAIN;
    a->whole = !a->chunked && a->left == 0;
    a->n = 0;
}

/* The number behind a key of a JSON text, -1: it is not there. */
static int number(const char *text, const char *key) {
    const char *at = strstr(text, key);
    if (!at) return -1;
    at += strlen(key);
    return atoi(at + strspn(at, "\": "));
}

/* Whether an event has text: "text" or "content" that is not empty. */
static bool has_text(const char *event) {
    static const char *const keys[] = {"\"text\"", "\"content\"", "\"reasoning_content\""};
    for (int i = 0; i < 3; i++) {
        const char *at = strstr(event, keys[i]);
        if (!at) continue;
        at += strlen(keys[i]);
        at += strspn(at, ": ");
        if (at[0] == '"' && at[1] != '"') return true;
    }
    return false;
}

static int line_ended(struct load_answer *a) {
    int n = 0;
    if (a->n == 0) return 0; /* what stood there before is kept: it may say why an answer failed */
    if (strncmp(a->line, "data:", 5) == 0) {
        n = has_text(a->line);
        const int tokens = number(a->line, "completion_tokens");
        if (tokens >= 0) a->n_token = tokens;
        const char *at = a->line + 5 + strspn(a->line + 5, " ");
        if (strncmp(at, "{\"error\"", 8) == 0) a->failed = true;
    }
    a->n_event += n;
    a->n = 0;
    return n;
}

static int body(struct load_answer *a, char c) {
    if (c == '\n') return line_ended(a);
    if (c != '\r') add(a, c);
    return 0;
}

/* A byte of what stands between chunks. */
static void between(struct load_answer *a, char c) {
    if (c == '\r') return;
    if (c != '\n') {
        if (a->part == PART_SIZE) {
            const char digit[] = {c, 0};
            char *end;
            const long v = strtol(digit, &end, 16);
            if (a->left < 0) a->left = 0;
            if (!*end && a->left < INT64_MAX / 16) a->left = a->left * 16 + v;
        } else {
            a->n++;
        }
        return;
    }
    if (a->part == PART_AFTER) {
        a->part = PART_SIZE;
        a->left = -1;
    } else if (a->part == PART_SIZE) {
        a->part = a->left == 0 ? PART_TRAILER : PART_DATA;
        if (a->left == 0) a->n = 0;
    } else if (a->n == 0) {
        a->whole = true;
    } else {
        a->n = 0;
    }
}

int load_answer_take(struct load_answer *a, const char *data, size_t n) {
    int events = 0;
    if (n == 0) {
        a->failed |= a->part != PART_PLAIN || a->left > 0;
        a->whole = a->close = true;
    }
    for (size_t i = 0; i < n && !a->whole; i++) {
        const char c = data[i];
        if (a->part == PART_HEAD) {
            if (c != '\r') add(a, c);
            if (a->n >= 2 && a->line[a->n - 1] == '\n' && a->line[a->n - 2] == '\n') head_ended(a);
        } else if (a->part == PART_DATA) {
            events += body(a, c);
            if (--a->left == 0) a->part = PART_AFTER;
        } else if (a->part == PART_PLAIN) {
            events += body(a, c);
            if (a->left > 0 && --a->left == 0) a->whole = true;
        } else {
            between(a, c);
        }
    }
    return events;
}
