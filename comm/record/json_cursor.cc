#include "comm/record/json_cursor.h"

#include <charconv>
#include <limits>
#include <system_error>

#include "base/status.h"

namespace meshift {

char JsonCursor::Peek() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c != ' ' && c != '\n' && c != '\t' && c != '\r') return c;
    ++at_;
  }
  return '\0';
}

void JsonCursor::Fail(std::string_view why) {
  if (ok()) error_ = fmt::format("byte {}: {}", at_, why);
}

void JsonCursor::Expect(char c) {
  if (!ok()) return;
  if (Peek() != c) return Fail(fmt::format("expected '{}'", c));
  ++at_;
}

void JsonCursor::Int(int64_t* value) {
  if (!ok()) return;
  Peek();
  const char* const begin = text_.data() + at_;
  const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), *value);
  if (error != std::errc()) return Fail("expected a 64-bit integer");
  at_ += static_cast<size_t>(end - begin);
  if (at_ < text_.size() && (text_[at_] == '.' || text_[at_] == 'e' || text_[at_] == 'E')) {
    Fail("expected a 64-bit integer");
  }
}

void JsonCursor::Int32(int32_t* value) {
  int64_t number = 0;
  Int(&number);
  if (number < std::numeric_limits<int32_t>::min() ||
      number > std::numeric_limits<int32_t>::max()) {
    return Fail("a number is out of range");
  }
  *value = static_cast<int32_t>(number);
}

void JsonCursor::Escape(std::string* value) {
  if (at_ >= text_.size()) return Fail("a string has no end");
  const char c = text_[at_++];
  switch (c) {
    case 'n':
      *value += '\n';
      return;
    case 't':
      *value += '\t';
      return;
    case 'r':
      *value += '\r';
      return;
    case 'b':
    case 'f':
      *value += ' ';
      return;
    case '"':
    case '\\':
    case '/':
      *value += c;
      return;
    case 'u':
      break;
    default:
      return Fail("unknown escape");
  }
  unsigned code = 0;
  const char* const begin = text_.data() + at_;
  if (text_.size() - at_ < 4) return Fail("a string has no end");
  const auto [end, error] = std::from_chars(begin, begin + 4, code, 16);
  if (error != std::errc() || end != begin + 4) return Fail("unknown escape");
  at_ += 4;
  // The writer escapes single bytes; larger code points become '?'.
  *value += code < 0x100 ? static_cast<char>(code) : '?';
}

void JsonCursor::String(std::string* value, size_t max_bytes) {
  value->clear();
  Expect('"');
  while (ok()) {
    const size_t end = text_.find_first_of("\"\\", at_);
    if (end == std::string_view::npos) return Fail("a string has no end");
    if (value->size() + (end - at_) > max_bytes) {
      return Fail(fmt::format("a string has more than {} bytes", max_bytes));
    }
    *value += text_.substr(at_, end - at_);
    at_ = end + 1;
    if (text_[end] == '"') return;
    Escape(value);
  }
}

bool JsonCursor::Null() {
  if (!ok() || Peek() != 'n') return false;
  if (text_.substr(at_, 4) == "null") {
    at_ += 4;
    return true;
  }
  Fail("expected a value");
  return false;
}

void JsonCursor::Skip() {
  if (!ok()) return;
  const char c = Peek();
  if (c == '{') return Object([&](std::string_view) { Skip(); });
  if (c == '[') return Array([&] { Skip(); });
  if (c == '"') {
    std::string text;
    return String(&text, text_.size());
  }
  const size_t begin = at_;
  while (at_ < text_.size() &&
         std::string_view(",]} \n\t\r").find(text_[at_]) == std::string_view::npos) {
    ++at_;
  }
  if (at_ == begin) Fail("expected a value");
}

absl::Status JsonCursor::Finish() {
  if (ok() && Peek() != '\0') Fail("more than one value");
  if (ok() && at_ < text_.size()) Fail("unexpected byte after the value");
  return ok() ? absl::OkStatus() : InvalidArgument("{}", error_);
}

}  // namespace meshift
