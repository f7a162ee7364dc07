// Checks the fields of a frame by its kind and sender: the range of each number, the largest length
// of each text. The hub and the ranks check each frame that they receive before they use it.
//
//   FrameReader reader(MemberLimits(Side::kRank, world_size));
//   MESHIFT_RETURN_IF_ERROR(CheckFrame(frame, Side::kRank, world_size));
//
// Whether a kind may come at this time is not checked here. Internal to comm/control.
#ifndef MESHIFT_COMM_CONTROL_FRAME_RULES_H_
#define MESHIFT_COMM_CONTROL_FRAME_RULES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "comm/control/frame.h"

namespace meshift {

// The sender of a frame.
enum class Side : uint8_t { kRank, kHub };

inline constexpr int64_t kMaxRanks = int64_t{1} << 20;  // of a job
// Before the hub accepts a rank: the most bytes that the hub receives from it, and the most of one
// frame to it.
inline constexpr size_t kHandshakeBytes = size_t{4} << 10;
inline constexpr size_t kNonceBytes = 32;                  // of a nonce, and of a proof
inline constexpr size_t kMaxJobName = 512;                 // bytes
inline constexpr size_t kMaxMessage = size_t{4} << 10;     // bytes of a plan's or an error's text
inline constexpr size_t kMaxRanksText = size_t{1} << 20;   // bytes of a list of ranks
inline constexpr size_t kMaxExchange = size_t{128} << 20;  // bytes of all ranks in one exchange
inline constexpr int64_t kMaxNumber = int64_t{1} << 62;    // of a call, a question, an exchange

// The most bytes that one of `world_size` ranks may send in an exchange. REQUIRES: world_size >= 1.
constexpr size_t MaxExchangePart(int64_t world_size) {
  constexpr size_t kMaxPart = size_t{4} << 20;
  const size_t share = kMaxExchange / static_cast<size_t>(world_size);
  return share < kMaxPart ? share : kMaxPart;
}

// INVALID_ARGUMENT: a field is out of its kind's range (the message has both, except for high and
// low), or `sender` may not send this kind. Checks only the length of texts.
absl::Status CheckFrame(const Frame& frame, Side sender, int64_t world_size);

// The largest frames: before the hub accepts a rank (kHandshakeBytes, for both sides), and after it
// (those that CheckFrame allows).
FrameLimits HandshakeLimits();
FrameLimits MemberLimits(Side sender, int64_t world_size);

// `text`, cut to kMaxMessage bytes with "..." at the end if it is longer. May cut within a
// character.
std::string CutMessage(std::string_view text);

}  // namespace meshift

#endif  // MESHIFT_COMM_CONTROL_FRAME_RULES_H_
