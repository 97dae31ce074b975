/* The page: a conversation with the model in a browser, three files that are part of the program. */
#pragma once
#include <stddef.h>

struct page_file {
    const char *path; /* "/app.js" */
    const char *type; /* "text/javascript; charset=utf-8" */
    const unsigned char *data, *gzip;
    size_t n, n_gzip;
    char etag[20]; /* of the content, with its quotes */
};
/* "/" and the files that it names; NULL: none of these. The same pointers each time, from any thread. */
const struct page_file *page_find(const char *path);

/* Headers of every answer with a file of the page; {NULL, NULL} ends them. What they forbid: scripts, styles and requests from elsewhere,
 * scripts and styles within the HTML, making elements from text, frames around the page. */
extern const char *const page_headers[][2];
