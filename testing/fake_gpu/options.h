// What the environment says; read once. README.md lists the variables.
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
  int driver_version = 0;     // 12040: as of CUDA 12.4; 0: of the header that it is compiled with
  std::string log;            // "<log>.<pid>" takes a line for each call; empty: none
  int exit_code = 99;         // of a process that ends with violations; 0: its own
};

Options OptionsFromEnvironment();

// An integer variable, or `otherwise` where it is unset or no integer.
int64_t IntFromEnvironment(const char* name, int64_t otherwise);

}  // namespace meshift::fake

#endif  // MESHIFT_TESTING_FAKE_GPU_OPTIONS_H_
