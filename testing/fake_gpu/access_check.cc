// Checks that the memory of an operation's accesses is allocated, whole and reachable.
#include <fmt/format.h>

#include "testing/fake_gpu/machine.h"

namespace meshift::fake {

bool Machine::CheckAccesses(const char* name, const std::vector<Access>& accesses, int device) {
  for (const Access& access : accesses) {
    if (access.bytes == 0) continue;
    const Allocation* allocation = memory.Find(access.address);
    const char* does = access.write ? "writes" : "reads";
    if (allocation == nullptr || access.address == allocation->base + allocation->bytes) {
      recorder.Violation(fmt::format("{} {} {} bytes at {:#x}, which is not memory of a device",
                                     name, does, access.bytes, access.address));
      return false;
    }
    if (allocation->freed) {
      recorder.Violation(
          fmt::format("{} {} {:#x}, which is freed memory", name, does, access.address));
      return false;
    }
    if (access.bytes > allocation->base + allocation->bytes - access.address) {
      recorder.Violation(fmt::format("{} {} {} bytes at byte {} of an allocation of {} bytes", name,
                                     does, access.bytes, access.address - allocation->base,
                                     allocation->bytes));
      return false;
    }
    if (allocation->kind != MemoryKind::kHost && allocation->device != device) {
      recorder.Violation(fmt::format("{} on device {} {} memory of device {} without peer access",
                                     name, device, does, allocation->device));
      return false;
    }
  }
  return true;
}

}  // namespace meshift::fake
