/* Errors are values: a status code, and one message set once where the fault is found.
 *
 * A function that can fail returns enum infer_status. The origin calls err_set(), which stores the message
 * for this thread and returns the code; callers pass it up with TRY. Read the message with infer_error()
 * (infer.h). A broken invariant is not an error value: infer_bug() aborts, in release builds too. Read by C
 * and C++. */
#pragma once
#include <stddef.h>
#include "infer_status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sets this thread's message (printf format, cut at 511 bytes; control characters are escaped) and returns
 * code. */
enum infer_status err_set(enum infer_status code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Puts "prefix: " before this thread's message, for a caller that knows the place; returns code. */
enum infer_status err_prefix(enum infer_status code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* This thread's last message, "" if none. */
const char *err_message(void);

/* A broken invariant: prints file, line and the message, then aborts. */
void infer_bug_at(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4), noreturn));
#define infer_bug(...) infer_bug_at(__FILE_NAME__, __LINE__, __VA_ARGS__)

#define TRY(call)                                                                                            \
    do {                                                                                                     \
        enum infer_status try_status_ = (call);                                                              \
        if (try_status_ != INFER_OK) return try_status_;                                                     \
    } while (0)

/* Diagnostics of the library; level 0 progress detail, 1 note, 2 warning. Default: warnings to stderr. */
enum log_level { LOG_DEBUG = 0, LOG_NOTE = 1, LOG_WARN = 2 };
void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
void log_set(void (*callback)(void *user, enum log_level level, const char *line), void *user);

/* Length 1 to 4 of the valid UTF-8 sequence at s[n]; 0 when it is broken or cut, or n is 0. */
size_t text_utf8_len(const char *s, size_t n);
/* How many bytes of s[n], from its beginning, are whole UTF-8 sequences. */
size_t text_valid_utf8(const char *s, size_t n);
/* Copies src to dst as printable text: control bytes and invalid UTF-8 as \xHH. Always ends dst with 0. */
void text_escape(char *dst, size_t dst_size, const char *src, size_t src_len);

#ifdef __cplusplus
}
#endif
