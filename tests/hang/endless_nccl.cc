// A host function that never returns.
#include <cuda.h>
#include <unistd.h>

#include "comm/cuda/driver.h"
#include "meshift/nccl_engine.h"
#include "meshift/status.h"
#include "tests/hang/endless_work.h"

namespace meshift {

absl::Status PutEndlessWork(Engine& engine, Stream& stream) {
  MESHIFT_ASSIGN_OR_RETURN(const auto driver, CudaDriver::Load());
  MESHIFT_ASSIGN_OR_RETURN(void* const handle, dynamic_cast<NcclEngine&>(engine).HandleOf(stream));
  const CUhostFn endless = [](void*) {
    for (;;) pause();
  };
  return driver->LaunchHostFunc(static_cast<CUstream>(handle), endless, nullptr);
}

}  // namespace meshift
