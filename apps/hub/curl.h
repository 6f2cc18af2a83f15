/* apps/hub/curl.h - the part of libcurl that is used, opened at run time: a build needs neither the
 * library nor its headers. Numbers are those of its interface (curl.h, multi.h of 7.60 and later),
 * which does not change within libcurl.so.4. */
#ifndef GW_HUB_CURL_H
#define GW_HUB_CURL_H

enum { /* CURLoption */
       CURL_TIMEOUT = 13,
       CURL_REDIRECTS_FOLLOWED = 52,
       CURL_REDIRECTS_MAX = 68,
       CURL_FAIL_ON_ERROR = 45,
       CURL_LOW_SPEED_LIMIT = 19,
       CURL_LOW_SPEED_TIME = 20,
       CURL_CONNECT_TIMEOUT = 78,
       CURL_BUFFER_SIZE = 98,
       CURL_NO_SIGNAL = 99,
       CURL_PROTOCOLS = 181,
       CURL_REDIR_PROTOCOLS = 182,
       CURL_WRITE_DATA = 10001,
       CURL_URL = 10002,
       CURL_PROXY = 10004,
       CURL_RANGE = 10007,
       CURL_USER_AGENT = 10018,
       CURL_HEADERS = 10023,
       CURL_HEADER_DATA = 10029,
       CURL_PRIVATE = 10103,
       CURL_OPEN_SOCKET_DATA = 10164,
       CURL_WRITE_FUNCTION = 20011,
       CURL_HEADER_FUNCTION = 20079,
       CURL_OPEN_SOCKET_FUNCTION = 20163
};
enum { CURL_INFO_CODE = 0x200002, CURL_INFO_PRIVATE = 0x100015 };
enum { CURL_HTTP = 1, CURL_HTTPS = 2 };
enum { /* CURLcode */
       CURL_NO_HOST = 6,
       CURL_NO_CONNECTION = 7,
       CURL_WRITE_STOPPED = 23,
       CURL_REDIRECT_LOOP = 47,
       CURL_BAD_CERTIFICATE = 60
};

typedef struct curl_message { /* CURLMsg */
    int msg;                  /* 1: done */
    void *easy;
    union {
        void *whatever;
        int result;
    } data;
} curl_message;

typedef struct curl_library {
    int (*global_init)(long flags);
    void *(*easy_init)(void);
    int (*easy_setopt)(void *easy, int option, ...);
    int (*easy_perform)(void *easy);
    int (*easy_getinfo)(void *easy, int info, ...);
    void (*easy_cleanup)(void *easy);
    const char *(*easy_strerror)(int code);
    void *(*slist_append)(void *list, const char *line);
    void (*slist_free_all)(void *list);
    void *(*multi_init)(void);
    int (*multi_add_handle)(void *multi, void *easy);
    int (*multi_remove_handle)(void *multi, void *easy);
    int (*multi_perform)(void *multi, int *running);
    int (*multi_wait)(void *multi, void *extra, unsigned n, int ms, int *ready);
    curl_message *(*multi_info_read)(void *multi, int *left);
    int (*multi_cleanup)(void *multi);
} curl_library;

/* The library, opened once; NULL: it is not here, and the error was said. */
const curl_library *curl_open(void);

#endif
