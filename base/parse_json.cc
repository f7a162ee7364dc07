#include "base/parse_json.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "base/status.h"

namespace meshift {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxDepth = 100;
constexpr int64_t kMaxMembers = 10'000;  // ordered_json looks through all of an object for a key

// What can be said of JSON without parsing it.
struct Outline {
  int depth = 0;        // of brackets
  int64_t members = 0;  // of all objects: each has one colon
  int64_t most = 0;     // of one object
  bool has_nul = false;
};

Outline OutlineOf(std::string_view text) {
  Outline outline;
  int depth = 0;
  std::array<int64_t, kMaxDepth + 1> open = {};  // members of the objects around, by depth
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\0') outline.has_nul = true;
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == ':') {
      ++outline.members;
      if (depth >= 0) outline.most = std::max(outline.most, ++open[depth]);
    } else if (c == '[' || c == '{') {
      if (++depth > outline.depth) outline.depth = depth;
      if (depth > kMaxDepth) return outline;
      if (depth >= 0) open[depth] = 0;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return outline;
}

int64_t CountMembers(const Json& json) {
  if (!json.is_structured()) return 0;
  int64_t count = json.is_object() ? static_cast<int64_t>(json.size()) : 0;
  for (const Json& item : json) count += CountMembers(item);
  return count;
}

// The first key that some object has a second time.
std::string KeyThatStandsTwice(std::string_view text) {
  std::string twice;
  std::vector<absl::flat_hash_set<std::string>> open;  // keys of the objects around
  const auto look = [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event == Json::parse_event_t::key && twice.empty()) {
      const std::string& key = value.get_ref<const std::string&>();
      if (!open.back().insert(key).second) twice = key;
    }
    return true;
  };
  const Json json = Json::parse(text, look, /*allow_exceptions=*/false);
  return json.is_discarded() ? "" : twice;
}

}  // namespace

absl::StatusOr<nlohmann::ordered_json> ParseJsonText(std::string_view text) {
  const Outline outline = OutlineOf(text);
  if (outline.depth > kMaxDepth) return InvalidArgument("JSON is nested deeper than {}", kMaxDepth);
  if (outline.most > kMaxMembers) {
    return InvalidArgument("a JSON object has {} members; at most {} are read", outline.most,
                           kMaxMembers);
  }
  // The parser would take a NUL for the end.
  if (outline.has_nul) return Json(Json::value_t::discarded);
  Json json = Json::parse(text, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (!json.is_discarded() && CountMembers(json) != outline.members) {
    return InvalidArgument("key '{}' stands twice in one object", KeyThatStandsTwice(text));
  }
  return json;
}

}  // namespace meshift
