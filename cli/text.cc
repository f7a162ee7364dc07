#include "cli/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/strings/ascii.h"
#include "base/clipped.h"

namespace meshift::cli {
namespace {

// The size in bytes of the first character of `text`; 0 if it is not valid UTF-8 (RFC 3629).
size_t CharacterSize(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xbf) return 0;
  }
  // Excludes overlong forms, surrogate halves, and codes beyond U+10FFFF.
  const unsigned char least = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  const unsigned char most = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  return byte(1) >= least && byte(1) <= most ? size : 0;
}

// Whether a valid UTF-8 character is invisible or controls the terminal: control characters (also
// those of Latin-1), marks of zero width, those that change the writing direction, line separators,
// specials, and private use.
bool IsUnseen(std::string_view character) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(character[i]); };
  if (character.size() == 1) return byte(0) < 0x20 || byte(0) == 0x7f;
  if (character.size() == 2) {
    return (byte(0) == 0xc2 && (byte(1) < 0xa0 || byte(1) == 0xad)) ||  // U+0080 to U+009F, U+00AD
           (byte(0) == 0xd8 && byte(1) == 0x9c);                        // U+061C
  }
  if (character.size() != 3) return byte(0) >= 0xf3;  // from U+C0000: tags, private use
  const int code = (byte(0) & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
  return (0x200b <= code && code <= 0x200f) || (0x2028 <= code && code <= 0x202e) ||
         (0x2060 <= code && code <= 0x206f) || (0xe000 <= code && code <= 0xf8ff) ||
         code == 0x180e || code >= 0xfff0 || code == 0xfeff;
}

}  // namespace

std::string BytesText(int64_t bytes) {
  constexpr std::array<const char*, 6> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  size_t unit = 0;
  int64_t size = 1024;
  // A number that would round up to 1024 is shown in the next unit.
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
    } else if (size == 0) {
      shown += fmt::format("\\x{:02x}", byte);
    } else if (IsUnseen(text.substr(0, size))) {
      for (const char one : text.substr(0, size)) {
        shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(one));
      }
    } else {
      shown += text.substr(0, size);
    }
    text.remove_prefix(size == 0 ? 1 : size);
  }
  return shown;
}

namespace {

std::string_view Ending(std::string_view text, size_t size) {
  if (text.size() <= size) return text;
  text.remove_prefix(text.size() - size);
  while (!text.empty() && (static_cast<unsigned char>(text[0]) & 0xc0) == 0x80) {
    text.remove_prefix(1);
  }
  return text;
}

// `text` as Printable() shows it, cut to at most `size` bytes: its two ends. Each byte is shown as
// at least one byte, so bytes further from both ends are not examined.
std::string ShownUpTo(std::string_view text, size_t size) {
  constexpr std::string_view kGap = "...";
  std::string shown = Printable(text.substr(0, size + 1));
  if (text.size() <= size && shown.size() <= size) return shown;
  const size_t front = size / 2;
  std::string both(Beginning(shown, front));
  both += kGap;
  return both.append(Ending(Printable(Ending(text, size)), size - front - kGap.size()));
}

}  // namespace

std::string Shown(std::string_view text) { return ShownUpTo(text, kMaxShown); }

std::string ShownMessage(std::string_view text) {
  std::string shown;
  bool is_quoted = false;
  while (!text.empty()) {
    // An apostrophe after a letter or digit does not begin a quote.
    size_t end = text.find('\'');
    while (!is_quoted && end != text.npos && end > 0 && absl::ascii_isalnum(text[end - 1])) {
      end = text.find('\'', end + 1);
    }
    const std::string_view piece = text.substr(0, end);
    shown += is_quoted ? Shown(piece) : std::string(piece);
    if (end == text.npos) break;
    shown += '\'';
    is_quoted = !is_quoted;
    text.remove_prefix(end + 1);
  }
  return ShownUpTo(shown, kMaxMessage);
}

std::string Quoted(std::string_view text) {
  constexpr size_t kMaxQuoted = 80;
  const std::string shown = Printable(text.substr(0, kMaxQuoted + 1));
  return '"' + (shown.size() > kMaxQuoted ? Clipped(shown, kMaxQuoted - 3) : shown) + '"';
}

}  // namespace meshift::cli
