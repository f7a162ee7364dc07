# Installs libraries, public headers, the command, and the files of find_package and pkg-config. All
# paths are relative to the prefix.
include(CMakePackageConfigHelpers)

set(config ${CMAKE_INSTALL_LIBDIR}/cmake/meshift)
set(MESHIFT_STAND_IN_FOLDER ${CMAKE_INSTALL_LIBDIR}/meshift)
install(TARGETS ${MESHIFT_TARGETS} EXPORT meshift_targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS ${MESHIFT_STAND_IN_TARGETS} LIBRARY DESTINATION ${MESHIFT_STAND_IN_FOLDER})
install(DIRECTORY include/meshift DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(MESHIFT_COMMAND)
  install(TARGETS meshift_command EXPORT meshift_targets RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(EXPORT meshift_targets NAMESPACE meshift:: DESTINATION ${config})

configure_package_config_file(cmake/meshiftConfig.cmake.in meshiftConfig.cmake INSTALL_DESTINATION ${config} PATH_VARS MESHIFT_STAND_IN_FOLDER)
write_basic_package_version_file(meshiftConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/meshiftConfig.cmake ${PROJECT_BINARY_DIR}/meshiftConfigVersion.cmake DESTINATION ${config})

# The path from lib/pkgconfig to the prefix, so that the installed tree may be moved.
file(RELATIVE_PATH MESHIFT_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/meshift.pc.in meshift.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/meshift.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(MESHIFT_HAS_MPI)
  configure_file(cmake/meshift_mpi.pc.in meshift_mpi.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/meshift_mpi.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()
