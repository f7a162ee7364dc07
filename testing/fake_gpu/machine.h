// The stand-in for the driver in one process: memory, contexts and streams, the workers that run
// the streams, and the record. The C API in cuda_*.cc is a thin layer over it; the stand-in for
// NCCL uses it through core.h.
//
//   Machine& machine = Machine::Get();
//   MutexLock lock(machine.mutex);
//   machine.Submit(stream, SimpleWork("memset", {{address, 64, true}}, run));
//   machine.Await(lock, stream->tail, device);
#ifndef MESHIFT_TESTING_FAKE_GPU_MACHINE_H_
#define MESHIFT_TESTING_FAKE_GPU_MACHINE_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "testing/fake_gpu/core.h"
#include "testing/fake_gpu/device_memory.h"
#include "testing/fake_gpu/options.h"
#include "testing/fake_gpu/random.h"
#include "testing/fake_gpu/recorder.h"
#include "testing/fake_gpu/stream.h"
#include "testing/fake_gpu/work.h"

namespace meshift::fake {

struct DeviceState {
  Context primary;
  bool killed = false;
  bool held = false;  // see fake_report.h
  std::chrono::steady_clock::time_point not_before;
};

class Machine {
 public:
  // Made at first use and never destroyed, since its threads may run until the process ends.
  static Machine& Get();

  const Options options;
  Recorder recorder;
  std::atomic<bool> initialised = false;

  Mutex mutex;  // guards all members below
  Random random;
  DeviceMemory memory;
  std::vector<std::unique_ptr<DeviceState>> devices;
  std::unordered_set<Context*> contexts;
  std::unordered_set<Stream*> streams;  // live ones, and destroyed ones that may have work
  std::unordered_set<Event*> events;
  std::unordered_set<const void*> dead_handles;  // of streams and events that are gone
  std::unordered_set<Graph*> graphs;
  std::unordered_set<GraphExec*> execs;
  std::vector<CaptureRef> captures;  // in progress
  std::map<void*, bool> lent_comms;  // value: whether it may be split
  NcclHooks nccl;

  // --- access_check.cc: checks of accesses.

  // Whether all accesses lie in live allocations that `device` may access; records a violation for
  // the first that does not.
  bool CheckAccesses(const char* name, const std::vector<Access>& accesses, int device);

  // --- issue.cc: the host submits work to streams. All need the lock.

  Stream* NewStream(Context* context, unsigned flags);
  // Destroys `stream`. If the host knows that all its work is done, a later stream may take over
  // its number and count, because everything issued from now on comes after it. Otherwise clocks
  // would grow with every stream.
  void Retire(Stream* stream);
  // Queues an operation, or adds it to the graph while the stream is captured. False: a capture
  // does not allow it (and is now invalid).
  bool Submit(Stream* stream, const Work& work);
  // Submits one operation to several streams: after all earlier work and before all later work of
  // each.
  bool SubmitJoined(const std::vector<Stream*>& streams, const Work& work);
  // Queues an operation even if the stream is captured. `check` false: does not look for races.
  PointRef Enqueue(Stream* stream, const Work& work, const std::vector<PointRef>& after = {});
  // The host knows that `point` is done: work that it issues later is ordered after it.
  void HostSaw(const PointRef& point);
  bool HostKnowsDone(const PointRef& point) const;

  // --- capture.cc

  // Invalidates `capture` if it is still valid, and records the reason as a violation.
  void Invalidate(const CaptureRef& capture, const std::string& reason);
  bool CaptureWork(const std::vector<Stream*>& streams, const Work& work);
  // Launches a graph on `stream`.
  PointRef LaunchGraph(GraphExec* exec, Stream* stream);

  // --- scheduler.cc

  // Blocks until the point is done; false: it never will, because the device is dead.
  bool Await(MutexLock& lock, const PointRef& point, int device);
  // Waits for all work of a device (-1: of all devices).
  bool AwaitDevice(MutexLock& lock, int device);
  // Marks an item as done whose task was pending. Takes the lock.
  void Complete(const ItemRef& item);
  // Marks an item as done without (further) effect. Needs the lock.
  void Cancel(const ItemRef& item);
  // Calls `run` on a worker after `delay`, without the lock. Needs the lock.
  void Later(std::chrono::microseconds delay, std::function<void()> run);
  void SetKilled(int device, bool killed);
  int64_t Unfinished();

  static uint64_t ThreadId();

 private:
  using Time = std::chrono::steady_clock::time_point;

  struct Pick {
    ItemRef item;
    bool finish = false;
    std::function<void()> timer;
  };

  Machine();
  void Worker();
  Pick Choose(Time now, Time* wake_up);
  void MarkDone(Item& item);

  VectorClock host_clock_;
  uint32_t next_stream_ = 1;
  size_t sweep_at_ = 256;  // number of streams for the next sweep
  std::vector<std::pair<uint32_t, uint64_t>>
      retired_;  // stream numbers to reuse, with their counts
  int workers_started_ = 0;
  std::vector<Stream*> active_;  // streams with items
  std::multimap<Time, std::function<void()>> timers_;
  std::condition_variable work_;
  std::vector<std::condition_variable*> waiters_;
};

}  // namespace meshift::fake

#endif  // MESHIFT_TESTING_FAKE_GPU_MACHINE_H_
