# Debian packages: `cpack -G DEB` in a build folder. embag-server is the server as a service,
# embag-tools the command-line tools, libembag and libembag-dev the C client, libembag-local lookups
# in the calling process. The packages are defined only if all of these are built.
if(NOT TARGET embagd OR NOT TARGET embag_load OR NOT TARGET embag_local)
  return()
endif()
# Manual pages, from --help. Cross-compiled programs cannot run here.
find_program(HELP2MAN help2man)
if(HELP2MAN AND NOT CMAKE_CROSSCOMPILING AND NOT EMBAG_SANITIZE)
  set(man ${PROJECT_BINARY_DIR}/man)
  set(man_service embagd.8)
  set(man_tools embag.1 embag-lookup.1 embag-models.1 embag-publish.1 embag-settings.1 embag-pack.1
    embag-split.1 embag-check.1 embag-manifest.1 embag-resident.1 embag-make-model.1 embag-demo.1
    embag-load.1)
  list(TRANSFORM man_service REPLACE "(.+)" "${man}/\\1.gz")
  list(TRANSFORM man_tools REPLACE "(.+)" "${man}/\\1.gz")
  add_custom_command(
    OUTPUT ${man_service} ${man_tools}
    COMMAND ${PROJECT_SOURCE_DIR}/deploy/man/make.sh ${PROJECT_BINARY_DIR} ${PROJECT_VERSION} ${man}
    DEPENDS embagd embag_cli embag_load deploy/man/make.sh deploy/man/embagd.txt
    VERBATIM)
  add_custom_target(man ALL DEPENDS ${man_service} ${man_tools})
  # OPTIONAL, because a build of single programs does not build the target man.
  install(FILES ${man_service} DESTINATION ${CMAKE_INSTALL_MANDIR}/man8
    COMPONENT server OPTIONAL)
  install(FILES ${man_tools} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1
    COMPONENT tools OPTIONAL)
else()
  message(STATUS "No manual pages: help2man is missing or the programs cannot run here")
endif()

set(EMBAG_MAINTAINER "The authors of embag <embag@example.org>"
  CACHE STRING "Maintainer of the packages, in the form of Debian control files")

# System files. An installation into a prefix does not write them.
set(system EXCLUDE_FROM_ALL COMPONENT system)
install(FILES deploy/systemd/embagd.service deploy/systemd/embagd.socket
  deploy/systemd/var-lib-embag-resident.mount
  DESTINATION /lib/systemd/system ${system})
install(FILES deploy/embagd.yaml DESTINATION /etc/embag ${system})
install(FILES deploy/debian/embagd.default DESTINATION /etc/default RENAME embagd ${system})
install(DIRECTORY DESTINATION /var/lib/embag/models ${system})
install(DIRECTORY DESTINATION /var/lib/embag/resident ${system})

string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC) # SOURCE_DATE_EPOCH, if that is set
configure_file(deploy/debian/changelog.in debian/changelog @ONLY)
execute_process(COMMAND gzip -9nf ${PROJECT_BINARY_DIR}/debian/changelog COMMAND_ERROR_IS_FATAL ANY)
get_target_property(soname embag_shared SOVERSION)
foreach(pair IN ITEMS system:embag-server tools:embag-tools libembag:libembag${soname}
    libembag_local:libembag-local${soname} dev:libembag-dev)
  string(REPLACE ":" ";" pair ${pair})
  list(POP_FRONT pair component package)
  install(FILES deploy/debian/copyright ${PROJECT_BINARY_DIR}/debian/changelog.gz
    DESTINATION /usr/share/doc/${package} COMPONENT ${component} EXCLUDE_FROM_ALL)
endforeach()

set(CPACK_PACKAGE_NAME embag)
set(CPACK_PACKAGE_CONTACT ${EMBAG_MAINTAINER})
# CPACK_SET_DESTDIR is set because of the files in /etc and /var. CPack then uses this prefix.
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_SET_DESTDIR ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL server system tools libembag libembag_local dev)
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_COMPONENT_SERVER_GROUP service)
set(CPACK_COMPONENT_SYSTEM_GROUP service)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_SERVICE_PACKAGE_NAME embag-server)
set(CPACK_DEBIAN_SERVICE_PACKAGE_SECTION net)
set(CPACK_DEBIAN_SERVICE_PACKAGE_DEPENDS passwd)
set(CPACK_DEBIAN_SERVICE_PACKAGE_RECOMMENDS embag-tools)
set(CPACK_DEBIAN_SERVICE_DESCRIPTION "server of embedding tables: lookups of bags over gRPC
Keeps a recommender's embedding tables in memory and answers requests that
name tables and bags of row numbers with one pooled vector for each bag. This
package contains the server and its systemd service, which starts if there is
a model.")
foreach(file IN ITEMS postinst prerm postrm conffiles)
  list(APPEND CPACK_DEBIAN_SERVICE_PACKAGE_CONTROL_EXTRA
    ${PROJECT_SOURCE_DIR}/deploy/debian/server/${file})
endforeach()
set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME embag-tools)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION net)
set(CPACK_DEBIAN_TOOLS_DESCRIPTION "command line and load generator for embag
Looks up rows and lists models on a server of embedding tables, changes the
versions that it serves, makes, packs and checks models, and measures the load
that a server can take.")
set(CPACK_DEBIAN_LIBEMBAG_PACKAGE_NAME libembag${soname})
set(CPACK_DEBIAN_LIBEMBAG_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBEMBAG_PACKAGE_CONTROL_EXTRA
  ${PROJECT_SOURCE_DIR}/deploy/debian/libembag/triggers)
set(CPACK_DEBIAN_LIBEMBAG_DESCRIPTION "C client of embag, a server of embedding tables
Blocking and non-blocking lookups over connections that it keeps open.")
set(CPACK_DEBIAN_LIBEMBAG_LOCAL_PACKAGE_NAME libembag-local${soname})
set(CPACK_DEBIAN_LIBEMBAG_LOCAL_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBEMBAG_LOCAL_PACKAGE_CONTROL_EXTRA
  ${PROJECT_SOURCE_DIR}/deploy/debian/libembag/triggers)
set(CPACK_DEBIAN_LIBEMBAG_LOCAL_DESCRIPTION "lookups in an embag server's tables, in process
Maps the tables that a server on the same machine keeps in resident files, and
looks up in the calling process with the server's own functions.")
set(CPACK_DEBIAN_DEV_PACKAGE_NAME libembag-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "libembag${soname} (= ${PROJECT_VERSION}), \
libembag-local${soname} (= ${PROJECT_VERSION}), libnghttp2-dev, libprotobuf-c-dev, libssl-dev, \
libuv1-dev")
set(CPACK_DEBIAN_DEV_DESCRIPTION "C client of embag: headers and static library
For building programs that call a server of embedding tables; with the
server's messages as .proto files.")
include(CPack)
