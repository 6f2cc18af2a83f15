/* apps/hub/curl.c - see curl.h. */
#include "apps/hub/curl.h"

#include <stddef.h>
#include <string.h>

#include "apps/terminal.h"
#include "core/base/os.h"

static void *open_any(void) {
#if defined(_WIN32)
    static const char *const names[] = {"libcurl-x64.dll", "libcurl.dll"};
#else
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl.so.4.8.0",
                                        "libcurl.4.dylib"};
#endif
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (library != NULL) {
            return library;
        }
    }
    return NULL;
}

const curl_library *curl_open(void) {
    static curl_library curl;
    static const struct {
        const char *name;
        size_t at;
    } rows[] = {{"curl_global_init", offsetof(curl_library, global_init)},
                {"curl_easy_init", offsetof(curl_library, easy_init)},
                {"curl_easy_setopt", offsetof(curl_library, easy_setopt)},
                {"curl_easy_perform", offsetof(curl_library, easy_perform)},
                {"curl_easy_getinfo", offsetof(curl_library, easy_getinfo)},
                {"curl_easy_cleanup", offsetof(curl_library, easy_cleanup)},
                {"curl_easy_strerror", offsetof(curl_library, easy_strerror)},
                {"curl_slist_append", offsetof(curl_library, slist_append)},
                {"curl_slist_free_all", offsetof(curl_library, slist_free_all)},
                {"curl_multi_init", offsetof(curl_library, multi_init)},
                {"curl_multi_add_handle", offsetof(curl_library, multi_add_handle)},
                {"curl_multi_remove_handle", offsetof(curl_library, multi_remove_handle)},
                {"curl_multi_perform", offsetof(curl_library, multi_perform)},
                {"curl_multi_wait", offsetof(curl_library, multi_wait)},
                {"curl_multi_info_read", offsetof(curl_library, multi_info_read)},
                {"curl_multi_cleanup", offsetof(curl_library, multi_cleanup)}};
    if (curl.global_init != NULL) {
        return &curl;
    }
    void *library = open_any();
    int whole = library != NULL;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && whole; i++) {
        void *symbol = dlsym(library, rows[i].name);
        whole = symbol != NULL;
        memcpy((char *)&curl + rows[i].at, &symbol, sizeof symbol);
    }
    if (!whole || curl.global_init(3) != 0) {
        curl.global_init = NULL;
        app_error("downloads need libcurl (libcurl.so.4), which is not here: install the package "
                  "libcurl4, or fetch the file by other means and name it with -m");
        return NULL;
    }
    return &curl;
}
