// Rules files and their patterns: the first matching rule counts, a pattern that quotes a name
// matches it, and matching takes at most the product of the lengths.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/glob.h"
#include "cli/rules.h"
#include "cli/text.h"
#include "fuzz/fuzz.h"

namespace {

namespace fuzz = meshift::fuzz;
namespace cli = meshift::cli;

// A pattern that matches only `name`.
std::string Quoted(std::string_view name) {
  std::string glob;
  for (const char c : name) {
    glob += '\\';
    glob += c;
  }
  return glob;
}

void CheckGlob(const std::string& glob, const std::string& name) {
  int64_t steps = 0;
  cli::GlobMatches(glob, name, &steps);
  const auto most = static_cast<int64_t>((glob.size() + 2) * (name.size() + 2));
  fuzz::Require(steps <= most, "matching is bounded by a product of lengths", glob);
  fuzz::Require(cli::GlobMatches(Quoted(name), name), "a quoted name matches itself", name);
  fuzz::Require(cli::GlobMatches("*" + Quoted(name) + "*", "x" + name + "y"),
                "stars match the text around a name", name);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::Text(data, size);
  // Two lines are a pattern and a name.
  const size_t end = text.find('\n');
  if (end != std::string_view::npos && end <= 200 && text.size() - end <= 200) {
    CheckGlob(std::string(text.substr(0, end)), std::string(text.substr(end + 1)));
  }
  const auto rules = cli::ParseRules(text);
  if (!rules.ok()) {
    fuzz::Require(!rules.status().message().empty(), "an error has a message");
    return 0;
  }
  fuzz::Require(!rules->empty(), "there is a rule");
  for (const cli::Rule& rule : *rules) {
    fuzz::Require(rule.match.size() <= cli::kMaxShown, "a pattern is short", rule.match);
    CheckGlob(rule.match, rules->front().match);
  }
  for (const std::string& name : {std::string(), std::string("model.layers.0.mlp.experts.7.w"),
                                  rules->back().match, rules->front().from}) {
    const auto found = cli::FindRule(*rules, name);
    size_t first = 0;
    while (first < rules->size() && !cli::GlobMatches((*rules)[first].match, name)) ++first;
    fuzz::Require(found.ok() == (first < rules->size()), "a rule is found where one matches", name);
    fuzz::Require(!found.ok() || *found == first, "the first one counts", name);
  }
  return 0;
}
