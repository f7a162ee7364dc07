// One rank's end of a communicator of the stand-in for NCCL. Handles (ncclComm_t) point to it. It
// is kept after it is destroyed, so that later use is detected.
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
  int64_t number = 0;  // number among the communicator's symmetric windows, the same on all ranks
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
  Comm* parent = nullptr;  // shares resources with it

  // Guards all members below. May be taken while the machine's lock is held (by makers of tasks),
  // never the other way round.
  Mutex mutex;
  std::condition_variable changed;
  CommState state = CommState::kOpening;
  // The result of ncclCommGetAsyncError. `busy` counts calls that returned ncclInProgress.
  ncclResult_t error = ncclSuccess;
  int busy = 0;
  // No thread has asked for the state since a call returned ncclInProgress; callers must, even if
  // the call is done.
  bool unseen = false;
  uint64_t busy_thread = 0;         // made the last of those calls
  int launching = 0;                // launches that are not on their streams yet
  int opening = 0;                  // children that are being made
  int blocked = 0;                  // threads that a call has blocked
  std::set<std::string> connected;  // rings, trees and pairs that are connected
  // End running operations without effect when the communicator is aborted.
  std::map<uint64_t, std::function<void()>> cancels;
  uint64_t next_cancel = 0;
  std::vector<void*> deferred;  // streams on which new work must wait for those launches
  std::string last_error;
  bool quiet = false;  // destroyed by all ranks: no rank is missing any more
  int sharing_children = 0;
  uint64_t splits = 0;
  int64_t empty_calls = 0;  // collectives without elements, which are dropped
  uint64_t collectives = 0;
  std::map<std::pair<int, int>, uint64_t> messages;  // number of messages from a rank to another
  PointRef last;                                     // the end of the last launch
  std::vector<ItemRef> unfinished;
  std::vector<std::unique_ptr<Window>> windows;
  int64_t error_after = -1;  // operations that end before `error_then`
  ncclResult_t error_then = ncclSuccess;

  std::atomic<int> callers = 0;  // threads inside a call
  std::atomic<int> askers = 0;   // inside ncclCommGetAsyncError
};

// --- comm.cc

Core& TheCore();

Comm* NewComm();
std::vector<Comm*> AllComms();
// The live communicator of a handle, ready for use. Otherwise a result for the caller, and a
// violation if its use breaks a rule.
ncclResult_t FindComm(const char* function, ncclComm_t handle, Comm** comm);
// As FindComm, but the communicator may be opening or working on the last call.
ncclResult_t FindBusyComm(const char* function, ncclComm_t handle, Comm** comm);

// Records a violation if a second thread is inside a call on the communicator.
class CallerScope {
 public:
  CallerScope(const char* function, Comm* comm);
  ~CallerScope();

 private:
  Comm* comm_;
};

// Checks and applies a configuration; null: all defaults, or the parent's configuration.
ncclResult_t Configure(const ncclConfig_t* config, const Comm* parent, Comm* comm);
ncclResult_t Fail(Comm* comm, ncclResult_t result, const std::string& text);
// Text for ncclGetLastError(NULL).
void SetLastError(const std::string& text);
const char* LastError();

// A call of a non-blocking communicator continues after it returned. Each BeginBusy needs one
// EndBusy.
void BeginBusy(Comm* comm);
void EndBusy(Comm* comm);
// The result of a call that makes a communicator or window from a non-blocking communicator and
// continues in the background: ncclSuccess or ncclInProgress. Versions of NCCL differ
// (github.com/NVIDIA/nccl, issue 1472); only the communicator's state tells.
ncclResult_t ResultOfMaking();
// The caller has learnt that the communicator is ready (or no longer needs to know).
void SeenReady(Comm* comm);
// Calls `run` after a random delay.
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

// The calls of one communicator in one group, made into one operation on streams.
struct PreparedLaunch {
  Comm* comm = nullptr;
  std::vector<std::pair<std::string, int>> needs;  // connections and peers (-1: all ranks)
  std::vector<void*> streams;
  Work work;
};
PreparedLaunch Prepare(Comm* comm, std::vector<OpCall> calls, std::vector<void*> streams);
// Puts the launches of a group on their streams, in order. ncclInProgress: in the background.
ncclResult_t Launch(const std::vector<PreparedLaunch>& launches);

// --- connect.cc

// Makes the missing connections of launches, for which the ranks at the other ends must come too.
// Then calls `then`, maybe before this returns. False: a communicator was aborted meanwhile.
void Connect(const std::vector<PreparedLaunch>& launches, const std::function<void(bool)>& then);
// For blocking communicators: waits for connections and for room in the queue of work before
// launches go to their streams. Returns an error if the wait ends with one.
ncclResult_t BlockUntilLaunchable(const std::vector<PreparedLaunch>& launches);

// --- nccl_end.cc

// The time that the stand-in waits where NCCL would wait, before it reports a violation.
constexpr auto kPatience = std::chrono::seconds(20);

void RefuseLent(const char* function, Comm* comm);
// Waits until no graph has operations of the communicator; a violation if that does not happen.
void AwaitGraphs(const char* function, Comm* comm);
// Frees the local resources.
void Close(Comm* comm, CommState state);

// --- nccl_abort.cc

// Ends a group that aborts communicators.
void AwaitAborts(const std::vector<Comm*>& comms);

// --- nccl_window.cc

// Sets the windows and offsets of both buffers of a collective, if both lie in live symmetric
// windows.
void FindWindows(Comm* comm, OpCall* call, uint64_t send_bytes, uint64_t receive_bytes);

// --- group.cc

// The calls of one thread between ncclGroupStart and ncclGroupEnd. A call outside of a group is a
// group of one.
void GroupBegin();
ncclResult_t GroupFinish();
void GroupAdd(Comm* comm, const OpCall& call, void* stream, bool capturing);
// For calls that make a communicator: runs `begin` at the end of the group, then `wait` (for
// blocking ones).
void GroupAddJob(Comm* comm, std::function<ncclResult_t()> begin,
                 std::function<ncclResult_t()> wait);
// `comm` must stop; the end of the group waits for it.
void GroupAddAbort(Comm* comm);
void GroupFail(ncclResult_t result);
bool InGroup();

}  // namespace meshift::fake

#endif  // MESHIFT_TESTING_FAKE_GPU_COMM_H_
