# cmake/embed_kernels.cmake - writes OUT: every file of SOURCES as a C string in one table, by its path
# from ROOT. Lines that include project headers are dropped: the host joins the texts itself.
#   cmake -DOUT=opencl_sources.h -DROOT=dir "-DSOURCES=a.h;b.cl" -P embed_kernels.cmake
set(text "/* Generated from kernels_cl and core/tensor. */\nstatic const struct { const char *name, *text; } opencl_sources[] = {\n")
foreach(path ${SOURCES})
  file(RELATIVE_PATH name ${ROOT} ${path})
  file(READ ${path} body)
  string(REGEX REPLACE "#include \"[^\n]*" "" body "${body}")
  string(REPLACE "\\" "\\\\" body "${body}")
  string(REPLACE "\"" "\\\"" body "${body}")
  string(REPLACE "\n" "\\n\"\n     \"" body "${body}")
  string(APPEND text "    {\"${name}\",\n     \"${body}\"},\n")
endforeach()
string(APPEND text "};\n")
file(WRITE ${OUT} "${text}")
