// A communicator of the stand-in for NCCL: one rank's end of it. Handles (ncclComm_t) point to one,
// and it stays when it is destroyed, so that later use is noticed.
#ifndef MESHIFT_TESTING_FAKE_GPU_COMM_H_
#define MESHIFT_TESTING_FAKE_GPU_COMM_H_

#include <nccl.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "testing/fake_gpu/client.h"
#include "testing/fake_gpu/core.h"
#include "testing/fake_gpu/message.h"
#include "testing/fake_gpu/tuning.h"

namespace meshift::fake {

enum class CommState { kOpening, kOpen, kFinalized, kDestroyed, kAborted };

// A registration of memory with a communicator; handles (ncclWindow_t) point to one.
struct Window {
  uint64_t address = 0;
  uint64_t bytes = 0;
  int64_t number = 0;      // of the symmetric ones of its communicator, as all ranks count them
  bool symmetric = false;  // registered by all ranks
  bool live = false;
};

struct Comm {
  // Set before others see the communicator, or while it opens.
  LinkRef link;
  uint64_t id = 0;  // at the hub
  int rank = 0;
  int ranks = 1;
  int device = 0;
  bool blocking = true;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  Tuning tuning;           // by the environment
  Comm* parent = nullptr;  // with which it shares resources

  // Guards all below. Taken with the machine's lock held (by makers of tasks), never before it.
  Mutex mutex;
  std::condition_variable changed;
  CommState state = CommState::kOpening;
  // What ncclCommGetAsyncError says. Busy calls count those that returned ncclInProgress.
  ncclResult_t error = ncclSuccess;
  int busy = 0;
  // Nobody has asked since a call returned ncclInProgress whether it is done: callers must, even if
  // it is.
  bool unseen = false;
  uint64_t busy_thread = 0;         // that made the last call of those
  int launching = 0;                // launches that are not on their streams yet
  int opening = 0;                  // children on their way
  int blocked = 0;                  // threads that a call has blocked
  std::set<std::string> connected;  // what is, of rings, trees and pairs
  // What ends, without effect, that which is under way when the communicator is aborted.
  std::map<uint64_t, std::function<void()>> cancels;
  uint64_t next_cancel = 0;
  std::vector<void*> deferred;  // streams on which work must wait for that
  std::string last_error;
  bool quiet = false;  // destroyed by all ranks: nobody is missed any more
  int sharing_children = 0;
  uint64_t splits = 0;
  int64_t empty_calls = 0;  // collectives without elements, which are dropped
  uint64_t collectives = 0;
  std::map<std::pair<int, int>, uint64_t> messages;  // so many from a rank to another
  PointRef last;                                     // the end of the last launch
  std::vector<ItemRef> unfinished;
  std::vector<std::unique_ptr<Window>> windows;
  int64_t error_after = -1;  // so many operations end before `error_then`
  ncclResult_t error_then = ncclSuccess;

  std::atomic<int> callers = 0;  // threads inside a call
  std::atomic<int> askers = 0;   // inside ncclCommGetAsyncError
};

// --- comm.cc

Core& TheCore();

Comm* NewComm();
std::vector<Comm*> AllComms();
// The live communicator of a handle, ready for use; otherwise a result for the caller, and a
// violation where using it is one.
ncclResult_t FindComm(const char* function, ncclComm_t handle, Comm** comm);
// As FindComm, also while it opens or works on the last call.
ncclResult_t FindBusyComm(const char* function, ncclComm_t handle, Comm** comm);

// A violation where a second thread is inside a call on the communicator.
class CallerScope {
 public:
  CallerScope(const char* function, Comm* comm);
  ~CallerScope();

 private:
  Comm* comm_;
};

// Checks and takes over a configuration; null: all defaults, or the parent's.
ncclResult_t Configure(const ncclConfig_t* config, const Comm* parent, Comm* comm);
ncclResult_t Fail(Comm* comm, ncclResult_t result, const std::string& text);
// Text for ncclGetLastError(NULL).
void SetLastError(const std::string& text);
const char* LastError();

// A call of a non-blocking communicator goes on after it returned: one call of EndBusy for each.
void BeginBusy(Comm* comm);
void EndBusy(Comm* comm);
// What a call returns that makes something of a non-blocking communicator, another one or a window,
// and goes on: ncclSuccess or ncclInProgress. Versions of NCCL differ (github.com/NVIDIA/nccl,
// issue 1472); only the communicator's state tells.
ncclResult_t ResultOfMaking();
// The caller has learnt that the communicator is ready (or no longer cares).
void SeenReady(Comm* comm);
// Calls `run` a random while from now.
void LaterAtRandom(std::function<void()> run);
// `cancel` is called if the communicator is aborted before RemoveCancel.
uint64_t AddCancel(Comm* comm, std::function<void()> cancel);
void RemoveCancel(Comm* comm, uint64_t number);

bool HasUnfinished(Comm* comm);
// Ends all launches without effect.
void CancelUnfinished(Comm* comm);

// --- launch.cc

// One call of a collective or of half a message.
struct OpCall {
  const char* name = "";
  OpDescription op;
  int peer = 0;
  uint64_t send = 0;  // addresses
  uint64_t receive = 0;
};

// The calls of one communicator in one group, made into an operation of streams.
struct PreparedLaunch {
  Comm* comm = nullptr;
  std::vector<std::pair<std::string, int>> needs;  // connections, and with whom (-1: all ranks)
  std::vector<void*> streams;
  Work work;
};
PreparedLaunch Prepare(Comm* comm, std::vector<OpCall> calls, std::vector<void*> streams);
// Puts the launches of a group (one or more) on their streams, in order. ncclInProgress: it will.
ncclResult_t Launch(const std::vector<PreparedLaunch>& launches);

// --- connect.cc

// Makes the connections that launches need and that are not there, for which the ranks at their
// other ends must come too; then calls `then`, perhaps before this returns. False: a communicator
// was aborted meanwhile.
void Connect(const std::vector<PreparedLaunch>& launches, const std::function<void(bool)>& then);
// What a call of blocking communicators waits for before its launches go to their streams:
// connections, and room in the queue of work. The error with which it ends instead.
ncclResult_t BlockUntilLaunchable(const std::vector<PreparedLaunch>& launches);

// --- nccl_end.cc

// How long the stand-in waits for what it says NCCL waits for, before it says that it does not
// come.
constexpr auto kPatience = std::chrono::seconds(20);

void RefuseLent(const char* function, Comm* comm);
// Waits until no graph has operations of the communicator; a violation where that does not come.
void AwaitGraphs(const char* function, Comm* comm);
// Frees the local resources.
void Close(Comm* comm, CommState state);

// --- nccl_abort.cc

// The end of a group that aborts communicators.
void AwaitAborts(const std::vector<Comm*>& comms);

// --- nccl_window.cc

// Says where both buffers of a collective lie, if that is in live symmetric windows.
void FindWindows(Comm* comm, OpCall* call, uint64_t send_bytes, uint64_t receive_bytes);

// --- group.cc

// The calls between ncclGroupStart and ncclGroupEnd of one thread. A call outside of a group is a
// group of its own.
void GroupBegin();
ncclResult_t GroupFinish();
void GroupAdd(Comm* comm, const OpCall& call, void* stream, bool capturing);
// Making a communicator: `begin` at the end of the group, then `wait` (for blocking ones).
void GroupAddJob(Comm* comm, std::function<ncclResult_t()> begin,
                 std::function<ncclResult_t()> wait);
// `comm` has been told to stop; the end of the group waits for it.
void GroupAddAbort(Comm* comm);
void GroupFail(ncclResult_t result);
bool InGroup();

}  // namespace meshift::fake

#endif  // MESHIFT_TESTING_FAKE_GPU_COMM_H_
