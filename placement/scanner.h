// Reads a short text token by token; spaces between tokens do not count. Errors quote what is left.
//
//   Scanner scanner("f32[4, 8]");
//   scanner.TakeWord();    // "f32"
//   scanner.Take("[");     // true
//   scanner.ExpectInt();   // 4
//   scanner.Expect("]");   // expected "]" at ", 8]"
#ifndef MESHIFT_PLACEMENT_SCANNER_H_
#define MESHIFT_PLACEMENT_SCANNER_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace meshift {

class Scanner {
 public:
  // Does not copy `text`.
  explicit Scanner(std::string_view text) : rest_(text) { SkipSpace(); }

  // What is left, without leading space.
  std::string_view rest() const { return rest_; }
  // Reads `token` if it is next; else changes nothing.
  bool Take(std::string_view token);
  // Reads the longest run of ASCII letters and digits, possibly none.
  std::string_view TakeWord();
  // Likewise, with '_' and '.' in it.
  std::string_view TakeName();

  absl::Status Expect(std::string_view token);
  // A decimal integer, with '-' where it is negative.
  absl::StatusOr<int64_t> ExpectInt();
  absl::Status ExpectEnd() const;

 private:
  void Advance(size_t count);
  void SkipSpace();

  std::string_view rest_;
};

}  // namespace meshift

#endif  // MESHIFT_PLACEMENT_SCANNER_H_
