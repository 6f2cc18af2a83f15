# cmake/python.cmake - what a wheel gets besides python/godwit: the shared library, the declarations
# that cffi loads, and the program. Included by builds of pyproject.toml (GODWIT_PYTHON).
find_package(Python3 REQUIRED COMPONENTS Interpreter)
execute_process(
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/python/make_abi.py ${CMAKE_SOURCE_DIR}/include
          ${CMAKE_BINARY_DIR}/generated/_abi.py
  COMMAND_ERROR_IS_FATAL ANY)
# Installed as they are linked: no debugging information, no paths of the build.
set_property(TARGET godwit_shared PROPERTY BUILD_WITH_INSTALL_RPATH ON)
target_link_options(godwit_shared PRIVATE -s)
install(FILES ${CMAKE_BINARY_DIR}/generated/_abi.py DESTINATION godwit COMPONENT python)
install(FILES $<TARGET_FILE:godwit_shared> DESTINATION godwit RENAME libgodwit.so COMPONENT python)
install(PROGRAMS $<TARGET_FILE:godwit> DESTINATION ${SKBUILD_SCRIPTS_DIR} COMPONENT python)
if(GODWIT_STATIC) # which archives the program was made of: tools/sbom
  target_link_options(godwit PRIVATE -s -Wl,-Map=${CMAKE_BINARY_DIR}/godwit.map)
endif()
