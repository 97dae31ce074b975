# The CUDA backend: objects made by nvcc, linked by the C compiler with the static runtime; no libstdc++.
# INFER_CUDA=AUTO builds it when an nvcc of 12.8 or newer (the first with sm_120) is found, ON insists, OFF skips.
set(INFER_CUDA_ARCHS "80;89;90a;120f" CACHE STRING "machine code to build: list of sm numbers")
option(INFER_CUDA_PTX "also PTX for compute_80 and compute_90, which later chips compile at first start" ON)

set(INFER_NVCC_FLAGS "" CACHE STRING "further options of nvcc (--compress-mode=none for scripts/cuda-census)")

function(find_nvcc out)
    find_program(INFER_NVCC NAMES nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
    mark_as_advanced(INFER_NVCC)
    set(${out} "" PARENT_SCOPE)
    if(NOT INFER_NVCC)
        return()
    endif()
    execute_process(COMMAND ${INFER_NVCC} --version OUTPUT_VARIABLE text ERROR_QUIET)
    if(text MATCHES "release ([0-9]+)\\.([0-9]+)")
        set(version ${CMAKE_MATCH_1}.${CMAKE_MATCH_2})
        if(version VERSION_LESS 12.8)
            message(STATUS "CUDA: ${INFER_NVCC} is ${version}, 12.8 is needed: passed over")
        else()
            set(${out} ${INFER_NVCC} PARENT_SCOPE)
            set(nvcc_version ${version} PARENT_SCOPE)
        endif()
    endif()
endfunction()

set(nvcc "")
if(NOT INFER_CUDA STREQUAL "OFF")
    find_nvcc(nvcc)
    if(NOT nvcc AND INFER_CUDA STREQUAL "ON")
        message(FATAL_ERROR "INFER_CUDA=ON, but no nvcc of 12.8 or newer was found (set INFER_NVCC or PATH)")
    endif()
endif()

if(nvcc)
    message(STATUS "CUDA: ${nvcc} ${nvcc_version}, sm ${INFER_CUDA_ARCHS}")
    get_filename_component(cuda_home ${nvcc} DIRECTORY)
    get_filename_component(cuda_home ${cuda_home} DIRECTORY)
    find_library(LIB_CUDART NAMES libcudart_static.a HINTS ${cuda_home} PATH_SUFFIXES lib64 lib targets/x86_64-linux/lib
                 NO_DEFAULT_PATH REQUIRED)
    mark_as_advanced(LIB_CUDART)
    set(nvcc_flags -std=c++17 -O3 -lineinfo -I${CMAKE_SOURCE_DIR}/engine -I${CMAKE_SOURCE_DIR}
        -Xcompiler=-fno-exceptions,-fno-rtti,-fno-threadsafe-statics,-Wall,-fPIC)
    list(APPEND nvcc_flags ${INFER_NVCC_FLAGS})
    if(INFER_WERROR)
        list(APPEND nvcc_flags -Werror=all-warnings)
    endif()
    set(images "")
    foreach(arch ${INFER_CUDA_ARCHS})
        if(arch STREQUAL "120f" AND nvcc_version VERSION_LESS 12.9)
            set(arch 120a)
        endif()
        set(front ${arch})
        if(arch STREQUAL "89")
            set(front 80) # nothing in the sources is for sm_89 alone: one run of the front end makes both
        endif()
        list(APPEND nvcc_flags -gencode=arch=compute_${front},code=sm_${arch})
        string(APPEND images " sm_${arch}")
    endforeach()
    if(INFER_CUDA_PTX)
        list(APPEND nvcc_flags -gencode=arch=compute_80,code=compute_80 -gencode=arch=compute_90,code=compute_90)
        string(APPEND images " compute_80 compute_90")
    endif()
    set_property(SOURCE engine/version.c APPEND PROPERTY COMPILE_DEFINITIONS "INFER_CUDA_BUILD=\"${nvcc_version}:${images}\"")
    set(cuda_objects "")
    foreach(source common/cuda_error run/cuda_state run/cuda_device run/warm formats/repack plain/conv plain/plain_ops
            plain/gemv_f32 run/run_list run/upload decode/gemv decode/gemv_a decode/gemv_b decode/gemv_c decode/gemv_d
            decode/skinny decode/skinny_a decode/skinny_b decode/skinny_c decode/skinny_d decode/skinny_e
            decode/skinny_f decode/attend_decode decode/act_rows run/decode_build run/decode_program decode/decode_small run/prompt_program
            run/prompt_gemm prompt/prompt_small prompt/gemm_a prompt/gemm_b prompt/gemm_c prompt/gemm_d prompt/gemm_mx
            plain/dequant_rows bench/cuda_bench bench/bench_attend bench/ceiling run/cuda_backend)
        get_filename_component(name ${source} NAME)
        set(object ${CMAKE_BINARY_DIR}/cuda/${name}.o)
        add_custom_command(OUTPUT ${object}
            COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/cuda
            COMMAND ${nvcc} ${nvcc_flags} -MD -MF ${object}.d -c ${CMAKE_SOURCE_DIR}/cuda/${source}.cu -o ${object}
            DEPENDS ${CMAKE_SOURCE_DIR}/cuda/${source}.cu DEPFILE ${object}.d VERBATIM)
        set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
        list(APPEND cuda_objects ${object})
    endforeach()
    target_sources(infer_engine PRIVATE ${cuda_objects})
    target_compile_definitions(infer_engine PUBLIC INFER_CUDA)
    target_link_libraries(infer_engine PUBLIC ${LIB_CUDART} rt)
endif()
