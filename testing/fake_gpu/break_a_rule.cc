// Preloaded into a program that runs on the stand-in: breaks one rule before the program begins, so
// that a test can check the program's exit code.
#include <cuda.h>
#include <dlfcn.h>

#include <cstdlib>

namespace {

[[gnu::constructor]] void BreakARule() {
  const char* path = std::getenv("MESHIFT_CUDA_LIBRARY");
  void* driver = path == nullptr ? nullptr : dlopen(path, RTLD_NOW);
  if (driver == nullptr) return;
  const auto init = reinterpret_cast<decltype(&cuInit)>(dlsym(driver, "cuInit"));
  const auto query = reinterpret_cast<decltype(&cuEventQuery)>(dlsym(driver, "cuEventQuery"));
  if (init == nullptr || query == nullptr) return;
  init(0);
  query(reinterpret_cast<CUevent>(driver));  // not an event
}

}  // namespace
