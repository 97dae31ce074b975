/* libmicrohttpd, opened at run time: only `infer serve` needs it. */
#pragma once
#include <microhttpd.h>
#include "base/status.h"

/* clang-format off */
#define MHD_FUNCTIONS(F) F(start_daemon) F(stop_daemon) F(create_response_from_buffer) \
    F(create_response_from_callback) F(add_response_header) F(queue_response) F(destroy_response) \
    F(suspend_connection) F(resume_connection) F(get_connection_info) F(get_connection_values) \
    F(lookup_connection_value) F(get_reason_phrase_for) F(get_version)
/* clang-format on */

struct mhd {
#define MHD_MEMBER(name) __typeof__(MHD_##name) *name;
    MHD_FUNCTIONS(MHD_MEMBER)
#undef MHD_MEMBER
    ssize_t (*gnutls_record_send)(void *session, const void *data, size_t n); /* NULL: it has no TLS */
};
extern struct mhd mhd;
/* Fills mhd, once. errors: INFER_E_UNSUPPORTED (not installed: names the package; a function is missing) */
enum infer_status mhd_open(void);
