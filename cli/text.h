// Numbers as a person reads them, and other people's text as it can be shown.
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

// Exact where it is a whole number of the unit ("4 MiB"), else with one decimal.
std::string BytesText(int64_t bytes);
std::string TimeText(int64_t ns);
// "1 collective", "2 collectives"
std::string CountText(int64_t count, const std::string& noun);

// `text` on one line of UTF-8: a line's end is shown as \n; other control characters, those that
// are not seen or change the direction of writing, and bytes that are not UTF-8, as \xHH for each
// byte.
std::string Printable(std::string_view text);
// At most `size` bytes of `text`, cut between characters and followed by "..." where it is longer.
std::string Clipped(std::string_view text, size_t size);

// The most bytes that are shown of another's text: of a file's strings, a line's values.
inline constexpr size_t kMaxShown = 200;
// And of a message that has such text in it.
inline constexpr size_t kMaxMessage = 400;
// Printable, and at most kMaxShown bytes: longer text has "..." in the middle.
std::string Shown(std::string_view text);
// Printable and in quotes, at most 80 bytes of it: a value in a message that has several.
std::string Quoted(std::string_view text);
// A message, with kMaxMessage; of each of its values in quotes, Shown().
std::string ShownMessage(std::string_view text);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_TEXT_H_
