// Reads a rules file: the source and target placements of each parameter of a model, by its name.
//
//   {"rules": [{"match": "*.mlp.experts.*", "from": "EP,S(0)", "to": "EP,EP"},
//              {"match": "*", "from": "S(0),S(0)", "to": "R,TP"}]}
//
// A parameter takes the first rule whose shell pattern (cli/glob.h, at most 200 bytes) matches its
// whole name. `from` and `to` are placements, which may contain the words TP and EP (cli/model.h).
// `from_owners` and `to_owners` say which coordinates of the mesh dim EP hold each expert, by its
// index: [[0], [0], [1, 3]]. Without them, experts are in equal chunks. Neither is checked here,
// since that depends on the parameter and the mesh.
#ifndef MESHIFT_CLI_RULES_H_
#define MESHIFT_CLI_RULES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/io.h"
#include "cli/model.h"

namespace meshift::cli {

struct Rule {
  std::string match;  // the pattern
  std::string from;
  std::string to;
  ExpertOwners from_owners = {};
  ExpertOwners to_owners = {};
};

// INVALID_ARGUMENT describes the mistake, and gives the number of the rule, from 0, if it is in
// one. An unknown key is an error, except "comment", and so is a missing key of a rule or an empty
// list of rules.
absl::StatusOr<std::vector<Rule>> ParseRules(std::string_view json);
// The same for a file, "-": io.in. All errors are those of BadFile (cli/io.h).
absl::StatusOr<std::vector<Rule>> ReadRules(const std::string& path, Io& io);

// The index of the rule for a parameter; INVALID_ARGUMENT, which names it, if none matches.
// `steps`: if not null, the number of comparisons is added to it.
absl::StatusOr<size_t> FindRule(const std::vector<Rule>& rules, const std::string& name,
                                int64_t* steps = nullptr);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_RULES_H_
