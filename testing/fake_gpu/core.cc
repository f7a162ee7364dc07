#include "testing/fake_gpu/core.h"

#include <algorithm>
#include <utility>

#include "testing/fake_gpu/cuda_api.h"

namespace meshift::fake {
namespace {

class MachineCore : public Core {
 public:
  int Enter(const char* function, uint32_t traits, const std::string& details) override {
    return machine_.recorder.Enter(function, traits, details);
  }
  void Violation(const std::string& text) override { machine_.recorder.Violation(text); }
  void ViolationOnce(const std::string& text) override { machine_.recorder.ViolationOnce(text); }
  void SetHooks(NcclHooks hooks) override {
    MutexLock lock(machine_.mutex);
    machine_.nccl = std::move(hooks);
  }

  uint64_t seed() const override { return machine_.options.seed; }
  uint64_t RandomBelow(uint64_t bound) override {
    MutexLock lock(machine_.mutex);
    return machine_.random.Below(bound);
  }
  uint64_t ThreadId() override { return Machine::ThreadId(); }

  int CurrentDevice() override {
    Context* context = nullptr;
    return CurrentContext(&context) == CUDA_SUCCESS ? context->device : -1;
  }
  StreamInfo Look(const char* function, void* handle) override {
    MutexLock lock(machine_.mutex);
    Stream* stream = nullptr;
    if (FindStream(function, static_cast<CUstream>(handle), &stream) != CUDA_SUCCESS) return {};
    return {
        .valid = true, .device = stream->context->device, .capturing = stream->capture != nullptr};
  }
  bool ForbiddenByCapture(const char* function) override {
    MutexLock lock(machine_.mutex);
    return RefuseInCapture(function) != CUDA_SUCCESS;
  }
  bool IsLent(void* comm, bool* may_split) override {
    MutexLock lock(machine_.mutex);
    const auto it = machine_.lent_comms.find(comm);
    if (it == machine_.lent_comms.end()) return false;
    *may_split = it->second;
    return true;
  }

  char* Bytes(uint64_t address) override { return machine_.memory.Bytes(address); }
  bool Check(const char* name, const std::vector<Access>& accesses, int device) override {
    MutexLock lock(machine_.mutex);
    return machine_.CheckAccesses(name, accesses, device);
  }
  bool Allocate(int device, uint64_t bytes, uint64_t* address) override {
    MutexLock lock(machine_.mutex);
    *address = machine_.memory.Allocate(device, bytes, MemoryKind::kDevice, &machine_.random);
    if (*address != 0) machine_.memory.Find(*address)->lent_to_nccl = true;
    return *address != 0;
  }
  bool Free(uint64_t address) override {
    MutexLock lock(machine_.mutex);
    Allocation* allocation = machine_.memory.Find(address);
    if (allocation == nullptr || allocation->base != address || allocation->freed ||
        !allocation->lent_to_nccl) {
      return false;
    }
    machine_.AwaitDevice(lock, allocation->device);
    machine_.memory.Free(allocation);
    return true;
  }

  bool Submit(const std::vector<void*>& handles, const Work& work, bool deferred) override {
    MutexLock lock(machine_.mutex);
    std::vector<Stream*> streams;
    for (void* handle : handles) {
      Stream* stream = nullptr;
      if (FindStream(work.name, static_cast<CUstream>(handle), &stream) != CUDA_SUCCESS) {
        return false;
      }
      streams.push_back(stream);
    }
    std::vector<int> marks;
    for (Stream* stream : streams) {
      marks.push_back(deferred ? std::exchange(stream->deferred, 0) : stream->deferred);
    }
    const bool submitted = machine_.SubmitJoined(streams, work);
    for (size_t i = 0; i < streams.size(); ++i) streams[i]->deferred = marks[i];
    return submitted;
  }
  void Defer(const std::vector<void*>& handles) override { Mark(handles, 1); }
  void EndDefer(const std::vector<void*>& handles) override { Mark(handles, -1); }
  void Complete(const ItemRef& item) override { machine_.Complete(item); }
  void Cancel(const ItemRef& item) override {
    MutexLock lock(machine_.mutex);
    machine_.Cancel(item);
  }
  bool HostKnowsDone(const PointRef& point) override {
    MutexLock lock(machine_.mutex);
    return machine_.HostKnowsDone(point);
  }
  bool IsHeld(int device) override {
    MutexLock lock(machine_.mutex);
    return machine_.devices[static_cast<size_t>(device)]->held;
  }
  bool IsIdle(int device) override {
    MutexLock lock(machine_.mutex);
    if (machine_.devices[static_cast<size_t>(device)]->killed) return true;
    return std::none_of(machine_.streams.begin(), machine_.streams.end(),
                        [&](const Stream* stream) {
                          return stream->context->device == device && !stream->queue.empty();
                        });
  }
  bool InGraph(const void* comm) override {
    MutexLock lock(machine_.mutex);
    const auto has = [&](const auto* graph) {
      return std::any_of(graph->nodes.begin(), graph->nodes.end(),
                         [&](const Node& node) { return node.work.comm == comm; });
    };
    return std::any_of(machine_.graphs.begin(), machine_.graphs.end(), has) ||
           std::any_of(machine_.execs.begin(), machine_.execs.end(), has);
  }
  void Later(std::chrono::microseconds delay, std::function<void()> run) override {
    MutexLock lock(machine_.mutex);
    machine_.Later(delay, std::move(run));
  }

 private:
  void Mark(const std::vector<void*>& handles, int change) {
    MutexLock lock(machine_.mutex);
    for (void* handle : handles) {
      auto* stream = static_cast<Stream*>(handle);
      if (machine_.streams.contains(stream)) stream->deferred += change;
    }
  }

  Machine& machine_ = TheMachine();
};

}  // namespace
}  // namespace meshift::fake

meshift::fake::Core* meshift_fake_core(void) {
  static meshift::fake::MachineCore& core = *new meshift::fake::MachineCore();
  return &core;
}
