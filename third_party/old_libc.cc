// For static binaries on machines with an older C library than this one's: libstdc++ takes random
// numbers for std::random_device from arc4random, which came with glibc 2.36.
#include <sys/random.h>

#include <cstdint>

extern "C" uint32_t arc4random() {
  uint32_t bits = 0;
  while (getrandom(&bits, sizeof(bits), 0) != sizeof(bits)) {
  }
  return bits;
}
