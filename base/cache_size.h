// How large the caches of this machine are.
//
//   const int64_t bytes = LastLevelCacheBytes();    // 32 MiB of a core complex, say; 0: not known
#ifndef MESHIFT_BASE_CACHE_SIZE_H_
#define MESHIFT_BASE_CACHE_SIZE_H_

#include <cstdint>
#include <string>

namespace meshift {

// Of the highest level that the first processor has, in bytes; 0 where the system does not say. In
// a virtual machine that is what its host says. Reads some small files of `root`, laid out as
// Linux's Documentation/ABI/testing/sysfs-devices-system-cpu says. Safe for concurrent use.
int64_t LastLevelCacheBytes(const std::string& root = "/sys/devices/system/cpu/cpu0/cache");

}  // namespace meshift

#endif  // MESHIFT_BASE_CACHE_SIZE_H_
