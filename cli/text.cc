#include "cli/text.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace meshift::cli {
namespace {

// Bytes of the character that `text` begins with; 0 where they are not UTF-8 (RFC 3629).
size_t CharacterSize(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xbf) return 0;
  }
  // Too long for their value, halves of UTF-16, beyond the last character.
  const unsigned char least = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  const unsigned char most = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  return byte(1) >= least && byte(1) <= most ? size : 0;
}

}  // namespace

std::string BytesText(int64_t bytes) {
  constexpr std::array<const char*, 6> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  size_t unit = 0;
  int64_t size = 1024;
  // A number that would round up to 1024 of a unit is shown in the next.
  while (unit + 1 < kUnits.size() &&
         static_cast<double>(bytes) / static_cast<double>(size) >= 1023.95) {
    size *= 1024;
    ++unit;
  }
  if (bytes % size == 0) return fmt::format("{} {}", bytes / size, kUnits[unit]);
  return fmt::format("{:.1f} {}", static_cast<double>(bytes) / static_cast<double>(size),
                     kUnits[unit]);
}

std::string TimeText(int64_t ns) {
  const auto value = static_cast<double>(ns);
  if (ns < 1000) return fmt::format("{} ns", ns);
  if (value < 999.95e3) return fmt::format("{:.1f} us", value / 1e3);
  if (value < 999.95e6) return fmt::format("{:.1f} ms", value / 1e6);
  return fmt::format("{:.1f} s", value / 1e9);
}

std::string CountText(int64_t count, const std::string& noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string Printable(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const size_t size = CharacterSize(text);
    const auto byte = static_cast<unsigned char>(text[0]);
    if (byte == '\n') {
      shown += "\\n";
    } else if (size == 0 || byte < 0x20 || byte == 0x7f) {
      shown += fmt::format("\\x{:02x}", byte);
    } else {
      shown += text.substr(0, size);
    }
    text.remove_prefix(size == 0 ? 1 : size);
  }
  return shown;
}

std::string Clipped(std::string_view text, size_t size) {
  if (text.size() <= size) return std::string(text);
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80) --size;
  return std::string(text.substr(0, size)) + "...";
}

}  // namespace meshift::cli
