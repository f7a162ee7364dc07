// Reads the size of this machine's last-level cache, in bytes, from Linux's sysfs.
//
//   const int64_t bytes = LastLevelCacheBytes();    // for instance 32 MiB; 0: unknown
#ifndef MESHIFT_BASE_CACHE_SIZE_H_
#define MESHIFT_BASE_CACHE_SIZE_H_

#include <cstdint>
#include <string>

namespace meshift {

// The size in bytes of the first processor's highest-level cache; 0 if the system does not report
// it, or is not Linux. In a virtual machine, the value that its host reports. Reads files below
// `root`, whose layout is documented in Linux's
// Documentation/ABI/testing/sysfs-devices-system-cpu. Safe for concurrent use.
int64_t LastLevelCacheBytes(const std::string& root = "/sys/devices/system/cpu/cpu0/cache");

}  // namespace meshift

#endif  // MESHIFT_BASE_CACHE_SIZE_H_
