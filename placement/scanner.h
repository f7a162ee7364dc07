// Scanner: reads a text token by token and skips white space between tokens.
//
//   Scanner scanner("f32[4, 8]");
//   scanner.TakeWord();    // "f32"
//   scanner.Take("[");     // true
//   scanner.ExpectInt();   // 4
//   scanner.Expect("]");   // expected "]" at ", 8]"
//
// Expect functions return INVALID_ARGUMENT, which quotes the wrong text, and then consume nothing.
// Internal to placement/. Not thread-safe.
#ifndef MESHIFT_PLACEMENT_SCANNER_H_
#define MESHIFT_PLACEMENT_SCANNER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace meshift {

class Scanner {
 public:
  // Does not copy `text`, which must outlive the scanner.
  explicit Scanner(std::string_view text) : rest_(text) { SkipSpace(); }

  // The remaining text, without leading space.
  std::string_view rest() const { return rest_; }
  // Where that text begins, for messages: at ", 8]", or at the end.
  std::string Place() const;
  // Consumes `token` if the text begins with it, also as a part of a longer word; else changes
  // nothing.
  bool Take(std::string_view token);
  // Reads the longest run of ASCII letters and digits, possibly none.
  std::string_view TakeWord();
  // The same with '_' and '.' allowed.
  std::string_view TakeName();

  absl::Status Expect(std::string_view token);
  // A decimal integer of 64 bits, with an optional '-'.
  absl::StatusOr<int64_t> ExpectInt();
  absl::Status ExpectEnd() const;

 private:
  void Advance(size_t count);
  void SkipSpace();

  std::string_view rest_;
};

}  // namespace meshift

#endif  // MESHIFT_PLACEMENT_SCANNER_H_
