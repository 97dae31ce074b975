#include "tools/net/curl.h"
#include <dlfcn.h>

struct curl curl;

enum infer_status curl_open(void) {
    static const struct {
        const char *name;
        void *to;
    } functions[] = {
#define CURL_ROW(name) {"curl_" #name, &curl.name},
        CURL_FUNCTIONS(CURL_ROW)
#undef CURL_ROW
    };
    if (curl.global_init) return INFER_OK;
    void *library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return err_set(INFER_E_UNSUPPORTED, "libcurl is not installed: apt-get install libcurl4 (%s)",
                       dlerror());
    for (size_t i = sizeof functions / sizeof *functions; i-- > 0;) { /* global_init last */
        void *f = dlsym(library, functions[i].name);
        if (!f) return err_set(INFER_E_UNSUPPORTED, "libcurl has no %s", functions[i].name);
        *(void **)functions[i].to = f;
    }
    curl.global_init(CURL_GLOBAL_DEFAULT);
    return INFER_OK;
}
