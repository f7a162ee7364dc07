// Implements fake_report.h.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "testing/fake_gpu/cuda_api.h"
#include "testing/fake_gpu/fake_report.h"

namespace meshift::fake {
namespace {

int64_t CopyText(const std::string& from, char* text, size_t size) {
  if (size > 0) {
    const size_t count = std::min(from.size(), size - 1);
    std::memcpy(text, from.data(), count);
    text[count] = '\0';
  }
  return static_cast<int64_t>(from.size());
}

void Reset() {
  Machine& machine = TheMachine();
  machine.recorder.Reset();
  MutexLock lock(machine.mutex);
  machine.lent_comms.clear();
  for (Stream* stream : machine.streams) stream->lent = false;
  for (const auto& device : machine.devices) device->not_before = {};
}

void SetSeed(uint64_t seed) {
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  machine.random = Random(seed);
}

int64_t ViolationCount() { return TheMachine().recorder.ViolationCount(); }

int64_t ViolationAt(int64_t index, char* text, size_t size) {
  std::string line;
  return TheMachine().recorder.ViolationAt(index, &line) ? CopyText(line, text, size) : -1;
}

int64_t CallCount(const char* function) { return TheMachine().recorder.CallCount(function); }

int64_t LogSize() { return TheMachine().recorder.LogSize(); }

int64_t LogLine(int64_t index, char* text, size_t size) {
  std::string line;
  return TheMachine().recorder.LogLine(index, &line) ? CopyText(line, text, size) : -1;
}

void HotBegin(int whole_process) { TheMachine().recorder.HotBegin(whole_process != 0); }

void HotEnd(int whole_process) { TheMachine().recorder.HotEnd(whole_process != 0); }

void LendComm(void* comm, int may_split) {
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  machine.lent_comms[comm] = may_split != 0;
}

void LendStream(void* handle) {
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  auto* stream = static_cast<Stream*>(handle);
  if (machine.streams.contains(stream)) stream->lent = true;
}

void TakeBack(void* handle) {
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  machine.lent_comms.erase(handle);
  auto* stream = static_cast<Stream*>(handle);
  if (machine.streams.contains(stream)) stream->lent = false;
}

void Fail(const char* function, int64_t nth, int result) {
  TheMachine().recorder.Fail(function, nth, result);
}

void DelayDevice(int device, int64_t milliseconds) {
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  machine.devices[static_cast<size_t>(device)]->not_before =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
}

void KillDevice(int device) {
  Machine& machine = TheMachine();
  machine.SetKilled(device, true);
  std::function<void(int)> killed;
  {
    MutexLock lock(machine.mutex);
    killed = machine.nccl.killed;
  }
  if (killed) killed(device);
}

void HoldDevice(int device) {
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  machine.devices[static_cast<size_t>(device)]->held = true;
}

void ReviveDevice(int device) {
  Machine& machine = TheMachine();
  machine.SetKilled(device, false);
  MutexLock lock(machine.mutex);
  machine.devices[static_cast<size_t>(device)]->held = false;
}

void AsyncError(void* comm, int64_t collectives, int result) {
  Machine& machine = TheMachine();
  std::function<void(void*, int64_t, int)> set;
  {
    MutexLock lock(machine.mutex);
    set = machine.nccl.async_error;
  }
  if (set) set(comm, collectives, result);
}

int64_t Channels(void* comm) {
  Machine& machine = TheMachine();
  std::function<int64_t(void*)> channels;
  {
    MutexLock lock(machine.mutex);
    channels = machine.nccl.channels;
  }
  return channels ? channels(comm) : -1;
}

int64_t RecordLeaks() {
  Machine& machine = TheMachine();
  std::function<int64_t()> nccl;
  int64_t count = 0;
  {
    MutexLock lock(machine.mutex);
    nccl = machine.nccl.record_leaks;
    const auto leak = [&](const std::string& text) {
      machine.recorder.Violation("leak: " + text);
      ++count;
    };
    for (const Stream* stream : machine.streams) {
      const bool callers = !stream->internal && !stream->legacy;
      if (callers && !stream->destroyed && !stream->lent) {
        leak(fmt::format("stream {} of device {}", stream->id, stream->context->device));
      }
    }
    for (const Event* event : machine.events) {
      leak(fmt::format("an event of device {}", event->context->device));
    }
    for (const Graph* graph : machine.graphs) {
      if (!graph->destroyed) leak("a graph");
    }
    for (const GraphExec* exec : machine.execs) {
      if (!exec->destroyed) leak("an executable graph");
    }
    for (const auto& device : machine.devices) {
      if (device->primary.retained > 0) {
        leak(fmt::format("the primary context of device {}, retained {} times",
                         device->primary.device, device->primary.retained));
      }
    }
    machine.memory.ForEach([&](const Allocation& allocation) {
      if (allocation.freed) return;
      leak(fmt::format("{} bytes at {:#x} of device {}", allocation.bytes, allocation.base,
                       allocation.device));
    });
  }
  return count + (nccl ? nccl() : 0);
}

int64_t AllocatedBytes() {
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  int64_t bytes = 0;
  for (int device = 0; device < machine.options.devices; ++device) {
    bytes += static_cast<int64_t>(machine.memory.used(device));
  }
  return bytes;
}

int64_t UnfinishedOperations() { return TheMachine().Unfinished(); }

// Runs last, after all exit handlers of the process. If ranks are processes, no other code can ask
// for their violations.
[[gnu::destructor]] void FailWhereRulesWereBroken() {
  const Machine& machine = TheMachine();
  if (machine.options.exit_code == 0 || machine.recorder.ViolationCount() == 0) return;
  std::fflush(nullptr);
  std::fprintf(stderr, "libfake_cuda.so: process %d ends with broken rules:\n%s",
               static_cast<int>(getpid()), FakeViolations(*fake_report()).c_str());
  std::_Exit(machine.options.exit_code);
}

}  // namespace
}  // namespace meshift::fake

const FakeReport* fake_report(void) {
  using namespace meshift::fake;  // NOLINT: the functions of this file
  static const FakeReport report = {
      .reset = &Reset,
      .set_seed = &SetSeed,
      .violation_count = &ViolationCount,
      .violation = &ViolationAt,
      .call_count = &CallCount,
      .log_size = &LogSize,
      .log_line = &LogLine,
      .hot_begin = &HotBegin,
      .hot_end = &HotEnd,
      .lend_comm = &LendComm,
      .lend_stream = &LendStream,
      .take_back = &TakeBack,
      .fail = &Fail,
      .delay_device = &DelayDevice,
      .kill_device = &KillDevice,
      .hold_device = &HoldDevice,
      .revive_device = &ReviveDevice,
      .async_error = &AsyncError,
      .record_leaks = &RecordLeaks,
      .allocated_bytes = &AllocatedBytes,
      .unfinished_operations = &UnfinishedOperations,
      .channels = &Channels,
  };
  return &report;
}
