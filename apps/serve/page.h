/* apps/serve/page.h - the page at /: one file made of page.html, page.css and page.js when the
 * program is built; as it is and compressed. page_tag.h, made with it, has its name (PAGE_TAG) and
 * what a browser may run of it (PAGE_POLICY). */
#ifndef GW_APPS_SERVE_PAGE_H
#define GW_APPS_SERVE_PAGE_H

#include <stddef.h>

const char *page_html(void);
size_t page_html_bytes(void);
const char *page_gzip(void);
size_t page_gzip_bytes(void);

#endif
