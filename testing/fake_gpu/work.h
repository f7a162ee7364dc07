// The work of streams. The host issues an operation at one time, which fixes its place in the
// order, its dependencies and its memory accesses; a worker runs it later.
#ifndef MESHIFT_TESTING_FAKE_GPU_WORK_H_
#define MESHIFT_TESTING_FAKE_GPU_WORK_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "testing/fake_gpu/vector_clock.h"

namespace meshift::fake {

// The end of an operation. Guarded by the machine's lock.
struct Point {
  bool done = false;
  VectorClock clock;  // the operations that are done when it is done
  std::chrono::steady_clock::time_point when;
  std::unique_ptr<std::condition_variable> changed;  // made by the first host thread that waits
};
using PointRef = std::shared_ptr<Point>;

// A range of device (or pinned host) memory that an operation touches.
struct Access {
  uint64_t address = 0;
  uint64_t bytes = 0;
  bool write = false;
};

struct Item;
using ItemRef = std::shared_ptr<Item>;

// One execution of an operation.
class Task {
 public:
  virtual ~Task() = default;
  // Runs on a worker when all earlier work is done. False: not done yet; some thread will call
  // Machine::Complete(item), and then a worker calls Finish.
  virtual bool Start(const ItemRef& item) = 0;
  virtual void Finish() {}
};

// Passed to the maker of a task while the operation is issued.
struct Issue {
  int device = 0;
  ItemRef item;
  std::vector<PointRef> after;  // other points to wait for, which do not count as an order
};

// An operation as the host describes it. Graphs keep copies, and each launch makes a task.
struct Work {
  const char* name = "";
  std::vector<Access> accesses;
  // Called with the machine's lock held. Null: the operation only waits.
  std::function<std::unique_ptr<Task>(Issue&)> make;
  const void* comm = nullptr;  // the communicator, for NCCL's operations
};

struct Stream;

struct Item {
  enum class State { kQueued, kRunning, kPending, kReady, kDone };

  const char* name = "";
  Stream* stream = nullptr;
  State state = State::kQueued;
  bool cancelled = false;
  bool completed = false;  // Machine::Complete was called
  bool timed = false;      // whether not_before is set
  std::chrono::steady_clock::time_point not_before;
  std::unique_ptr<Task> task;
  std::vector<PointRef> after;
  PointRef done;
};

// A task that is one function.
class FunctionTask : public Task {
 public:
  explicit FunctionTask(std::function<void()> run) : run_(std::move(run)) {}
  bool Start(const ItemRef& item) override {
    static_cast<void>(item);
    run_();
    return true;
  }

 private:
  std::function<void()> run_;
};

// An operation that only waits.
inline Work WaitWork(const char* name) { return {.name = name, .accesses = {}, .make = nullptr}; }

inline Work SimpleWork(const char* name, std::vector<Access> accesses, std::function<void()> run) {
  return {.name = name, .accesses = std::move(accesses), .make = [run = std::move(run)](Issue&) {
            return std::make_unique<FunctionTask>(run);
          }};
}

}  // namespace meshift::fake

#endif  // MESHIFT_TESTING_FAKE_GPU_WORK_H_
