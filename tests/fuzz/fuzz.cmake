# Fuzz targets (-DINFER_FUZZ=ON, clang): tests/fuzz/fuzz_<x>.c, seeds in tests/fuzz/corpus/<x>/, run by scripts/fuzz.
# They land in build/fuzz/, always with AddressSanitizer and UndefinedBehaviorSanitizer.
function(infer_fuzz name)
    add_executable(fuzz_${name} tests/fuzz/fuzz_${name}.c)
    target_link_libraries(fuzz_${name} PRIVATE infer_engine)
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    set_target_properties(fuzz_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
endfunction()

infer_fuzz(gguf)
infer_fuzz(tok)
infer_fuzz(jinja)
infer_fuzz(tokjson)
infer_fuzz(model)
infer_fuzz(hf)
infer_fuzz(gbnf)
infer_fuzz(schema)
infer_fuzz(snapshot)
