#include "serve/http/mhd.h"
#include <dlfcn.h>

struct mhd mhd;

enum infer_status mhd_open(void) {
    static const struct {
        const char *name;
        void *to;
    } functions[] = {
#define MHD_ROW(name) {"MHD_" #name, &mhd.name},
        MHD_FUNCTIONS(MHD_ROW)
#undef MHD_ROW
    };
    if (mhd.get_version) return INFER_OK;
    void *library = dlopen("libmicrohttpd.so.12", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return err_set(INFER_E_UNSUPPORTED,
                       "libmicrohttpd is not installed: apt-get install libmicrohttpd12 (%s)", dlerror());
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *f = dlsym(library, functions[i].name);
        if (!f)
            return err_set(INFER_E_UNSUPPORTED, "libmicrohttpd has no %s: 0.9.72 or newer is needed",
                           functions[i].name);
        *(void **)functions[i].to = f;
    }
    *(void **)&mhd.gnutls_record_send = dlsym(library, "gnutls_record_send"); /* of a library that it needs */
    return INFER_OK;
}
