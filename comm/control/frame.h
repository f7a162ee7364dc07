// What goes over a connection between a rank and the hub: frames of one shape, of which each kind
// uses some fields.
//
//   std::string bytes = Encode({.kind = Frame::Kind::kHello, .rank = 3, .text = token});
//   FrameReader reader;
//   reader.Add(bytes);
//   MESHIFT_ASSIGN_OR_RETURN(std::optional<Frame> frame, reader.Next());
#ifndef MESHIFT_COMM_CONTROL_FRAME_H_
#define MESHIFT_COMM_CONTROL_FRAME_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace meshift {

struct Frame {
  enum class Kind : uint8_t {
    kHello,     // rank -> hub: rank, number = world size, text = token
    kWelcome,   // hub -> rank; text: why it is refused, empty if not
    kExchange,  // rank -> hub: number = which, text = bytes; hub -> rank: text = all ranks' bytes
    kMissing,   // rank -> hub: who is missing in exchange `number`? hub -> rank: text
    kJoin,      // rank -> hub: root, text = its ranks
    kAnnounce,  // rank -> hub: root, number = call, high, low, text = what
    kSettled,   // hub -> rank: root, number = call, code and text of a status
    kAsk,       // rank -> hub -> rank: root, number = call, id; rank = who asks
    kAnswer,  // rank -> hub -> rank: id, rank = who asked, then who answers; code = State, number,
              // high, low, text
    kFail,    // rank -> hub -> rank: root, rank = who has failed, code and text of its status
    kPassed,  // hub -> rank: the kFail of this root, or the kLeave (no root), has gone to the
              // others
    kGone,    // hub -> rank: the process of `rank` is gone
    kBye,     // rank -> hub: leaves the job, text = how often it has joined which ranks (EncodeList
              // of both in turns); hub -> rank: `rank` has left, -1: the hub
    kLeave,   // rank -> hub -> rank: `rank` leaves for an error of its own, code and text of it
  };
  static constexpr Kind kLast = Kind::kLeave;
  // What a rank says about a call, in kAnswer.
  enum State : int64_t { kMade, kNotMade, kForgotten, kIsGone, kHasLeft };

  Kind kind = Kind::kHello;
  int64_t rank = 0;
  int64_t number = 0;
  int64_t id = 0;
  int64_t code = 0;
  uint64_t high = 0;
  uint64_t low = 0;
  std::string root = {};
  std::string text = {};
  friend bool operator==(const Frame&, const Frame&) = default;
};

// With its length in front.
std::string Encode(const Frame& frame);

// Several texts as one.
std::string EncodeList(const std::vector<std::string>& texts);
absl::StatusOr<std::vector<std::string>> DecodeList(std::string_view bytes);

// "0,2,5"
std::string EncodeRanks(absl::Span<const int64_t> ranks);
std::vector<int64_t> DecodeRanks(std::string_view text);

// Cuts a stream of bytes into frames.
class FrameReader {
 public:
  static constexpr size_t kMaxFrame = size_t{1} << 28;  // bytes

  void Add(std::string_view bytes) { bytes_ += bytes; }
  // Nothing: the next frame is not there as a whole. INVALID_ARGUMENT: the bytes are no frames.
  absl::StatusOr<std::optional<Frame>> Next();

 private:
  std::string bytes_;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_CONTROL_FRAME_H_
