// A rules file: what each parameter of a model goes from and to, by its name.
//
//   {"rules": [{"match": "*.mlp.experts.*", "from": "EP,S(0)", "to": "EP,EP"},
//              {"match": "*", "from": "S(0),S(0)", "to": "R,TP"}]}
//
// The first rule whose shell pattern (cli/glob.h, 200 bytes at most) matches the whole name counts.
// `from` and `to` are placements, with the words TP and EP (cli/model.h) for the parameter's own
// dims.
#ifndef MESHIFT_CLI_RULES_H_
#define MESHIFT_CLI_RULES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/io.h"

namespace meshift::cli {

struct Rule {
  std::string match;
  std::string from;
  std::string to;
};

// INVALID_ARGUMENT names the rule, the value and what is wrong; a key that is not known is an
// error, but for "comment".
absl::StatusOr<std::vector<Rule>> ParseRules(std::string_view json);
// The same from a file; BadFile errors.
absl::StatusOr<std::vector<Rule>> ReadRules(const std::string& path, Io& io);

// The index of the rule for a parameter; INVALID_ARGUMENT, which names it, where none matches.
// `steps`: where given, what was compared is added to it.
absl::StatusOr<size_t> FindRule(const std::vector<Rule>& rules, const std::string& name,
                                int64_t* steps = nullptr);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_RULES_H_
