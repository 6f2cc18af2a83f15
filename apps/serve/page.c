/* apps/serve/page.c - where page_data.S has put the page. */
#include "apps/serve/page.h"

extern const char gw_page_html[], gw_page_html_end[], gw_page_gzip[], gw_page_gzip_end[];

const char *page_html(void) { return gw_page_html; }
size_t page_html_bytes(void) { return (size_t)(gw_page_html_end - gw_page_html); }
const char *page_gzip(void) { return gw_page_gzip; }
size_t page_gzip_bytes(void) { return (size_t)(gw_page_gzip_end - gw_page_gzip); }
