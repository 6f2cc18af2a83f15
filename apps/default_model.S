/* apps/default_model.S - the model inside the program: the bytes of GODWIT_DEFAULT_MODEL. */
#if defined(_WIN32)
    .section .rdata, "dr"
#elif defined(__APPLE__)
    .const
#else
    .section .rodata
#endif
#if defined(__APPLE__) /* names of C have an underscore there */
#define gw_default_model _gw_default_model
#define gw_default_model_end _gw_default_model_end
#endif
    .balign 64
    .global gw_default_model
gw_default_model:
    .incbin GODWIT_DEFAULT_MODEL
    .global gw_default_model_end
gw_default_model_end:
    .byte 0
#if defined(__ELF__)
    .type gw_default_model, %object
    .size gw_default_model, gw_default_model_end - gw_default_model
    .type gw_default_model_end, %object
    .section .note.GNU-stack, "", %progbits
#endif
