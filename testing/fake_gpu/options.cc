#include "testing/fake_gpu/options.h"

#include <algorithm>
#include <cstdlib>

namespace meshift::fake {

int64_t IntFromEnvironment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return otherwise;
  char* end = nullptr;
  const int64_t value = std::strtoll(text, &end, 10);
  return *end == '\0' ? value : otherwise;
}

Options OptionsFromEnvironment() {
  Options options;
  options.seed = static_cast<uint64_t>(IntFromEnvironment("MESHIFT_FAKE_SEED", 1));
  options.devices = static_cast<int>(
      std::clamp<int64_t>(IntFromEnvironment("MESHIFT_FAKE_DEVICES", options.devices), 0, 64));
  options.workers = static_cast<int>(
      std::clamp<int64_t>(IntFromEnvironment("MESHIFT_FAKE_WORKERS", options.workers), 1, 64));
  options.delay_us =
      std::max<int64_t>(IntFromEnvironment("MESHIFT_FAKE_DELAY_US", options.delay_us), 0);
  options.memory_mib = std::clamp<int64_t>(
      IntFromEnvironment("MESHIFT_FAKE_MEMORY_MIB", options.memory_mib), 1, 1 << 20);
  options.driver_version =
      static_cast<int>(IntFromEnvironment("MESHIFT_FAKE_DRIVER_VERSION", options.driver_version));
  options.exit_code = static_cast<int>(
      std::clamp<int64_t>(IntFromEnvironment("MESHIFT_FAKE_EXIT_CODE", options.exit_code), 0, 255));
  if (const char* log = std::getenv("MESHIFT_FAKE_LOG")) options.log = log;
  return options;
}

}  // namespace meshift::fake
