# Tests: one executable a file, cmocka, run by ctest. libcmocka.so is copied beside them (rpath $ORIGIN), so that a
# build folder runs on a machine without Debian's packages.
find_library(LIB_CMOCKA NAMES cmocka REQUIRED)
set(TEST_DIR ${CMAKE_BINARY_DIR}/tests)
file(MAKE_DIRECTORY ${TEST_DIR})
get_filename_component(CMOCKA_REAL ${LIB_CMOCKA} REALPATH)
file(COPY_FILE ${CMOCKA_REAL} ${TEST_DIR}/libcmocka.so.0 ONLY_IF_DIFFERENT)

# infer_test(name [source ...]): tests/<name>.c and further sources; the first argument of the program is tests/.
function(infer_test name)
    add_executable(${name} tests/${name}.c ${ARGN})
    target_link_libraries(${name} PRIVATE infer_engine ${LIB_CMOCKA})
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${TEST_DIR} BUILD_WITH_INSTALL_RPATH ON
                          INSTALL_RPATH "$ORIGIN")
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT 900
                         ENVIRONMENT "INFER_TESTS=${CMAKE_SOURCE_DIR}/tests;INFER_BIN=$<TARGET_FILE_DIR:${name}>/..")
    set_property(TEST ${name} PROPERTY SKIP_RETURN_CODE 77)
endfunction()

infer_test(test_base)
infer_test(test_gguf)
infer_test(test_safetensors)
infer_test(test_quant)
infer_test(test_sample)
infer_test(test_tok)
infer_test(test_tokenize)
infer_test(test_forward)
infer_test(test_chat)
infer_test(test_quantize tools/mix.c tools/synth_file.c tools/quantize_file.c)
target_compile_options(test_quantize PRIVATE ${OpenMP_C_FLAGS})
infer_test(test_tools tools/term.c tools/answer.c tools/bench_result.c)
target_compile_definitions(test_tools PRIVATE _GNU_SOURCE)
add_test(NAME cli COMMAND ${CMAKE_SOURCE_DIR}/tests/cli.sh $<TARGET_FILE:infer> ${CMAKE_SOURCE_DIR}/tests)
set_tests_properties(cli PROPERTIES TIMEOUT 900)
infer_test(test_ops)
infer_test(test_cuda tools/mix.c tools/synth_file.c)
target_compile_options(test_cuda PRIVATE ${OpenMP_C_FLAGS})
infer_test(test_grammar)
