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

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "meshift/communicator.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "meshift/planner_options.h"
#include "meshift/sharding.h"
#include "meshift/tensor_view.h"
#include "meshift/version.h"

namespace MESHIFT_API meshift {

// Symmetric memory: buffers of one size that all members of a communicator have, and that its
// collectives may reach directly, without packing and without messages.
// meshift/symmetric.h cuts them into blocks.
//
//   auto buffers = engine->AllocateSymmetric(*communicator, {.count = 2, .bytes = 1 << 20});
//   communicator->CallSymmetric({.kind = SymmetricCall::Kind::kAllGather,
//                                .counts = counts,
//                                .send = {(*buffers)[0].get(), 0},
//                                .recv = {(*buffers)[1].get(), 256}},
//                               *stream);
//
// A place in symmetric memory is a buffer's number and an offset, which mean the same on all
// members; addresses differ.

// This member's memory of one number. Ends before its communicator, and after the calls on it.
class SymmetricBuffer {
 public:
  explicit SymmetricBuffer(int64_t number) : number_(number) {}
  SymmetricBuffer(const SymmetricBuffer&) = delete;
  SymmetricBuffer& operator=(const SymmetricBuffer&) = delete;
  virtual ~SymmetricBuffer() = default;

  virtual void* data() const = 0;  // at least 64-byte aligned
  virtual int64_t size_bytes() const = 0;
  // As the request counts: the members' buffers of one number belong together.
  int64_t number() const { return number_; }

 private:
  const int64_t number_;
};

// What all members ask for: `count` buffers of `bytes` bytes, with numbers from `first` on.
struct SymmetricRequest {
  int64_t first = 0;
  int64_t count = 1;
  int64_t bytes = 0;
  std::string ToString() const;  // "2 buffers of 1048576 bytes from number 3 on"
  friend bool operator==(const SymmetricRequest&, const SymmetricRequest&) = default;
};
// INVALID_ARGUMENT where no engine could serve it.
absl::Status CheckRequest(const SymmetricRequest& request);

struct SymmetricPlace {
  SymmetricBuffer* buffer = nullptr;
  int64_t offset = 0;  // bytes, a multiple of the element's
  char* data() const { return static_cast<char*>(buffer->data()) + offset; }
};

// A collective on symmetric memory. Member i's block has counts[i] elements, and begins behind
// those of the members before it.
//   all-gather:     `send` has this member's block; `recv`, on all, gets all of them.
//   reduce-scatter: `send` has all blocks; `recv` gets the reduction of the members' blocks of this
//                   one's number.
// Equal on all members, but for the buffers' addresses. Places do not overlap.
struct SymmetricCall {
  enum class Kind : uint8_t { kAllGather, kReduceScatter };
  Kind kind = Kind::kAllGather;
  DType dtype = DType::kU8;  // of at least a byte: all-gathers of others are of bytes
  Reduction reduction = {};  // kReduceScatter
  absl::Span<const int64_t> counts = {};
  SymmetricPlace send = {};
  SymmetricPlace recv = {};

  int64_t Total() const;  // elements of all blocks
  bool IsEven() const;    // all blocks have one size
  // "symmetric all_gather(8 x bf16, buffer 0+256 -> 1+0)"
  std::string ToString() const;
};
// INVALID_ARGUMENT where member `member` of `size` cannot make it.
absl::Status CheckSymmetricCall(const SymmetricCall& call, int member, int size);

// How long calls may take before they count as hung.
//
//   MESHIFT_RETURN_IF_ERROR(engine->SetTimeouts({.running = std::chrono::minutes(2)}));
//
// In two phases: what comes first on a communicator makes connections, and waits for ranks that
// still load their models; what comes later does not.

struct Timeouts {
  std::chrono::nanoseconds setup = std::chrono::minutes(10);    // the first call of each kind
  std::chrono::nanoseconds running = std::chrono::minutes(10);  // all others
  // Both phases alike.
  static Timeouts Of(std::chrono::nanoseconds both) { return {.setup = both, .running = both}; }
  friend bool operator==(const Timeouts&, const Timeouts&) = default;
};

// INVALID_ARGUMENT names the one that is not positive.
absl::Status CheckTimeouts(const Timeouts& timeouts);

// Time-outs that are set while other threads use them.
class AtomicTimeouts {
 public:
  AtomicTimeouts() : AtomicTimeouts(Timeouts{}) {}
  explicit AtomicTimeouts(const Timeouts& timeouts) { Store(timeouts); }
  Timeouts Get() const {
    return {.setup = std::chrono::nanoseconds(setup_ns()),
            .running = std::chrono::nanoseconds(running_ns())};
  }
  int64_t setup_ns() const { return setup_ns_.load(std::memory_order_relaxed); }
  int64_t running_ns() const { return running_ns_.load(std::memory_order_relaxed); }
  // As CheckTimeouts; then nothing changes.
  absl::Status Set(const Timeouts& timeouts);

 private:
  void Store(const Timeouts& timeouts) {
    setup_ns_.store(timeouts.setup.count(), std::memory_order_relaxed);
    running_ns_.store(timeouts.running.count(), std::memory_order_relaxed);
  }

  std::atomic<int64_t> setup_ns_;
  std::atomic<int64_t> running_ns_;
};

// Of an engine without a thread of its own (MPI below MPI_THREAD_MULTIPLE: meshift/mpi_engine.h).
// Work goes on only in calls of the program: those that wait, RunHandle::IsDone, and Advance.
class CallerProgress {
 public:
  virtual ~CallerProgress() = default;
  // FAILED_PRECONDITION, with the rule, where the calling thread may not call the engine.
  virtual absl::Status CheckThread() const = 0;
  // Goes on with all work as far as it can now; never waits for other ranks. Nothing where the
  // calling thread may not call the engine.
  virtual void Advance() = 0;
  // Since when, in ns of the steady clock, threads have waited or looked for work without a break
  // of half a time-out; INT64_MAX: none does. No other time counts for time-outs.
  virtual int64_t AttendedSinceNs() const = 0;
};

class ControlChannel;  // meshift/bootstrap.h
class Executable;      // comm/executor/executable.h
class RecordSlot;      // comm/engine/engine_record.h
struct Program;        // comm/program/program.h

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

// What a run did.
struct RunRecord {
  std::vector<int64_t> bytes_sent;             // by this rank, per step
  std::vector<int64_t> calls;                  // collective calls of this rank, per step
  std::vector<std::shared_ptr<Event>> events;  // if timed: one more than steps

  // The time that step `i` took on this rank; -1 if it was not timed or is not done.
  int64_t StepNs(int i) const;
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

// A call of a redistributor whose work is done.
struct EndedCall {
  int64_t call = 0;         // its number in the redistributor
  std::string_view groups;  // "ranks 0-7", or the groups that its steps are of
  std::string_view plan;    // the fingerprint, and from what to what
  int64_t bytes = 0;        // sent by this rank
  // From when it could run to its end; -1: not known.
  int64_t ns = -1;
};

// Something that happens seldom.
struct LogEvent {
  // kLibrary comes once, before all others, with Engine::Library() where that is not empty.
  enum class Kind : uint8_t { kRedistributor, kSplit, kTimeout, kAbort, kDump, kLibrary };
  Kind kind = Kind::kRedistributor;
  std::string_view text;  // one line
  int64_t ns = 0;         // how long it took
};

struct RecordOptions {
  // How many of the last calls are remembered; 0: none, and nobody watches.
  int64_t calls = 2000;
  // Whether a thread looks at the calls in flight, so that one that takes longer than the engine's
  // time-out (Engine::SetTimeouts) ends all, also while nobody waits for it.
  bool watchdog = true;
  // Where the record is written on the first error, as Engine::Dump() does; empty: nowhere.
  std::string dump_folder = {};
  // Whenever this file appears, or is touched, the record is written. Needs the watchdog.
  std::string trigger_file = {};
  // Called for each call that has ended, soon after it has; by one thread at a time. Must return
  // soon, and not call the engine or its redistributors.
  std::function<void(const EndedCall&)> on_ended = {};
  // Called likewise, from any thread.
  std::function<void(const LogEvent&)> on_log = {};
};

// INVALID_ARGUMENT: `calls` is negative or more than a million.
absl::Status CheckRecordOptions(const RecordOptions& options);

class EngineRecord {
 public:
  virtual ~EngineRecord() = default;
  // Writes what is remembered to a file in `folder`, whose path it returns.
  virtual absl::StatusOr<std::string> Dump(const std::string& folder) = 0;
  // Writes it to the folder of the options, with an error that is not the engine's, unless there is
  // no such folder or an error of the engine has had it written.
  virtual absl::Status DumpError(const absl::Status& error) = 0;
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
  Engine();
  virtual ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  virtual const std::string& name() const = 0;  // "local"
  // What moves its data, as a line for logs: "NCCL 2.28.9 of /usr/lib/libnccl.so.2, plugins: none".
  // Plugins are the files that the process has loaded by now. Empty: the engine itself moves it.
  virtual std::string Library() const { return ""; }
  virtual int64_t rank() const = 0;  // this process's rank: 0 .. world_size()-1
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
  absl::Status SetRecord(RecordOptions options);
  // Writes what is remembered of the last calls to a file in `folder`, or in the record's own
  // folder where that is empty; returns its path. FAILED_PRECONDITION where there is nothing, or no
  // folder. Any thread, at any time.
  absl::StatusOr<std::string> Dump(const std::string& folder = "") const;
  RecordSlot& record() { return *record_; }  // for redistributors
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

  // Makes a program ready, once for all its runs. The program outlives what is made of it, and so
  // do `communicators`, one per group of the program. By default a run makes the calls above and
  // those of the communicators, one per instruction.
  virtual absl::StatusOr<std::unique_ptr<Executable>> Prepare(
      const Program& program, absl::Span<Communicator* const> communicators);

  // Null: work goes on by itself, and any thread may call. Owned by the engine.
  virtual CallerProgress* caller_progress() { return nullptr; }

 private:
  AtomicTimeouts timeouts_;
  const std::unique_ptr<RecordSlot> record_;
};

}  // namespace meshift

#endif  // MESHIFT_ENGINE_H_
