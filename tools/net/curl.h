/* libcurl, opened at run time: only what is named by hf: or fetched from an address needs it. */
#pragma once
#include <curl/curl.h>
#include "base/status.h"

/* (the header has macros of these names that check types) */
#undef curl_easy_setopt
#undef curl_easy_getinfo
/* clang-format off */
#define CURL_FUNCTIONS(F) F(global_init) F(easy_init) F(easy_setopt) F(easy_perform) F(easy_getinfo) F(easy_cleanup) \
    F(easy_strerror) F(slist_append) F(slist_free_all)
/* clang-format on */

struct curl {
#define CURL_MEMBER(name) __typeof__(curl_##name) *name;
    CURL_FUNCTIONS(CURL_MEMBER)
#undef CURL_MEMBER
};
extern struct curl curl;
/* Fills curl, once, before there are threads that use it. errors: INFER_E_UNSUPPORTED (not installed: names the package) */
enum infer_status curl_open(void);
