// What streams carry: an operation is issued by the host at one time (its place in the order, what
// it is ordered after, the memory it touches are known then) and done by a worker at a later one.
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
  VectorClock clock;  // what has happened when it is done
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
  // Runs on a worker, when all that comes before is done. False: not done yet; somebody will call
  // Machine::Complete(item), after which a worker calls Finish.
  virtual bool Start(const ItemRef& item) = 0;
  virtual void Finish() {}
};

// What the maker of a task learns and says while the operation is issued.
struct Issue {
  int device = 0;
  ItemRef item;
  std::vector<PointRef> after;  // more to wait for, without being ordered after it
};

// An operation as the host describes it; copies of it live in graphs, and each launch makes a task.
struct Work {
  const char* name = "";
  std::vector<Access> accesses;
  // Called with the machine's lock held. Null: nothing to do but to wait.
  std::function<std::unique_ptr<Task>(Issue&)> make;
  const void* comm = nullptr;  // of NCCL's operations
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

// Nothing to do but to wait.
inline Work WaitWork(const char* name) { return {.name = name, .accesses = {}, .make = nullptr}; }

inline Work SimpleWork(const char* name, std::vector<Access> accesses, std::function<void()> run) {
  return {.name = name, .accesses = std::move(accesses), .make = [run = std::move(run)](Issue&) {
            return std::make_unique<FunctionTask>(run);
          }};
}

}  // namespace meshift::fake

#endif  // MESHIFT_TESTING_FAKE_GPU_WORK_H_
