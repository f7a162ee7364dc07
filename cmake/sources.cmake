# The sources of each library: the files of its folders without tests. `cmake -P
# cmake/sources.cmake` prints them.
set(MESHIFT_GLOB CONFIGURE_DEPENDS)
if(CMAKE_SCRIPT_MODE_FILE)
  set(MESHIFT_GLOB)
  set(PROJECT_SOURCE_DIR ${CMAKE_CURRENT_LIST_DIR}/..)
endif()

function(meshift_glob out)
  set(files)
  foreach(folder ${ARGN})
    file(GLOB found ${MESHIFT_GLOB} RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/${folder}/*.cc)
    list(APPEND files ${found})
  endforeach()
  list(FILTER files EXCLUDE REGEX "_test\\.cc$")
  list(SORT files)
  set(${out} ${files} PARENT_SCOPE)
endfunction()

meshift_glob(MESHIFT_SOURCES base mesh placement
  planner planner/plan planner/graph planner/cost planner/calibration planner/search planner/groups planner/limits planner/intra_mesh
  planner/inter_mesh planner/together planner/verifier
  comm comm/tensor comm/engine comm/record comm/control comm/kernels comm/cuda comm/program comm/executor comm/local comm/nccl
  comm/symmetric comm/redistribution capi)
# Part of the MPI engine's library.
list(REMOVE_ITEM MESHIFT_SOURCES capi/mpi.cc)
# Without a toolkit: a stub of the NCCL engine; the check of environments stays.
set(MESHIFT_CUDA_ABSENT_SOURCES capi/nccl_absent.cc comm/nccl/nccl_start_absent.cc)
list(REMOVE_ITEM MESHIFT_SOURCES ${MESHIFT_CUDA_ABSENT_SOURCES})
set(MESHIFT_CUDA_SOURCES ${MESHIFT_SOURCES})
list(FILTER MESHIFT_CUDA_SOURCES INCLUDE REGEX "^(comm/nccl/|comm/cuda/(driver|kernels)\\.cc$|capi/nccl\\.cc$)")
list(FILTER MESHIFT_CUDA_SOURCES EXCLUDE REGEX "/(environment|environment_check|tuning_list|watchdog)\\.cc$")
list(REMOVE_ITEM MESHIFT_SOURCES ${MESHIFT_CUDA_SOURCES})

meshift_glob(MESHIFT_KERNEL_SOURCES comm/kernels)

meshift_glob(MESHIFT_MPI_SOURCES comm/mpi)
set(MESHIFT_MPI_ABSENT_SOURCES ${MESHIFT_MPI_SOURCES})
list(FILTER MESHIFT_MPI_ABSENT_SOURCES INCLUDE REGEX "_absent\\.cc$")
list(REMOVE_ITEM MESHIFT_MPI_SOURCES ${MESHIFT_MPI_ABSENT_SOURCES})
list(APPEND MESHIFT_MPI_SOURCES capi/mpi.cc)
list(APPEND MESHIFT_MPI_ABSENT_SOURCES capi/mpi.cc comm/mpi/mpi_job.cc)

meshift_glob(MESHIFT_TESTING_SOURCES testing)
list(REMOVE_ITEM MESHIFT_TESTING_SOURCES testing/allocation_count.cc)
# The parts for the command: all without GoogleTest.
set(MESHIFT_CHECK_SOURCES ${MESHIFT_TESTING_SOURCES})
list(REMOVE_ITEM MESHIFT_CHECK_SOURCES testing/matchers.cc testing/reference_engine.cc testing/payload_check.cc)

# The stand-ins: common sources, and the functions of each.
meshift_glob(fake_gpu testing/fake_gpu)
set(MESHIFT_FAKE_CUDA_SOURCES ${fake_gpu})
list(FILTER MESHIFT_FAKE_CUDA_SOURCES INCLUDE REGEX "/(core|cuda_[a-z]*|report)\\.cc$")
set(MESHIFT_FAKE_NCCL_SOURCES ${fake_gpu})
list(FILTER MESHIFT_FAKE_NCCL_SOURCES INCLUDE REGEX "/(client|comm|connect|group|launch|nccl_[a-z]*)\\.cc$")
set(MESHIFT_STAND_IN_SOURCES ${fake_gpu})
list(REMOVE_ITEM MESHIFT_STAND_IN_SOURCES ${MESHIFT_FAKE_CUDA_SOURCES} ${MESHIFT_FAKE_NCCL_SOURCES}
  testing/fake_gpu/break_a_rule.cc testing/fake_gpu/process_worker.cc)

meshift_glob(MESHIFT_COMMAND_SOURCES cli)

if(CMAKE_SCRIPT_MODE_FILE)
  foreach(list SOURCES CUDA_SOURCES CUDA_ABSENT_SOURCES MPI_SOURCES MPI_ABSENT_SOURCES TESTING_SOURCES STAND_IN_SOURCES FAKE_CUDA_SOURCES FAKE_NCCL_SOURCES
      COMMAND_SOURCES)
    foreach(file ${MESHIFT_${list}})
      execute_process(COMMAND ${CMAKE_COMMAND} -E echo "${list} ${file}")
    endforeach()
  endforeach()
endif()
