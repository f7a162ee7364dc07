// The interface of libfake_cuda.so that libfake_nccl.so uses in the same process. Its functions are
// virtual, so that the second library need not link against the first.
//
//   Core& core = FindCore();              // in libfake_nccl.so
//   core.Submit(streams, work);
//
// Functions may be called from any thread, except hooks; not with a lock that the maker of a task
// (Work::make) takes.
#ifndef MESHIFT_TESTING_FAKE_GPU_CORE_H_
#define MESHIFT_TESTING_FAKE_GPU_CORE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "testing/fake_gpu/work.h"

namespace meshift::fake {

// Functions that the report calls in the stand-in for NCCL; empty if that is not loaded.
struct NcclHooks {
  std::function<void(void* comm, int64_t collectives, int result)> async_error;
  std::function<int64_t()> record_leaks;
  std::function<void(int device)> killed;
  std::function<int64_t(void* comm)> channels;
};

struct StreamInfo {
  bool valid = false;
  int device = -1;
  bool capturing = false;
};

class Core {
 public:
  virtual ~Core() = default;

  // Records a call; a result other than 0 must be returned at once. `traits` are CallTrait.
  virtual int Enter(const char* function, uint32_t traits, const std::string& details) = 0;
  virtual void Violation(const std::string& text) = 0;
  virtual void ViolationOnce(const std::string& text) = 0;
  virtual void SetHooks(NcclHooks hooks) = 0;

  virtual uint64_t seed() const = 0;
  virtual uint64_t RandomBelow(uint64_t bound) = 0;
  virtual uint64_t ThreadId() = 0;  // of the caller

  // The device of the calling thread's context; -1: no context.
  virtual int CurrentDevice() = 0;
  // Describes a CUstream; an invalid handle is a violation.
  virtual StreamInfo Look(const char* function, void* stream) = 0;
  // Returns true if a capture forbids unsafe calls, such as the creation of a communicator. The
  // capture then becomes invalid, and a violation is recorded.
  virtual bool ForbiddenByCapture(const char* function) = 0;
  virtual bool IsLent(void* comm, bool* may_split) = 0;

  // The host address of the bytes of a device address.
  virtual char* Bytes(uint64_t address) = 0;
  // Returns false, and records a violation, if an access is outside the allocations.
  virtual bool Check(const char* name, const std::vector<Access>& accesses, int device) = 0;
  virtual bool Allocate(int device, uint64_t bytes, uint64_t* address) = 0;
  virtual bool Free(uint64_t address) = 0;

  // Submits one operation to one or several streams, or as a node of a graph. `deferred`: it is the
  // operation for which Defer has marked the streams.
  virtual bool Submit(const std::vector<void*>& streams, const Work& work, bool deferred) = 0;
  // Until EndDefer, other work on the streams is a violation.
  virtual void Defer(const std::vector<void*>& streams) = 0;
  virtual void EndDefer(const std::vector<void*>& streams) = 0;
  virtual void Complete(const ItemRef& item) = 0;
  virtual void Cancel(const ItemRef& item) = 0;
  virtual bool HostKnowsDone(const PointRef& point) = 0;
  virtual bool IsHeld(int device) = 0;
  // Whether no stream of the device has work left, or the device will never run it.
  virtual bool IsIdle(int device) = 0;
  // Whether a graph that is not destroyed contains operations of a communicator.
  virtual bool InGraph(const void* comm) = 0;
  virtual void Later(std::chrono::microseconds delay, std::function<void()> run) = 0;
};

}  // namespace meshift::fake

// Exported by libfake_cuda.so.
extern "C" meshift::fake::Core* meshift_fake_core(void);

#endif  // MESHIFT_TESTING_FAKE_GPU_CORE_H_
