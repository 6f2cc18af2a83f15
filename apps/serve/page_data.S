/* apps/serve/page_data.S - the page inside the program, as it is and compressed. */
    .section .rodata
    .global gw_page_html, gw_page_html_end, gw_page_gzip, gw_page_gzip_end
gw_page_html:
    .incbin PAGE
gw_page_html_end:
gw_page_gzip:
    .incbin PAGE_GZIP
gw_page_gzip_end:
    .byte 0
    .section .note.GNU-stack, "", %progbits
