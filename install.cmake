# cmake --install: the program with its manual page and completion, and the library: infer.h, infer_request.h, a pkg-config file, and libinfer.a, which
# is one object whose only global names begin with infer_, so that nothing in it meets a name of the program that links it.
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
add_custom_command(OUTPUT install/infer.bash COMMAND infer help --bash > install/infer.bash
    DEPENDS infer WORKING_DIRECTORY ${CMAKE_BINARY_DIR} VERBATIM)
add_custom_target(installed_files ALL DEPENDS ${library} install/infer.1 install/infer.bash)

# The libraries that the engine is linked with: those with a pkg-config file of their own by name, the others as flags. The prefix
# is where the file lies, so a moved tree still works.
set(PC_LIBS "")
if(LIB_GOMP MATCHES "libgomp\\.a$")
    string(APPEND PC_LIBS " -lgomp")
else()
    string(REPLACE ";" " " gomp "${LIB_GOMP}")
    string(APPEND PC_LIBS " ${gomp}")
endif()
if(nvcc)
    get_filename_component(cudart_dir ${LIB_CUDART} DIRECTORY)
    string(APPEND PC_LIBS " -L${cudart_dir} -lcudart_static -lrt")
endif()
string(APPEND PC_LIBS " -lpthread -ldl -lm")
file(RELATIVE_PATH PC_UP /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(infer.pc.in install/infer.pc @ONLY)

install(TARGETS infer RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES ${library} DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES engine/infer.h engine/infer_options.def engine/infer_status.h engine/infer_draw.h engine/infer_group.h engine/infer_request.h engine/infer_sample.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${CMAKE_BINARY_DIR}/install/infer.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${CMAKE_BINARY_DIR}/install/infer.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${CMAKE_BINARY_DIR}/install/infer.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME infer)
install(FILES serve/http/dist/infer.socket DESTINATION lib/systemd/system)
# The unit names the program where it is installed, which is known when that happens; packages of cpack are for /usr.
install(CODE "
    get_filename_component(prefix \"\${CMAKE_INSTALL_PREFIX}\" ABSOLUTE)
    if(prefix MATCHES \"/_CPack_Packages/\")
        set(prefix /usr)
    endif()
    set(INFER_PROGRAM \"\${prefix}/${CMAKE_INSTALL_BINDIR}/infer\")
    configure_file(\"${CMAKE_SOURCE_DIR}/serve/http/dist/infer.service.in\" \"${CMAKE_BINARY_DIR}/install/infer.service\" @ONLY)
    file(INSTALL \"${CMAKE_BINARY_DIR}/install/infer.service\" DESTINATION \"\${CMAKE_INSTALL_PREFIX}/lib/systemd/system\")")
install(FILES serve/http/dist/nginx.conf serve/http/dist/haproxy.cfg serve/http/dist/grafana.json serve/http/dist/kubernetes/infer.yaml
              serve/http/dist/kubernetes/metrics.yaml serve/http/dist/kubernetes/leaderworkerset.yaml
        DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples)
install(FILES LICENSE NOTICE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# cpack: a tar file and a Debian package of the same tree
set(CPACK_GENERATOR TGZ DEB)
set(CPACK_PACKAGE_CONTACT "the authors of infer")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "runs large language models from one file")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS libmicrohttpd12)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libjansson-dev, libpcre2-dev, libutf8proc-dev, libjpeg-dev, libpng-dev, libwebp-dev, pkg-config")
set(CPACK_STRIP_FILES ON)
include(CPack)
