// Parsing other people's JSON without a surprise: no exception, no deep recursion, and no member
// that another reader would not see. Include in .cc files only: the JSON header is slow to compile.
//
//   MESHIFT_ASSIGN_OR_RETURN(const nlohmann::ordered_json json, ParseJsonText(text));
//   if (json.is_discarded()) return InvalidArgument("the text is not JSON, or is cut short");
#ifndef MESHIFT_BASE_PARSE_JSON_H_
#define MESHIFT_BASE_PARSE_JSON_H_

#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/status/statusor.h"

namespace meshift {

// Discarded where `text` is not one JSON value. INVALID_ARGUMENT where it is nested deeper than 100
// (writing and freeing a value recurse), or an object has a key twice (readers differ in which of
// the two counts) or more than 10,000 members.
absl::StatusOr<nlohmann::ordered_json> ParseJsonText(std::string_view text);

// Empties a value, no deeper than the above, at the end of a scope. The library's destructor takes
// memory for a list of the members, and ends the process where there is none:
//
//   absl::StatusOr<nlohmann::ordered_json> json = ParseJsonText(text);
//   const JsonEmptier emptier(json);
class JsonEmptier {
 public:
  explicit JsonEmptier(nlohmann::ordered_json& json) : json_(&json) {}
  // Nothing to do where there is a status.
  explicit JsonEmptier(absl::StatusOr<nlohmann::ordered_json>& json)
      : json_(json.ok() ? &*json : nullptr) {}
  JsonEmptier(const JsonEmptier&) = delete;
  JsonEmptier& operator=(const JsonEmptier&) = delete;
  ~JsonEmptier();

  void Release() { json_ = nullptr; }

 private:
  nlohmann::ordered_json* json_;
};

}  // namespace meshift

#endif  // MESHIFT_BASE_PARSE_JSON_H_
