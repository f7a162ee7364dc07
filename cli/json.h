// Reads untrusted JSON. Wrong text, or a value of the wrong type, gives INVALID_ARGUMENT and no
// exception; only std::bad_alloc may be thrown. The destructor of a Json aborts the process if
// it gets no memory; JsonEmptier (base/parse_json.h) avoids that. Include in .cc files only: the
// JSON header is slow to compile.
//
//   MESHIFT_ASSIGN_OR_RETURN(const Json json, ParseJson(line));
//   MESHIFT_ASSIGN_OR_RETURN(const int64_t size, JsonInt(json[1], "size"));
#ifndef MESHIFT_CLI_JSON_H_
#define MESHIFT_CLI_JSON_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace meshift::cli {

using Json = nlohmann::ordered_json;

// INVALID_ARGUMENT if `text` is not one JSON value, is nested deeper than 100, has a number beyond
// the range of double, or has an object with a repeated key or more than 10,000 members.
absl::StatusOr<Json> ParseJson(std::string_view text);

// The value on one line. Bytes that are not UTF-8 are replaced.
std::string JsonText(const Json& json);
// The same, cut at 60 bytes for messages.
std::string JsonQuote(const Json& json);

// The value as an int64; INVALID_ARGUMENT "<what> is 1.5; it must be an integer below 2^63".
absl::StatusOr<int64_t> JsonInt(const Json& json, std::string_view what);
absl::StatusOr<std::string> JsonString(const Json& json, std::string_view what);
// For text that is shown whole later: INVALID_ARGUMENT "name has 300 bytes; at most 200 are read"
// if it is longer than kMaxShown (cli/text.h).
absl::Status CheckShown(std::string_view text, std::string_view what);
// The member `key` of an object; INVALID_ARGUMENT "key 'mesh' is missing" if there is none.
absl::StatusOr<const Json*> JsonMember(const Json& object, std::string_view key);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_JSON_H_
