# Installs libembag, shared and static, its headers, and its files for pkg-config and CMake. No
# installed file contains the prefix, so an installation can be moved.
include(CMakePackageConfigHelpers)

install(TARGETS embag_shared EXPORT embag
  LIBRARY COMPONENT libembag NAMELINK_COMPONENT dev)
install(TARGETS embag_client ARCHIVE COMPONENT dev)
install(FILES embag.h embag_admin.h embag_async.h embag_models.h embag_servers.h embag_types.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev)
install(FILES examples/lookup_example.c examples/submit_example.c examples/group_example.c
  DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples COMPONENT dev)

# The libraries, as pkg-config names them, that a program must link beside the static library.
set(embag_requires "libuv libnghttp2 libprotobuf-c openssl")

cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX
  BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig OUTPUT_VARIABLE prefix_from_pc)
configure_file(libembag.pc.in libembag.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/libembag.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/embag)
configure_package_config_file(embagConfig.cmake.in embagConfig.cmake
  INSTALL_DESTINATION ${package_folder}
  PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
# A program can use only the versions whose ABI it was built with.
set(compatibility SameMajorVersion)
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(compatibility SameMinorVersion)
endif()
write_basic_package_version_file(embagConfigVersion.cmake COMPATIBILITY ${compatibility})
install(
  FILES ${CMAKE_CURRENT_BINARY_DIR}/embagConfig.cmake
    ${CMAKE_CURRENT_BINARY_DIR}/embagConfigVersion.cmake
  DESTINATION ${package_folder} COMPONENT dev)
install(EXPORT embag FILE embagTargets.cmake NAMESPACE embag:: DESTINATION ${package_folder}
  COMPONENT dev)

# libembag_local, which has no static form: it consists of much of the server.
if(TARGET embag_tables)
  install(FILES embag_local.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev)
  install(FILES examples/local_example.c
    DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples COMPONENT dev)
  configure_file(libembag_local.pc.in libembag_local.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/libembag_local.pc
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
endif()
