// The streams of a redistributor: one for each communicator and one for programs without any. Each
// has the redistributor's own workspace for programs that begin on it. Internal.
//
//   MESHIFT_ASSIGN_OR_RETURN(Lane * lane, lanes.Of(communicator));
//   MESHIFT_ASSIGN_OR_RETURN(void* workspace, lane->Reserve(bytes));
//   MESHIFT_RETURN_IF_ERROR(lane->BeginUse());
//   ... work that begins on lane->stream() and ends on another stream, `end` ...
//   MESHIFT_ASSIGN_OR_RETURN(int64_t use, lane->EndUse(end));
//
// Work that uses a lane's workspace waits for the work before it that does, on its stream; no host
// ever does. For one thread at a time, but NoteDone().
#ifndef MESHIFT_COMM_EXECUTOR_LANES_H_
#define MESHIFT_COMM_EXECUTOR_LANES_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/attributes.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "meshift/communicator.h"
#include "meshift/engine.h"
#include "meshift/status.h"

namespace meshift::run_internal {

class Lane {
 public:
  static absl::StatusOr<std::unique_ptr<Lane>> Create(Engine* engine);

  Stream& stream() { return *stream_; }
  // The workspace; of at least `bytes` bytes, null for none. Grows where it is smaller; what it
  // outgrows stays as long as work may use it.
  absl::StatusOr<void*> Reserve(int64_t bytes) {
    if (bytes <= bytes_) return bytes == 0 ? nullptr : data_;
    MESHIFT_RETURN_IF_ERROR(Grow(bytes));
    return data_;
  }
  // Work on this stream from here on may use the workspace.
  ABSL_ATTRIBUTE_HOT absl::Status BeginUse();
  // The work of this use is done once all work on `end` so far is. The number of the use, for
  // NoteDone.
  ABSL_ATTRIBUTE_HOT absl::StatusOr<int64_t> EndUse(Stream& end);
  // Somebody has seen the work of use number `use`, and so of all before it, done. From any thread.
  void NoteDone(int64_t use);
  // The work of use number `use`, and since, may run again at any time: its workspace stays.
  void KeepUse(int64_t use);
  // Waits for all work on the stream; the workspace stays.
  void EndStream() { stream_ = nullptr; }

 private:
  explicit Lane(Engine* engine) : engine_(engine) {}
  absl::Status Grow(int64_t bytes);

  Engine* const engine_;
  // Of workspace_, which is not to be asked in each call.
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  std::unique_ptr<Stream> stream_;
  int64_t uses_ = 0;
  bool is_kept_ = false;  // the workspace is some graph's too
  // Whether the last use ended on another stream: when it reached `ended_`.
  bool ended_elsewhere_ = false;
  std::unique_ptr<Buffer> workspace_;
  std::vector<std::unique_ptr<Buffer>> kept_;  // outgrown workspaces of graphs
  std::shared_ptr<Event> ended_;
  std::atomic<int64_t> done_ = 0;  // uses up to this number are
  std::atomic<bool> has_outgrown_ = false;
  Mutex mutex_;
  // Workspaces, and the last use of each.
  std::vector<std::pair<int64_t, std::unique_ptr<Buffer>>> outgrown_ MESHIFT_GUARDED_BY(mutex_);
};

class Lanes {
 public:
  // `single`: one lane for all.
  Lanes(Engine* engine, bool single) : engine_(engine), single_(single) {}
  ~Lanes();

  // The lane of a communicator, of none where that is null; made when first asked for.
  absl::StatusOr<Lane*> Of(Communicator* communicator);

 private:
  Engine* const engine_;
  const bool single_;
  absl::flat_hash_map<Communicator*, std::unique_ptr<Lane>> lanes_;
};

}  // namespace meshift::run_internal

#endif  // MESHIFT_COMM_EXECUTOR_LANES_H_
