#include "cli/rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/clipped.h"
#include "base/status.h"
#include "cli/glob.h"
#include "cli/json.h"
#include "cli/text.h"
#include "meshift/status.h"

namespace meshift::cli {
namespace {

absl::Status CheckKeys(const Json& object, absl::Span<const std::string_view> known) {
  for (const auto& [key, value] : object.items()) {
    if (key == "comment" || std::find(known.begin(), known.end(), key) != known.end()) continue;
    return InvalidArgument("unknown key '{}'; expected {}", Clipped(key, 60),
                           fmt::join(known, ", "));
  }
  return absl::OkStatus();
}

absl::StatusOr<ExpertOwners> ReadOwners(const Json& json, std::string_view key) {
  const auto wrong = [&](const Json& value) {
    return InvalidArgument("{} has {}; it must be a list of lists of coordinates, one per expert",
                           key, JsonQuote(value));
  };
  if (!json.is_array() || json.empty()) return wrong(json);
  ExpertOwners owners;
  for (const Json& list : json) {
    if (!list.is_array() || list.empty()) return wrong(list);
    Placement::Sizes& coordinates = owners.emplace_back();
    for (const Json& coordinate : list) {
      MESHIFT_ASSIGN_OR_RETURN(coordinates.emplace_back(),
                               JsonInt(coordinate, fmt::format("a coordinate in {}", key)));
    }
  }
  return owners;
}

absl::StatusOr<Rule> ReadRule(const Json& json) {
  constexpr std::array<std::string_view, 5> kKeys = {"match", "from", "to", "from_owners",
                                                     "to_owners"};
  if (!json.is_object()) return InvalidArgument("{} is not an object", JsonQuote(json));
  MESHIFT_RETURN_IF_ERROR(CheckKeys(json, kKeys));
  Rule rule;
  for (const auto& [key, text] :
       {std::pair{kKeys[0], &rule.match}, {kKeys[1], &rule.from}, {kKeys[2], &rule.to}}) {
    MESHIFT_ASSIGN_OR_RETURN(const Json* value, JsonMember(json, key));
    MESHIFT_ASSIGN_OR_RETURN(*text, JsonString(*value, key));
  }
  MESHIFT_RETURN_IF_ERROR(CheckShown(rule.match, "match"));
  for (const auto& [key, owners] :
       {std::pair{kKeys[3], &rule.from_owners}, {kKeys[4], &rule.to_owners}}) {
    if (!json.contains(key)) continue;
    MESHIFT_ASSIGN_OR_RETURN(*owners, ReadOwners(json[std::string(key)], key));
  }
  return rule;
}

}  // namespace

absl::StatusOr<std::vector<Rule>> ParseRules(std::string_view text) {
  MESHIFT_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  if (!json.is_object()) return InvalidArgument("rules are an object, not {}", JsonQuote(json));
  constexpr std::array<std::string_view, 1> kKeys = {"rules"};
  MESHIFT_RETURN_IF_ERROR(CheckKeys(json, kKeys));
  MESHIFT_ASSIGN_OR_RETURN(const Json* list, JsonMember(json, "rules"));
  if (!list->is_array() || list->empty()) {
    return InvalidArgument("rules is {}; it must be a list of at least one rule", JsonQuote(*list));
  }
  std::vector<Rule> rules;
  for (const Json& item : *list) {
    absl::StatusOr<Rule> rule = ReadRule(item);
    if (!rule.ok()) return Annotate(rule.status(), fmt::format("rule {}", rules.size()));
    rules.push_back(*std::move(rule));
  }
  return rules;
}

absl::StatusOr<std::vector<Rule>> ReadRules(const std::string& path, Io& io) {
  MESHIFT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, io));
  absl::StatusOr<std::vector<Rule>> rules = ParseRules(text);
  if (!rules.ok()) return BadFile(path, rules.status());
  return rules;
}

absl::StatusOr<size_t> FindRule(const std::vector<Rule>& rules, const std::string& name,
                                int64_t* steps) {
  for (size_t i = 0; i < rules.size(); ++i) {
    if (GlobMatches(rules[i].match, name, steps)) return i;
  }
  return InvalidArgument("none of the {} rules matches '{}'", rules.size(), name);
}

}  // namespace meshift::cli
