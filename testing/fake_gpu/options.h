// Options from environment variables, read once. README.md lists them.
#ifndef MESHIFT_TESTING_FAKE_GPU_OPTIONS_H_
#define MESHIFT_TESTING_FAKE_GPU_OPTIONS_H_

#include <cstdint>
#include <string>

namespace meshift::fake {

struct Options {
  uint64_t seed = 1;
  int devices = 8;
  int workers = 3;            // threads that run the streams' work
  int64_t delay_us = 60;      // the longest random delay of an operation
  int64_t memory_mib = 4096;  // of each device
  int driver_version = 0;     // 12040 is CUDA 12.4; 0: that of the header at compile time
  std::string log;            // "<log>.<pid>" takes a line for each call; empty: none
  int exit_code = 99;         // for a process that ends with violations; 0: its own
};

Options OptionsFromEnvironment();

// The value of an integer variable; `otherwise` if it is unset or not an integer.
int64_t IntFromEnvironment(const char* name, int64_t otherwise);

}  // namespace meshift::fake

#endif  // MESHIFT_TESTING_FAKE_GPU_OPTIONS_H_
