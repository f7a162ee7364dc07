#include "placement/scanner.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <system_error>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "base/status.h"

namespace meshift {

bool Scanner::Take(std::string_view token) {
  if (!rest_.starts_with(token)) return false;
  Advance(token.size());
  return true;
}

std::string_view Scanner::TakeWord() {
  const auto* end = std::find_if_not(rest_.begin(), rest_.end(), absl::ascii_isalnum);
  const std::string_view word = rest_.substr(0, end - rest_.begin());
  Advance(word.size());
  return word;
}

std::string_view Scanner::TakeName() {
  const auto* end = std::find_if_not(rest_.begin(), rest_.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == '.';
  });
  const std::string_view name = rest_.substr(0, end - rest_.begin());
  Advance(name.size());
  return name;
}

std::string Scanner::Place() const {
  return rest_.empty() ? "at the end" : fmt::format("at \"{}\"", rest_);
}

absl::Status Scanner::Expect(std::string_view token) {
  if (Take(token)) return absl::OkStatus();
  return InvalidArgument("expected \"{}\" {}", token, Place());
}

absl::StatusOr<int64_t> Scanner::ExpectInt() {
  int64_t value = 0;
  const char* end = rest_.data() + rest_.size();
  const auto [stop, error] = std::from_chars(rest_.data(), end, value);
  const size_t length = stop - rest_.data();
  if (error == std::errc::result_out_of_range) {
    return InvalidArgument("{} does not fit 64 bits", rest_.substr(0, length));
  }
  if (error != std::errc()) return InvalidArgument("expected an integer {}", Place());
  Advance(length);
  return value;
}

absl::Status Scanner::ExpectEnd() const {
  if (rest_.empty()) return absl::OkStatus();
  return InvalidArgument("expected the end {}", Place());
}

void Scanner::Advance(size_t count) {
  rest_.remove_prefix(count);
  SkipSpace();
}

void Scanner::SkipSpace() {
  while (!rest_.empty() && absl::ascii_isspace(rest_.front())) rest_.remove_prefix(1);
}

}  // namespace meshift
