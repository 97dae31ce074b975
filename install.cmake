# cmake --install: the program with its manual page and completions, and the library: infer.h, infer_request.h, a pkg-config file, and libinfer.a, which
# is one object whose only global names begin with infer_, so that nothing in it meets a name of the program that links it. scripts/package makes
# packages of this tree.
include(GNUInstallDirs)
if(NOT CMAKE_OBJCOPY)
    message(FATAL_ERROR "objcopy is missing (binutils)")
endif()

set(library ${CMAKE_BINARY_DIR}/install/libinfer.a)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/install)
add_custom_command(OUTPUT ${library}
    COMMAND ${CMAKE_C_COMPILER} -r -nostdlib -o install/infer.o
            -Wl,--whole-archive $<TARGET_FILE:infer_engine> -Wl,--no-whole-archive
    COMMAND ${CMAKE_OBJCOPY} --wildcard --keep-global-symbol=infer_* --localize-symbol=infer_bug_at install/infer.o
    COMMAND ${CMAKE_COMMAND} -E rm -f ${library}
    COMMAND ${CMAKE_AR} rcs ${library} install/infer.o
    DEPENDS infer_engine WORKING_DIRECTORY ${CMAKE_BINARY_DIR} VERBATIM)
add_custom_command(OUTPUT install/infer.1 COMMAND infer help --man > install/infer.1
    DEPENDS infer WORKING_DIRECTORY ${CMAKE_BINARY_DIR} VERBATIM)
set(shell_bash ${CMAKE_INSTALL_DATADIR}/bash-completion/completions/infer)
set(shell_zsh ${CMAKE_INSTALL_DATADIR}/zsh/site-functions/_infer)
set(shell_fish ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d/infer.fish)
foreach(shell bash zsh fish)
    add_custom_command(OUTPUT install/infer.${shell} COMMAND infer help --completion ${shell} > install/infer.${shell}
        DEPENDS infer WORKING_DIRECTORY ${CMAKE_BINARY_DIR} VERBATIM)
    get_filename_component(dir ${shell_${shell}} DIRECTORY)
    get_filename_component(name ${shell_${shell}} NAME)
    install(FILES ${CMAKE_BINARY_DIR}/install/infer.${shell} DESTINATION ${dir} RENAME ${name})
endforeach()
add_custom_target(installed_files ALL DEPENDS ${library} install/infer.1 install/infer.bash install/infer.zsh install/infer.fish)

# The libraries that the engine is linked with: those with a pkg-config file of their own by name, the others as flags. The prefix
# is where the file lies, so a moved tree still works.
string(REGEX REPLACE "[^;]*libgomp\\.a" "-lgomp" PC_LIBS "${LIB_GOMP}")
string(REPLACE ";" " " PC_LIBS " ${PC_LIBS}")
if(nvcc)
    get_filename_component(cudart_dir ${LIB_CUDART} DIRECTORY)
    string(APPEND PC_LIBS " -L${cudart_dir} -lcudart_static -lrt")
endif()
string(APPEND PC_LIBS " -lpthread -ldl -lm")
file(RELATIVE_PATH PC_UP /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(infer.pc.in install/infer.pc @ONLY)

# Examples: the program at the top of infer.h, and that of docs/requests.md
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS docs/requests.md engine/infer.h)
file(READ engine/infer.h text)
string(REGEX REPLACE ".*\n \\*     (// answer MODEL.* \\*     }\n) \\*\n \\* Build it.*" "\\1" text "${text}")
string(REGEX REPLACE "\n \\*(     )?" "\n" text "${text}")
file(CONFIGURE OUTPUT install/answer.c CONTENT "${text}" @ONLY)
file(READ docs/requests.md text)
string(REGEX REPLACE ".*\n```c\n(.*)\n```.*" "\\1\n" text "${text}")
file(CONFIGURE OUTPUT install/two_requests.c CONTENT "${text}" @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/install/answer.c ${CMAKE_BINARY_DIR}/install/two_requests.c DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples)

install(TARGETS infer RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES ${library} DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES engine/infer.h engine/infer_options.def engine/infer_status.h engine/infer_draw.h engine/infer_group.h engine/infer_profile.h engine/infer_request.h engine/infer_sample.h engine/infer_sample.def
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${CMAKE_BINARY_DIR}/install/infer.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${CMAKE_BINARY_DIR}/install/infer.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES serve/http/dist/infer.socket DESTINATION lib/systemd/system)
install(FILES serve/http/dist/infer.sysusers DESTINATION lib/sysusers.d RENAME infer.conf)
install(FILES serve/http/dist/infer.tmpfiles DESTINATION lib/tmpfiles.d RENAME infer.conf)
# The unit names the program where it is installed, which is known when that happens.
install(CODE "
    get_filename_component(prefix \"\${CMAKE_INSTALL_PREFIX}\" ABSOLUTE)
    set(INFER_PROGRAM \"\${prefix}/${CMAKE_INSTALL_BINDIR}/infer\")
    configure_file(\"${CMAKE_SOURCE_DIR}/serve/http/dist/infer.service.in\" \"${CMAKE_BINARY_DIR}/install/infer.service\" @ONLY)
    file(INSTALL \"${CMAKE_BINARY_DIR}/install/infer.service\" DESTINATION \"\${CMAKE_INSTALL_PREFIX}/lib/systemd/system\")")
install(FILES serve/http/dist/config.ini serve/http/dist/nginx.conf serve/http/dist/haproxy.cfg serve/http/dist/grafana.json serve/http/dist/kubernetes/infer.yaml
              serve/http/dist/kubernetes/metrics.yaml serve/http/dist/kubernetes/leaderworkerset.yaml
        DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples)
install(FILES LICENSE NOTICE DESTINATION ${CMAKE_INSTALL_DOCDIR})
