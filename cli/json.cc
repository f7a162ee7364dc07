#include "cli/json.h"

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/clipped.h"
#include "base/parse_json.h"
#include "base/status.h"
#include "cli/text.h"
#include "meshift/status.h"

namespace meshift::cli {

absl::StatusOr<Json> ParseJson(std::string_view text) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    return InvalidArgument("the text is empty; one JSON object is expected");
  }
  MESHIFT_ASSIGN_OR_RETURN(Json json, ParseJsonText(text));
  if (json.is_discarded()) {
    return InvalidArgument("not one JSON value, or truncated: {}", Clipped(text, 40));
  }
  return json;
}

std::string JsonText(const Json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

std::string JsonQuote(const Json& json) {
  const std::string text = JsonText(json);
  return text.size() > 60 ? Clipped(text, 57) : text;
}

absl::StatusOr<int64_t> JsonInt(const Json& json, std::string_view what) {
  const bool fits = json.is_number_unsigned()
                        ? json.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()}
                        : json.is_number_integer();
  if (fits) return json.get<int64_t>();
  return InvalidArgument("{} is {}; it must be an integer below 2^63", what, JsonQuote(json));
}

absl::StatusOr<std::string> JsonString(const Json& json, std::string_view what) {
  if (json.is_string()) return json.get<std::string>();
  return InvalidArgument("{} is {}; it must be a string", what, JsonQuote(json));
}

absl::Status CheckShown(std::string_view text, std::string_view what) {
  if (text.size() <= kMaxShown) return absl::OkStatus();
  return InvalidArgument("{} has {} bytes; at most {} are read", what, text.size(), kMaxShown);
}

absl::StatusOr<const Json*> JsonMember(const Json& object, std::string_view key) {
  const auto member = object.find(key);
  if (member == object.end()) return InvalidArgument("key '{}' is missing", key);
  return &*member;
}

}  // namespace meshift::cli
