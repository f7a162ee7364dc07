// Cuts text between characters.
//
//   Clipped("abcd", 3);     // "abc..."
#ifndef MESHIFT_BASE_CLIPPED_H_
#define MESHIFT_BASE_CLIPPED_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace meshift {

// The longest prefix of `text` that has at most `size` bytes and ends between characters of UTF-8.
inline std::string_view Beginning(std::string_view text, size_t size) {
  if (text.size() <= size) return text;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80) --size;
  return text.substr(0, size);
}

// Beginning(); "..." follows if `text` was longer. Does not make it printable.
inline std::string Clipped(std::string_view text, size_t size) {
  if (text.size() <= size) return std::string(text);
  return std::string(Beginning(text, size)) + "...";
}

}  // namespace meshift

#endif  // MESHIFT_BASE_CLIPPED_H_
