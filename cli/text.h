// Formats numbers for people, and makes untrusted text safe to print.
//
//   BytesText(8178893);        // "7.8 MiB"
//   TimeText(12345);           // "12.3 us"
//   Printable("a\xff\n");      // "a\\xff\\n"
#ifndef MESHIFT_CLI_TEXT_H_
#define MESHIFT_CLI_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace meshift::cli {

// In units of 1024: a whole number if it is one in its unit ("4 MiB"), else one decimal.
std::string BytesText(int64_t bytes);
// Below 1 us a whole number of ns, else one decimal; s is the largest unit.
std::string TimeText(int64_t ns);
// "1 collective", "2 collectives"
std::string CountText(int64_t count, const std::string& noun);

// `text` on one line of UTF-8. A line feed becomes \n. Each byte of control and private characters,
// of most invisible ones, of those that change the writing direction, of specials from U+FFF0 on,
// and of invalid UTF-8 becomes \xHH. A backslash stays, so different texts may become equal.
std::string Printable(std::string_view text);

// The most bytes that are shown of untrusted text: a string of a file, a value of a line.
inline constexpr size_t kMaxShown = 200;
// The most bytes of a message that contains such text.
inline constexpr size_t kMaxMessage = 400;
// Printable, and at most kMaxShown bytes: longer text has "..." in the middle.
std::string Shown(std::string_view text);
// Printable, in quotes, at most 80 bytes between them: for a value in a message with several.
std::string Quoted(std::string_view text);
// A printable message of at most kMaxMessage bytes, with Shown() applied to each part between
// single quotes. A quote within a value ends that part.
std::string ShownMessage(std::string_view text);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_TEXT_H_
