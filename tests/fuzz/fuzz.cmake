# Fuzz targets (-DINFER_FUZZ=ON, clang): tests/fuzz/fuzz_<x>.c, seeds in tests/fuzz/corpus/<x>/, run by scripts/fuzz.
# They land in build/fuzz/, always with AddressSanitizer and UndefinedBehaviorSanitizer.
file(GLOB SOURCES CONFIGURE_DEPENDS tests/fuzz/fuzz_*.c)
foreach(source ${SOURCES})
    get_filename_component(name ${source} NAME_WE)
    add_executable(${name} ${source})
    target_link_libraries(${name} PRIVATE infer_tools)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
endforeach()
