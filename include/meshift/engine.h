// Engine: one rank's interface to the hardware or library that runs programs: memory, streams,
// local kernels and communicators. `meshift/local_world.h` has the in-process engine, mpi_engine.h
// and nccl_engine.h the others.
//
//   MESHIFT_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, engine->CreateStream());
//   MESHIFT_RETURN_IF_ERROR(engine->CopyBoxes(copies, dtype, *stream));      // queued
//   MESHIFT_RETURN_IF_ERROR(engine->Synchronize(*stream));              // done, or its first error
//
// Work on one stream runs in order; events order work on different streams. An Engine may be used
// from several threads; a Stream by one at a time. Calls that queue work return errors of their
// arguments (INVALID_ARGUMENT), or an earlier error of the stream, the group or the engine;
// Synchronize and Wait return errors of the work. Memory that queued work uses must stay allocated
// until the work is done.
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

// Symmetric memory: buffers of one size, one on each member of a communicator, which its
// collectives may access directly, without packing and without messages. meshift/symmetric.h
// divides them into blocks.
//
//   auto buffers = engine->AllocateSymmetric(*communicator, {.count = 2, .bytes = 1 << 20});
//   communicator->CallSymmetric({.kind = SymmetricCall::Kind::kAllGather,
//                                .counts = counts,
//                                .send = {(*buffers)[0].get(), 0},
//                                .recv = {(*buffers)[1].get(), 256}},
//                               *stream);
//
// A place in symmetric memory is a buffer number and an offset, equal on all members; addresses
// differ.

// This member's buffer of one number. Destroy it after the calls on it and before its communicator.
class SymmetricBuffer {
 public:
  explicit SymmetricBuffer(int64_t number) : number_(number) {}
  SymmetricBuffer(const SymmetricBuffer&) = delete;
  SymmetricBuffer& operator=(const SymmetricBuffer&) = delete;
  virtual ~SymmetricBuffer() = default;

  virtual void* data() const = 0;  // at least 64-byte aligned
  virtual int64_t size_bytes() const = 0;
  // Numbers are those of the request; the members' buffers of one number belong together.
  int64_t number() const { return number_; }

 private:
  const int64_t number_;
};

// A request, equal on all members: `count` buffers of `bytes` bytes, numbered from `first`.
struct SymmetricRequest {
  int64_t first = 0;
  int64_t count = 1;
  int64_t bytes = 0;
  std::string ToString() const;  // "2 buffers of 1048576 bytes numbered from 3"
  friend bool operator==(const SymmetricRequest&, const SymmetricRequest&) = default;
};
// INVALID_ARGUMENT: `first` is negative, `count` or `bytes` is below 1, or the buffers have more
// than 2^38 bytes in all.
absl::Status CheckRequest(const SymmetricRequest& request);

struct SymmetricPlace {
  SymmetricBuffer* buffer = nullptr;
  int64_t offset = 0;  // bytes, a multiple of the element size
  char* data() const { return static_cast<char*>(buffer->data()) + offset; }
};

// A collective on symmetric memory. Member i's block has counts[i] elements, and follows the blocks
// of members 0..i-1.
//   all-gather:     `send` has this member's block; `recv` gets all blocks, on all members.
//   reduce-scatter: `send` has all blocks; `recv` of member i gets the reduction of all members'
//                   blocks i.
// Equal on all members, except for the buffers' addresses. Places must not overlap.
struct SymmetricCall {
  enum class Kind : uint8_t { kAllGather, kReduceScatter };
  Kind kind = Kind::kAllGather;
  DType dtype = DType::kU8;  // at least one byte wide; gather smaller types as bytes
  Reduction reduction = {};  // kReduceScatter
  absl::Span<const int64_t> counts = {};
  SymmetricPlace send = {};
  SymmetricPlace recv = {};

  int64_t Total() const;  // elements of all blocks
  bool IsEven() const;    // all blocks have one size
  // "symmetric all_gather(8 x bf16, buffer 0+256 -> 1+0)"
  std::string ToString() const;
};
// INVALID_ARGUMENT: the call is not valid for member number `member` of a group of `size`. Does not
// check whether the places overlap. REQUIRES: 0 <= member < size.
absl::Status CheckSymmetricCall(const SymmetricCall& call, int member, int size);

// Time-outs: how long calls may take before they count as hung.
//
//   MESHIFT_RETURN_IF_ERROR(engine->SetTimeouts({.running = std::chrono::minutes(2)}));
//
// There are two phases. The first calls on a communicator make connections and wait for ranks that
// still load their models, so `setup` may be longer than `running`.

struct Timeouts {
  std::chrono::nanoseconds setup = std::chrono::minutes(10);    // the first call of each kind
  std::chrono::nanoseconds running = std::chrono::minutes(10);  // all others
  // One value for both phases.
  static Timeouts Of(std::chrono::nanoseconds both) { return {.setup = both, .running = both}; }
  friend bool operator==(const Timeouts&, const Timeouts&) = default;
};

// INVALID_ARGUMENT: a time-out is not positive; the message names it.
absl::Status CheckTimeouts(const Timeouts& timeouts);

// Time-outs that may be set while other threads read them.
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
  // Errors as those of CheckTimeouts; then nothing changes.
  absl::Status Set(const Timeouts& timeouts);

 private:
  void Store(const Timeouts& timeouts) {
    setup_ns_.store(timeouts.setup.count(), std::memory_order_relaxed);
    running_ns_.store(timeouts.running.count(), std::memory_order_relaxed);
  }

  std::atomic<int64_t> setup_ns_;
  std::atomic<int64_t> running_ns_;
};

// Progress in an engine without a thread of its own (MPI below MPI_THREAD_MULTIPLE:
// meshift/mpi_engine.h). There work advances only inside calls of the program: waits,
// RunHandle::IsDone, and Advance.
class CallerProgress {
 public:
  virtual ~CallerProgress() = default;
  // FAILED_PRECONDITION: the calling thread may not call the engine; the message has the rule.
  virtual absl::Status CheckThread() const = 0;
  // Advances all work as far as possible without waiting for other ranks. Does nothing if the
  // calling thread may not call the engine.
  virtual void Advance() = 0;
  // The start, in ns of the steady clock, of the period in which threads have waited or polled for
  // work without a break of half a time-out; INT64_MAX: no thread does. Only such periods count for
  // time-outs.
  virtual int64_t AttendedSinceNs() const = 0;
};

class ControlChannel;  // meshift/bootstrap.h
class Executable;      // comm/executor/executable.h
class RecordSlot;      // comm/engine/engine_record.h
struct Program;        // comm/program/program.h

// An in-order queue of work of one rank. Made by an Engine; the destructor waits for the work,
// unless the stream belongs to the caller (NcclEngine::WrapStream, NcclLent::stream).
class Stream {
 public:
  virtual ~Stream() = default;
};

// A mark on a stream, reached when all work enqueued before it is done.
class Event {
 public:
  virtual ~Event() = default;
  // When it was reached, in ns of a clock common to the process; -1: not yet, or the engine
  // measures no times.
  virtual int64_t ReachedNs() const = 0;
  // Whether it was reached, without an error that the engine knows of; works without timing too.
  // Never waits. Any thread, but not while RecordInto records the event again.
  virtual bool IsReached() const { return ReachedNs() >= 0; }
  // Whether it was recorded during graph capture: the captured work may run at any time, and
  // repeatedly.
  virtual bool InGraph() const { return false; }
};

// Counters and times of one run.
struct RunRecord {
  std::vector<int64_t> bytes_sent;             // by this rank, per step
  std::vector<int64_t> calls;                  // collective calls of this rank, per step
  std::vector<std::shared_ptr<Event>> events;  // if timed: number of steps + 1

  // The time of step `i` on this rank, in ns; -1 if it was not timed or is not done. REQUIRES:
  // i >= 0.
  int64_t StepNs(int i) const;
};

// Memory of an engine. The destructor frees it.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual void* data() const = 0;
  virtual int64_t size_bytes() const = 0;
};

// A copy of shape[0] x shape[1] x ... elements; strides in elements. `src` and `dst` must not
// overlap.
struct BoxCopy {
  const void* src = nullptr;
  void* dst = nullptr;
  Shape shape;
  Shape src_strides;
  Shape dst_strides;
};

// A finished call of a redistributor.
struct EndedCall {
  int64_t call = 0;         // its number in the redistributor, from 0
  std::string_view groups;  // of its steps: "{0-3} {0,4}"
  std::string_view plan;    // the fingerprint, source and target
  int64_t bytes = 0;        // sent by this rank
  // From the time that it could run until its end; -1: unknown.
  int64_t ns = -1;
};

// A rare event.
struct LogEvent {
  // kLibrary is logged once, before all others, with Engine::Library() if that is not empty.
  enum class Kind : uint8_t { kRedistributor, kSplit, kTimeout, kAbort, kDump, kLibrary };
  Kind kind = Kind::kRedistributor;
  std::string_view text;  // one line
  int64_t ns = 0;         // how long it took
};

struct RecordOptions {
  // How many of the last calls are recorded; 0: none, and the watchdog is off.
  int64_t calls = 2000;
  // Whether a thread watches the calls in flight. A call that exceeds the engine's time-out
  // (Engine::SetTimeouts) then ends all calls of its redistributor, even if no thread waits for it.
  bool watchdog = true;
  // The folder to which the record is written on the first error, as by Engine::Dump(); empty: not
  // written.
  std::string dump_folder = {};
  // The record is written whenever this file appears or is touched. Needs the watchdog.
  std::string trigger_file = {};
  // Called once a check finds that a call has ended, by one thread at a time. The watchdog checks
  // shortly after the end; without it only later calls and dumps do. Not called for a call whose
  // redistributor was destroyed or failed before the check. Must return quickly, and must not call
  // the engine or its redistributors.
  std::function<void(const EndedCall&)> on_ended = {};
  // Called for each LogEvent, from any thread, also from several at once. Must return quickly, and
  // must not call the engine or its redistributors.
  std::function<void(const LogEvent&)> on_log = {};
};

// INVALID_ARGUMENT: `calls` is negative or above 1,000,000.
absl::Status CheckRecordOptions(const RecordOptions& options);

class EngineRecord {
 public:
  virtual ~EngineRecord() = default;
  // As Engine::Dump().
  virtual absl::StatusOr<std::string> Dump(const std::string& folder) = 0;
  // Writes the record to the folder of the options, with an error that is not the engine's own.
  // Does nothing if that folder is empty, or after the first error of the engine or of DumpError.
  virtual absl::Status DumpError(const absl::Status& error) = 0;
};

struct GroupOptions {
  // NCCL: give the communicator one channel, so that its tree adds every element in the same order.
  // Other groups keep their speed. Other engines ignore it.
  bool one_channel = false;
  // A name for tools and messages, such as the group's mesh dims, "dp,tp". Not part of the group's
  // identity.
  std::string name = {};

  std::string ToString() const { return one_channel ? "one channel" : ""; }  // part of a cache key
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
  // The library that sends the data, as a line for logs: "NCCL 2.28.9 of /usr/lib/libnccl.so.2,
  // plugins: none". Plugins are the files that the process has loaded so far. Empty: the engine
  // itself.
  virtual std::string Library() const { return ""; }
  virtual int64_t rank() const = 0;  // this engine's rank: 0 .. world_size()-1
  virtual int64_t world_size() const = 0;

  // Where the tensors of its programs are.
  virtual Device tensor_device() const { return {}; }

  // Communicator of all ranks of the world; owned by the engine. Never null.
  virtual Communicator* world() = 0;
  // The bytes that a collective could send in its start-up time: smaller collectives should be
  // merged. Depends only on the kind of engine. None: computed from the topology.
  virtual std::optional<int64_t> CoalesceBytes() const { return std::nullopt; }
  // The engine's capabilities, an input of planning; equal on all ranks.
  virtual EngineCapabilities Capabilities() const { return EngineCapabilities::Of(name()); }
  // The control channel to the other ranks; null if there is none. Not owned.
  virtual ControlChannel* control() { return nullptr; }
  // Sets the time-outs of all its communicators and redistributors. Any thread, at any time; waits
  // in progress soon use the new values. INVALID_ARGUMENT: one is not positive.
  virtual absl::Status SetTimeouts(const Timeouts& timeouts) { return timeouts_.Set(timeouts); }
  virtual Timeouts timeouts() const { return timeouts_.Get(); }
  // Sets what its redistributors record of their calls, and the watchdog. FAILED_PRECONDITION after
  // the first redistributor was made; else errors as those of CheckRecordOptions.
  absl::Status SetRecord(RecordOptions options);
  // Writes the record of the last calls to a file in `folder`, or if that is empty in the folder of
  // RecordOptions; returns the path. FAILED_PRECONDITION: no record or no folder. UNAVAILABLE: the
  // file cannot be written. Any thread, at any time.
  absl::StatusOr<std::string> Dump(const std::string& folder = "") const;
  RecordSlot& record() { return *record_; }  // for redistributors
  // Makes a communicator of `ranks` (ascending world ranks, two or more, including this one), which
  // are group number `group` of a partition of `parent`'s ranks. All members of `parent` make their
  // Split calls in the same order. Does not wait for other ranks, except where the engine says so
  // (NCCL).
  virtual absl::StatusOr<std::shared_ptr<Communicator>> Split(Communicator& parent,
                                                              absl::Span<const int64_t> ranks,
                                                              int64_t group,
                                                              const GroupOptions& options) = 0;
  // The same for a list that members in one process share, so that an engine with all ranks in one
  // process need not compare the list for each of them.
  virtual absl::StatusOr<std::shared_ptr<Communicator>> SplitList(Communicator& parent,
                                                                  const RankList& ranks,
                                                                  int64_t group,
                                                                  const GroupOptions& options) {
    return Split(parent, ranks, group, options);
  }
  // Whether communicators are nearly free. Then each redistributor over the whole world has its
  // own, and its calls are matched only with each other.
  virtual bool SplitsFreely() const { return false; }
  // Called by a member of `parent` instead of Split if it needs no new communicator while others
  // do: its group exists already, or it is in none of the groups. Required by engines whose splits
  // are collective over `parent`.
  virtual absl::Status SplitNoColor(Communicator& parent) {
    static_cast<void>(parent);
    return absl::OkStatus();
  }

  // At least 64-byte aligned; contents are unspecified. RESOURCE_EXHAUSTED: out of memory.
  virtual absl::StatusOr<std::unique_ptr<Buffer>> Allocate(int64_t bytes) = 0;
  // Allocates symmetric buffers on all members of `communicator`. Collective: all members make
  // equal requests in the same order; may wait for them, as Split may. INVALID_ARGUMENT:
  // CheckRequest refuses the request. FAILED_PRECONDITION: two members differ; the message names
  // them and their requests. UNIMPLEMENTED, on all members: there is none here; the message says
  // why. RESOURCE_EXHAUSTED: out of memory. Destroy the buffers before the communicator; whether
  // that is collective depends on the engine (MPI: yes).
  virtual absl::StatusOr<std::vector<std::unique_ptr<SymmetricBuffer>>> AllocateSymmetric(
      Communicator& communicator, const SymmetricRequest& request) {
    static_cast<void>(communicator), static_cast<void>(request);
    return absl::UnimplementedError("this engine has no symmetric memory");
  }
  virtual absl::StatusOr<std::unique_ptr<Stream>> CreateStream() = 0;
  virtual absl::StatusOr<std::shared_ptr<Event>> Record(Stream& stream) = 0;
  // As Record, into `*event`: reuses that event if the engine can and the caller holds the only
  // reference, so that repeated recording allocates nothing; else replaces it. Work that already
  // waits for the event still waits for the earlier mark.
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
  // Casts `count` contiguous elements as placement/cast.h defines. `src` and `dst` must not
  // overlap.
  virtual absl::Status Cast(const void* src, DType src_dtype, void* dst, DType dst_dtype,
                            int64_t count, Stream& stream) = 0;
  // out[i] = the reduction of inputs[0][i], inputs[1][i], ..., combined in this order, with the
  // arithmetic of comm/kernels/reduce.h. `out` may be one of the inputs, and must not overlap them
  // otherwise. Any number of inputs at equal distances (blocks of one buffer) is supported; an
  // engine may limit other inputs to a few tens (UNIMPLEMENTED).
  virtual absl::Status ReduceInOrder(absl::Span<const void* const> inputs, void* out, int64_t count,
                                     DType dtype, const Reduction& reduction, Stream& stream) = 0;

  // Copies between host memory and the engine's memory, which the host may not be able to read;
  // queued on `stream`. For set-up and tests: a GPU engine uses a staging buffer and may wait for
  // the stream.
  virtual absl::Status CopyIn(const void* host, void* data, int64_t bytes, Stream& stream) {
    return CopyBoxes({BoxCopy{host, data, {bytes}, {1}, {1}}}, DType::kU8, stream);
  }
  virtual absl::Status CopyOut(const void* data, void* host, int64_t bytes, Stream& stream) {
    return CopyBoxes({BoxCopy{data, host, {bytes}, {1}, {1}}}, DType::kU8, stream);
  }

  // Prepares a program once for all its runs. `program` and `communicators` (one per group of the
  // program) must outlive the result. The default implementation runs each instruction by the calls
  // above and those of the communicators.
  virtual absl::StatusOr<std::unique_ptr<Executable>> Prepare(
      const Program& program, absl::Span<Communicator* const> communicators);

  // Null: any thread may call, and work advances without calls, except in a LocalWorld without
  // workers. Owned by the engine.
  virtual CallerProgress* caller_progress() { return nullptr; }

 private:
  AtomicTimeouts timeouts_;
  const std::unique_ptr<RecordSlot> record_;
};

}  // namespace meshift

#endif  // MESHIFT_ENGINE_H_
