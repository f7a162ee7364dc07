// Defines arc4random for static binaries that run with a C library before glibc 2.36, which added
// it: libstdc++'s std::random_device uses it. It blocks until the kernel has random bits, and never
// returns where the system call getrandom is missing (Linux before 3.17).
#include <sys/random.h>

#include <cstdint>

extern "C" uint32_t arc4random() {
  uint32_t bits = 0;
  while (getrandom(&bits, sizeof(bits), 0) != sizeof(bits)) {
  }
  return bits;
}
