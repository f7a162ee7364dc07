// One rank's access to a place where programs run: memory, streams, local kernels, and the making
// of communicators. `comm/local/local_world.h` has the in-process engine.
//
//   MESHIFT_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, engine->CreateStream());
//   MESHIFT_RETURN_IF_ERROR(engine->CopyBoxes(copies, dtype, *stream));      // queued
//   MESHIFT_RETURN_IF_ERROR(engine->Synchronize(*stream));              // done, or its first error
//
// Work on one stream runs in order; work on different streams only in the order that events force.
// An Engine may be used from several threads; a Stream by one at a time.
#ifndef MESHIFT_COMM_ENGINE_H_
#define MESHIFT_COMM_ENGINE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "comm/communicator.h"
#include "placement/box.h"
#include "placement/dtype.h"
#include "placement/placement.h"

namespace meshift {

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
  std::string ToString() const { return ""; }  // part of the group cache's key
  friend bool operator==(const GroupOptions&, const GroupOptions&) = default;
};

class Engine {
 public:
  virtual ~Engine() = default;

  virtual const std::string& name() const = 0;  // "local"
  virtual int64_t rank() const = 0;             // this process's rank: 0 .. world_size()-1
  virtual int64_t world_size() const = 0;

  // Communicator of all ranks of the world; owned by the engine. Never null.
  virtual Communicator* world() = 0;
  // A communicator of `ranks` (ascending world ranks, two or more, this rank's among them), which
  // make group number `group` of a partition of `parent`'s ranks. All members of `parent` make
  // their Split calls in the same order. Does not wait for other ranks.
  virtual absl::StatusOr<std::shared_ptr<Communicator>> Split(Communicator& parent,
                                                              absl::Span<const int64_t> ranks,
                                                              int64_t group,
                                                              const GroupOptions& options) = 0;

  // At least 64-byte aligned; contents are unspecified. RESOURCE_EXHAUSTED where there is no more.
  virtual absl::StatusOr<std::unique_ptr<Buffer>> Allocate(int64_t bytes) = 0;
  virtual absl::StatusOr<std::unique_ptr<Stream>> CreateStream() = 0;
  virtual absl::StatusOr<std::shared_ptr<Event>> Record(Stream& stream) = 0;
  // Later work on `stream` waits for `event`.
  virtual absl::Status WaitFor(Stream& stream, std::shared_ptr<Event> event) = 0;
  // Waits until all work on `stream` is done; returns the first error among it, if any.
  virtual absl::Status Synchronize(Stream& stream) = 0;

  // Local kernels: queued on `stream`. The copies of one call may run in any order.
  virtual absl::Status CopyBoxes(absl::Span<const BoxCopy> copies, DType dtype, Stream& stream) = 0;
  virtual absl::Status FillIdentity(void* data, int64_t count, DType dtype, ReduceOp op,
                                    Stream& stream) = 0;
  virtual absl::Status FillZero(void* data, int64_t bytes, Stream& stream) = 0;
  // Casts `count` elements, one behind the other, as placement/cast.h says. `src` and `dst` do not
  // overlap.
  virtual absl::Status Cast(const void* src, DType src_dtype, void* dst, DType dst_dtype,
                            int64_t count, Stream& stream) = 0;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_ENGINE_H_
