// Reading other people's JSON without a surprise: no exception, no deep recursion, one message.
// Include in .cc files only: the JSON header is slow to compile.
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

// INVALID_ARGUMENT where `text` is not one JSON value, is nested deeper than 100, or has a key
// twice.
absl::StatusOr<Json> ParseJson(std::string_view text);

// One line; bytes that are not UTF-8 are replaced.
std::string JsonText(const Json& json);
// The same, cut short: for messages.
std::string JsonQuote(const Json& json);

// The value as an int64; INVALID_ARGUMENT "<what> is 1.5; it must be an integer".
absl::StatusOr<int64_t> JsonInt(const Json& json, std::string_view what);
absl::StatusOr<std::string> JsonString(const Json& json, std::string_view what);
// INVALID_ARGUMENT "name has 300 bytes; at most 200 are read" where text that is shown later,
// whole, is longer than kMaxShown (cli/text.h).
absl::Status CheckShown(std::string_view text, std::string_view what);
// The member `key` of an object; INVALID_ARGUMENT "key 'mesh' is missing" where it is not there.
absl::StatusOr<const Json*> JsonMember(const Json& object, std::string_view key);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_JSON_H_
