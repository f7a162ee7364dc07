#include "comm/control/frame_rules.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "base/status.h"
#include "comm/control/frame.h"

namespace meshift {
namespace {

using Kind = Frame::Kind;

constexpr int64_t kMaxCode = 16;    // the largest absl::StatusCode
constexpr size_t kFixedBytes = 57;  // of a frame without its texts
constexpr size_t kLongTexts = 4;    // texts in a kSettled, which describes two plans
constexpr size_t kRootNumber = 21;  // bytes at most after a root's ranks: "#" and a number

// The first and last valid value. A field that a kind does not use must be 0.
struct Range {
  int64_t first = 0;
  int64_t last = 0;
};
constexpr Range kNumber = {0, kMaxNumber};
constexpr Range kError = {1, kMaxCode};

struct Rule {
  bool sent = false;  // whether the side may send this kind
  Range rank = {};
  Range number = {};
  Range id = {};
  Range code = {};
  bool plan = false;  // high and low
  size_t root = 0;    // bytes at most
  size_t text = 0;
};

// For side and kind; a rule with `sent` false if this side never sends the kind.
Rule RuleOf(Kind kind, Side sender, int64_t world_size) {
  const bool hub = sender == Side::kHub;
  const Range member = {0, world_size - 1};
  const Range teller = hub ? member : Range{};  // the hub fills in the sending rank
  constexpr size_t kRoot = kMaxRanksText + kRootNumber;
  switch (kind) {
    case Kind::kHello:
      if (hub) return {};
      return {.sent = true,
              .rank = {0, kMaxRanks - 1},
              .number = {1, kMaxRanks},
              .root = kMaxJobName,
              .text = kNonceBytes};
    case Kind::kChallenge:
      return {.sent = hub, .text = kNonceBytes};
    case Kind::kProof:
      return {.sent = !hub, .text = kNonceBytes};
    case Kind::kWelcome:
      return {.sent = hub, .root = kNonceBytes, .text = kHandshakeBytes / 2};
    case Kind::kExchange:
      return {.sent = true,
              .number = kNumber,
              .text = hub ? kMaxExchange + 4 * static_cast<size_t>(world_size)
                          : MaxExchangePart(world_size)};
    case Kind::kMissing:
      return {.sent = true, .number = kNumber, .text = hub ? kMaxRanksText : 0};
    case Kind::kJoin:
      return {.sent = !hub, .root = kRoot, .text = kMaxRanksText};
    case Kind::kPart:
      return {.sent = !hub, .root = kRoot};
    case Kind::kAnnounce:
      return {.sent = !hub, .number = kNumber, .plan = true, .root = kRoot, .text = kMaxMessage};
    case Kind::kSettled:
      return {.sent = hub,
              .number = kNumber,
              .code = {0, kMaxCode},
              .root = kRoot,
              .text = kLongTexts * kMaxMessage};
    case Kind::kAsk:
      return {.sent = true, .rank = teller, .number = kNumber, .id = kNumber, .root = kRoot};
    case Kind::kAnswer:
      return {.sent = true,
              .rank = {hub ? -1 : 0, world_size - 1},
              .number = kNumber,
              .id = kNumber,
              .code = {Frame::kMade, hub ? Frame::kHasLeft : Frame::kForgotten},
              .plan = true,
              .text = kMaxMessage};
    case Kind::kFail:
      return {.sent = true, .rank = teller, .code = kError, .root = kRoot, .text = kMaxMessage};
    case Kind::kPassed:
      return {.sent = hub, .root = kRoot};
    case Kind::kGone:
      return {.sent = hub, .rank = member};
    case Kind::kBye:
      return {
          .sent = true, .rank = hub ? Range{-1, world_size - 1} : Range{}, .text = kMaxRanksText};
    case Kind::kLeave:
      return {.sent = true, .rank = teller, .code = kError, .text = kMaxMessage};
    case Kind::kDropped:
      return {.sent = hub, .text = kMaxMessage};
  }
  return {};
}

bool IsHandshake(Kind kind) { return kind <= Kind::kWelcome; }

}  // namespace

absl::Status CheckFrame(const Frame& frame, Side sender, int64_t world_size) {
  const Rule rule = RuleOf(frame.kind, sender, world_size);
  const auto kind = static_cast<int>(frame.kind);
  if (!rule.sent) return InvalidArgument("the sender may not send a frame of kind {}", kind);
  struct Field {
    const char* name;
    int64_t value;
    Range range;
  };
  for (const Field& field :
       {Field{"rank", frame.rank, rule.rank}, Field{"number", frame.number, rule.number},
        Field{"id", frame.id, rule.id}, Field{"code", frame.code, rule.code},
        Field{"length of root", static_cast<int64_t>(frame.root.size()),
              Range{0, static_cast<int64_t>(rule.root)}},
        Field{"length of text", static_cast<int64_t>(frame.text.size()),
              Range{0, static_cast<int64_t>(rule.text)}}}) {
    if (field.value < field.range.first || field.value > field.range.last) {
      return InvalidArgument("a frame of kind {} has {} {}; expected {} to {}", kind, field.name,
                             field.value, field.range.first, field.range.last);
    }
  }
  if (!rule.plan && (frame.high != 0 || frame.low != 0)) {
    return InvalidArgument("a frame of kind {} has a fingerprint", kind);
  }
  return absl::OkStatus();
}

FrameLimits HandshakeLimits() {
  FrameLimits limits = {};
  for (size_t kind = 0; kind < limits.size(); ++kind) {
    if (IsHandshake(static_cast<Kind>(kind))) limits[kind] = kHandshakeBytes;
  }
  return limits;
}

FrameLimits MemberLimits(Side sender, int64_t world_size) {
  FrameLimits limits = {};
  for (size_t kind = 0; kind < limits.size(); ++kind) {
    if (IsHandshake(static_cast<Kind>(kind))) continue;
    const Rule rule = RuleOf(static_cast<Kind>(kind), sender, world_size);
    if (rule.sent) limits[kind] = kFixedBytes + rule.root + rule.text;
  }
  return limits;
}

std::string CutMessage(std::string_view text) {
  constexpr std::string_view kRest = "...";
  if (text.size() <= kMaxMessage) return std::string(text);
  return std::string(text.substr(0, kMaxMessage - kRest.size())) + std::string(kRest);
}

}  // namespace meshift
