#include "serve/http/page.h"
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* name[], name_end[]: the bytes of a file of the build folder */
#define EMBED(name, path)                                                                                    \
    __asm__(".section .rodata\n.global " #name "\n.global " #name "_end\n" #name ":\n.incbin \"" path        \
            "\"\n" #name "_end:\n.byte 0\n.previous\n");                                                     \
    extern const unsigned char name[], name##_end[]

EMBED(page_index, INFER_PAGE "/index.html");
EMBED(page_index_gz, INFER_PAGE "/index.html.gz");
EMBED(page_style, INFER_PAGE "/style.css");
EMBED(page_style_gz, INFER_PAGE "/style.css.gz");
EMBED(page_app, INFER_PAGE "/app.js");
EMBED(page_app_gz, INFER_PAGE "/app.js.gz");

/* connect-src: to the server of tools that the user names (mcp.js). Before it asks anybody, the page narrows this by a policy of its own to its
 * server and that one address: the server does not know what is entered, and a policy can only be narrowed. */
const char *const page_headers[][2] = {
    {"Content-Security-Policy",
     "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self' http: https:; img-src 'self' data:; "
     "base-uri 'none'; "
     "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"},
    {"X-Content-Type-Options", "nosniff"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Opener-Policy", "same-origin"},
    {"Cache-Control", "no-cache"}, /* asks each time whether the ETag still holds */
    {NULL, NULL}};

enum { N_FILE = 3 };
static struct page_file files[N_FILE];

static void add(struct page_file *f, const char *path, const char *type, const unsigned char *data,
                const unsigned char *end, const unsigned char *gzip, const unsigned char *gzip_end) {
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    *f = (struct page_file){path, type, data, gzip, (size_t)(end - data), (size_t)(gzip_end - gzip), {0}};
    for (size_t i = 0; i < f->n; i++) hash = (hash ^ data[i]) * 1099511628211u;
    snprintf(f->etag, sizeof f->etag, "\"%016llx\"", (unsigned long long)hash);
}

static void add_files(void) {
    add(&files[0], "/", "text/html; charset=utf-8", page_index, page_index_end, page_index_gz,
        page_index_gz_end);
    add(&files[1], "/style.css", "text/css; charset=utf-8", page_style, page_style_end, page_style_gz,
        page_style_gz_end);
    add(&files[2], "/app.js", "text/javascript; charset=utf-8", page_app, page_app_end, page_app_gz,
        page_app_gz_end);
}

const struct page_file *page_find(const char *path) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, add_files);
    if (strcmp(path, "/index.html") == 0) path = "/";
    for (int i = 0; i < N_FILE; i++)
        if (strcmp(path, files[i].path) == 0) return &files[i];
    return NULL;
}
