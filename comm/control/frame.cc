#include "comm/control/frame.h"

#include <fmt/format.h>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/status.h"

namespace meshift {
namespace {

// Writes the lowest `bytes` bytes, little-endian on any machine.
void Put(uint64_t value, int bytes, std::string* out) {
  for (int i = 0; i < bytes; ++i) out->push_back(static_cast<char>(value >> (8 * i) & 0xff));
}

void PutText(std::string_view text, std::string* out) {
  Put(text.size(), 4, out);
  *out += text;
}

// Reads values from the front of a buffer. Once a value is cut off, it and all later ones are 0 or
// empty, and ok() is false.
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

constexpr size_t kKept = size_t{1} << 16;  // the most bytes that an empty reader keeps

std::optional<int64_t> ParseRank(std::string_view text) {
  int64_t rank = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, rank);
  if (error != std::errc() || stop != end || rank < 0) return std::nullopt;
  return rank;
}

}  // namespace

std::string Encode(const Frame& frame) {
  constexpr size_t kNumbers = 1 + 6 * 8 + 2 * 4;  // kind, numbers, lengths of the texts
  const size_t size = kNumbers + frame.root.size() + frame.text.size();
  std::string out;
  out.reserve(4 + size);
  Put(size, 4, &out);
  Put(static_cast<uint64_t>(frame.kind), 1, &out);
  for (const int64_t value : {frame.rank, frame.number, frame.id, frame.code}) {
    Put(static_cast<uint64_t>(value), 8, &out);
  }
  Put(frame.high, 8, &out);
  Put(frame.low, 8, &out);
  PutText(frame.root, &out);
  PutText(frame.text, &out);
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
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (end - i < 3) end = i + 1;
    if (i > 0) text += ',';
    text +=
        end - i < 3 ? fmt::format("{}", ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[end - 1]);
    i = end;
  }
  return text;
}

absl::StatusOr<std::vector<int64_t>> DecodeRanks(std::string_view text, int64_t world_size) {
  const auto refuse = [&] {
    return InvalidArgument("'{}' is not a list of ascending ranks below {}",
                           std::string(text.substr(0, 60)), world_size);
  };
  std::vector<int64_t> ranks;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view run = rest.substr(0, rest.find(','));
    const size_t dash = run.find('-');
    const std::optional<int64_t> first = ParseRank(run.substr(0, dash));
    const std::optional<int64_t> last =
        dash == std::string_view::npos ? first : ParseRank(run.substr(dash + 1));
    // The world size bounds the length of a run.
    if (!first || !last || *last < *first || *last >= world_size) return refuse();
    if (!ranks.empty() && *first <= ranks.back()) return refuse();
    for (int64_t rank = *first; rank <= *last; ++rank) ranks.push_back(rank);
    rest.remove_prefix(run.size());
    if (rest.size() == 1) return refuse();
    if (!rest.empty()) rest.remove_prefix(1);
  }
  return ranks;
}

absl::StatusOr<std::optional<Frame>> FrameReader::Next() {
  constexpr size_t kLength = 4;
  std::string_view bytes = bytes_;
  bytes.remove_prefix(taken_);
  if (bytes.size() <= kLength) return std::nullopt;
  const size_t size = Taker(bytes).Number(kLength);
  const auto kind = static_cast<uint8_t>(bytes[kLength]);
  if (kind >= limits_.size() || limits_[kind] == 0) {
    return InvalidArgument("unexpected frame of kind {}", kind);
  }
  if (size > limits_[kind]) {
    return InvalidArgument("a frame of kind {} has {} bytes; the limit is {}", kind, size,
                           limits_[kind]);
  }
  if (bytes.size() < kLength + size) {
    // Erases here, not at each frame, which would move a buffer of small frames many times.
    bytes_.erase(0, std::exchange(taken_, 0));
    return std::nullopt;
  }
  Taker taker(bytes.substr(kLength, size));
  Frame frame;
  frame.kind = static_cast<Frame::Kind>(taker.Number(1));
  for (int64_t* value : {&frame.rank, &frame.number, &frame.id, &frame.code}) {
    *value = static_cast<int64_t>(taker.Number(8));
  }
  frame.high = taker.Number(8);
  frame.low = taker.Number(8);
  frame.root = taker.Text();
  frame.text = taker.Text();
  if (!taker.ok() || !taker.done()) return InvalidArgument("{} bytes are not a frame", size);
  taken_ += kLength + size;
  if (taken_ == bytes_.size()) {
    // Frees the memory of a long frame.
    if (bytes_.capacity() > kKept) std::string().swap(bytes_);
    bytes_.clear();
    taken_ = 0;
  }
  return frame;
}

}  // namespace meshift
