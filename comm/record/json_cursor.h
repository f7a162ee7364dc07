// A streaming reader of JSON of a known form; faster than building a tree. Internal to comm/record.
//
//   JsonCursor json(text);
//   json.Object([&](std::string_view key) {
//     key == "rank" ? json.Int(&rank) : json.Skip();
//   });
//   MESHIFT_RETURN_IF_ERROR(json.Finish());
//
// After the first error calls read nothing, outputs are unspecified, and Finish returns the error
// with its byte. A key of more than 64 bytes, and nesting deeper than 32, are errors. The reader
// does not validate all of JSON: Skip takes any word, Int takes leading zeros, and strings may have
// any bytes. An escape \u00XX becomes one byte, any larger one '?'; \b and \f become spaces. The
// text must outlive the cursor. Not thread-safe.
#ifndef MESHIFT_COMM_RECORD_JSON_CURSOR_H_
#define MESHIFT_COMM_RECORD_JSON_CURSOR_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace meshift {

class JsonCursor {
 public:
  explicit JsonCursor(std::string_view text) : text_(text) {}

  bool ok() const { return error_.empty(); }
  // Calls member(key) for each member; it must read the value.
  template <typename Member>
  void Object(Member member) {
    std::string key;
    List('{', '}', [&] {
      String(&key, kMaxKey);
      Expect(':');
      if (ok()) member(std::string_view(key));
    });
  }
  // Calls element() for each element; it must read it.
  template <typename Element>
  void Array(Element element) {
    List('[', ']', element);
  }
  // As above; more than `most` elements are an error.
  template <typename Element>
  void Array(size_t most, Element element) {
    size_t count = 0;
    Array([&] {
      if (++count > most) return Fail("too many elements");
      element();
    });
  }
  void Int(int64_t* value);  // without fraction and exponent
  void Int32(int32_t* value);
  void String(std::string* value, size_t max_bytes);
  bool Null();  // reads null; false if the value is another one, which is not read
  void Skip();  // reads any value
  void Fail(std::string_view why);
  absl::Status Finish();  // INVALID_ARGUMENT after an error, or if text remains

 private:
  static constexpr size_t kMaxKey = 64;
  static constexpr int kMaxDepth = 32;

  template <typename Each>
  void List(char open, char close, Each each) {
    if (++depth_ > kMaxDepth) return Fail("nested too deeply");
    Expect(open);
    if (ok() && Peek() == close) {
      ++at_;
    } else {
      while (ok()) {
        each();
        const char next = Peek();
        if (next != ',' && next != close) Fail("expected ',' or the end of the list");
        if (!ok()) return;
        ++at_;
        if (next == close) break;
      }
    }
    --depth_;
  }
  char Peek();  // skips white space and returns the next character; 0 at the end
  void Expect(char c);
  void Escape(std::string* value);

  const std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
  std::string error_;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_RECORD_JSON_CURSOR_H_
