// The streams on which a redistributor runs programs: one for each communicator, and one for
// programs without any; or a single one for all. Each has a workspace for the programs that begin
// on it.
//
//   MESHIFT_ASSIGN_OR_RETURN(GroupStream * group_stream, streams.Of(communicator));
//   MESHIFT_ASSIGN_OR_RETURN(void* workspace, group_stream->Reserve(bytes));
//   MESHIFT_RETURN_IF_ERROR(group_stream->BeginUse());
//   ... work that begins on group_stream->stream() and ends on another stream, `end` ...
//   MESHIFT_ASSIGN_OR_RETURN(int64_t use, group_stream->EndUse(end));
//
// Work that uses a workspace waits, on its stream, for earlier work that uses the same one. The
// calling thread waits for work in the destructors and in EndStream(), and else only where the
// engine does when it allocates or frees memory. Errors are the engine's. Not thread-safe, except
// NoteDone(). Internal to the redistributor.
#ifndef MESHIFT_COMM_EXECUTOR_GROUP_STREAMS_H_
#define MESHIFT_COMM_EXECUTOR_GROUP_STREAMS_H_

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

class GroupStream {
 public:
  static absl::StatusOr<std::unique_ptr<GroupStream>> Create(Engine* engine);

  Stream& stream() { return *stream_; }
  // Returns the workspace, of at least `bytes` bytes; null for 0 bytes. Allocates a larger one if
  // necessary, and keeps the old one until NoteDone() says that its last use is done.
  absl::StatusOr<void*> Reserve(int64_t bytes) {
    if (bytes <= bytes_) return bytes == 0 ? nullptr : data_;
    MESHIFT_RETURN_IF_ERROR(Grow(bytes));
    return data_;
  }
  // Later work on this stream may use the workspace: it waits for the last use.
  ABSL_ATTRIBUTE_HOT absl::Status BeginUse();
  // Ends a use, whose work is done once all work now on `end` is. Returns the number of the use,
  // for NoteDone.
  ABSL_ATTRIBUTE_HOT absl::StatusOr<int64_t> EndUse(Stream& end);
  // The work of use number `use`, and so of all earlier ones, is done. From any thread.
  void NoteDone(int64_t use);
  // The work of use number `use` and of later ones was captured in a graph and may run again at any
  // time, so its workspaces are kept.
  void KeepUse(int64_t use);
  // Destroys the stream, which waits for all its work. The workspace stays.
  void EndStream() { stream_ = nullptr; }

 private:
  explicit GroupStream(Engine* engine) : engine_(engine) {}
  absl::Status Grow(int64_t bytes);

  Engine* const engine_;
  // Address and size of workspace_, stored here to save virtual calls.
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  std::unique_ptr<Stream> stream_;
  int64_t uses_ = 0;
  bool is_kept_ = false;  // a graph uses the workspace
  // Whether the last use ended on another stream; `ended_` is then recorded there.
  bool ended_elsewhere_ = false;
  std::unique_ptr<Buffer> workspace_;
  std::vector<std::unique_ptr<Buffer>> kept_;  // outgrown workspaces of graphs
  std::shared_ptr<Event> ended_;
  std::atomic<int64_t> done_ = 0;  // uses up to this number are done
  std::atomic<bool> has_outgrown_ = false;
  Mutex mutex_;
  // Replaced workspaces, each with the number of its last use.
  std::vector<std::pair<int64_t, std::unique_ptr<Buffer>>> outgrown_ MESHIFT_GUARDED_BY(mutex_);
};

class GroupStreams {
 public:
  // `single`: one GroupStream for all communicators.
  GroupStreams(Engine* engine, bool single) : engine_(engine), single_(single) {}
  ~GroupStreams();

  // The stream of a communicator, or of programs without one (null). Made on the first request.
  absl::StatusOr<GroupStream*> Of(Communicator* communicator);

 private:
  Engine* const engine_;
  const bool single_;
  absl::flat_hash_map<Communicator*, std::unique_ptr<GroupStream>> group_streams_;
};

}  // namespace meshift::run_internal

#endif  // MESHIFT_COMM_EXECUTOR_GROUP_STREAMS_H_
