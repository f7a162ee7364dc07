# Builds the CUDA kernels as two images in an assembler file, like third_party/cuda/fatbin.bzl,
# which has the reasons.
if(NOT MESHIFT_HAS_CUDA)
  list(APPEND MESHIFT_SOURCES ${MESHIFT_CUDA_ABSENT_SOURCES})
  return()
endif()

list(APPEND MESHIFT_SOURCES ${MESHIFT_CUDA_SOURCES})
set(image ${PROJECT_BINARY_DIR}/kernels)
file(GLOB headers CONFIGURE_DEPENDS comm/cuda/*.h comm/kernels/*.h)
add_custom_command(OUTPUT ${image}.ptx
  COMMAND ${MESHIFT_NVCC} -std=c++20 --expt-relaxed-constexpr -I${PROJECT_SOURCE_DIR} -O3 -Werror=all-warnings --fmad=false
          -ptx -arch=compute_75 ${PROJECT_SOURCE_DIR}/comm/cuda/kernels.cu -o ${image}.toolkit.ptx
  COMMAND sed "s/^\\.version .*/.version 8.4/" ${image}.toolkit.ptx > ${image}.ptx
  DEPENDS comm/cuda/kernels.cu ${headers} VERBATIM)
add_custom_command(OUTPUT ${image}.fatbin
  COMMAND ${MESHIFT_NVCC} --compress-mode=size "-gencode=arch=compute_75,code=[compute_75,sm_80,sm_90,sm_100]" -fatbin ${image}.ptx -o ${image}.fatbin
  DEPENDS ${image}.ptx VERBATIM)
add_custom_command(OUTPUT ${image}_ptx.fatbin
  COMMAND ${MESHIFT_NVCC} -gencode=arch=compute_75,code=compute_75 --compress-mode=speed -fatbin ${image}.ptx -o ${image}_ptx.fatbin
  DEPENDS ${image}.ptx VERBATIM)
set(assembly "    .section .note.GNU-stack, \"\", @progbits\n    .section .rodata\n")
foreach(suffix "" "_ptx")
  set(symbol meshift_cuda_kernels${suffix})
  string(APPEND assembly "    .balign 64\n    .globl ${symbol}\n    .hidden ${symbol}\n    .type ${symbol}, @object\n${symbol}:\n"
    "    .incbin \"${image}${suffix}.fatbin\"\n    .size ${symbol}, . - ${symbol}\n")
endforeach()
file(CONFIGURE OUTPUT ${image}.s CONTENT "${assembly}" @ONLY)
enable_language(ASM)
set_source_files_properties(${image}.s PROPERTIES OBJECT_DEPENDS "${image}.fatbin;${image}_ptx.fatbin" LANGUAGE ASM)
list(APPEND MESHIFT_SOURCES ${image}.s)
