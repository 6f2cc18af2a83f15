/* apps/default_model.S - the model inside the program: the bytes of GODWIT_DEFAULT_MODEL. */
    .section .rodata
    .balign 64
    .global gw_default_model
    .type gw_default_model, %object
gw_default_model:
    .incbin GODWIT_DEFAULT_MODEL
    .global gw_default_model_end
    .type gw_default_model_end, %object
gw_default_model_end:
    .byte 0
    .size gw_default_model, gw_default_model_end - gw_default_model
    .section .note.GNU-stack, "", %progbits
