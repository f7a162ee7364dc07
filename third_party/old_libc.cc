// For static binaries on machines with an older C library: libstdc++'s std::random_device uses
// arc4random, which is new in glibc 2.36.
#include <sys/random.h>

#include <cstdint>

extern "C" uint32_t arc4random() {
  uint32_t bits = 0;
  while (getrandom(&bits, sizeof(bits), 0) != sizeof(bits)) {
  }
  return bits;
}
