// One rank's access to a place where programs run: memory, streams, local kernels, and the making
// of communicators. `meshift/local_world.h` has the in-process engine.
//
//   MESHIFT_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, engine->CreateStream());
//   MESHIFT_RETURN_IF_ERROR(engine->CopyBoxes(copies, dtype, *stream));      // queued
//   MESHIFT_RETURN_IF_ERROR(engine->Synchronize(*stream));              // done, or its first error
//
// Work on one stream runs in order; work on different streams only in the order that events force.
// An Engine may be used from several threads; a Stream by one at a time.
#ifndef MESHIFT_ENGINE_H_
#define MESHIFT_ENGINE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "meshift/communicator.h"
#include "comm/engine/device.h"
#include "comm/engine/engine_record.h"
#include "comm/engine/symmetric_memory.h"
#include "comm/engine/timeouts.h"
#include "mesh/rank_list.h"
#include "placement/box.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "planner/options/capabilities.h"

namespace meshift {

class ControlChannel;  // comm/control/control.h

// An in-order queue of work of one rank. Made by an Engine; destroying it waits for its work.
class Stream {
 public:
  virtual ~Stream() = default;
};

// A mark on a stream, reached when all work put there before it is done.
class Event {
 public:
  virtual ~Event() = default;
  // When it was reached, in ns of a clock that is common to the process; -1: not yet.
  virtual int64_t ReachedNs() const = 0;
  // Whether it was reached, without an error as far as the engine knows; also of engines that tell
  // no times. Never waits. From any thread, but not while it is marked anew.
  virtual bool IsReached() const { return ReachedNs() >= 0; }
  // Whether it was marked in work that was only captured: that may run any time, and again.
  virtual bool InGraph() const { return false; }
};

// Memory of an engine; freed when destroyed.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual void* data() const = 0;
  virtual int64_t size_bytes() const = 0;
};

// Copies shape[0] x shape[1] x ... elements; strides in elements. Source and target do not overlap.
struct BoxCopy {
  const void* src = nullptr;
  void* dst = nullptr;
  Shape shape;
  Shape src_strides;
  Shape dst_strides;
};

struct GroupOptions {
  // NCCL: the communicator has one channel, so that each of its trees is one tree and adds every
  // element alike; other groups keep their speed. Of no consequence elsewhere.
  bool one_channel = false;
  // What people know it by, such as the mesh dims that it is over, "dp,tp": for tools and messages
  // only. It makes no other group.
  std::string name = {};

  std::string ToString() const {
    return one_channel ? "one channel" : "";
  }  // part of a cache's key
  friend bool operator==(const GroupOptions& a, const GroupOptions& b) {
    return a.one_channel == b.one_channel;
  }
};

class Engine {
 public:
  virtual ~Engine() = default;

  virtual const std::string& name() const = 0;  // "local"
  virtual int64_t rank() const = 0;             // this process's rank: 0 .. world_size()-1
  virtual int64_t world_size() const = 0;

  // Where the tensors of its programs lie.
  virtual Device tensor_device() const { return {}; }

  // Communicator of all ranks of the world; owned by the engine. Never null.
  virtual Communicator* world() = 0;
  // How many bytes a collective carries while it starts, so that smaller ones had better be merged:
  // of this kind of engine, equal on all ranks. None: the topology says.
  virtual std::optional<int64_t> CoalesceBytes() const { return std::nullopt; }
  // What planning may expect of this kind of engine, under its name: equal on all ranks.
  virtual EngineCapabilities Capabilities() const { return EngineCapabilities::Of(name()); }
  // How this rank talks to the others beside collectives; null where it cannot. Owned elsewhere.
  virtual ControlChannel* control() { return nullptr; }
  // How long calls may take, of all that it makes and of its redistributors. Any thread, at any
  // time: what waits already heeds it soon. INVALID_ARGUMENT where one is not positive.
  virtual absl::Status SetTimeouts(const Timeouts& timeouts) { return timeouts_.Set(timeouts); }
  virtual Timeouts timeouts() const { return timeouts_.Get(); }
  // What its redistributors remember of their calls, and how these are watched. FAILED_PRECONDITION
  // once a redistributor was made.
  absl::Status SetRecord(RecordOptions options) { return record_.SetOptions(std::move(options)); }
  // Writes what is remembered of the last calls to a file in `folder`, or in the record's own
  // folder where that is empty; returns its path. FAILED_PRECONDITION where there is nothing, or no
  // folder. Any thread, at any time.
  absl::StatusOr<std::string> Dump(const std::string& folder = "") const {
    const std::shared_ptr<EngineRecord> record = record_.Get();
    if (record != nullptr) return record->Dump(folder);
    return FailedPrecondition("no redistributor of this engine records its calls");
  }
  RecordSlot& record() { return record_; }  // for redistributors
  // A communicator of `ranks` (ascending world ranks, two or more, this rank's among them), which
  // make group number `group` of a partition of `parent`'s ranks. All members of `parent` make
  // their Split calls in the same order. Does not wait for other ranks.
  virtual absl::StatusOr<std::shared_ptr<Communicator>> Split(Communicator& parent,
                                                              absl::Span<const int64_t> ranks,
                                                              int64_t group,
                                                              const GroupOptions& options) = 0;
  // The same, of a list that members in one process share: an engine that has them all need not
  // look through it for each of them.
  virtual absl::StatusOr<std::shared_ptr<Communicator>> SplitList(Communicator& parent,
                                                                  const RankList& ranks,
                                                                  int64_t group,
                                                                  const GroupOptions& options) {
    return Split(parent, ranks, group, options);
  }
  // Whether a communicator costs next to nothing, so that each redistributor over the whole world
  // has one of its own, whose calls are matched with its own alone.
  virtual bool SplitsFreely() const { return false; }
  // What a member of `parent` calls instead of Split where it takes no new communicator while
  // others do: its group exists already, or it is in none. Engines whose splits are a matter of
  // all members need it.
  virtual absl::Status SkipSplit(Communicator& parent) {
    static_cast<void>(parent);
    return absl::OkStatus();
  }

  // At least 64-byte aligned; contents are unspecified. RESOURCE_EXHAUSTED where there is no more.
  virtual absl::StatusOr<std::unique_ptr<Buffer>> Allocate(int64_t bytes) = 0;
  // Buffers that each member of `communicator` has one of, for its symmetric calls. Collective: all
  // members ask for the same, in the same order of their calls; may wait for them, as Split may.
  // FAILED_PRECONDITION names two members that ask for different things; UNIMPLEMENTED, on all
  // members, says why there are none here. The buffers end before the communicator does; whether
  // that is collective is the engine's to say.
  virtual absl::StatusOr<std::vector<std::unique_ptr<SymmetricBuffer>>> AllocateSymmetric(
      Communicator& communicator, const SymmetricRequest& request) {
    static_cast<void>(communicator), static_cast<void>(request);
    return absl::UnimplementedError("this engine has no symmetric memory");
  }
  virtual absl::StatusOr<std::unique_ptr<Stream>> CreateStream() = 0;
  virtual absl::StatusOr<std::shared_ptr<Event>> Record(Stream& stream) = 0;
  // As Record, into `*event`: the event there is marked anew where the engine can and nobody else
  // holds it, so that a caller that records over and over allocates nothing; else it is replaced.
  // What waits for it already keeps waiting for the earlier mark.
  virtual absl::Status RecordInto(Stream& stream, std::shared_ptr<Event>* event) {
    absl::StatusOr<std::shared_ptr<Event>> made = Record(stream);
    if (!made.ok()) return made.status();
    *event = *std::move(made);
    return absl::OkStatus();
  }
  // Later work on `stream` waits for `event`.
  virtual absl::Status WaitFor(Stream& stream, std::shared_ptr<Event> event) = 0;
  // Waits until all work on `stream` is done; returns the first error among it, if any.
  virtual absl::Status Synchronize(Stream& stream) = 0;
  // As Synchronize, but only for the work before `event`; returns the first error among it.
  virtual absl::Status Wait(const std::shared_ptr<Event>& event) = 0;

  // Local kernels: queued on `stream`. The copies of one call may run in any order.
  virtual absl::Status CopyBoxes(absl::Span<const BoxCopy> copies, DType dtype, Stream& stream) = 0;
  virtual absl::Status FillIdentity(void* data, int64_t count, DType dtype, ReduceOp op,
                                    Stream& stream) = 0;
  virtual absl::Status FillZero(void* data, int64_t bytes, Stream& stream) = 0;
  // Casts `count` elements, one behind the other, as placement/cast.h says. `src` and `dst` do not
  // overlap.
  virtual absl::Status Cast(const void* src, DType src_dtype, void* dst, DType dst_dtype,
                            int64_t count, Stream& stream) = 0;
  // out[i] = the reduction of inputs[0][i], inputs[1][i], ..., combined in this order, with the
  // arithmetic of comm/kernels/reduce.h. `out` may be one of the inputs, and otherwise overlaps
  // none. Inputs at equal distances, as blocks of one buffer are, may be any number; of others
  // an engine may take no more than some tens (UNIMPLEMENTED).
  virtual absl::Status ReduceInOrder(absl::Span<const void* const> inputs, void* out, int64_t count,
                                     DType dtype, const Reduction& reduction, Stream& stream) = 0;

  // Copies between memory of the host and memory of the engine, which the host need not be able to
  // read; queued on `stream`. For set-up and tests: an engine of a device goes through a staging
  // buffer and may wait for the stream.
  virtual absl::Status CopyIn(const void* host, void* data, int64_t bytes, Stream& stream) {
    return CopyBoxes({BoxCopy{host, data, {bytes}, {1}, {1}}}, DType::kU8, stream);
  }
  virtual absl::Status CopyOut(const void* data, void* host, int64_t bytes, Stream& stream) {
    return CopyBoxes({BoxCopy{data, host, {bytes}, {1}, {1}}}, DType::kU8, stream);
  }

 private:
  AtomicTimeouts timeouts_;
  RecordSlot record_;
};

}  // namespace meshift

#endif  // MESHIFT_ENGINE_H_
