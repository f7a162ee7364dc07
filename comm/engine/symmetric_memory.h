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
#ifndef MESHIFT_COMM_ENGINE_SYMMETRIC_MEMORY_H_
#define MESHIFT_COMM_ENGINE_SYMMETRIC_MEMORY_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "meshift/communicator.h"
#include "meshift/dtype.h"

namespace meshift {

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

}  // namespace meshift

#endif  // MESHIFT_COMM_ENGINE_SYMMETRIC_MEMORY_H_
