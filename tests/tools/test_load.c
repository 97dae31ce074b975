/* What `infer bench serve` sees of a server: answers in any pieces, and a run against one that is made here. */
#include <arpa/inet.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>
#include "tests/lib/test.h"
#include "tools/measure/bench_serve.h"

#define HEAD    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
#define CHUNKED HEAD "transfer-encoding: chunked\r\n\r\n"
#define ONE     "data: {\"choices\": [{\"text\": \"a\\\"b\"}]}\n\n"
#define NONE    "data: {\"choices\":[{\"text\":\"\"}]}\n\n"
#define USAGE   "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":17}}\n\n"
#define DONE    "data: [DONE]\n\n"

static const struct {
    const char *text;
    int status, n_event, n_token;
    bool whole, close, failed;
} answers[] = {
    {CHUNKED "27\r\n" ONE "\r\n0\r\n\r\n", 200, 1, -1, true, false, false},
    {CHUNKED "4\r\ndata\r\n23\r\n: {\"choices\": [{\"text\": \"a\\\"b\"}]}\n\n\r\n0\r\nX: y\r\n\r\n", 200, 1,
     -1, true, false, false},
    {HEAD "Content-Length: 83\r\n\r\n" ONE DONE "data: {\"content\":\"x\"}\r\n\r\n: p\r\n", 200, 2, -1, true,
     false, false},
    {HEAD "\r\n" ONE NONE ONE USAGE DONE, 200, 2, 17, false, true, false}, /* to the end of the connection */
    {HEAD "Connection: close\r\nContent-Length: 0\r\n\r\n", 200, 0, -1, true, true, false},
    {"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 2\r\n\r\n{}", 429, 0, -1, true, false, true},
    {CHUNKED "1a\r\ndata: {\"error\":{\"code\":1}}\r\n0\r\n\r\n", 200, 0, -1, true, false,
     false}, /* no line */
    {CHUNKED "1b\r\ndata: {\"error\":{\"code\":1}}\n\r\n0\r\n\r\n", 200, 0, -1, true, false, true},
    {"SSH-2.0-OpenSSH_9\r\n\r\n", 0, 0, -1, true, true, true},
    {CHUNKED "27\r\n" ONE, 200, 1, -1, false, false, false},
};

static void answers_come_in_pieces(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
        for (size_t piece = 1; piece < 90; piece += piece < 8 ? 1 : 40) {
            static struct load_answer a;
            const size_t n = strlen(answers[i].text);
            int events = 0;
            load_answer_start(&a);
            for (size_t at = 0; at < n; at += piece)
                events += load_answer_take(&a, answers[i].text + at, at + piece < n ? piece : n - at);
            if (a.status != answers[i].status || events != answers[i].n_event || a.n_event != events ||
                a.n_token != answers[i].n_token || a.whole != answers[i].whole ||
                a.close != answers[i].close || a.failed != answers[i].failed)
                fail_msg("answer %zu by %zu: status %d, %d events, %d tokens, whole %d, close %d, failed %d",
                         i, piece, a.status, events, a.n_token, a.whole, a.close, a.failed);
            if (answers[i].whole) continue;
            load_answer_take(&a, NULL, 0); /* the connection ends */
            assert_true(a.whole && a.close);
            assert_int_equal(a.failed, answers[i].n_token != 17); /* in the middle of chunks */
        }
}

/* ---- a server ---- */

static struct {
    int fd, port;
    atomic_int n_request, n_connection, n_body;
    bool closes; /* the connection behind each answer */
    int fails;   /* every so many requests; 0: none */
} there;

static void say(int fd, const char *text) {
    char chunk[512];
    const int n = snprintf(chunk, sizeof chunk, "%zx\r\n%s\r\n", strlen(text), text);
    assert_int_equal(send(fd, chunk, (size_t)n, MSG_NOSIGNAL), n);
}

/* One request; false: the connection has ended. */
static bool answer_one(int fd) {
    static const char tokens[] = "{\"tokens\":[5,6, 7]}";
    char text[16384], head[256];
    size_t n = 0, all = 0;
    while (!all || n < all) {
        const ssize_t got = recv(fd, text + n, sizeof text - 1 - n, 0);
        if (got <= 0) return false;
        text[n += (size_t)got] = 0;
        const char *end = strstr(text, "\r\n\r\n"), *length = strstr(text, "Content-Length: ");
        if (end && length) all = (size_t)(end + 4 - text) + strtoul(length + 16, NULL, 10);
    }
    if (strstr(text, "\"content\"")) { /* as a server that wants it under another name */
        static const char what[] = "HTTP/1.1 400 What\r\nContent-Length: 2\r\n\r\n{}";
        return send(fd, what, sizeof what - 1, MSG_NOSIGNAL) > 0 && false;
    }
    if (strstr(text, "/tokenize")) {
        const int k = snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s",
                               strlen(tokens), tokens);
        return send(fd, head, (size_t)k, MSG_NOSIGNAL) == k && false;
    }
    const int request = ++there.n_request, out = atoi(strstr(text, "\"max_tokens\": ") + 14);
    for (const char *c = strchr(text, '['); *c != ']'; c++) there.n_body += *c == ',' || *c == '[';
    if (there.fails && request % there.fails == 0) {
        static const char busy[] = "HTTP/1.1 429 Busy\r\nContent-Length: 9\r\n\r\ncome back";
        return send(fd, busy, sizeof busy - 1, MSG_NOSIGNAL) > 0;
    }
    const int k = snprintf(head, sizeof head, HEAD "Transfer-Encoding: chunked\r\n%s\r\n",
                           there.closes ? "Connection: close\r\n" : "");
    if (send(fd, head, (size_t)k, MSG_NOSIGNAL) != k) return false;
    for (int i = 0; i < out; i++) say(fd, ONE);
    snprintf(head, sizeof head, "data: {\"usage\": {\"completion_tokens\": %d}}\n\n", out + 1);
    say(fd, head);
    return send(fd, "0\r\n\r\n", 5, MSG_NOSIGNAL) == 5 && !there.closes;
}
static void *connection(void *fd) {
    while (answer_one((int)(intptr_t)fd)) continue;
    close((int)(intptr_t)fd);
    return NULL;
}
static void *accept_all(void *none) {
    for (int fd; (fd = accept(there.fd, NULL, NULL)) >= 0;) {
        pthread_t t;
        there.n_connection++;
        assert_int_equal(pthread_create(&t, NULL, connection, (void *)(intptr_t)fd), 0);
        pthread_detach(t);
    }
    return none;
}
static int open_server(void **state) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    pthread_t t;
    (void)state;
    there.fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(there.fd, (struct sockaddr *)&a, n), 0);
    assert_int_equal(listen(there.fd, 64), 0);
    assert_int_equal(getsockname(there.fd, (struct sockaddr *)&a, &n), 0);
    there.port = ntohs(a.sin_port);
    assert_int_equal(pthread_create(&t, NULL, accept_all, NULL), 0);
    pthread_detach(t);
    return 0;
}

/* Every request is answered once, over connections that are kept where they can be, whatever the loop. */
static void a_run_adds_up(void **state) {
    (void)state;
    static const struct {
        double rate;
        bool closes;
        int fails, n_shared;
    } cases[] = {{0, false, 0, 0}, {0, true, 0, 4}, {400, false, 0, 0}, {0, false, 5, 0}};
    const struct load_mix mix[] = {{10, 3}, {20, 1}, {4, 9}};
    int32_t ids[8];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct load_plan p = {.n_request = 30,
                              .n_stream = 4,
                              .rate = cases[i].rate,
                              .mix = mix,
                              .n_mix = 3,
                              .n_shared = cases[i].n_shared,
                              .ids = ids,
                              .seed = 1,
                              .seconds = 60};
        struct load_result r;
        struct load_figures f;
        char url[64];
        snprintf(url, sizeof url, "http://127.0.0.1:%d/v1/", there.port);
        there.closes = cases[i].closes, there.fails = cases[i].fails;
        there.n_request = there.n_connection = there.n_body = 0;
        assert_ok(load_target_read(&p.target, url));
        assert_ok(load_tokens(&p.target, "text", ids, 8, &p.n_id));
        assert_int_equal(p.n_id, 3);
        assert_int_equal(ids[2], 7);
        assert_ok(load_run(&p, &r));
        const int failed = cases[i].fails ? 30 / cases[i].fails : 0;
        assert_int_equal(r.n_failed, failed);
        assert_int_equal(r.n_done, 30 - failed);
        assert_int_equal(there.n_request, 30);
        assert_int_equal(there.n_body, 10 * (10 + 20 + 4));
        assert_in_range(there.n_connection, 1, (cases[i].closes ? 30 : 4) + 2);
        if (!failed) assert_int_equal(r.n_gap, 10 * (2 + 0 + 8));
        if (failed) assert_string_equal(r.failure, "429 come back");
        load_figures(&r, &(struct load_goal){1e9, 1e9}, 4, &f);
        assert_int_equal(f.keeps, !failed);
        assert_true(fabs(f.good - (30. - failed) / 30) < 1e-9);
        if (!failed) assert_true(fabs(f.tok_s * r.seconds - 10 * (4 + 2 + 10)) < 1e-6);
        assert_true(f.first_ms[0] <= f.first_ms[1] && f.first_ms[1] <= f.first_ms[2] &&
                    f.first_ms[2] <= f.whole_ms[2]);
        load_figures(&r, &(struct load_goal){1e-9, 0}, 4, &f);
        assert_false(f.keeps);
        assert_true(f.good < 1e-9 && f.good_req_s < 1e-9);
        load_free(&r);
    }
}

static void servers_are_told_by_url(void **state) {
    (void)state;
    static const struct {
        const char *url, *host, *port, *path;
    } cases[] = {
        {"http://a:1", "a", "1", ""},    {"http://a.b/x/", "a.b", "80", "/x"},
        {"a:80/v1", "a", "80", ""},      {"http://[::1]:7/v1/", "::1", "7", ""},
        {"https://a", NULL, NULL, NULL}, {"http://:80", NULL, NULL, NULL},
        {"", NULL, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct load_target t;
        const enum infer_status st = load_target_read(&t, cases[i].url);
        assert_int_equal(st, cases[i].host ? INFER_OK : INFER_E_INPUT);
        if (st) continue;
        assert_string_equal(t.host, cases[i].host);
        assert_string_equal(t.port, cases[i].port);
        assert_string_equal(t.path, cases[i].path);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(answers_come_in_pieces),
                                       cmocka_unit_test(a_run_adds_up),
                                       cmocka_unit_test(servers_are_told_by_url)};
    return cmocka_run_group_tests(tests, open_server, NULL);
}
