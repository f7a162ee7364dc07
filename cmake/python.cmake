# The binaries in the Python package: the library, the command, and the shared libraries that both
# need, except those of the C and C++ compiler. (Debian's static Abseil is not position-independent,
# so it cannot be linked into the library.)
set_property(TARGET meshift PROPERTY VERSION)
set_property(TARGET meshift PROPERTY SOVERSION)
set_property(TARGET meshift PROPERTY INSTALL_RPATH "$ORIGIN")
set_property(TARGET meshift_command PROPERTY INSTALL_RPATH "$ORIGIN/..")
foreach(target meshift meshift_command)
  # DT_RPATH, which also applies to indirect dependencies.
  target_link_options(${target} PRIVATE -Wl,--disable-new-dtags -Wl,--gc-sections)
endforeach()
# Optimise the command for size; the work is done in the library.
foreach(target meshift_command_core meshift_checks_core)
  target_compile_options(${target} PRIVATE -Os)
endforeach()

install(TARGETS meshift LIBRARY DESTINATION meshift)
install(TARGETS meshift_command RUNTIME DESTINATION meshift/bin)
install(CODE [[
  file(GET_RUNTIME_DEPENDENCIES LIBRARIES $<TARGET_FILE:meshift> EXECUTABLES $<TARGET_FILE:meshift_command> RESOLVED_DEPENDENCIES_VAR libraries
    PRE_EXCLUDE_REGEXES "^(ld-linux.*|lib(c|m|dl|rt|pthread|gcc_s|stdc\\+\\+|meshift))\\.so")
  foreach(library ${libraries})
    get_filename_component(name ${library} NAME)
    file(REAL_PATH ${library} file)
    file(COPY_FILE ${file} ${CMAKE_INSTALL_PREFIX}/meshift/${name})
    message(STATUS "Installing: ${name}, which is ${file}")
    # The licences of these libraries, from Debian.
    get_filename_component(name ${file} NAME)
    execute_process(COMMAND dpkg-query --search */${name} OUTPUT_VARIABLE owner ERROR_QUIET RESULT_VARIABLE failed)
    string(REGEX REPLACE "[:,].*" "" package "${owner}")
    if(NOT failed EQUAL 0 OR NOT EXISTS /usr/share/doc/${package}/copyright)
      message(WARNING "the licence of ${file} is not known, and not in the package")
    else()
      configure_file(/usr/share/doc/${package}/copyright ${CMAKE_INSTALL_PREFIX}/meshift/licenses/${package} COPYONLY)
    endif()
  endforeach()
]])
