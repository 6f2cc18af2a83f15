# cmake/library.cmake - libgodwit.so with only the names of include/*.h, what an installation
# gives to programs that use it (header, pkg-config file, CMake package), and the .deb packages.
# With GODWIT_STATIC none of the library, unless for a wheel: static libraries are not made to go into a
# shared one.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# ---- the shared library: the objects of the static one, and a list of what may be seen -----------
set(HEADERS include/godwit.h include/godwit_answer.h include/godwit_beam.h include/godwit_forecast.h
            include/godwit_encoder.h include/godwit_bind.h include/godwit_cards.h include/godwit_families.h
            include/godwit_fill.h
            include/godwit_hosts.h include/godwit_lora.h include/godwit_image.h include/godwit_quantize.h
            include/godwit_see.h include/godwit_sleep.h include/godwit_writer.h)
set(header "")
foreach(name ${HEADERS})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${name})
  file(READ ${name} text)
  string(APPEND header "${text}")
endforeach()
string(REGEX MATCHALL "\n[a-z][^\n(;{}]*[ *]gw_[a-z0-9_]+\\(" declarations "${header}")
set(names "")
list(FILTER declarations EXCLUDE REGEX "static inline") # in every program itself
foreach(declaration ${declarations})
  string(REGEX REPLACE ".*[ *](gw_[a-z0-9_]+)\\($" "\\1" name "${declaration}")
  string(APPEND names "    ${name};\n")
endforeach()
set(EXPORTS ${CMAKE_BINARY_DIR}/generated/libgodwit.map)
file(CONFIGURE OUTPUT ${EXPORTS} CONTENT "{\n  global:\n${names}  local: *;\n};\n")

file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/empty.c CONTENT "typedef int gw_nothing;\n")
if(WIN32) # godwit.dll with all libraries inside, and libgodwit.dll.a to link against it
  string(REPLACE ";" "" definitions "${names}")
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/godwit.def CONTENT "EXPORTS\n${definitions}")
  add_library(godwit_shared SHARED EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/generated/empty.c ${CMAKE_BINARY_DIR}/generated/godwit.def)
  set_target_properties(godwit_shared PROPERTIES OUTPUT_NAME godwit PREFIX "" IMPORT_PREFIX lib)
  target_link_libraries(godwit_shared PRIVATE "$<LINK_LIBRARY:WHOLE_ARCHIVE,godwit_lib>")
elseif(NOT GODWIT_STATIC OR GODWIT_PYTHON)
  add_library(godwit_shared SHARED ${CMAKE_BINARY_DIR}/generated/empty.c)
  set_target_properties(godwit_shared PROPERTIES OUTPUT_NAME godwit EXPORT_NAME godwit
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
    LINK_DEPENDS ${EXPORTS})
  if(NOT GODWIT_STATIC)
    target_link_libraries(godwit_shared PRIVATE "$<LINK_LIBRARY:WHOLE_ARCHIVE,godwit_lib>")
  else() # a portable wheel: its program has the static libraries, its library the shared ones
    set(shared "")
    foreach(module DEPS JPEG PNG WEBP)
      if(TARGET PkgConfig::${module})
        get_target_property(libraries PkgConfig::${module} INTERFACE_LINK_LIBRARIES)
        list(APPEND shared ${libraries})
      endif()
    endforeach()
    list(TRANSFORM shared REPLACE "\\.a$" ".so")
    target_link_libraries(godwit_shared PRIVATE -Wl,--whole-archive $<TARGET_FILE:godwit_lib>
      -Wl,--no-whole-archive -Wl,--as-needed ${shared} m pthread ${CMAKE_DL_LIBS})
    add_dependencies(godwit_shared godwit_lib)
    set_property(TARGET godwit_shared APPEND PROPERTY LINK_DEPENDS $<TARGET_FILE:godwit_lib>)
  endif()
  # Workers of core/base/team.c run its code until the process ends: it is never unloaded.
  target_link_options(godwit_shared PRIVATE "-Wl,--version-script=${EXPORTS}" -Wl,-z,nodelete)
  target_include_directories(godwit_shared INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
    $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>)
endif()

# ---- installing ------------------------------------------------------------------------------------
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME runtime) # what names no component belongs to the program
set(PACKAGE_FOLDER ${CMAKE_INSTALL_LIBDIR}/cmake/godwit)
file(RELATIVE_PATH UP_TO_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/godwit.pc.in ${CMAKE_BINARY_DIR}/generated/godwit.pc @ONLY)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/generated/godwitConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)

if(NOT GODWIT_STATIC)
  install(TARGETS godwit_shared EXPORT godwit
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development)
  install(TARGETS godwit_lib ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
  install(FILES ${HEADERS} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
  install(FILES ${CMAKE_BINARY_DIR}/generated/godwit.pc COMPONENT development
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  install(EXPORT godwit FILE godwitConfig.cmake NAMESPACE godwit:: DESTINATION ${PACKAGE_FOLDER}
    COMPONENT development)
  install(FILES ${CMAKE_BINARY_DIR}/generated/godwitConfigVersion.cmake COMPONENT development
    DESTINATION ${PACKAGE_FOLDER})
endif()

# ---- packages: godwit, libgodwit0, libgodwit-dev ------------------------------------------------------
set(LIBRARY_PACKAGE libgodwit${PROJECT_VERSION_MAJOR})
# Who packages: as Debian's own tools ask.
set(PACKAGER "The godwit authors <godwit@users.noreply.github.com>")
if(DEFINED ENV{DEBFULLNAME} AND DEFINED ENV{DEBEMAIL})
  set(PACKAGER "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
endif()
string(TIMESTAMP DATE "%a, %d %b %Y %H:%M:%S +0000" UTC)
foreach(package godwit ${LIBRARY_PACKAGE} libgodwit-dev)
  set(component runtime)
  if(package STREQUAL LIBRARY_PACKAGE)
    set(component library)
  elseif(package STREQUAL "libgodwit-dev")
    set(component development)
  endif()
  set(papers ${CMAKE_BINARY_DIR}/generated/${package})
  set(PACKAGE_NAME ${package})
  configure_file(cmake/deb/copyright ${papers}/copyright COPYONLY)
  configure_file(cmake/deb/changelog.in ${papers}/changelog.Debian @ONLY)
  execute_process(COMMAND gzip -9nkf ${papers}/changelog.Debian OUTPUT_QUIET ERROR_QUIET)
  install(FILES ${papers}/copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package}
    COMPONENT ${component} EXCLUDE_FROM_ALL)
  install(FILES ${papers}/changelog.Debian.gz DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package}
    COMPONENT ${component} EXCLUDE_FROM_ALL)
endforeach()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME godwit)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "${PACKAGER}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_COMPONENTS_ALL runtime library development)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
if(GODWIT_STATIC) # made for an older C library than this machine's, whose packages say more
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS OFF)
  set(CPACK_DEBIAN_RUNTIME_PACKAGE_DEPENDS "libc6 (>= 2.31)")
endif()
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ
  GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(about "It reads GGUF files and Hugging Face folders as they come and gives the same
text for the same model, prompt and seed on every processor.")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME godwit)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION science)
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "runs transformer language models\n${about}")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME ${LIBRARY_PACKAGE})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
file(WRITE ${CMAKE_BINARY_DIR}/generated/shlibs
  "libgodwit ${PROJECT_VERSION_MAJOR} ${LIBRARY_PACKAGE} (>= ${PROJECT_VERSION})\n")
file(WRITE ${CMAKE_BINARY_DIR}/generated/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA
  "${CMAKE_BINARY_DIR}/generated/shlibs;${CMAKE_BINARY_DIR}/generated/triggers")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_STRICT_PERMISSION TRUE)
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION "transformer language models, shared library\n${about}")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libgodwit-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${LIBRARY_PACKAGE} (= ${PROJECT_VERSION}-1), \
libjansson-dev, libpcre2-dev, libutf8proc-dev, libjpeg62-turbo-dev, libpng-dev, libwebp-dev")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "transformer language models, header and static library\n${about}")
include(CPack)
