// Reads JSON of a known form front to back, faster than a tree of it is made. Internal.
//
//   JsonCursor json(text);
//   json.Object([&](std::string_view key) { if (key == "rank") json.Int(&rank); else json.Skip();
//   }); MESHIFT_RETURN_IF_ERROR(json.Finish());
//
// After the first error every call does nothing, and Finish says where it was.
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
  // Calls member(key), which reads the value, for each member.
  template <typename Member>
  void Object(Member member) {
    std::string key;
    List('{', '}', [&] {
      String(&key, kMaxKey);
      Expect(':');
      if (ok()) member(std::string_view(key));
    });
  }
  // Calls element(), which reads it, for each.
  template <typename Element>
  void Array(Element element) {
    List('[', ']', element);
  }
  // Likewise, but takes what it calls for at most `most` elements.
  template <typename Element>
  void Array(size_t most, Element element) {
    size_t count = 0;
    Array([&] {
      if (++count > most) return Fail("too many elements");
      element();
    });
  }
  void Int(int64_t* value);  // of 64 bits; no fraction and no exponent
  void Int32(int32_t* value);
  void String(std::string* value, size_t max_bytes);
  bool Null();  // whether it is; else it is still to be read
  void Skip();  // any value
  void Fail(std::string_view why);
  absl::Status Finish();  // INVALID_ARGUMENT unless everything was read

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
        if (next != ',' && next != close) Fail("neither ',' nor the end of the list");
        if (!ok()) return;
        ++at_;
        if (next == close) break;
      }
    }
    --depth_;
  }
  char Peek();  // the next one that is no white space; 0 at the end
  void Expect(char c);
  void Escape(std::string* value);

  const std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
  std::string error_;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_RECORD_JSON_CURSOR_H_
