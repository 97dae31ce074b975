/* JSON as text, written straight into a buf: no tree is made, so a token of a stream costs little more than its bytes. */
#pragma once
#include "serve/buf.h"

/* Appends what shape says: JSON with names of members bare, texts in 'single quotes' (as they are), and no commas:
 *
 *     json_put(out, "{id:%s object:'list' data:[", id);
 *     for (int i = 0; i < n; i++) json_put(out, "{index:%d}", i);
 *     json_put(out, "]}\n");
 *
 * A comma is set before every name and value that follows a value, which the last byte of out tells: a call may begin and end anywhere
 * but inside a text. Spaces are dropped, \n stays. A value, or (%s:) the name of a member, is
 *
 *     %s             a text, NULL: null              %.*s           int n and the n bytes of a text; NULL: ""
 *     %d %ld         whole numbers                   %zu %llu       the same, without sign
 *     %hhd           a bool                          %g             the shortest number that is read as the same float
 *     %.3f %.9g ..   a double, as printf has it; what is not finite is null here and with %g
 */
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wformat-overflow" /* which says that %s is not to be NULL */
#endif
void json_put(struct buf *out, const char *shape, ...) __attribute__((format(printf, 2, 3)));
/* The two arguments of %.*s for a struct buf. */
#define BUF_TEXT(b) (int)(b).n, (b).p
