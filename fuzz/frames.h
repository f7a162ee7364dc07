// Makes frames of the control channel from a fuzzer's bytes: most with numbers at the ends of their
// ranges, some of raw bytes.
//
//   fuzz::Input input(data, size);
//   while (!input.empty()) reader.Add(fuzz::NextFrame(&input));
#ifndef MESHIFT_FUZZ_FRAMES_H_
#define MESHIFT_FUZZ_FRAMES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "comm/control/frame.h"
#include "comm/control/frame_rules.h"

namespace meshift::fuzz {

// Bytes that are taken from the front; zeros after the end.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  bool empty() const { return size_ == 0; }
  uint8_t Byte() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }
  std::string Bytes(size_t count) {
    count = std::min(count, size_);
    std::string bytes(reinterpret_cast<const char*>(data_), count);
    data_ += count;
    size_ -= count;
    return bytes;
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

inline int64_t NextNumber(Input* input) {
  constexpr int64_t kNumbers[] = {
      0,        1,    2,    3,  4,  5,     16,        17,        63,         64,
      65,       1023, 1024, -1, -2, -1024, INT64_MIN, INT64_MAX, kMaxNumber, kMaxNumber + 1,
      INT32_MAX};
  const uint8_t which = input->Byte();
  constexpr size_t kCount = std::size(kNumbers);
  return which < 200 ? kNumbers[which % kCount] : static_cast<int8_t>(input->Byte());
}

inline std::string NextText(Input* input) {
  constexpr std::string_view kTexts[] = {
      "",    "0-3",   "0,1",   "0-3#0", "0,1#0", "0-3#1",         "1-3#0", "1-3",
      "2,3", "2,3#0", "0-9#0", "0-9",   "3-0",   "0-99999999999", "0-3#",  "0-3#x"};
  const uint8_t which = input->Byte();
  if (which < 200) return std::string(kTexts[which % std::size(kTexts)]);
  if (which < 210) return std::string(size_t{1} << (which - 190), 'x');
  return input->Bytes(which - 210);
}

// The bytes of one frame, or bytes that are not a frame.
inline std::string NextFrame(Input* input) {
  constexpr int kKinds = static_cast<int>(Frame::kLast) + 2;
  const uint8_t kind = input->Byte();
  if (kind >= 240) return input->Bytes(input->Byte());
  Frame frame{.kind = static_cast<Frame::Kind>(kind % kKinds)};
  // Sets only the fields of the mask; the others are 0.
  const uint8_t fields = input->Byte();
  int bit = 0;
  for (int64_t Frame::*field : {&Frame::rank, &Frame::number, &Frame::id, &Frame::code}) {
    if ((fields >> bit++ & 1) != 0) frame.*field = NextNumber(input);
  }
  if ((fields >> 4 & 1) != 0) frame.high = input->Byte();
  if ((fields >> 5 & 1) != 0) frame.low = input->Byte();
  if ((fields >> 6 & 1) != 0) frame.root = NextText(input);
  if ((fields >> 7 & 1) != 0) frame.text = NextText(input);
  return Encode(frame);
}

}  // namespace meshift::fuzz

#endif  // MESHIFT_FUZZ_FRAMES_H_
