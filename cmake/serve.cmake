# cmake/serve.cmake - godwit serve: apps/serve/ with libevent, and the page inside the program.
if(NOT LIBEVENT_FOUND)
  message(STATUS "libevent is not here: built without godwit serve (libevent-dev has it)")
  return()
endif()
file(GLOB SERVE_SOURCES CONFIGURE_DEPENDS apps/serve/*.c apps/serve/*.S)
target_sources(godwit PRIVATE ${SERVE_SOURCES})
target_link_libraries(godwit PRIVATE PkgConfig::LIBEVENT $<$<BOOL:${WIN32}>:ws2_32>)
set_source_files_properties(apps/serve_none.c PROPERTIES COMPILE_DEFINITIONS GODWIT_SERVE)

# The page, one file, as it is and compressed.
set(PAGE ${CMAKE_BINARY_DIR}/generated/page.html)
set(PAGE_TAG ${CMAKE_BINARY_DIR}/generated/page_tag.h)
set(PAGE_PARTS apps/serve/page.html apps/serve/page.css apps/serve/page.js)
add_custom_command(OUTPUT ${PAGE_TAG} ${PAGE} ${PAGE}.gz
  COMMAND ${CMAKE_COMMAND} -DFROM=${CMAKE_SOURCE_DIR}/apps/serve -DPAGE=${PAGE} -DOUT=${PAGE_TAG}
          -P ${CMAKE_SOURCE_DIR}/cmake/page.cmake
  COMMAND gzip -9nkf ${PAGE}
  DEPENDS ${PAGE_PARTS} cmake/page.cmake VERBATIM)
target_sources(godwit PRIVATE ${PAGE_TAG})
set_source_files_properties(apps/serve/page_data.S PROPERTIES COMPILE_DEFINITIONS
  "PAGE=\"${PAGE}\";PAGE_GZIP=\"${PAGE}.gz\"" OBJECT_DEPENDS "${PAGE};${PAGE}.gz")
