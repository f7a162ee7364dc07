// Parses untrusted JSON. It refuses deep nesting, large objects, and duplicate keys, which readers
// treat differently. Malformed text causes no exception, but std::bad_alloc may be thrown.
// Include in .cc files only: the JSON header is slow to compile.
//
//   MESHIFT_ASSIGN_OR_RETURN(const nlohmann::ordered_json json, ParseJsonText(text));
//   if (json.is_discarded()) return InvalidArgument("the text is not JSON, or is cut short");
#ifndef MESHIFT_BASE_PARSE_JSON_H_
#define MESHIFT_BASE_PARSE_JSON_H_

#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/status/statusor.h"

namespace meshift {

// INVALID_ARGUMENT: brackets are nested deeper than 100 (writing and freeing a value recurse), or
// an object has a duplicate key or more than 10,000 members. Text that is not JSON may give this
// error too; otherwise the result is_discarded() if `text` is not one JSON value, or has a number
// beyond the range of double, such as 1e999. The caller limits the length of `text`; time and
// memory are linear in it.
absl::StatusOr<nlohmann::ordered_json> ParseJsonText(std::string_view text);

// Empties a value from ParseJsonText at the end of a scope. nlohmann's own destructor allocates
// memory for a list of members, and aborts the process if that fails:
//
//   absl::StatusOr<nlohmann::ordered_json> json = ParseJsonText(text);
//   const JsonEmptier emptier(json);
class JsonEmptier {
 public:
  explicit JsonEmptier(nlohmann::ordered_json& json) : json_(&json) {}
  // Does nothing for an error.
  explicit JsonEmptier(absl::StatusOr<nlohmann::ordered_json>& json)
      : json_(json.ok() ? &*json : nullptr) {}
  JsonEmptier(const JsonEmptier&) = delete;
  JsonEmptier& operator=(const JsonEmptier&) = delete;
  ~JsonEmptier();

  // The destructor then does nothing. For a value that is moved away.
  void Release() { json_ = nullptr; }

 private:
  nlohmann::ordered_json* json_;
};

}  // namespace meshift

#endif  // MESHIFT_BASE_PARSE_JSON_H_
