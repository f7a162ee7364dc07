// Where memory lives.
//
//   const Device device = {.kind = Device::Kind::kCuda, .index = 1};   // "cuda:1"
#ifndef MESHIFT_COMM_ENGINE_DEVICE_H_
#define MESHIFT_COMM_ENGINE_DEVICE_H_

#include <cstdint>

namespace meshift {

struct Device {
  enum class Kind : uint8_t { kHost, kCuda };
  Kind kind = Kind::kHost;
  int index = 0;  // the device's ordinal; 0 for the host
  friend bool operator==(const Device&, const Device&) = default;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_ENGINE_DEVICE_H_
