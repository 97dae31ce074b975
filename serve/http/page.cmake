# The page of `infer serve`: its three files and what gzip makes of them, for page.c, which has them in the program.
set(page_from ${CMAKE_SOURCE_DIR}/serve/http/page)
set(page_to ${CMAKE_BINARY_DIR}/made/page)
file(MAKE_DIRECTORY ${page_to})
set(page_scripts)
foreach(name util store colour math markdown stream mcp enclosed view main)
    list(APPEND page_scripts ${page_from}/${name}.js)
endforeach()
set(page_files)
foreach(name index.html style.css app.js)
    if(name STREQUAL app.js)
        set(sources ${page_scripts})
    else()
        set(sources ${page_from}/${name})
    endif()
    add_custom_command(
        OUTPUT ${page_to}/${name} ${page_to}/${name}.gz
        COMMAND cat ${sources} > ${page_to}/${name}
        COMMAND gzip -9nc ${page_to}/${name} > ${page_to}/${name}.gz
        DEPENDS ${sources} VERBATIM)
    list(APPEND page_files ${page_to}/${name} ${page_to}/${name}.gz)
endforeach()
set_source_files_properties(serve/http/page.c PROPERTIES
    OBJECT_DEPENDS "${page_files}"
    COMPILE_DEFINITIONS "INFER_PAGE=\"${page_to}\"")
add_custom_target(page ALL DEPENDS ${page_files})
