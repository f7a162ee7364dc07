// What goes over a connection between a rank and the hub: frames of one shape, of which each kind
// uses some fields.
//
//   std::string bytes = Encode({.kind = Frame::Kind::kHello, .rank = 3, .text = nonce});
//   FrameReader reader;
//   reader.Add(bytes);
//   MESHIFT_ASSIGN_OR_RETURN(std::optional<Frame> frame, reader.Next());
#ifndef MESHIFT_COMM_CONTROL_FRAME_H_
#define MESHIFT_COMM_CONTROL_FRAME_H_

#include <array>
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
  // Which fields a kind uses, and what they may be: comm/control/frame_rules.cc.
  enum class Kind : uint8_t {
    kHello,      // rank -> hub: rank, number = world size, root = the job's name, text = a nonce
    kChallenge,  // hub -> rank: text = a nonce
    kProof,      // rank -> hub: text = that it knows the job's secret
    kWelcome,   // hub -> rank: root = the hub's proof, text = why the rank is refused, empty if not
    kExchange,  // rank -> hub: number = which, text = bytes; hub -> rank: text = all ranks' bytes
    kMissing,   // rank -> hub: who is missing in exchange `number`? hub -> rank: text = EncodeList
                // of the ranks and of what else the hub knows about it
    kJoin,      // rank -> hub: root, text = its ranks
    kPart,      // rank -> hub: says no more about root
    kAnnounce,  // rank -> hub: root, number = call, high, low, text = what
    kSettled,   // hub -> rank: root, number = call, code and text of a status
    kAsk,       // rank -> hub -> rank: root, number = call, id; rank = who asks
    kAnswer,    // rank -> hub -> rank: id, rank = who asked, then who answers (-1: the hub, which
                // says that it is there); code = State, number, high, low, text
    kFail,      // rank -> hub -> rank: root, rank = who has failed, code and text of its status
    kPassed,    // hub -> rank: the kFail of this root, or the kLeave (no root), has gone on
    kGone,      // hub -> rank: the process of `rank` is gone
    kBye,       // rank -> hub: leaves the job, text = how often it has joined which ranks
                // (EncodeList of both in turns); hub -> rank: `rank` has left, -1: the hub
    kLeave,     // rank -> hub -> rank: `rank` leaves for an error of its own, code and text of it
    kDropped,   // hub -> rank: text = why the hub ends this connection
  };
  static constexpr Kind kLast = Kind::kDropped;
  // What a rank says about a call, in kAnswer. The last two are the hub's to say.
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

// Ascending ranks, runs of three and more by their ends: "0,2,5-9".
std::string EncodeRanks(absl::Span<const int64_t> ranks);
// INVALID_ARGUMENT: not such a list, or a rank that is not below `world_size`.
absl::StatusOr<std::vector<int64_t>> DecodeRanks(std::string_view text, int64_t world_size);

// How long a frame of each kind may be, in bytes behind its length; 0: it may not come.
using FrameLimits = std::array<size_t, static_cast<size_t>(Frame::kLast) + 1>;

// Cuts a stream of bytes into frames. Never holds much more than one frame of the limits.
class FrameReader {
 public:
  static constexpr size_t kMaxFrame = size_t{1} << 28;  // bytes

  FrameReader() { limits_.fill(kMaxFrame); }
  explicit FrameReader(const FrameLimits& limits) : limits_(limits) {}
  // Of the frames from here on.
  void SetLimits(const FrameLimits& limits) { limits_ = limits; }

  void Add(std::string_view bytes) { bytes_ += bytes; }
  // Nothing: the next frame is not there as a whole. INVALID_ARGUMENT: the bytes are no frames, or
  // one is longer than its limit, which shows as soon as it begins.
  absl::StatusOr<std::optional<Frame>> Next();
  // Bytes that wait for the rest of a frame.
  size_t size() const { return bytes_.size() - taken_; }

 private:
  FrameLimits limits_ = {};
  std::string bytes_;
  size_t taken_ = 0;  // of bytes_: frames that Next() has returned
};

}  // namespace meshift

#endif  // MESHIFT_COMM_CONTROL_FRAME_H_
