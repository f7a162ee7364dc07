// The interface for tests to the stand-in for the CUDA driver and NCCL: violations, counts, faults.
// The engine under test loads the stand-in as it would load the real libraries; a test then finds
// it in the process:
//
//   const FakeReport* fake = meshift::FindFakeReport();   // null: the libraries are the real ones
//   fake->reset();
//   fake->hot_begin(/*whole_process=*/0);
//   ... second and later calls ...
//   fake->hot_end(0);
//   EXPECT_EQ(meshift::FakeViolations(*fake), "");
//   EXPECT_EQ(fake->call_count("ncclCommSplit"), 12);
//
// A violation is a broken rule of CUDA's or NCCL's documentation, as one line of text. All
// functions are thread-safe. README.md beside this file lists the rules, the environment variables
// and the limits of the model.
#ifndef MESHIFT_TESTING_FAKE_GPU_FAKE_REPORT_H_
#define MESHIFT_TESTING_FAKE_GPU_FAKE_REPORT_H_

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

extern "C" {

// Handles (CUstream, ncclComm_t) are passed as void*.
struct FakeReport {
  // Forgets violations, counts, the log, marks, loans and faults. Keeps memory, streams and
  // communicators. Call it while nothing runs.
  void (*reset)();
  // Seeds all randomness from now on; the default seed is MESHIFT_FAKE_SEED.
  void (*set_seed)(uint64_t seed);

  int64_t (*violation_count)();
  // Copies at most size - 1 bytes of a line and a zero; returns the line's length, or -1 if the
  // line does not exist.
  int64_t (*violation)(int64_t index, char* text, size_t size);

  // The number of calls of a function since the last reset, by its documented name ("cuMemAlloc",
  // not "cuMemAlloc_v2"); of all functions if the name is null.
  int64_t (*call_count)(const char* function);
  // The last calls (at most 65,536), oldest first, each as "<number> <thread> <function>
  // <details>". Leaves out frequent ones: those about contexts, events, and states of captures and
  // communicators.
  int64_t (*log_size)();
  int64_t (*log_line)(int64_t index, char* text, size_t size);

  // Between begin and end the calling thread (or every thread) must not synchronize, allocate, free
  // or create communicators. Marks nest.
  void (*hot_begin)(int whole_process);
  void (*hot_end)(int whole_process);

  // A lent communicator must not be finalized, destroyed or aborted, and split only with
  // permission. A lent stream must not be synchronized, queried or destroyed.
  void (*lend_comm)(void* comm, int may_split);
  void (*lend_stream)(void* stream);
  void (*take_back)(void* comm_or_stream);

  // The nth call (1 is the next) of a function returns `result` and does nothing else.
  void (*fail)(const char* function, int64_t nth, int result);
  // Work of a device starts no earlier than `milliseconds` from now.
  void (*delay_device)(int device, int64_t milliseconds);
  // Stops a device for good, as if its process had been killed: its work never starts, and the
  // other ranks of its communicators get ncclRemoteError from ncclCommGetAsyncError.
  void (*kill_device)(int device);
  // Calls in progress on communicators of the device stay in progress until an abort or
  // revive_device, as if a peer did not answer.
  void (*hold_device)(int device);
  void (*revive_device)(int device);
  // After `collectives` more operations of a communicator have ended in this process, its
  // asynchronous error becomes `result`, and later operations never end.
  void (*async_error)(void* comm, int64_t collectives, int result);

  // Records a violation for every communicator, stream, event, graph and allocation that still
  // exists, and for an open group of the calling thread; returns their number. Lent objects do not
  // count.
  int64_t (*record_leaks)();
  // Bytes of device memory allocated now, and operations issued to streams but not done.
  int64_t (*allocated_bytes)();
  int64_t (*unfinished_operations)();

  // The number of channels of a communicator, by its configuration and the environment in which it
  // was made; -1: unknown communicator.
  int64_t (*channels)(void* comm);
};

// The only exported symbol of libfake_cuda.so for tests.
const FakeReport* fake_report();

}  // extern "C"

namespace meshift {

// The stand-in that the process has loaded from MESHIFT_CUDA_LIBRARY; null if there is none.
inline const FakeReport* FindFakeReport() {
  const char* path = std::getenv("MESHIFT_CUDA_LIBRARY");
  void* library = path == nullptr ? nullptr : dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  auto* find = reinterpret_cast<decltype(&fake_report)>(dlsym(library, "fake_report"));
  return find == nullptr ? nullptr : find();
}

// All violations, one per line; empty if there are none.
inline std::string FakeViolations(const FakeReport& fake) {
  std::string all;
  char line[1024];
  for (int64_t i = 0; fake.violation(i, line, sizeof(line)) >= 0; ++i) {
    all += line;
    all += '\n';
  }
  return all;
}

}  // namespace meshift

#endif  // MESHIFT_TESTING_FAKE_GPU_FAKE_REPORT_H_
