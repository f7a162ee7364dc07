#include "comm/control/frame.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/status.h"

namespace meshift {
namespace {

// Numbers are little-endian, on any machine.
void Put(uint64_t value, int bytes, std::string* out) {
  for (int i = 0; i < bytes; ++i) out->push_back(static_cast<char>(value >> (8 * i) & 0xff));
}

void PutText(std::string_view text, std::string* out) {
  Put(text.size(), 4, out);
  *out += text;
}

// Takes values off the front of some bytes.
class Taker {
 public:
  explicit Taker(std::string_view bytes) : bytes_(bytes) {}

  uint64_t Number(int bytes) {
    const std::string_view taken = Bytes(bytes);
    uint64_t value = 0;
    for (size_t i = 0; i < taken.size(); ++i) {
      value |= uint64_t{static_cast<unsigned char>(taken[i])} << (8 * i);
    }
    return value;
  }
  std::string Text() { return std::string(Bytes(Number(4))); }
  bool ok() const { return ok_; }
  bool done() const { return bytes_.empty(); }

 private:
  std::string_view Bytes(size_t count) {
    if (!ok_ || count > bytes_.size()) {
      ok_ = false;
      return {};
    }
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }

  std::string_view bytes_;
  bool ok_ = true;
};

}  // namespace

std::string Encode(const Frame& frame) {
  std::string body;
  Put(static_cast<uint64_t>(frame.kind), 1, &body);
  for (const int64_t value : {frame.rank, frame.number, frame.id, frame.code}) {
    Put(static_cast<uint64_t>(value), 8, &body);
  }
  Put(frame.high, 8, &body);
  Put(frame.low, 8, &body);
  PutText(frame.root, &body);
  PutText(frame.text, &body);
  std::string out;
  PutText(body, &out);
  return out;
}

std::string EncodeList(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& text : texts) PutText(text, &out);
  return out;
}

absl::StatusOr<std::vector<std::string>> DecodeList(std::string_view bytes) {
  std::vector<std::string> texts;
  Taker taker(bytes);
  while (taker.ok() && !taker.done()) texts.push_back(taker.Text());
  if (!taker.ok()) return InvalidArgument("a list of {} bytes is cut off", bytes.size());
  return texts;
}

std::string EncodeRanks(absl::Span<const int64_t> ranks) {
  return fmt::format("{}", fmt::join(ranks, ","));
}

std::vector<int64_t> DecodeRanks(std::string_view text) {
  std::vector<int64_t> ranks;
  while (!text.empty()) {
    const std::string_view number = text.substr(0, text.find(','));
    int64_t rank = -1;
    std::from_chars(number.data(), number.data() + number.size(), rank);
    ranks.push_back(rank);
    text.remove_prefix(std::min(text.size(), number.size() + 1));
  }
  return ranks;
}

absl::StatusOr<std::optional<Frame>> FrameReader::Next() {
  constexpr size_t kLength = 4;
  if (bytes_.size() < kLength) return std::nullopt;
  const size_t size = Taker(bytes_).Number(kLength);
  if (size > kMaxFrame) return InvalidArgument("a frame of {} bytes is too long", size);
  if (bytes_.size() < kLength + size) return std::nullopt;

  const std::string_view bytes = bytes_;
  Taker taker(bytes.substr(kLength, size));
  Frame frame;
  const uint64_t kind = taker.Number(1);
  for (int64_t* value : {&frame.rank, &frame.number, &frame.id, &frame.code}) {
    *value = static_cast<int64_t>(taker.Number(8));
  }
  frame.high = taker.Number(8);
  frame.low = taker.Number(8);
  frame.root = taker.Text();
  frame.text = taker.Text();
  if (!taker.ok() || !taker.done() || kind > static_cast<uint64_t>(Frame::kLast)) {
    return InvalidArgument("{} bytes are no frame", size);
  }
  frame.kind = static_cast<Frame::Kind>(kind);
  bytes_.erase(0, kLength + size);
  return frame;
}

}  // namespace meshift
