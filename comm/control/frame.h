// Encodes and decodes frames, the messages between a rank and the hub. All kinds of frames have the
// same fields; each kind uses some of them, and the others are 0 or empty.
//
//   std::string bytes = Encode({.kind = Frame::Kind::kHello, .rank = 3, .text = nonce});
//   FrameReader reader;
//   reader.Add(bytes);
//   MESHIFT_ASSIGN_OR_RETURN(std::optional<Frame> frame, reader.Next());
//
// A FrameReader refuses, with INVALID_ARGUMENT, a kind that its FrameLimits do not allow, and a
// frame above its kind's limit: by default 256 MiB. comm/control/frame_rules.h has the limits in
// use, and checks the fields. Encode() checks nothing: a frame and each text must have less than
// 4 GiB. A FrameReader is not thread-safe. Internal to comm/control.
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
  // comm/control/frame_rules.cc has the fields of each kind and their ranges.
  enum class Kind : uint8_t {
    kHello,      // rank -> hub: rank, number = world size, root = the job's name, text = a nonce
    kChallenge,  // hub -> rank: text = a nonce
    kProof,      // rank -> hub: text = proof that the rank knows the job's secret
    kWelcome,    // hub -> rank: root = the hub's proof, text = why the rank is refused, or empty
    kExchange,   // rank -> hub: number = which, text = bytes; hub -> rank: text = all ranks' bytes
    kMissing,    // rank -> hub: which ranks are missing in exchange `number`? hub -> rank: text =
                 // EncodeList of these ranks (as one text; of a very long list only the first) and
                 // of the hub's notes
    kJoin,       // rank -> hub: root, text = its ranks
    kPart,       // rank -> hub: leaves root; the rank sends no more frames about it
    kAnnounce,   // rank -> hub: root, number = call, high, low, text = CallPost::what
    kSettled,    // hub -> rank: root, number = call, code and text of a status
    kAsk,        // rank -> hub -> rank: root, number = call, id; rank = the asker
    kAnswer,     // rank -> hub -> rank: id, rank = the asker, from the hub on the answerer (-1: the
                 // hub itself); code = State, number, high, low, text
    kFail,       // rank -> hub -> rank: root, rank = the failed rank, code and text of its status
    kPassed,     // hub -> rank: the kFail of this root, or the kLeave (no root), was forwarded
    kGone,       // hub -> rank: the process of `rank` is gone
    kBye,        // rank -> hub: leaves the job; text = EncodeList of pairs: ranks, number of joins;
                 // then root, number of calls; hub -> rank: `rank` (-1: the hub) left
    kLeave,      // rank -> hub -> rank: `rank` leaves with an error, its code and text
    kDropped,    // hub -> rank: text = why the hub ends this connection
  };
  static constexpr Kind kLast = Kind::kDropped;
  // The answerer's state of a call, in kAnswer. Only the hub sends the last two.
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

// Encodes a frame with its length in front. The length has 4 bytes, which it does not count. All
// numbers are little-endian.
std::string Encode(const Frame& frame);

// Encodes several texts as one, each with its length of 4 bytes in front.
std::string EncodeList(const std::vector<std::string>& texts);
absl::StatusOr<std::vector<std::string>> DecodeList(std::string_view bytes);

// Ascending ranks as text; a run of three or more is written by its ends: "0,2,5-9".
std::string EncodeRanks(absl::Span<const int64_t> ranks);
// INVALID_ARGUMENT: the text is not such a list, or a rank is `world_size` or more.
absl::StatusOr<std::vector<int64_t>> DecodeRanks(std::string_view text, int64_t world_size);

// The largest size of each kind of frame, in bytes after the length; 0: the kind is not allowed.
using FrameLimits = std::array<size_t, static_cast<size_t>(Frame::kLast) + 1>;

// Cuts a stream of bytes into frames. It holds little more than one frame if its caller reads all
// frames after each Add(), since a frame above its limit is an error as soon as it begins.
class FrameReader {
 public:
  static constexpr size_t kMaxFrame = size_t{1} << 28;  // bytes

  FrameReader() { limits_.fill(kMaxFrame); }
  explicit FrameReader(const FrameLimits& limits) : limits_(limits) {}
  // Sets the limits of later frames.
  void SetLimits(const FrameLimits& limits) { limits_ = limits; }

  void Add(std::string_view bytes) { bytes_ += bytes; }
  // The next frame, or nothing if it is not complete. INVALID_ARGUMENT: the bytes are not a frame,
  // or its kind or length is not allowed, which is detected in its first 5 bytes.
  absl::StatusOr<std::optional<Frame>> Next();
  // The number of bytes that are not returned as frames yet.
  size_t size() const { return bytes_.size() - taken_; }

 private:
  FrameLimits limits_ = {};
  std::string bytes_;
  size_t taken_ = 0;  // the prefix of bytes_ that Next() has returned
};

}  // namespace meshift

#endif  // MESHIFT_COMM_CONTROL_FRAME_H_
