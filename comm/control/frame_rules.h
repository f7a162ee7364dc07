// What a frame may say, by its kind and by who sends it: each number in its range, each text no
// longer than it may be. Whatever reads frames asks this first, and then uses their numbers.
//
//   FrameReader reader(MemberLimits(world_size));
//   MESHIFT_RETURN_IF_ERROR(CheckFrame(frame, Side::kRank, world_size));
#ifndef MESHIFT_COMM_CONTROL_FRAME_RULES_H_
#define MESHIFT_COMM_CONTROL_FRAME_RULES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "comm/control/frame.h"

namespace meshift {

// Who sends a frame.
enum class Side : uint8_t { kRank, kHub };

inline constexpr int64_t kMaxRanks = int64_t{1} << 20;     // of a job
inline constexpr size_t kGreetingBytes = size_t{4} << 10;  // of a connection before it is let in
inline constexpr size_t kNonceBytes = 32;                  // and a proof's
inline constexpr size_t kMaxJobName = 512;                 // bytes
inline constexpr size_t kMaxMessage = size_t{4} << 10;     // bytes of a plan's or an error's text
inline constexpr size_t kMaxRanksText = size_t{1} << 20;   // bytes of ranks that are listed
inline constexpr size_t kMaxExchange = size_t{128} << 20;  // bytes of all ranks in one exchange
inline constexpr int64_t kMaxNumber = int64_t{1} << 62;    // of a call, a question, an exchange

// What one rank may give to an exchange among so many, in bytes.
constexpr size_t MaxExchangePart(int64_t world_size) {
  constexpr size_t kMaxPart = size_t{4} << 20;
  const size_t share = kMaxExchange / static_cast<size_t>(world_size);
  return share < kMaxPart ? share : kMaxPart;
}

// INVALID_ARGUMENT: a field is out of the range that its kind has, and which that is; or a kind
// that this side does not send. Texts are looked at by their length alone.
absl::Status CheckFrame(const Frame& frame, Side sender, int64_t world_size);

// The lengths that CheckFrame lets through: before the hub lets a connection in (the same for both
// sides), and after it.
FrameLimits GreetingLimits();
FrameLimits MemberLimits(Side sender, int64_t world_size);

// At most kMaxMessage bytes of `text`; says so where some are left out.
std::string CutMessage(std::string_view text);

}  // namespace meshift

#endif  // MESHIFT_COMM_CONTROL_FRAME_RULES_H_
