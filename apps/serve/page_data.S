/* apps/serve/page_data.S - the page inside the program, as it is and compressed. */
#if defined(_WIN32)
    .section .rdata, "dr"
#elif defined(__APPLE__)
    .const
#define gw_page_html _gw_page_html
#define gw_page_html_end _gw_page_html_end
#define gw_page_gzip _gw_page_gzip
#define gw_page_gzip_end _gw_page_gzip_end
#else
    .section .rodata
#endif
    .global gw_page_html, gw_page_html_end, gw_page_gzip, gw_page_gzip_end
gw_page_html:
    .incbin PAGE
gw_page_html_end:
gw_page_gzip:
    .incbin PAGE_GZIP
gw_page_gzip_end:
    .byte 0
#if defined(__ELF__)
    .section .note.GNU-stack, "", %progbits
#endif
