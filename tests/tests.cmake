# Tests: one executable for each test_*.c of a room, cmocka, run by ctest; it links infer_tools and takes of it what it asks for.
# libcmocka.so is copied beside them (rpath $ORIGIN), so that a build folder runs on a machine without Debian's packages.
find_library(LIB_CMOCKA NAMES cmocka REQUIRED)
set(TEST_DIR ${CMAKE_BINARY_DIR}/tests)
set(TESTS ${CMAKE_SOURCE_DIR}/tests)
file(MAKE_DIRECTORY ${TEST_DIR})
get_filename_component(CMOCKA_REAL ${LIB_CMOCKA} REALPATH)
file(COPY_FILE ${CMOCKA_REAL} ${TEST_DIR}/libcmocka.so.0 ONLY_IF_DIFFERENT)

file(GLOB SOURCES CONFIGURE_DEPENDS tests/*/test_*.c)
foreach(source ${SOURCES})
    get_filename_component(name ${source} NAME_WE)
    add_executable(${name} ${source})
    target_link_libraries(${name} PRIVATE infer_tools ${LIB_CMOCKA})
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${TEST_DIR} BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN")
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT 900 SKIP_RETURN_CODE 77 ENVIRONMENT "INFER_TESTS=${TESTS};INFER_BIN=${CMAKE_BINARY_DIR}")
endforeach()
target_link_options(test_store PRIVATE -Wl,--wrap=forward_emit) # its models get a convolution
if(INFER_TSAN) # the runtime itself is not watched: what it does with its own memory is no race of ours
    set_property(TEST test_team APPEND PROPERTY ENVIRONMENT "OMP_TOOL_LIBRARIES=${LIB_ARCHER};ARCHER_OPTIONS=verbose=1"
                 "TSAN_OPTIONS=ignore_noninstrumented_modules=1:halt_on_error=1")
    set_tests_properties(test_team PROPERTIES FAIL_REGULAR_EXPRESSION "ThreadSanitizer: data race")
endif()

# the program of docs/requests.md (install.cmake)
add_executable(two_requests ${CMAKE_BINARY_DIR}/install/two_requests.c)
target_link_libraries(two_requests PRIVATE infer_engine)
add_test(NAME two_requests COMMAND two_requests ${TESTS}/golden/chat/chat-llama.gguf)
set_tests_properties(two_requests PROPERTIES PASS_REGULAR_EXPRESSION "hi there!\none two three four")

# infer, and `infer serve` without an engine, as users call them
add_executable(serve_fake tests/serve/serve_fake.c)
target_link_libraries(serve_fake PRIVATE infer_tools)
set_target_properties(serve_fake two_requests PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${TEST_DIR})
foreach(script tools/ask_pdf.py tools/cli.sh tools/completions.py tools/exit_codes.sh tools/config.py tools/hub.py tools/preview.py tools/ranks.py tools/ranks_cards.py tools/ranks_lost.py serve/serve.py serve/serve_adapters.py serve/serve_balancers.py serve/serve_dashboard.py serve/serve_drafts.py serve/serve_embed.py serve/serve_trace.py serve/serve_fields.py serve/serve_models.py
        tools/verify.py tools/monitor.py tools/voice.py serve/serve_kept.py serve/serve_peers.py serve/serve_pictures.py serve/serve_transport.py serve/serve_service.py)
    get_filename_component(name ${script} NAME_WE)
    add_test(NAME ${name} COMMAND ${TESTS}/${script} $<TARGET_FILE:infer> ${TESTS} $<TARGET_FILE:serve_fake>)
    set_tests_properties(${name} PROPERTIES TIMEOUT 900 SKIP_RETURN_CODE 77)
endforeach()
find_program(NODE NAMES node nodejs)
if(NODE) # scripts of the page that need no browser
    foreach(name page_math page_mcp)
        add_test(NAME ${name} COMMAND ${NODE} ${TESTS}/serve/${name}.js ${TESTS})
        set_tests_properties(${name} PROPERTIES TIMEOUT 300)
    endforeach()
endif()
if(NOT INFER_SANITIZE AND NOT INFER_FUZZ) # a program of others is not built with the sanitizers' runtime
    add_test(NAME library COMMAND ${TESTS}/tools/library.sh ${CMAKE_BINARY_DIR} ${TESTS} ${CMAKE_C_COMPILER})
    add_test(NAME package COMMAND ${TESTS}/tools/package.sh ${CMAKE_BINARY_DIR} ${TESTS})
    add_test(NAME python_module COMMAND ${TESTS}/tools/python_module.py ${CMAKE_BINARY_DIR} ${TESTS})
    set_tests_properties(library package python_module PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 77 LABELS slow)
endif()

# the NVML of tools/monitor.py
add_library(fake_nvml SHARED tests/lib/fake_nvml.c)
set_target_properties(fake_nvml PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${TEST_DIR}/fake OUTPUT_NAME nvidia-ml SUFFIX .so.1)

# Labels. slow: more than some seconds of a core; card: says little without a card (skipped or mostly so). `ctest -LE slow`, `ctest -L card`.
# `ninja check`: what scripts/check says of the sources, then all tests but slow ones.
set_property(TEST cli exit_codes hub ranks ranks_lost serve serve_balancers serve_fields serve_models serve_service serve_transport test_barriers test_bits test_fine test_hf_forward test_hf_keys
    test_hybrid test_imatrix test_links test_memory test_moe test_ops test_packed_sides test_quantize test_ranks test_replay test_request test_state
    test_team test_weights APPEND PROPERTY LABELS slow)
# Threads that wait for each other sleep: of test_ops' 72 s beside other work 52 were spent on waiting.
get_property(ALL_TESTS DIRECTORY PROPERTY TESTS)
list(REMOVE_ITEM ALL_TESTS test_team) # which is about threads that wait
set_property(TEST ${ALL_TESTS} APPEND PROPERTY ENVIRONMENT OMP_WAIT_POLICY=passive)
# To read 512 MiB for a bandwidth that no test looks at took most of the time of the tests that start the program.
get_property(ALL_TESTS DIRECTORY PROPERTY TESTS)
set_property(TEST ${ALL_TESTS} APPEND PROPERTY ENVIRONMENT INFER_PROBE_MIB=16)
# Teams whose threads wait for each other: two processors are theirs. Beside another test they took 2 to 5 times as long.
set_tests_properties(test_bits test_hf_forward test_moe test_ops test_ranks test_team PROPERTIES PROCESSORS 2)
# Its ranks are killed, and the others have 10 s to say so; with sanitizers they have 30.
set_tests_properties(ranks_lost PROPERTIES RUN_SERIAL ON)
if(INFER_SANITIZE)
    set_property(TEST ranks_lost serve_models APPEND PROPERTY ENVIRONMENT INFER_SLOW=1)
endif()
set_property(TEST test_cuda test_cuda_adapters test_cuda_attend test_cuda_chosen test_cuda_entries test_cuda_fp8 test_cuda_links test_cuda_plain test_cuda_ranks test_cuda_seen test_cuda_state ranks_cards APPEND PROPERTY LABELS card)
include(ProcessorCount)
ProcessorCount(CORES)
add_custom_target(check COMMAND ${CMAKE_SOURCE_DIR}/scripts/check
                  COMMAND ${CMAKE_CTEST_COMMAND} -LE slow -j ${CORES} --output-on-failure USES_TERMINAL)
get_property(TARGETS DIRECTORY PROPERTY BUILDSYSTEM_TARGETS)
list(FILTER TARGETS INCLUDE REGEX "^(infer|serve_fake|two_requests|test_.*)$")
add_dependencies(check ${TARGETS})
